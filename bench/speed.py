#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Speed next to other compressors: in memory, one thread, in turns in one run.

speed.py [CACHE.safetensors [PROFILE.kvp]]; the command is $KVARC; ROUNDS=7
rounds. Levels 2 and 3 are measured as far as the profile has them; without one it
is that of the sample, which has level 2.

Every round runs each contestant once (fastest of 3), so that drift of the
machine hits all of them. Rates are raw bytes a second; a row shows the median of
the rounds and half their range in percent. Targets of levels 0 and 1 are ratios to
ZipNN in the same round, medians of the rounds.
"""
import os
import subprocess
import sys
import threading

import common as c

ROUNDS = int(os.environ.get('ROUNDS', '7'))
SETS = ('avx512', 'avx2', 'scalar')
# Encoding and decoding over ZipNN; GB/s of portable C.
OVER_ZIPNN = {(0, 'avx512'): (3, 2.3), (0, 'avx2'): (2.8, 1.9),
              (1, 'avx512'): (1.2, .9), (1, 'avx2'): (.8, .55)}
SCALAR = {0: (None, 1), 1: (None, .4)}
PROFILED = {2: .25, 3: .1} # with avx512, both ways


def fastest(pair, raw, repeat=3):
    """Encode and decode rate of a peer, GB/s."""
    enc, dec = [], []
    for _ in range(repeat):
        # ZipNN changes its input: everybody gets a copy, made outside
        packed, t = c.timed(pair[0], bytearray(raw))
        enc.append(len(raw) / t / 1e9)
        _, t = c.timed(pair[1], packed)
        dec.append(len(raw) / t / 1e9)
    return max(enc), max(dec)


def ours(path, level, isa, threads):
    with_profile = ('--profile', profile) if level > 1 else ()
    r = c.bench(path, level, isa, threads, options=with_profile)
    return (r['encode_bytes_per_second'] / 1e9,
            r['decode_bytes_per_second'] / 1e9)


def available(path):
    out = []
    for isa in SETS:
        try:
            r = c.bench(path, 0, isa, 1, 1)
        except subprocess.CalledProcessError:
            continue
        if r['isa'] == isa:
            out.append(isa)
    return out


def two_at_once(path, isa):
    """Sum of the rates of two processes with a thread each: the machine's own
    limit for two threads."""
    sums = [[], []]

    def one():
        e, d = ours(path, 1, isa, 1)
        sums[0].append(e)
        sums[1].append(d)
    both = [threading.Thread(target=one) for _ in range(2)]
    for t in both:
        t.start()
    for t in both:
        t.join()
    return sum(sums[0]), sum(sums[1])


def measure(path, raw, sets, levels):
    runs = {'ZipNN': lambda z=c.peer_zipnn('bfloat16'): fastest(z, raw),
            'zstd -3': lambda z=c.peer_zstd(3): fastest(z, raw, 1)}
    for isa in sets:
        for level in levels:
            runs[level, isa] = lambda l=level, i=isa: ours(path, l, i, 1)
    for level in levels:
        runs[level, 'two threads'] = lambda l=level: ours(path, l, sets[0], 2)
    runs['two processes'] = lambda: two_at_once(path, sets[0])
    rates = {k: ([], []) for k in runs}
    for _ in range(ROUNDS):
        for k, run in runs.items():
            for got, rate in zip(rates[k], run()):
                got.append(rate)
    return rates


def main():
    global profile
    path, judged = c.cache_path(sys.argv[1:])
    profile = sys.argv[2] if len(sys.argv) > 2 else c.SAMPLE + 'level2.kvp'
    levels = [0, 1] + c.levels_of(profile)
    raw = c.tensors(path)
    c.machine()
    sets = available(path)
    rates = measure(path, raw, sets, levels)
    median = {k: tuple(c.spread(v)[0] for v in r) for k, r in rates.items()}
    print('# GB/s of raw bytes, medians of %d rounds of %s' % (
        ROUNDS, os.path.basename(path)))

    def row(key, what, k, target):
        value, noise = c.spread(rates[key][k])
        c.judge(what, '%.2f' % value, '>= %.2f' % target if target else '',
                value >= target if target and judged else None,
                '+-%.0f%%' % noise)

    for k, what in enumerate(('encode', 'decode')):
        row('ZipNN', 'ZipNN bfloat16, %s' % what, k, None)
        row('zstd -3', 'zstd -3, %s' % what, k, None)
    def over_zipnn(key, what, k):
        rounds = [a / b for a, b in zip(rates[key][k], rates['ZipNN'][k])]
        value, noise = c.spread(rounds)
        target = OVER_ZIPNN.get(key, (None, None))[k]
        c.judge(what, '%.2f' % value, '>= %.2f' % target if target else '',
                value >= target if target and judged else None,
                'x +-%.0f%%' % noise)

    for level in (0, 1):
        for isa in sets:
            for k, what in enumerate(('encode', 'decode')):
                name = 'level %d %s, %s' % (level, isa, what)
                row((level, isa), name, k, SCALAR.get(level, (None, None))[k]
                    if isa == 'scalar' else None)
                over_zipnn((level, isa), name + ', over ZipNN', k)
                c.judge('  over zstd -3', '%.2f' % (
                    median[level, isa][k] / median['zstd -3'][k]), '', None, 'x')
    for level in levels[2:]:
        for isa in sets:
            for k, what in enumerate(('encode', 'decode')):
                row((level, isa), 'level %d %s, %s' % (level, isa, what), k,
                    PROFILED[level] if isa == 'avx512' else None)
                c.judge('  as a ratio to level 1', '%.2f' % (
                    median[level, isa][k] / median[1, isa][k]), '', None, 'x')
    for k, what in enumerate(('encode', 'decode')):
        one = median[1, sets[0]][k]
        c.judge('two processes over one, %s: the machine' % what,
                '%.2f' % (median['two processes'][k] / one), '', None, 'x')
    for level in levels:
        for k, what in enumerate(('encode', 'decode')):
            x = median[level, 'two threads'][k] / median[level, sets[0]][k]
            c.judge('level %d, two threads over one, %s' % (level, what),
                    '%.2f' % x, '>= 1.80', x >= 1.8 if judged else None, 'x')
    c.finish()


if __name__ == '__main__':
    main()
