#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Where the time of levels 0 to 3 goes: shares of samples of `kvarc bench`.

limits.py [CACHE.safetensors [PROFILE.kvp]]; the command is $KVARC. Levels 2 and 3 are
measured as far as the profile has them; without one it is that of the sample, which has
level 2. Needs perf; its software clock suffices. Comparing and clearing the decoded
elements, which `kvarc bench` does between its measurements, is left out. The rate of the
hash alone is beside them: every decoded byte and every stored byte is hashed once, to
write and to read.
"""
import ctypes
import ctypes.util
import os
import subprocess
import sys
import tempfile
import time

import common as c

REPEAT = 60
BLOCK = 96 << 10  # a chunk of 256 tokens with 3 heads of 64 channels
# Words in the names of functions, or whole names behind '='; in front of a colon, of libraries.
GROUPS = (('left out', ('libc:memcmp', 'libc:memset')),
          ('hash', ('libxxhash:',)),
          ('Zstandard', ('libzstd:',)),
          ('copies', ('libc:memmove', 'libc:memcpy')),
          ('operating system', ('[kernel',)),
          ('decoder', ('=get', 'cells_get', 'grid_decode', 'get_bf16', 'get_layer',
                       'get_last')),
          ('encoder', ('=put', 'cells_put', 'looked_up_each', 'encode_both', 'grid_encode',
                       'put_bf16', 'put_layer', 'put_last', 'put_deeper')),
          ('fit', ('_fit', 'top_costs', 'find_tops', 'best_top', 'tables_', 'near_sums',
                   'sort_floats', 'fit_params', 'make_tables')),
          ('sums of predictions', ('slot_rows',)),
          ('slots, decoded', ('bf16_read',)),
          ('slots, to encode', ('bf16_known',)),
          ('contexts', ('rotated_tokens', 'rotated_contexts', 'rotate_row', 'cells_rotate',
                        'fixed_context', 'contexts_open', 'coarse_context')),
          ('other', ('',)))


def group_of(library, name):
    for group, marks in GROUPS:
        for mark in marks:
            where, _, what = mark.rpartition(':')
            found = name.split()[-1] == what[1:] if what[:1] == '=' else \
                what in name or what in library
            if where in library and found:
                return group
    return 'other'


def shares(path, level, profile):
    """Samples by group, without those that are left out."""
    options = ('--profile', profile) if level > 1 else ()
    with tempfile.TemporaryDirectory() as folder:
        data = os.path.join(folder, 'perf.data')
        subprocess.run(['perf', 'record', '-q', '-e', 'cpu-clock', '-F', '4000', '-o', data,
                        c.KVARC, 'bench', '-%d' % level, '-T', '1', '--isa', 'avx512',
                        '--repeat', str(REPEAT), *options, path], stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, check=True)
        out = subprocess.run(['perf', 'report', '-i', data, '--stdio', '-F', 'sample,dso,sym',
                              '-t', '|'], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                             check=True)
    got = {}
    for line in out.stdout.decode().splitlines():
        part = [x.strip() for x in line.split('|')]
        if line.startswith('#') or len(part) < 3:
            continue
        group = group_of(part[1], part[2])
        got[group] = got.get(group, 0) + int(part[0])
    got.pop('left out', None)
    return got


def hash_rate():
    """GB/s of the fastest XXH3 that the library calls, on memory in the cache."""
    lib = ctypes.CDLL(ctypes.util.find_library('xxhash'))
    function = getattr(lib, 'XXH3_128bits_dispatch', lib.XXH3_128bits)
    function.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    block, best = bytes(BLOCK), 1e9
    for _ in range(2000):
        start = time.perf_counter()
        function(block, BLOCK)
        best = min(best, time.perf_counter() - start)
    return BLOCK / best / 1e9


def main():
    path, _ = c.cache_path(sys.argv[1:])
    c.machine()
    print('%-52s %10.1f GB/s' % ('XXH3 of 96 KiB in the cache', hash_rate()))
    profile = sys.argv[2] if len(sys.argv) > 2 else c.SAMPLE + 'level2.kvp'
    for level in (0, 1, *c.levels_of(profile)):
        got = shares(path, level, profile)
        total = sum(got.values())
        for group, n in sorted(got.items(), key=lambda x: -x[1]):
            print('%-52s %10.1f %%' % ('level %d, %s' % (level, group), 100 * n / total))


if __name__ == '__main__':
    main()
