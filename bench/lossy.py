#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Lossy tiers: bits against KL, and speed: lossy.py MODEL IDS CALIBRATION [CACHE]

MODEL is a GGUF or a folder; IDS a folder of eval_ids.py; CALIBRATION one of its caches
(make_caches.py), which transforms of klt are fitted to; CACHE what is timed. The command
is $KVARC; $SEQUENCES, 64 by default, of IDS alike. Takes 20 minutes on 2 cores.

Bits count all bytes of the archives; the profile of klt is not counted, its size is
stated. Bits at a KL are read off the straight line between the two points around it,
KL in logarithms.
"""
import glob
import json
import math
import os
import sys
import tempfile

import common as c

TIERS = {
    'had': ('2', '2.5', '3', '3.5', '4', '4.5', '5'),
    'klt': ('1', '1.5', '2', '2.5', '3', '3.5', '4', '4.5', '5'),
    'tsc': ('3', '4', '5', '6', '8'),
    'vq': ('1', '2', '3', '4'),
    'near': ('0.5', '0.2', '0.1', '0.05'),
}
Q8_0 = 8.5 # bits: 32 numbers of 8 bits and a scale of 16


def evaluate(model, profile, ids):
    names = ' '.join('%s:%s' % (f, r) for f in TIERS for r in TIERS[f])
    out = c.kvarc('eval', '--json', '--model', model, '--profile', profile,
                  '--sequences', os.environ.get('SEQUENCES', '64'),
                  '--tier', names, *sorted(glob.glob(os.path.join(ids, '*.txt'))))
    rows = [json.loads(line) for line in out.splitlines()]
    return [r for r in rows if r.get('type') == 'tier']


def bits_at(points, kl):
    """Of points (bits, KL); None where they are all on one side."""
    points = sorted(points)
    for (b0, k0), (b1, k1) in zip(points, points[1:]):
        if k0 >= kl >= k1 > 0:
            part = math.log(k0 / kl) / math.log(k0 / k1)
            return b0 + part * (b1 - b0)
    return None


def show(rows):
    print('%-12s %7s %10s %21s %8s %7s' % ('tier', 'bits', 'mean KL',
                                           '95 % interval', 'worst', 'top-1'))
    for r in rows:
        print('%-12s %7.3f %10.3g %10.3g-%-10.3g %8.3g %6.1f %%' % (
            r['tier'], r['bits_per_element'], r['mean_kl'], r['low_kl'],
            r['high_kl'], r['worst_kl'], 100 * r['agreement']))


def judge(rows):
    points = {f: [(r['bits_per_element'], r['mean_kl']) for r in rows
                  if r['tier'].split(':')[0] == f] for f in TIERS}
    at = {f: bits_at(points[f], 1e-2) for f in TIERS}
    for f in TIERS:
        for kl in 1e-1, 1e-2, 1e-3:
            bits = bits_at(points[f], kl)
            c.judge('%s: bits at a mean KL of %g' % (f, kl), '',
                    'none' if bits is None else '%.2f' % bits, None)
    c.judge('at 1e-2: klt < had < tsc', '', '', None not in (
        at['klt'], at['had'], at['tsc']) and at['klt'] < at['had'] < at['tsc'])
    best = [b for b in (bits_at(points[f], 1e-3) for f in TIERS) if b]
    best = min(best) if best else Q8_0
    c.judge('at 1e-3: below q8_0', '>= 2', '%.2f' % (Q8_0 - best),
            Q8_0 - best >= 2, 'bits')


def speed(profile, cache):
    for tier in 'had:4', 'klt:3':
        out = c.kvarc('bench', '--json', '--threads', '1', '--repeat', '7',
                      '--profile', profile, '--tier', tier, cache)
        r = json.loads(out.splitlines()[0])  # the best set comes first
        for way in 'encode', 'decode':
            rate = r[way + '_bytes_per_second'] / 1e6
            c.judge('%s: %s, one core with %s' % (tier, way, r['isa']), '>= 300',
                    '%.0f' % rate, rate >= 300, 'MB/s')


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    model, ids, calibration = sys.argv[1:4]
    cache = sys.argv[4] if len(sys.argv) > 4 else c.WIKI
    c.machine()
    with tempfile.TemporaryDirectory() as folder:
        profile = os.path.join(folder, 'klt.kvp')
        caches = sorted(glob.glob(os.path.join(calibration, '*.safetensors')))
        c.kvarc('train', '-q', '--klt', '-o', profile, *[
            p for p in caches if not os.path.basename(p).startswith(('test-', 'long'))])
        print('# profile of klt: %d bytes' % os.path.getsize(profile))
        rows = evaluate(model, profile, ids)
        show(rows)
        judge(rows)
        speed(profile, cache)
    c.finish()


if __name__ == '__main__':
    main()
