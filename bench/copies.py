#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What pack -0 and unpack cost next to a copy: processor time of a cache of 0.5 GB.

copies.py [CACHE.safetensors]; the command is $KVARC. BYTES=471000000, ROUNDS=7,
THREADS="1 2"; FOLDERS="/dev/shm /var/tmp": where the files are, in turn.

The cache is tiled from a real one and in the page cache; outputs have new names. Each
round copies it, packs it and unpacks the archive. In a file system in memory that is
over `cp`, elsewhere over `cp` and `sync` of the copy, as the command synchronises what it
writes. Rows have the fastest of the rounds, of user and system; with two threads there is
no target. Exit status 1: a row is above 1.6.
"""
import os
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


def main():
    path, real = c.cache_path(sys.argv[1:])
    c.machine()
    for where in FOLDERS:
        if os.path.isdir(where):
            measure(path, real, where)
    sys.exit(bool(c.missed))


if __name__ == '__main__':
    main()
