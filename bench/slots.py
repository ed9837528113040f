#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Slots of llama.cpp with the weights that it used: slots.py SLOTS [PROFILES [SLOT]]

The command is $KVARC. SLOTS is the folder that make_slots.py filled; profiles of
level 6, and of $LEVELS (for example 5,6,7), are trained on its wiki-*.slot into
the folder PROFILES (kept, default: temporary) unless they are there. Measured are
its test-*.slot and SLOT. The weights are those of the Q4_1 GGUF as they are, at
most 15 bits of activations. Rows count the whole .kva file, unpacked and
compared, over the bytes of the whole slot; model and profile are not counted, the
profile's size is stated.
"""
import glob
import os
import sys
import tempfile

import common as c

LEVELS = [int(n) for n in os.environ.get('LEVELS', '6').split(',')]
TARGETS = {6: 6.65}


def measure(path, level, model, profile, folder):
    what = '%s, level %d' % (os.path.basename(path), level)
    bits = c.packed_bits(path, folder, '-%d' % level, '--model', model,
                         '--profile', profile)
    target = TARGETS.get(level)
    c.judge(what, '%.3f' % bits, '<= %.2f' % target if target else '',
            bits <= target if target else None, 'bits, %.2fx' % (16 / bits))


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    slots = sys.argv[1]
    wiki = sorted(glob.glob(os.path.join(slots, 'wiki-*.slot')))
    tests = sorted(glob.glob(os.path.join(slots, 'test-*.slot')))
    tests += [p for p in sys.argv[3:] or [c.SLOT] if os.path.exists(p)]
    c.machine()
    with tempfile.TemporaryDirectory() as folder:
        kept = sys.argv[2] if len(sys.argv) > 2 else folder
        os.makedirs(kept, exist_ok=True)
        for level in LEVELS:
            profile = c.trained(kept, 'slot%d' % level, wiki, '--model',
                                c.gguf(), '--level', str(level))
            for path in tests:
                measure(path, level, c.gguf(), profile, folder)
    c.finish()


if __name__ == '__main__':
    main()
