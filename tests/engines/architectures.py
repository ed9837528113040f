#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Caches that llama.cpp makes with models of random weights, one of each architecture.

architectures.py FOLDER        writes NAME.gguf and NAME.slot for each NAME that it prints
architectures.py --run MODEL.gguf SLOT

What the rotary embedding of each is, how channels pair and where norms stand is
llama.cpp's own: a level that runs the model must find its cache predicted.
"""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'data'))
from engine_models import Model, run  # noqa: E402

LAYERS, HEADS, KV_HEADS, CHANNELS, TOKENS = 4, 4, 2, 16, 300
# Of the rope of llama 3: what each frequency is divided by.
FACTORS = (1, 1, 1, 2, 3, 5, 8, 8)
# Name: architecture, norms of heads, biases, factors.
MODELS = {
    'llama': ('llama', False, False, False),
    'llama3': ('llama', False, False, True),
    'qwen2': ('qwen2', False, True, False),
    'qwen3': ('qwen3', True, False, False),
}


def write(path, arch, norms, biases, factors):
    m = Model(path, arch, LAYERS, HEADS, KV_HEADS)
    m.g.add_key_length(CHANNELS)
    m.g.add_value_length(CHANNELS)
    m.g.add_rope_dimension_count(CHANNELS)
    m.norms('', m.width, 'output_norm')
    if factors:
        m.vector('rope_freqs.weight', FACTORS)
    for i in range(LAYERS):
        p = f'blk.{i}.'
        m.norms(p, m.width, 'attn_norm', 'ffn_norm')
        if norms:
            m.norms(p, CHANNELS, 'attn_q_norm', 'attn_k_norm')
        m.attention(p, HEADS, KV_HEADS, CHANNELS)
        if biases:
            m.biases(p, HEADS * CHANNELS, KV_HEADS * CHANNELS)
        m.feed_forward(p)
    m.close()


def main():
    if sys.argv[1:2] == ['--run']:
        run(sys.argv[2], [(i * i * 7 + i * 13 + 5) % 256 for i in range(TOKENS)], 1, sys.argv[3], '')
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    for name, what in MODELS.items():
        model = os.path.join(sys.argv[1], name + '.gguf')
        slot = os.path.join(sys.argv[1], name + '.slot')
        write(model, *what)
        subprocess.run([sys.executable, os.path.abspath(__file__), '--run', model, slot], check=True)
        print(name)


if __name__ == '__main__':
    main()
