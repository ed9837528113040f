#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Growth with the number of tokens: bytes, processor time and memory, levels 0 to 3.

growth.py [CACHE.safetensors [PROFILE.kvp]]; the command is $KVARC; TIMES="1 4 16 64"
lengths of the cache, LEVELS="0 1 2". Level 3 needs a profile that has it. FOLDER as in
files.py. Rows: per token, and over the shortest length; memory is anonymous memory.
"""
import os
import resource
import sys
import tempfile

import common as c
import memory
from files import FOLDER

TIMES = [int(n) for n in os.environ.get('TIMES', '1 4 16 64').split()]
LEVELS = os.environ.get('LEVELS', '0 1 2').split()
GROWTH, MOST = 1.02, 16


def measured(*arguments):
    """Anonymous memory at the peak, and processor seconds."""
    before = c.processor_seconds(resource.RUSAGE_CHILDREN)
    peak, _, _ = memory.run(*arguments)
    return peak, c.processor_seconds(resource.RUSAGE_CHILDREN) - before


def main():
    path, real = c.cache_path(sys.argv[1:])
    profile = sys.argv[2] if len(sys.argv) > 2 else c.SAMPLE + 'level2.kvp'
    size = len(c.tensors(path))
    first = {}
    c.machine()
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        big, kva, back = (os.path.join(folder, n)
                          for n in ('big', 'big.kva', 'back'))
        for times in TIMES:
            memory.tile_safetensors(path, big, size * times - size // 2, rope=True)
            for level in LEVELS:
                options = ('--profile', profile) if int(level) > 1 else ()
                packing = measured('pack', '-q', '-f', '-' + level, *options,
                                   '-o', kva, big)
                unpacking = measured('unpack', '-q', '-f', *options, '-o', back,
                                     kva)
                if not memory.same(big, back):
                    sys.exit('not the same after unpack')
                row = [os.path.getsize(kva) / times, packing[1] / times,
                       unpacking[1] / times, packing[0], unpacking[0]]
                base = first.setdefault(level, row)
                growth = row[0] / base[0]
                good = growth <= GROWTH and row[3] - base[3] <= MOST
                c.judge('level %s, %d times: processors %.2f and %.2f, memory %.1f '
                        'and %.1f MiB' % (level, times, row[1] / base[1],
                                          row[2] / base[2], row[3], row[4]),
                        '%.4f' % growth, '<= %.2f' % GROWTH if real else '',
                        good if real else None, 'x')
    sys.exit(bool(c.missed))


if __name__ == '__main__':
    main()
