#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Ratios that are quoted for codecs of keyframes and codebooks, and what is in them.

seeds.py [CACHE [MODEL IDS...]]

First each quoted ratio, by the accounting that gives it, and its factors: what it is
divided by (fp32 where the cache is of 16 bits), the stream (each step of a session counted
as a whole snapshot, although a log that appends needs one row), tokens that are dropped,
and what is left for the codec. Then the quantisers alone (presets of --tier) on CACHE:
the tensors by the whole archive, bits an element; and with MODEL, a GGUF, and files of
token ids what `kvarc eval` says of the answers.

A session of N steps that ends with T tokens, each step counted as the whole cache, is N
times the last cache; keyframes each `kappa` steps and a row for the others are
T + (kappa - 1) q, q the size of a row's codes over that of its elements.
"""
import json
import os
import sys
import tempfile

import common as c

FP16, FP32 = 16, 32
KAPPA, T = 64, 1024
# Of what they measured with TinyLlama there are no formulas. Their ratios times their bits are
# the same number, but for the row without codes: streams of that number of snapshots.
TINY_CODES, TINY_PLAIN = 53.9, 61.0
PRESETS = ('tsc-8x', 'tsc-63x', 'vq-84x', 'vq-219x', 'vq-429x', 'vq-1034x')
DROP = ('vq-84x',) # leaves tokens out
OURS = ('tsc:4', 'tsc:8', 'vq:2', 'vq:3', 'had:2', 'had:3', 'had:4')


def rows_of_4_bits(n):
    """fp32 by rows of 4 bits and one row as it is."""
    return n * FP32 / (n * 4 + FP32)


def stream(kappa, n, q=4 / FP16):
    return kappa * n / (n + (kappa - 1) * q)


def combined(gain):
    """Theirs: keyframes are .95 of 63."""
    return 63 * (.05 + .95 * gain)


def share(bits, plain):
    """Gain over 16 bits of codes, where a share of blocks is plain."""
    return FP16 / (plain * FP16 + (1 - plain) * bits)


def tiny(bits, plain):
    """The mean of bits of a block, on TinyLlama."""
    return TINY_PLAIN * FP32 / (plain * FP16 + (1 - plain) * bits)


class Claim:
    def __init__(self, name, quoted, made, dtype=1., stream=1., kept=1.):
        self.name, self.quoted, self.made = name, quoted, made
        self.factors = dtype, stream, kept

    def row(self):
        product = 1
        for f in self.factors:
            product *= f
        off = 100 * (self.made / self.quoted - 1)
        print('%-44s %8.4g %8.4g %6.1f%% %6.3g %7.3g %6.3g %7.2f' % (
            (self.name, self.quoted, self.made, off) + self.factors
            + (self.made / product,)))


def claims():
    for n, quoted in ((128, 7.56), (256, 7.79), (512, 7.91), (1024, 7.98)):
        yield Claim('TSC "lossless", %d tokens' % n, quoted,
                    rows_of_4_bits(n), dtype=2)
    for kappa, quoted in ((16, 15), (32, 31)):
        yield Claim('TSC kf=%d' % kappa, quoted, stream(kappa, T),
                    stream=stream(kappa, T))
    for n, quoted in ((128, 56.8), (256, 60.2), (512, 62.0), (1024, 63.0)):
        yield Claim('TSC kf=64, %d tokens' % n, quoted, stream(KAPPA, n),
                    stream=stream(KAPPA, n))
    yield Claim('and 75 % of the tokens', 84, 63 / .75, stream=63,
                kept=1 / .75)
    yield Claim('PQ m=2, all blocks', 482, combined(8), stream=63)
    # They do not say how many; these shares give what they quote.
    yield Claim('PQ m=2, 17.4 % of blocks plain', 219,
                combined(share(2, .174)), stream=63)
    yield Claim('PQ m=2, 8.2 % of blocks plain', 308,
                combined(share(2, .082)), stream=63)
    yield Claim('VQ of 8, by the formula they give', 1034, combined(16),
                stream=63)
    yield Claim('VQ of 2, by the same formula', 429, combined(4), stream=63)
    for bits, quoted in ((1, 1705), (2, 854), (4, 429), (8, 216)):
        yield Claim('TinyLlama, %d bits' % bits, quoted,
                    TINY_CODES * FP32 / bits, dtype=2, stream=TINY_CODES)
    for limit, codes, quoted in ((.1, .204, 150), (.07, .058, 129),
                                 (.05, .023, 125), (.03, .01, 123),
                                 (0, 0, 122)):
        yield Claim('TinyLlama, threshold %.2f: %.1f %% codes' % (
            limit, 100 * codes), quoted, tiny(1, 1 - codes), dtype=2,
            stream=TINY_PLAIN)
    # Shares but for the first are said to be approximate; the ratios do not follow from them.
    for limit, codes, quoted in ((.07, .006, 123), (.1, .15, 190),
                                 (.2, .38, 420), (.5, .78, 820)):
        yield Claim('GPT-2, threshold %.2f: %.1f %% codes' % (
            limit, 100 * codes), quoted, tiny(1, 1 - codes), dtype=2,
            stream=TINY_PLAIN)


def scores(path, folder):
    """A file of equal scores: the last tokens stay, which does for sizes."""
    out, name = os.path.join(folder, 's.kva'), os.path.join(folder, 'scores')
    c.kvarc('pack', '-q', '-f', '-0', '-o', out, path)
    with open(name, 'w') as f:
        f.write('1\n' * json.loads(c.kvarc('info', '--json', out))['tokens'])
    return name


def quantiser(path, tier, folder):
    """Bits an element of a whole archive, and what a session's stream would be quoted as."""
    out = os.path.join(folder, 'a.kva')
    by = ('--scores', scores(path, folder)) if tier in DROP else ()
    c.kvarc('pack', '-q', '-f', '--tier', tier, *by, '-o', out, path)
    bits = os.path.getsize(out) * 8 / c.elements(path)
    ratio = FP16 / bits
    print('%-10s %6.2f bits  R_final %5.2f   by fp32 %5.2f, snapshots of %d '
          'steps by fp32 %6.1f (an append-only log alone: %.1f)' % (
              tier, bits, ratio, 2 * ratio, KAPPA,
              2 * ratio * (KAPPA + 1) / 2, (KAPPA + 1) / 2))


def answers(model, ids):
    out = c.kvarc('eval', '--json', '--model', model, '--tier',
                  ' '.join(PRESETS + OURS), '--scores', 'h2o', '--sequences',
                  os.environ.get('SEQUENCES', '16'), '--prefix', '256', *ids)
    for line in out.splitlines():
        row = json.loads(line)
        if row.get('type') == 'tier':
            print('%-10s %6.2f bits  KL %.4f, worst sequence %.4f  same first '
                  'token %.1f %%' % (
                      row['tier'], row['bits_per_element'], row['mean_kl'],
                      row['worst_kl'], 100 * row['agreement']))


def main():
    path, _ = c.cache_path(sys.argv[1:])
    print('%-44s %8s %8s %7s %6s %7s %6s %7s' % (
        '# what', 'quoted', 'made so', 'off', 'dtype', 'stream', 'kept',
        'codec'))
    for claim in claims():
        claim.row()
    print('# %s' % os.path.basename(path))
    with tempfile.TemporaryDirectory() as folder:
        for tier in PRESETS + OURS:
            quantiser(path, tier, folder)
    if len(sys.argv) > 3:
        answers(sys.argv[2], sys.argv[3:])


if __name__ == '__main__':
    main()
