#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What files cost: pack and unpack of a cache of 0.5 GB over `kvarc bench`.

files.py [CACHE.safetensors [PROFILE.kvp]]; the command is $KVARC. BYTES=500000000,
ROUNDS=5, LEVELS="0 1 2", THREADS="1 2"; FOLDER is where the files are, /dev/shm
if there is one: then no disk is measured.

The cache is tiled from a real one and in the page cache. Each round runs bench,
pack and unpack once, with the same options; rows have the medians. Exit status 1:
a row is above 1.15.
"""
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import common as c
import memory

BYTES = int(os.environ.get('BYTES', '500000000'))
ROUNDS = int(os.environ.get('ROUNDS', '5'))
LEVELS = os.environ.get('LEVELS', '0 1 2').split()
THREADS = os.environ.get('THREADS', '1 2').split()
FOLDER = os.environ.get('FOLDER', '/dev/shm' if os.path.isdir('/dev/shm')
                        else tempfile.gettempdir())
TARGET = 1.15


def run(*arguments):
    """Seconds by the clock, and of processors."""
    before = c.processor_seconds(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    subprocess.run([c.KVARC, *arguments], check=True)
    seconds = time.perf_counter() - start
    return seconds, c.processor_seconds(resource.RUSAGE_CHILDREN) - before


def fastest_kernels(path):
    """bench takes them in this order, other commands the first ones."""
    out = c.kvarc('bench', '--json', '-0', '-T', '1', '--repeat', '1', path)
    return json.loads(out.splitlines()[0])['isa']


def one_round(big, folder, isa, level, threads, options, found):
    kva, back = (os.path.join(folder, n) for n in ('big.kva', 'back'))
    # The first run of bench touches its memory for the first time.
    r = c.bench(big, int(level), isa, threads, 2, options)
    for verb, rate in (('pack', 'encode'), ('unpack', 'decode')):
        base = r['raw_bytes'] / r[rate + '_bytes_per_second']
        args = ('-' + level, '-o', kva, big) if verb == 'pack' else \
            ('-o', back, kva)
        found.setdefault((level, threads, verb), []).append(
            (base, *run(verb, '-q', '-T', threads, *options, *args)))
    if not memory.same(big, back):
        sys.exit('not the same after unpack')
    # Names that are free: nothing old is removed on the clock.
    os.unlink(kva)
    os.unlink(back)


def main():
    path, real = c.cache_path(sys.argv[1:])
    profile = sys.argv[2] if len(sys.argv) > 2 else c.SAMPLE + 'level2.kvp'
    found = {}
    c.machine()
    isa = fastest_kernels(path)
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        big = os.path.join(folder, 'big')
        memory.tile_safetensors(path, big, BYTES, rope=True)
        for _ in range(ROUNDS):
            for level in LEVELS:
                for threads in THREADS:
                    one_round(big, folder, isa, level, threads,
                              ('--profile', profile) if int(level) > 1 else (),
                              found)
    print('# medians of %d rounds in %s: seconds of bench, then of the command '
          '(of its processors)' % (ROUNDS, FOLDER))
    for (level, threads, verb), rows in found.items():
        base, seconds, processors = map(statistics.median, zip(*rows))
        ratio = statistics.median(s / b for b, s, _ in rows)
        c.judge('%-6s level %s -T%s: %.3f, %.3f (%.3f)' % (
            verb, level, threads, base, seconds, processors),
            '%.2f' % ratio, '<= %.2f' % TARGET if real else '',
            ratio <= TARGET if real else None, 'x')
    sys.exit(bool(c.missed))


if __name__ == '__main__':
    main()
