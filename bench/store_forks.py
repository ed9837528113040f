#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""store_forks.py - bytes of many sessions that begin alike

usage: store_forks.py KVARC [FORKS [PREFIX [TAIL]]]
Makes llama.cpp slots of 30 layers of 192 F16 channels, keys and values, as of SmolLM2-135M: a
prefix of PREFIX tokens (2048), and FORKS (100) slots with TAIL (64) tokens of their own behind it.
Saves all of them and prints the archives' bytes beside those of the prefix and of all tails alone.
"""
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

LAYERS, ROW = 30, 384


def rows(seed, n):
    """n rows for each matrix: about 1, with eight random bits."""
    rng = random.Random(seed)
    out = []
    for _ in range(2 * LAYERS):
        low = rng.randbytes(n * ROW // 2)
        row = bytearray(n * ROW)
        row[0::2] = low
        row[1::2] = bytes(0x38 | b & 0x80 for b in low[::-1])
        out.append(bytes(row))
    return out


def slot(ids, *parts):
    """A sequence file, version 2, whose rows are those of the parts one after another."""
    n = len(ids)
    out = [struct.pack('<3I', 0x67677371, 2, n), struct.pack('<%di' % n, *ids),
           struct.pack('<2I', 1, n), b''.join(struct.pack('<3I', t, 1, 0) for t in range(n)),
           struct.pack('<2I', 0, LAYERS)]
    for i in range(2 * LAYERS):
        out.append(struct.pack('<IQ', 1, ROW))
        out += [part[i] for part in parts]
    return b''.join(out)


def main(kvarc, forks=100, prefix=2048, tail=64):
    with tempfile.TemporaryDirectory(dir='/dev/shm') as folder:
        path, store = folder + '/slot.bin', folder + '/store'

        def save(name, data):
            with open(path, 'wb') as f:
                f.write(data)
            out = subprocess.run([kvarc, 'session', 'save', name, path, '--store', store, '-0',
                                  '--json'], check=True, capture_output=True).stdout
            return json.loads(out)['written_bytes']

        head, head_ids = rows(0, prefix), list(range(prefix))
        alone = save('prefix', slot(head_ids, head))
        total, tails = alone, 0
        for i in range(1, forks + 1):
            ids = [i * 100000 + t for t in range(tail)]
            own = rows(i, tail)
            tails += save('tail/x%d' % i, slot(ids, own))
            total += save('fork/x%d' % i, slot(head_ids + ids, head, own))
        print('prefix alone %d B, tails alone %d B' % (alone, tails))
        print('prefix and %d forks %d B: factor %.4f' % (forks, total, total / (alone + tails)))


if __name__ == '__main__':
    main(os.path.abspath(sys.argv[1]), *map(int, sys.argv[2:]))
