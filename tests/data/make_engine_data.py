#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes import/engine-*.bin: state files that llama.cpp itself wrote, for models of random weights.

Those called engine-checkpoints- are slots that its server saved, with context checkpoints behind the memory.

    make_engine_data.py [FOLDER]        default: import/ next to this script

Needs the Python packages numpy, gguf (0.19) and xllamacpp (2026.10), whose shared library is llama.cpp.
The committed files were made with it; it is not run by the tests. Random weights prove that the file grammar is
right, never a ratio.
"""
import json
import os
import subprocess
import sys
import tempfile
import threading
import urllib.request

from engine_models import Model, hybrid, run

TOKENS, SERVED = 24, 44
here = os.path.dirname(os.path.abspath(__file__))
folder = sys.argv[1] if len(sys.argv) > 1 and not sys.argv[1].startswith('--') else os.path.join(here, 'import')


def sliding_window(path, layers=7, vocabulary=False):
    m = Model(path, 'gemma3', layers, 4, 2, vocabulary=vocabulary)
    m.g.add_key_length(16)
    m.g.add_value_length(16)
    m.g.add_sliding_window(16)
    m.norms('', 64, 'output_norm')
    for i in range(layers):
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


def serve(model, slot, flash):
    """Has a server on loopback read some tokens and save its slot; ends the process."""
    import xllamacpp as x
    watch = threading.Timer(60, lambda: os._exit(3))
    watch.daemon = True
    watch.start()
    p = x.CommonParams()
    p.model.path = model
    p.n_ctx, p.n_parallel, p.n_predict, p.warmup, p.n_batch, p.n_ubatch = 512, 1, 1, False, 16, 16
    p.slot_save_path, p.endpoint_slots = os.path.join(os.path.dirname(os.path.abspath(slot)), ''), True
    kind = x.llama_flash_attn_type
    p.flash_attn_type = kind.LLAMA_FLASH_ATTN_TYPE_ENABLED if flash else kind.LLAMA_FLASH_ATTN_TYPE_DISABLED
    server = x.Server(p)

    def post(path, body):
        request = urllib.request.Request(server.listening_address + path, json.dumps(body).encode(),
                                         {'Content-Type': 'application/json'})
        urllib.request.urlopen(request, timeout=60).read()

    post('/completion', {'prompt': [(i * i * 7 + i * 13 + 5) % 256 for i in range(SERVED)], 'n_predict': 1,
                         'id_slot': 0, 'cache_prompt': True, 'temperature': 0})
    post('/slots/0?action=save', {'filename': os.path.basename(slot)})
    os._exit(0)


if sys.argv[1:2] == ['--serve']:
    serve(sys.argv[2], sys.argv[3], sys.argv[4] == 'flash')
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
    path = os.path.join(tmp, 'served.gguf')
    for make, flash, name in ((lambda p: sliding_window(p, 6, True), 'flash', 'window'),
                              (lambda p: sliding_window(p, 6, True), 'plain', 'window-vtrans'),
                              (lambda p: hybrid(p, vocabulary=True), 'flash', 'hybrid')):
        make(path)
        subprocess.run([sys.executable, os.path.abspath(__file__), '--serve', path,
                        os.path.join(folder, f'engine-checkpoints-{name}.bin'), flash], check=True, stderr=subprocess.DEVNULL,
                       timeout=120)
