#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Sizes of archives of two builds, by level.

sizes.py OLD NEW TRAIN FILE...

OLD and NEW are build folders. Each FILE is packed by both at levels 0 to 3, the last two
with a profile that each build trains on TRAIN and that is not counted, and at level 2
with a profile that is fitted to the file and counted; with $MODEL, a GGUF or a folder,
also at levels 4 to 7, with a profile that is fitted to the file. A row is the sum over all
files. Exits with 1 when a level grows by more than 0.35 %, level 7 by more than 0.6 %.
"""
import os
import subprocess
import sys
import tempfile

LIMIT, LIMIT_7 = .0035, .006


def kvarc(build, *arguments):
    status = subprocess.call([os.path.join(build, 'kvarc'), *arguments],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if status not in (0, 2):  # 2: what is few tokens for a profile
        sys.exit(f'{build}: kvarc {" ".join(arguments)}: status {status}')


def commands(work, build, train):
    """Level, what stands behind it in the table, and options."""
    profile = os.path.join(work, build.replace(os.sep, '_') + '.kvp')
    kvarc(build, 'train', '-f', '-o', profile, train)
    rows = [(level, '', []) for level in (0, 1)]
    rows += [(level, 'profile not counted', ['--profile', profile]) for level in (2, 3)]
    rows += [(2, 'fitted to the file', [])]
    if os.environ.get('MODEL'):
        rows += [(level, 'model, fitted to the file', ['--model', os.environ['MODEL']])
                 for level in (4, 5, 6, 7)]
    return rows


def total(work, build, row, files):
    out = os.path.join(work, 'out.kva')
    bytes_of = 0
    for path in files:
        kvarc(build, 'pack', '-f', f'-{row[0]}', *row[2], '-o', out, path)
        bytes_of += os.path.getsize(out)
    return bytes_of


def main():
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    old, new, train, *files = sys.argv[1:]
    worse = 0
    with tempfile.TemporaryDirectory() as work:
        print(f"{'level':5}  {'old bytes':>12}  {'new bytes':>12}  {'change':>8}")
        for a, b in zip(commands(work, old, train), commands(work, new, train)):
            x, y = total(work, old, a, files), total(work, new, b, files)
            worse += y > x * (1 + (LIMIT_7 if a[0] == 7 else LIMIT))
            print(f'{a[0]:5}  {x:12,}  {y:12,}  {100 * (y / x - 1):+7.3f}%  {a[1]}', flush=True)
    sys.exit(worse > 0)


if __name__ == '__main__':
    main()
