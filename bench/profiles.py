#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Levels 2 and 3: profiles trained on calibration caches, sizes on others.

profiles.py CALIBRATION [PROFILES]; the command is $KVARC.

CALIBRATION is the folder that make_caches.py filled: wiki-*.safetensors and
code-*.safetensors, of text that is not measured, and long.safetensors. Profiles
are trained into the folder PROFILES (kept, default: temporary) unless they are
there. Rows count the whole .kva file; a profile is counted only where it is
embedded, and its size is stated.
"""
import glob
import os
import sys
import tempfile

import common as c


def row(what, path, folder, target, *options):
    value = c.packed_bits(path, folder, *options)
    c.judge(what, '%.3f' % value, '<= %.2f' % target, value <= target,
            'bits, %.2fx' % (16 / value))


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    data = sys.argv[1]
    wiki = sorted(glob.glob(os.path.join(data, 'wiki-*.safetensors')))
    code = sorted(glob.glob(os.path.join(data, 'code-*.safetensors')))
    long = os.path.join(data, 'long.safetensors')
    test = c.WIKI
    source = os.path.join(os.path.dirname(c.WIKI), 'smollm2-code-a.safetensors')
    c.machine()
    with tempfile.TemporaryDirectory() as folder:
        kept = sys.argv[2] if len(sys.argv) > 2 else folder
        os.makedirs(kept, exist_ok=True)
        head = c.trained(kept, 'head-block', wiki, '--level', '2', '--head-block')
        two = c.trained(kept, 'level2', wiki, '--level', '2')
        plain = c.trained(kept, 'level3', wiki, '--level', '3', '--no-table')
        table = c.trained(kept, 'level3-table', wiki, '--level', '3')
        mixed = c.trained(kept, 'mixed', wiki + code)
        small = os.path.getsize(two)
        c.judge('level 2 profile', '%d' % small, '<= 3145728',
                small <= 3 << 20, 'bytes')
        row('level 2, head-block form', test, folder, 9.90, '-2', '--profile',
            head)
        row('level 2, whole layer', test, folder, 9.03, '-2', '--profile', two)
        row('level 3, two layers below', test, folder, 7.85, '-3', '--profile',
            plain)
        row('level 3, and a token table', test, folder, 7.70, '-3',
            '--profile', table)
        row('no profile, fitted in the file, 2048 tokens', long, folder, 9.70,
            '-2')
        row('code text, mixed profile, level 2', source, folder, 9.32, '-2',
            '--profile', mixed)
        row('code text, mixed profile, level 3', source, folder, 8.00, '-3',
            '--profile', mixed)
    c.finish()


if __name__ == '__main__':
    main()
