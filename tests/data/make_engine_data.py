#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes import/engine-*.bin: state files that llama.cpp itself wrote, for models of random weights.

    make_engine_data.py [FOLDER]        default: import/ next to this script

Needs the Python packages numpy, gguf (0.19) and xllamacpp (2026.10), whose shared library is llama.cpp.
The committed files were made with it; it is not run by the tests. Random weights prove that the file grammar is
right, never a ratio.
"""
import os
import subprocess
import sys
import tempfile

from engine_models import Model, run

TOKENS = 24
here = os.path.dirname(os.path.abspath(__file__))
folder = sys.argv[1] if len(sys.argv) > 1 and sys.argv[1] != '--run' else os.path.join(here, 'import')


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
        m.biases(p, 64, 32)
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


if sys.argv[1:2] == ['--run']:
    run(sys.argv[2], range(100, 100 + TOKENS), int(sys.argv[3]), sys.argv[4], sys.argv[5])

with tempfile.TemporaryDirectory() as tmp:
    for make, sequences, kind, name in ((sliding_window, 1, 'seq', 'window'), (latent, 1, 'seq', 'latent'),
                                        (picture, 1, 'seq', 'picture'), (hybrid, 1, 'seq', 'hybrid'),
                                        (latent, 3, 'session', 'latent-session3'), (hybrid, 1, 'session', 'hybrid-session')):
        path, out = os.path.join(tmp, name + '.gguf'), os.path.join(folder, f'engine-{name}.bin')
        make(path)
        subprocess.run([sys.executable, os.path.abspath(__file__), '--run', path, str(sequences),
                        out if kind == 'seq' else '', out if kind == 'session' else ''], check=True, stderr=subprocess.DEVNULL)
