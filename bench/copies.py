#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What pack -0 and unpack cost next to a copy: processor time of a cache of 0.5 GB; and pack -1
next to pack -0, of small caches.

copies.py [CACHE.safetensors]; the command is $KVARC. BYTES=471000000, ROUNDS=7,
THREADS="1 2"; FOLDERS="/dev/shm /var/tmp": where the files are, in turn. SMALL=21: rounds of the
small caches; BYTES=0: they alone.

The cache is tiled from a real one and in the page cache; outputs have new names. Each
round copies it, packs it and unpacks the archive. In a file system in memory that is
over `cp`, elsewhere over `cp` and `sync` of the copy, as the command synchronises what it
writes. Rows have the fastest of the rounds, of user and system; with two threads there is
no target. Small caches are the sample of 160 tokens as a slot (3.7 MB) and the first 304 tokens of
the cache (7.0 MB); their rows have the median of the rounds, and the search for RoPE is what pack -1
takes less when --rope says it. Exit status 1: a row is above 1.6; pack -1 of a small cache is above
1.5 of pack -0, or the search above 5 %.
"""
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile

import common as c
import memory

BYTES = int(os.environ.get('BYTES', '471000000'))
ROUNDS = int(os.environ.get('ROUNDS', '7'))
THREADS = os.environ.get('THREADS', '1 2').split()
FOLDERS = os.environ.get('FOLDERS', '/dev/shm /var/tmp').split()
TARGET = 1.6
SMALL = int(os.environ.get('SMALL', '21'))
SMALL_TOKENS, SMALL_TARGET, SEARCH_TARGET = 304, 1.5, 5


def cost(*arguments):
    """Processor seconds of a program."""
    with subprocess.Popen(arguments) as p:
        _, status, used = os.wait4(p.pid, 0)
        p.returncode = status
    if status:
        sys.exit('%s: failed' % ' '.join(arguments))
    return used.ru_utime + used.ru_stime


def in_memory(folder):
    with open('/proc/mounts') as f:
        types = dict(line.split()[1:3] for line in f)
    while folder not in types:
        folder = os.path.dirname(folder)
    return types[folder] == 'tmpfs'


def one_round(big, folder, synced, found):
    copy, kva, back = (os.path.join(folder, n)
                       for n in ('copy', 'big.kva', 'back'))
    script = 'cp "$0" "$1"' + (' && sync "$1"' if synced else '')
    found.setdefault('copy', []).append(cost('sh', '-c', script, big, copy))
    os.unlink(copy)
    for threads in THREADS:
        for verb, args in (('pack', ('-0', '-o', kva, big)),
                           ('unpack', ('-o', back, kva))):
            found.setdefault((verb, threads), []).append(
                cost(c.KVARC, verb, '-q', '-T', threads, *args))
        if not memory.same(big, back):
            sys.exit('not the same after unpack')
        os.unlink(kva)
        os.unlink(back)


def measure(path, real, where):
    synced = not in_memory(os.path.abspath(where))
    found = {}
    with tempfile.TemporaryDirectory(dir=where) as folder:
        big = os.path.join(folder, 'big')
        memory.tile_safetensors(path, big, BYTES)
        with open(big, 'rb') as f:
            os.fsync(f.fileno())
        for _ in range(ROUNDS):
            one_round(big, folder, synced, found)
    base = min(found.pop('copy'))
    print('# %s: %s in %.3f s' % (where, 'cp and sync' if synced else 'cp', base))
    for (verb, threads), rounds in sorted(found.items()):
        ratio = min(rounds) / base
        judged = real and threads == '1'
        c.judge('%s, %s -0 -T %s: %.3f s, median %.3f' % (
            where, verb, threads, min(rounds), sorted(rounds)[len(rounds) // 2]),
            '<= %.1f' % TARGET if judged else '', '%.2f' % ratio,
            ratio <= TARGET if judged else None, 'x')


def cut_safetensors(path, out, tokens):
    """The first tokens of [heads, tokens, channels] tensors."""
    with open(path, 'rb') as f:
        head = json.loads(f.read(struct.unpack('<Q', f.read(8))[0]))
        data = f.read()
    new, parts, at = {}, [], 0
    for name, t in head.items():
        if name == '__metadata__':
            new[name] = t
            continue
        part, axis = data[slice(*t['data_offsets'])], len(t['shape']) // 2
        heads = t['shape'][0] if axis else 1
        step = len(part) // heads
        used = step // t['shape'][axis] * tokens
        t['shape'][axis] = tokens
        t['data_offsets'] = [at, at + heads * used]
        new[name] = t
        parts += [part[i:i + used] for i in range(0, len(part), step)]
        at += heads * used
    text = json.dumps(new).encode()
    with open(out, 'wb') as f:
        f.write(struct.pack('<Q', len(text)) + text + b''.join(parts))


def measure_small(path, rope, folder):
    kva = os.path.join(folder, 'small.kva')
    ways = {'-0': ['-0'], '-1': ['-1'], '-1 --rope': ['-1', '--rope', rope]}
    rounds = {way: [] for way in ways}
    for _ in range(SMALL):
        for way, options in ways.items():
            rounds[way].append(cost(c.KVARC, 'pack', '-q', '-f', '-T', '1', '-o', kva, *options,
                                    path))
    plain, level, given = (statistics.median(rounds[way]) for way in ways)
    size = '%.1f MB' % (os.path.getsize(path) / 1e6)
    c.judge('%s, pack -1: %.1f ms, -0: %.1f ms' % (size, level * 1e3, plain * 1e3),
            '<= %.1f' % SMALL_TARGET, '%.2f' % (level / plain), level / plain <= SMALL_TARGET, 'x')
    search = 100 * (level - given) / level
    c.judge('%s, pack -1, search for RoPE: %.2f ms' % (size, (level - given) * 1e3),
            '<= %d' % SEARCH_TARGET, '%.1f' % search, search <= SEARCH_TARGET, '%')


def measure_small_ones(path, where):
    with tempfile.TemporaryDirectory(dir=where) as folder:
        cut = os.path.join(folder, 'cut.safetensors')
        cut_safetensors(path, cut, SMALL_TOKENS)
        measure_small(c.SAMPLE + 'f16-160.slot', '100000,interleaved,64', folder)
        measure_small(cut, '100000,half,64', folder)


def main():
    path, real = c.cache_path(sys.argv[1:])
    c.machine()
    for where in FOLDERS:
        if os.path.isdir(where) and BYTES:
            measure(path, real, where)
    if real and SMALL:
        measure_small_ones(path, FOLDERS[0])
    sys.exit(bool(c.missed))


if __name__ == '__main__':
    main()
