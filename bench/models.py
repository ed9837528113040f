#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Levels 4 to 7: a model and profiles of what it leaves, sizes on other caches.

models.py MODEL CALIBRATION TEST [PROFILES]; the command is $KVARC.

MODEL is a GGUF or a folder with config.json and safetensors, CALIBRATION a folder
of its caches (wiki-*.safetensors) of text that is not measured, TEST a cache of it.
Profiles are trained into the folder PROFILES as level5.kvp and so on (kept,
default: temporary) unless they are there. Rows count the whole .kva file, unpacked
and compared; model and profile are not counted, the profile's size is stated.
"""
import glob
import os
import sys
import tempfile

import common as c

# bf16, SmolLM2-135M with weights spread off their 4-bit grid
TARGETS = {5: 3.70, 6: 3.17, 7: 2.90}


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    model, data, test = sys.argv[1:4]
    wiki = sorted(glob.glob(os.path.join(data, 'wiki-*.safetensors')))
    c.machine()
    with tempfile.TemporaryDirectory() as folder:
        kept = sys.argv[4] if len(sys.argv) > 4 else folder
        os.makedirs(kept, exist_ok=True)
        for level, target in TARGETS.items():
            profile = c.trained(kept, 'level%d' % level, wiki, '--model', model,
                                '--level', str(level))
            bits = c.packed_bits(test, folder, '-%d' % level, '--model', model,
                                 '--profile', profile)
            c.judge('level %d' % level, '%.3f' % bits, '<= %.2f' % target,
                    bits <= target, 'bits, %.2fx' % (16 / bits))
            seconds = c.with_model(test, level, model, profile, folder)
            c.judge('  one thread, pack and unpack', '%.1f, %.1f' % seconds[:2],
                    '', None, 'processor seconds')
    c.finish()


if __name__ == '__main__':
    main()
