#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes import/engine-*.bin: state files that llama.cpp itself wrote, for models of random weights.

    make_engine_data.py [FOLDER]        default: import/ next to this script

Needs the Python packages numpy, gguf (0.19) and xllamacpp (2026.10), whose shared library is llama.cpp.
The committed files were made with it; it is not run by the tests. Random weights prove that the file grammar is
right, never a ratio.
"""
import ctypes as C
import glob
import os
import subprocess
import sys
import tempfile

import gguf
import numpy as np

TOKENS = 24
here = os.path.dirname(os.path.abspath(__file__))
folder = sys.argv[1] if len(sys.argv) > 1 and sys.argv[1] != '--run' else os.path.join(here, 'import')
rng = np.random.default_rng(3)


def weights(*shape):
    return (rng.standard_normal(shape) * 0.05).astype(np.float32)


class Model:
    """A GGUF of random weights without a vocabulary."""

    def __init__(self, path, arch, layers, heads, kv_heads, width=64, ff=64):
        self.g = g = gguf.GGUFWriter(path, arch)
        self.width, self.ff = width, ff
        g.add_context_length(512)
        g.add_embedding_length(width)
        g.add_block_count(layers)
        g.add_feed_forward_length(ff)
        g.add_head_count(heads)
        g.add_head_count_kv(kv_heads)
        g.add_layer_norm_rms_eps(1e-6)
        g.add_rope_freq_base(1e6)
        g.add_vocab_size(256)
        g.add_tokenizer_model('no_vocab')
        self.matrix('token_embd', 256, width)

    def matrix(self, name, *shape):
        self.g.add_tensor(name + '.weight', weights(*shape))

    def norms(self, prefix, size, *names):
        for name in names:
            self.g.add_tensor(f'{prefix}{name}.weight', 1 + weights(size))

    def attention(self, p, heads, kv_heads, channels):
        self.matrix(p + 'attn_q', heads * channels, self.width)
        self.matrix(p + 'attn_k', kv_heads * channels, self.width)
        self.matrix(p + 'attn_v', kv_heads * channels, self.width)
        self.matrix(p + 'attn_output', self.width, heads * channels)

    def feed_forward(self, p):
        self.matrix(p + 'ffn_gate', self.ff, self.width)
        self.matrix(p + 'ffn_up', self.ff, self.width)
        self.matrix(p + 'ffn_down', self.width, self.ff)

    def close(self):
        self.g.write_header_to_file()
        self.g.write_kv_data_to_file()
        self.g.write_tensors_to_file()
        self.g.close()


def sliding_window(path):
    m = Model(path, 'gemma3', 7, 4, 2)
    m.g.add_key_length(16)
    m.g.add_value_length(16)
    m.g.add_sliding_window(16)
    m.norms('', 64, 'output_norm')
    for i in range(7):
        p = f'blk.{i}.'
        m.norms(p, 64, 'attn_norm', 'post_attention_norm', 'ffn_norm', 'post_ffw_norm')
        m.norms(p, 16, 'attn_q_norm', 'attn_k_norm')
        m.attention(p, 4, 2, 16)
        m.feed_forward(p)
    m.close()


def latent(path):
    rank, rope, plain, value, heads = 64, 16, 32, 32, 4
    m = Model(path, 'deepseek2', 2, heads, 1)
    for add, v in ((m.g.add_key_length, rank + rope), (m.g.add_value_length, rank), (m.g.add_key_length_mla, plain + rope),
                   (m.g.add_value_length_mla, value), (m.g.add_kv_lora_rank, rank), (m.g.add_q_lora_rank, 32),
                   (m.g.add_rope_dimension_count, rope), (m.g.add_leading_dense_block_count, 2), (m.g.add_expert_count, 4),
                   (m.g.add_expert_used_count, 2), (m.g.add_expert_feed_forward_length, 32), (m.g.add_expert_shared_count, 1),
                   (m.g.add_expert_weights_scale, 1.0), (m.g.add_expert_group_count, 1), (m.g.add_expert_group_used_count, 1)):
        add(v)
    m.norms('', 64, 'output_norm')
    m.matrix('output', 256, 64)
    for i in range(2):
        p = f'blk.{i}.'
        m.norms(p, 64, 'attn_norm', 'ffn_norm')
        m.norms(p, 32, 'attn_q_a_norm')
        m.norms(p, rank, 'attn_kv_a_norm')
        m.matrix(p + 'attn_q_a', 32, 64)
        m.matrix(p + 'attn_q_b', heads * (plain + rope), 32)
        m.matrix(p + 'attn_kv_a_mqa', rank + rope, 64)
        m.matrix(p + 'attn_k_b', heads, rank, plain)
        m.matrix(p + 'attn_v_b', heads, value, rank)
        m.matrix(p + 'attn_output', 64, heads * value)
        m.feed_forward(p)
    m.close()


def picture(path):
    m = Model(path, 'qwen2vl', 2, 4, 2)
    m.g.add_rope_dimension_sections([2, 3, 3, 0])
    m.norms('', 64, 'output_norm')
    m.matrix('output', 256, 64)
    for i in range(2):
        p = f'blk.{i}.'
        m.norms(p, 64, 'attn_norm', 'ffn_norm')
        m.attention(p, 4, 2, 16)
        for name, size in (('q', 64), ('k', 32), ('v', 32)):
            m.g.add_tensor(f'{p}attn_{name}.bias', weights(size))
        m.feed_forward(p)
    m.close()


def hybrid(path):
    m = Model(path, 'lfm2', 4, 4, [0, 2, 0, 2])
    m.g.add_uint32('lfm2.shortconv.l_cache', 3)
    m.norms('', 64, 'token_embd_norm')
    for i in range(4):
        p = f'blk.{i}.'
        m.norms(p, 64, 'attn_norm', 'ffn_norm')
        if i % 2:
            m.attention(p, 4, 2, 16)
            m.norms(p, 16, 'attn_q_norm', 'attn_k_norm')
        else:
            m.matrix(p + 'shortconv.conv', 64, 3)
            m.matrix(p + 'shortconv.in_proj', 192, 64)
            m.matrix(p + 'shortconv.out_proj', 64, 64)
        m.feed_forward(p)
    m.close()


class Params(C.Structure):
    """Larger than any parameter struct of the library, which takes and returns them by value."""
    _fields_ = [('bytes', C.c_ubyte * 1024)]


class Batch(C.Structure):
    _fields_ = [('n', C.c_int32), ('token', C.POINTER(C.c_int32)), ('embd', C.c_void_p), ('pos', C.POINTER(C.c_int32)),
                ('n_seq', C.POINTER(C.c_int32)), ('seq', C.POINTER(C.POINTER(C.c_int32))), ('logits', C.POINTER(C.c_int8))]


def run(model, sequences, seq_file, session_file):
    """Fills a cache with some tokens a sequence and saves it."""
    import xllamacpp
    lib = C.CDLL(glob.glob(os.path.join(os.path.dirname(xllamacpp.__file__), '*.so'))[0])
    lib.llama_model_default_params.restype = lib.llama_context_default_params.restype = Params
    lib.llama_model_load_from_file.restype = lib.llama_init_from_model.restype = C.c_void_p
    lib.llama_model_load_from_file.argtypes = [C.c_char_p, Params]
    lib.llama_init_from_model.argtypes = [C.c_void_p, Params]
    lib.llama_batch_init.restype = Batch
    lib.llama_decode.argtypes = [C.c_void_p, Batch]
    lib.llama_state_save_file.argtypes = [C.c_void_p, C.c_char_p, C.c_void_p, C.c_size_t]
    lib.llama_state_seq_save_file.argtypes = [C.c_void_p, C.c_char_p, C.c_int32, C.c_void_p, C.c_size_t]
    lib.llama_state_seq_save_file.restype = C.c_size_t
    lib.llama_backend_init()
    loaded = lib.llama_model_load_from_file(model.encode(), lib.llama_model_default_params())
    params = lib.llama_context_default_params()
    # n_ctx, n_batch, n_ubatch, n_seq_max are its first fields
    C.memmove(C.byref(params), (C.c_uint32 * 4)(512 * sequences, 512, 512, sequences), 16)
    context = lib.llama_init_from_model(loaded, params)
    tokens = (C.c_int32 * TOKENS)(*range(100, 100 + TOKENS))
    for s in range(sequences):
        b = lib.llama_batch_init(512, 0, sequences)
        b.n = TOKENS - 7 * s
        for i in range(b.n):
            b.token[i], b.pos[i], b.n_seq[i], b.seq[i][0], b.logits[i] = tokens[i] + s, i, 1, s, i == b.n - 1
        assert lib.llama_decode(context, b) == 0
    if seq_file:
        assert lib.llama_state_seq_save_file(context, seq_file.encode(), 0, tokens, TOKENS)
    if session_file:
        assert lib.llama_state_save_file(context, session_file.encode(), tokens, TOKENS)
    os._exit(0)


if sys.argv[1:2] == ['--run']:
    run(sys.argv[2], int(sys.argv[3]), sys.argv[4], sys.argv[5])

with tempfile.TemporaryDirectory() as tmp:
    for make, sequences, kind, name in ((sliding_window, 1, 'seq', 'window'), (latent, 1, 'seq', 'latent'),
                                        (picture, 1, 'seq', 'picture'), (hybrid, 1, 'seq', 'hybrid'),
                                        (latent, 3, 'session', 'latent-session3'), (hybrid, 1, 'session', 'hybrid-session')):
        path, out = os.path.join(tmp, name + '.gguf'), os.path.join(folder, f'engine-{name}.bin')
        make(path)
        subprocess.run([sys.executable, os.path.abspath(__file__), '--run', path, str(sequences),
                        out if kind == 'seq' else '', out if kind == 'session' else ''], check=True, stderr=subprocess.DEVNULL)
