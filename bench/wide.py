#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Levels 1 to 3 on 8 KV heads of 128 channels: size of profiles, bits, speed; a single chunk.

wide.py [LAYERS [TOKENS]] (4 and 4096); the command is $KVARC, beside which bench/chunk_threads is
where it was built. Needs numpy.

The cache is SYNTHETIC: keys and values are linear functions of a hidden state that
changes from layer to layer, plus noise, all normally distributed; keys are rotated by RoPE.
So the speeds and the sizes of profiles are those of the shape; the bits show whether
the models find what was put in, not what a language model would give.
"""
import json
import os
import struct
import subprocess
import sys
import tempfile
import time

import numpy

import common as c

HEADS, CHANNELS, HIDDEN = 8, 128, 384
WIDTH = HEADS * CHANNELS
THETA = 500000.0


def bf16(x):
    """Rounded to the nearest, as bytes."""
    u = numpy.ascontiguousarray(x, numpy.float32).view(numpy.uint32)
    return ((u + 0x7fff + (u >> 16 & 1)) >> 16).astype(numpy.uint16).tobytes()


def turn(x):
    """RoPE in halves: x[token, head, channel]."""
    half = CHANNELS // 2
    freq = THETA ** (-numpy.arange(half) / half)
    angle = numpy.outer(numpy.arange(len(x)), freq)[:, None, :]
    a, b = x[..., :half], x[..., half:]
    return numpy.concatenate((a * numpy.cos(angle) - b * numpy.sin(angle),
                              b * numpy.cos(angle) + a * numpy.sin(angle)), -1)


def make(path, layers, tokens, seed):
    """A cache of the one synthetic model; seed chooses its text."""
    model = numpy.random.default_rng(1)
    text = numpy.random.default_rng(seed)
    h = text.standard_normal((tokens, HIDDEN))
    head, blob, at = {}, [], 0
    for layer in range(layers):
        if layer:
            h = 0.92 * h + 0.39 * text.standard_normal(h.shape)
        for kind in ('key', 'value'):
            # a spectrum that falls, as those of caches do
            w = model.standard_normal((HIDDEN, WIDTH)) / numpy.sqrt(HIDDEN)
            w *= (1 + numpy.arange(HIDDEN))[:, None] ** -0.35 * 3
            scale = numpy.exp(0.5 * model.standard_normal(WIDTH))
            x = h @ w + 0.25 * text.standard_normal((tokens, WIDTH))
            x = (x + 0.5 * model.standard_normal(WIDTH)) * scale
            x = x.reshape(tokens, HEADS, CHANNELS)
            data = bf16((turn(x) if kind == 'key' else x).transpose(1, 0, 2))
            head['layers.%d.%s' % (layer, kind)] = {
                'dtype': 'BF16', 'shape': [HEADS, tokens, CHANNELS],
                'data_offsets': [at, at + len(data)]}
            at += len(data)
            blob.append(data)
    text_head = json.dumps(head).encode()
    with open(path, 'wb') as f:
        f.write(struct.pack('<Q', len(text_head)) + text_head)
        f.writelines(blob)


def row(folder, what, path, *options):
    rates = []  # of the fastest kernels, which come first
    for threads in '1', '2':
        out = json.loads(c.kvarc('bench', '--json', '-T', threads, '--repeat',
                                 '3', *options, path).splitlines()[0])
        rates += [out['encode_bytes_per_second'] / 1e6,
                  out['decode_bytes_per_second'] / 1e6]
    print('%-34s %7.3f bits  MB/s, 1 thread %5.0f %5.0f, 2 threads %5.0f %5.0f'
          % (what, c.packed_bits(path, folder, *options), *rates), flush=True)


def train(folder, name, layers, path, *options):
    out = os.path.join(folder, name + '.kvp')
    start = time.perf_counter()
    done = subprocess.run([c.KVARC, 'train', '-q', '-f', '-o', out, '--rope',
                           '%d,half' % THETA, *options, path], check=False)
    if done.returncode not in (0, 2):  # 2: few tokens, some stages left out
        sys.exit(done.returncode)
    took = time.perf_counter() - start
    print('# %s: %.1f MB a layer, trained in %.0f s' % (
        name, os.path.getsize(out) / 1e6 / layers, took), flush=True)
    return out


def chunk(path, *profile):
    """A single chunk on two threads, and a part of it."""
    program = os.path.join(os.path.dirname(c.KVARC), 'bench', 'chunk_threads')
    if os.path.exists(program):
        subprocess.run([program, path, *profile], check=True)


def main():
    layers = int(sys.argv[1]) if len(sys.argv) > 1 else 4
    tokens = int(sys.argv[2]) if len(sys.argv) > 2 else 4096
    c.machine()
    print('# synthetic cache, bf16, %d layers of %d x %d; encode and decode'
          % (layers, HEADS, CHANNELS))
    with tempfile.TemporaryDirectory() as folder:
        fitted = os.path.join(folder, 'fitted.safetensors')
        path = os.path.join(folder, 'other.safetensors')
        make(fitted, layers, tokens, 2)
        make(path, layers, 1024, 3)
        row(folder, 'level 1', path, '-1')
        chunk(path)
        for name, form in (('head-block', '--head-block'),
                           ('whole layer', '--whole-layer')):
            for level in '2', '3':
                kvp = train(folder, '%s-%s' % (form[2:], level), layers,
                            fitted, '--level', level, form)
                row(folder, 'level %s, %s' % (level, name), path, '-' + level,
                    '--profile', kvp)
                if form == '--head-block':
                    chunk(path, kvp)


if __name__ == '__main__':
    main()
