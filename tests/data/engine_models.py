# SPDX-License-Identifier: BSD-3-Clause
"""Models of random weights, and llama.cpp that runs them: for make_engine_data.py and tests/engines/architectures.py.

Needs the Python packages numpy, gguf (0.19) and xllamacpp (2026.10), whose shared library is llama.cpp.
"""
import ctypes as C
import glob
import os

import gguf
import numpy as np

rng = np.random.default_rng(3)


def weights(*shape):
    return (rng.standard_normal(shape) * 0.05).astype(np.float32)


class Model:
    """A GGUF of random weights."""

    def __init__(self, path, arch, layers, heads, kv_heads, width=64, ff=64, vocabulary=False, context=512, words=256):
        self.g = g = gguf.GGUFWriter(path, arch)
        self.width, self.ff = width, ff
        g.add_context_length(context)
        g.add_embedding_length(width)
        g.add_block_count(layers)
        g.add_feed_forward_length(ff)
        g.add_head_count(heads)
        g.add_head_count_kv(kv_heads)
        g.add_layer_norm_rms_eps(1e-6)
        g.add_rope_freq_base(1e6)
        g.add_vocab_size(words)
        if vocabulary:
            self.bytes_vocabulary(words)
        else:
            g.add_tokenizer_model('no_vocab')
        self.matrix('token_embd', words, width)

    def bytes_vocabulary(self, words):
        """Three marks and most bytes: what the server needs to load a model; then words."""
        self.g.add_tokenizer_model('llama')
        self.g.add_token_list(['<unk>', '<s>', '</s>'] + [f'<0x{i:02X}>' for i in range(253)] +
                              [f'w{i}' for i in range(256, words)])
        self.g.add_token_scores([0.0] * words)
        self.g.add_token_types([2, 3, 3] + [6] * 253 + [1] * (words - 256))

    def matrix(self, name, *shape):
        self.g.add_tensor(name + '.weight', weights(*shape))

    def norms(self, prefix, size, *names):
        for name in names:
            self.g.add_tensor(f'{prefix}{name}.weight', 1 + weights(size))

    def vector(self, name, numbers):
        self.g.add_tensor(name, np.array(numbers, np.float32))

    def biases(self, p, queries, keys):
        for name, size in (('q', queries), ('k', keys), ('v', keys)):
            self.vector(f'{p}attn_{name}.bias', weights(size))

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


def hybrid(path, **more):
    """Two layers with states and two with attention; more: of Model."""
    m = Model(path, 'lfm2', 4, 4, [0, 2, 0, 2], **more)
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


def run(model, ids, sequences, seq_file, session_file):
    """Fills a cache with token ids, for each sequence others and fewer, saves it and ends the process."""
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
    tokens = (C.c_int32 * len(ids))(*ids)
    for s in range(sequences):
        b = lib.llama_batch_init(512, 0, sequences)
        b.n = len(ids) - 7 * s
        for i in range(b.n):
            b.token[i], b.pos[i], b.n_seq[i], b.seq[i][0], b.logits[i] = tokens[i] + s, i, 1, s, i == b.n - 1
        assert lib.llama_decode(context, b) == 0
    if seq_file:
        assert lib.llama_state_seq_save_file(context, seq_file.encode(), 0, tokens, len(ids))
    if session_file:
        assert lib.llama_state_save_file(context, session_file.encode(), tokens, len(ids))
    os._exit(0)
