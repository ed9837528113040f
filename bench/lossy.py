#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Lossy tiers: bits against KL, and speed: lossy.py MODEL IDS CALIBRATION [CACHE]

MODEL is a GGUF or a folder; IDS a folder of eval_ids.py; CALIBRATION one of its caches
(make_caches.py), which transforms of klt are fitted to; CACHE what is timed. The command
is $KVARC; $SEQUENCES, 64 by default, of IDS alike. Takes an hour on 2 cores.
klt-head is klt without groups of layers: transforms of heads alone. $PROFILES is a folder
where profiles are kept: those that are there (klt.kvp, heads.kvp) are not fitted again.

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
    'klt': ('0.75', '1', '1.5', '2', '2.5', '3', '3.5', '4', '4.5', '5'),
    'klt-head': ('1.5', '2', '3', '3.5', '4.5', '5'),
    'tsc': ('3', '4', '5', '6', '8'),
    'vq': ('1', '2', '3', '4'),
    'near': ('0.5', '0.2', '0.1', '0.05'),
}
Q8_0 = 8.5 # bits: 32 numbers of 8 bits and a scale of 16


def train(options, model, calibration, profile):
    if os.path.exists(profile):
        return os.path.getsize(profile)
    caches = sorted(glob.glob(os.path.join(calibration, '*.safetensors')))
    c.kvarc('train', '-q', '--klt', *options, '--model', model, '-o', profile, *[
        p for p in caches if not os.path.basename(p).startswith(('test-', 'long'))])
    return os.path.getsize(profile)


def evaluate(model, profile, ids, names):
    out = c.kvarc('eval', '--json', '--model', model, '--profile', profile,
                  '--sequences', os.environ.get('SEQUENCES', '64'),
                  '--tier', names, *sorted(glob.glob(os.path.join(ids, '*.txt'))))
    rows = [json.loads(line) for line in out.splitlines()]
    return [r for r in rows if r.get('type') == 'tier' and ':' in r['tier']]


def evaluate_all(model, ids, group, heads):
    rows = evaluate(model, group, ids, ' '.join(
        '%s:%s' % (f, r) for f in TIERS if f != 'klt-head' for r in TIERS[f]))
    alone = evaluate(model, heads, ids,
                     ' '.join('klt:' + r for r in TIERS['klt-head']))
    for r in alone:
        r['tier'] = r['tier'].replace('klt', 'klt-head')
    return rows + alone


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
    order = [at[f] for f in ('klt', 'klt-head', 'had', 'tsc')]
    c.judge('at 1e-2: klt < klt-head < had < tsc', '', '',
            None not in order and order == sorted(order))
    best = [b for b in (bits_at(points[f], 1e-3) for f in TIERS) if b]
    best = min(best) if best else Q8_0
    c.judge('at 1e-3: below q8_0', '>= 2', '%.2f' % (Q8_0 - best),
            Q8_0 - best >= 2, 'bits')


def speed(group, heads, cache):
    for name, tier, profile in (('had:4', 'had:4', heads), ('klt:3', 'klt:3', group),
                                ('klt-head:3', 'klt:3', heads)):
        out = c.kvarc('bench', '--json', '--threads', '1', '--repeat', '7',
                      '--profile', profile, '--tier', tier, cache)
        r = json.loads(out.splitlines()[0])  # the best set comes first
        for way in 'encode', 'decode':
            rate = r[way + '_bytes_per_second'] / 1e6
            c.judge('%s: %s, one core with %s' % (name, way, r['isa']), '>= 300',
                    '%.0f' % rate, rate >= 300, 'MB/s')


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    model, ids, calibration = sys.argv[1:4]
    cache = sys.argv[4] if len(sys.argv) > 4 else c.WIKI
    c.machine()
    with tempfile.TemporaryDirectory() as temporary:
        folder = os.environ.get('PROFILES', temporary)
        group = os.path.join(folder, 'klt.kvp')
        heads = os.path.join(folder, 'heads.kvp')
        print('# profile of klt: %d bytes, of klt-head %d' % (
            train((), model, calibration, group),
            train(('--group', '1'), model, calibration, heads)))
        rows = evaluate_all(model, ids, group, heads)
        show(rows)
        judge(rows)
        speed(group, heads, cache)
    c.finish()


if __name__ == '__main__':
    main()
