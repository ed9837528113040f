#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What tokens are worth: rates and omissions by scores: tokens.py MODEL IDS...

MODEL is a GGUF or a folder, IDS files of token ids (eval_ids.py). The command is $KVARC;
$SEQUENCES, 16 by default. First one rate for all tokens, then more bits for those that
surprise the model, or get attention (`spread=`), then tokens that are left out (`keep=`).
Bits count all bytes of the archives, and all tokens. Takes half an hour on a core.

What is reported of a tier besides its KL is `gain`: how many bits less it takes than one
rate for all tokens at the same KL, off the straight line between the points around it,
KL in logarithms; "-" where there are none.
"""
import json
import os
import sys

import common as c
from lossy import bits_at

SAME = ('had:1', 'had:1.5', 'had:1.75', 'had:2', 'had:2.25', 'had:2.75', 'had:3',
        'had:3.25')
SPREAD = tuple('had:%d,spread=%s' % (rate, s) for rate in (3, 2)
               for s in ('0.5', '1', '-0.5', '-1'))
KEEP = ('had:3,keep=0.75', 'had:3,keep=0.5', 'had:3,keep=0.25',
        'had:6.5,keep=0.75', 'vq-84x')
# The first four and the last ones, whatever they are.
LAST = ('had:3,keep=0.75,recent=380', 'had:3,keep=0.5,recent=252',
        'had:3,keep=0.25,recent=124')


def evaluate(model, ids, tiers, scores):
    out = c.kvarc('eval', '--json', '--model', model, '--sequences',
                  os.environ.get('SEQUENCES', '16'), '--scores', scores,
                  '--tier', ' '.join(tiers), *ids)
    rows = [json.loads(line) for line in out.splitlines()]
    return [r for r in rows if r.get('type') == 'tier' and
            not r['tier'].startswith('(')]


def show(rows, same, title):
    print('# %s' % title)
    print('%-28s %6s %7s %8s %17s %7s %7s %7s' % (
        'tier', 'kept', 'bits', 'KL', '95 % interval', 'worst', 'top-1',
        'gain'))
    for r in rows:
        at = bits_at(same, r['mean_kl'])
        gain = '-' if at is None else '%+.3f' % (at - r['bits_per_element'])
        print('%-28s %5.0f%% %7.3f %8.4f %8.4f-%-8.4f %7.3f %6.1f%% %7s' % (
            r['tier'], 100 * r['kept'], r['bits_per_element'], r['mean_kl'],
            r['low_kl'], r['high_kl'], r['worst_kl'], 100 * r['agreement'],
            gain))


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    model, ids = sys.argv[1], sys.argv[2:]
    rows = evaluate(model, ids, SAME + LAST, 'h2o')
    same = [(r['bits_per_element'], r['mean_kl']) for r in rows
            if r['tier'] in SAME]
    show(rows, same, 'one rate, and the last tokens')
    for scores in 'surprisal', 'h2o':
        show(evaluate(model, ids, SPREAD + KEEP, scores), same, scores)


if __name__ == '__main__':
    main()
