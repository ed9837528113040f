#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Sizes of archives of the first 1 to 64 tokens of caches.

tiny.py [CACHE.safetensors...]

A row is a cache and a number of tokens: bytes of the file, of archives of levels 0 to 3, the last
two with a profile that is fitted to the file where that pays, of level 1 with --as-cache, and of
`zstd -3`, where that program is there. Exits with 1 where an archive is more than 200 bytes
larger than its file, or that of level 1 more than 64 bytes larger than that of level 0.
"""
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

import common

TOKENS = 1, 2, 4, 8, 16, 32, 63, 64


def first_tokens(path, n):
    """The bytes of a cache of the first n tokens; the longest axis of a tensor is that of tokens."""
    with open(path, 'rb') as f:
        head = json.loads(f.read(struct.unpack('<Q', f.read(8))[0]))
        data = f.read()
    parts, at = [], 0
    for name in sorted((k for k in head if k != '__metadata__'),
                       key=lambda k: head[k]['data_offsets']):
        tensor = head[name]
        begin, end = tensor['data_offsets']
        shape = tensor['shape']
        axis = shape.index(max(shape))
        outer = 1
        for extent in shape[:axis]:
            outer *= extent
        row = (end - begin) // outer
        kept = row // shape[axis] * n
        part = b''.join(data[begin + i * row:begin + i * row + kept] for i in range(outer))
        shape[axis] = n
        tensor['data_offsets'] = [at, at + len(part)]
        at += len(part)
        parts.append(part)
    text = json.dumps(head, separators=(',', ':')).encode()
    text += b' ' * (-len(text) % 8)
    return struct.pack('<Q', len(text)) + text + b''.join(parts)


def packed(work, cache, *options):
    out = os.path.join(work, 'out.kva')
    subprocess.run([common.KVARC, 'pack', '-q', '-f', '-o', out, *options, cache], check=True)
    return os.path.getsize(out)


def main():
    if len(sys.argv) > 1 and sys.argv[1].startswith('-'):
        sys.exit(__doc__)
    caches = sys.argv[1:] or [common.cache_path([])[0]]
    zstd = shutil.which('zstd')
    worse = 0
    print(f"{'cache':26} tokens {'file':>9} {'level 0':>9} {'level 1':>9} {'level 2':>9} "
          f"{'level 3':>9} {'as cache':>9} {'zstd -3':>9}")
    with tempfile.TemporaryDirectory() as work:
        cache = os.path.join(work, 'cache.safetensors')
        for path in caches:
            for n in TOKENS:
                with open(cache, 'wb') as f:
                    f.write(first_tokens(path, n))
                whole = os.path.getsize(cache)
                row = [packed(work, cache, f'-{level}') for level in range(4)]
                worse += max(row) > whole + 200 or row[1] > row[0] + 64
                row.append(packed(work, cache, '-1', '--as-cache'))
                compressed = subprocess.run([zstd, '-3', '-c', cache], stdout=subprocess.PIPE,
                                            check=True).stdout if zstd else b''
                row.append(len(compressed))
                print(f'{os.path.basename(path)[:26]:26} {n:6} {whole:9,} ' +
                      ' '.join(f'{x:9,}' for x in row), flush=True)
    sys.exit(worse > 0)


if __name__ == '__main__':
    main()
