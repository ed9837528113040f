#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Archives of predictors that do not see the token, next to levels 2 to 5.

unseen.py MODEL TEST PROFILES CALIBRATION...; the command is $KVARC.

MODEL is a folder with config.json and safetensors, TEST a cache of it, CALIBRATION
caches of other text; profiles of all rows are trained on the same ones, into the
folder PROFILES unless they are there. Rows count the whole .kva file, unpacked and
compared, without profile and model. Processor seconds are of pack and of unpack with
one thread, the conversion of the model's weights included.
"""
import os
import subprocess
import sys
import tempfile

import common as c

# Name, profile, its level, whether there is a model, and its options.
ROWS = (
    ('level 2', 'level2', ('--level', '2'), False, ()),
    ('level 3', 'level3', ('--level', '3'), False, ()),
    ('level 4, sees the token', 'level4', ('--level', '4'), True, ()),
    ('level 5, sees the token', 'level5', ('--level', '5'), True, ()),
    ('top-1', 'top-1', ('--level', '7'), True, ('--predict', 'top-1')),
    ('top-4', 'top-4', ('--level', '7'), True, ('--predict', 'top-4')),
    ('top-16', 'top-16', ('--level', '7'), True, ('--predict', 'top-16')),
    ('embedding', 'embedding', ('--level', '7'), True, ('--predict', 'embedding')),
)


def profile(folder, name, inputs, *options):
    path = os.path.join(folder, name + '.kvp')
    if not os.path.exists(path):
        r = subprocess.run([c.KVARC, 'train', '-q', '-M', '8G', '--held-out', '0', '-o',
                            path, *options, *inputs])
        if r.returncode not in (0, 2):      # 2: "few tokens"
            sys.exit(r.returncode)
    return path


def same(a, b):
    with open(a, 'rb') as x, open(b, 'rb') as y:
        return x.read() == y.read()


def measure(row, model, test, kept, inputs, folder):
    name, file, level, sees, predict = row
    use = ('--model', model, *predict) if sees else ()
    use += '--profile', profile(kept, file, inputs, *level, *use)
    out, back = os.path.join(folder, 'a.kva'), os.path.join(folder, 'back')
    options = '-q', '-f', '-T', '1', *use
    _, pack = c.processor_timed(c.kvarc, 'pack', '-o', out, *level, *options, test)
    _, unpack = c.processor_timed(c.kvarc, 'unpack', '-o', back, *options, out)
    if not same(test, back):
        sys.exit('%s: not the same after unpack' % name)
    c.judge(name, '%.3f' % (os.path.getsize(out) * 8 / c.elements(test)), '', None,
            'bits; processor seconds %.1f, %.1f' % (pack, unpack))


def main():
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    model, test, kept = sys.argv[1:4]
    c.machine()
    os.makedirs(kept, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for row in ROWS:
            measure(row, model, test, kept, sys.argv[4:], folder)
    c.finish()


if __name__ == '__main__':
    main()
