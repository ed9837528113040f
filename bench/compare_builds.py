#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Shows whether one build of kvarc is slower than another.

compare_builds.py OLD NEW [FILE...]

OLD and NEW are build folders, compiled with the same flags. Each row is a level or a
tier, with one set of kernels, on one FILE (the sample): the two builds run `kvarc bench`
in turns, ROUNDS=9 times, on one thread, and repeat encoding and decoding until a run
takes SECONDS=0.5. $PROFILES are given to both (else profiles that OLD trains on FILE);
with $MODEL also levels 4 to 7. $ISA: only that set of kernels.

A run costs processor seconds, which other programs disturb less than the time that
passes; user and system together, as the kernel only estimates how they are divided. The
ratio is the median over rounds of new over old; its noise is three standard errors, at
least 1 %. A row that is slower beyond it is measured again, up to twice, with twice the
rounds. The ratios of the fastest times to encode and to decode stand beside it and are
not judged. Exits with 1 when a row is slower.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile

import common as c

ROUNDS = int(os.environ.get('ROUNDS', '9'))
SECONDS = float(os.environ.get('SECONDS', '.5'))
MOST_REPEATS = 200
LEAST_NOISE = .01
AGAIN = 2
MODEL_LEVELS = (4, 5, 6, 7)
TIERS = ('near:0.02', 'had:3', 'tsc:4', 'vq:2')


class Build:
    """The command of a build folder, not the script that libtool puts before it."""

    def __init__(self, folder):
        libs = os.path.join(folder, '.libs')
        self.command = os.path.join(libs, 'kvarc')
        if not os.path.exists(self.command):
            self.command = os.path.join(folder, 'kvarc')
        self.env = dict(os.environ, LD_LIBRARY_PATH=libs)

    def run(self, *arguments):
        """What it prints, and its processor seconds; None when it fails."""
        with tempfile.TemporaryFile() as out:
            p = subprocess.Popen([self.command, *arguments], env=self.env,
                                 stdout=out, stderr=subprocess.DEVNULL)
            _, status, usage = os.wait4(p.pid, 0)
            p.returncode = os.waitstatus_to_exitcode(status)
            out.seek(0)
            text = out.read().decode()
        if p.returncode not in (0, 2):
            return None
        return text, usage.ru_utime + usage.ru_stime

    def bench(self, options, repeat):
        return self.run('bench', '--json', '-T', '1', '-M', '8G', '--repeat',
                        str(repeat), *options)


def profile_options(old, path, folder):
    """Lists of options that give profiles for levels and for klt; [] without."""
    given = os.environ.get('PROFILES', '').split()
    if given:
        return [['--profile', p] for p in given]
    out = []
    for name, options in (('levels', ()), ('klt', ('--klt',))):
        profile = os.path.join(folder, name + '.kvp')
        old.run('train', '-q', '-f', '-M', '8G', '-o', profile, *options, path)
        out += [['--profile', profile]] if os.path.exists(profile) else []
    return out


def plans(old, path, folder):
    """What can be measured: (name, options of kvarc bench without the kernels)."""
    profiles = profile_options(old, path, folder)
    wanted = [('level %d' % n, ['-%d' % n]) for n in (0, 1)]
    for p in profiles:
        wanted += [('level %d' % n, ['-%d' % n] + p) for n in (2, 3)]
    wanted += [('tier ' + t, ['--tier', t]) for t in TIERS]
    wanted += [('tier klt:2', ['--tier', 'klt:2'] + p) for p in profiles]
    if 'MODEL' in os.environ:
        model = ['--model', os.environ['MODEL']]
        for n in MODEL_LEVELS:
            wanted += [('level %d' % n, ['-%d' % n] + model + p)
                       for p in profiles + [[]]]
    return wanted


def kernels(old, options, path):
    """Sets of kernels that the command has for these options."""
    got = old.bench(options + [path], 1)
    if not got:
        return []
    return [json.loads(line)['isa'] for line in got[0].splitlines()
            if '"isa"' in line]


def repeats(old, options):
    """As many as take about SECONDS."""
    seconds = old.bench(options, 1)[1]
    return min(max(round(SECONDS / seconds), 1), MOST_REPEATS)


def cost(build, options, repeat):
    """Processor seconds, and the fastest seconds a byte to encode and to decode."""
    got = build.bench(options, repeat)
    if not got:
        return None
    row = json.loads(got[0].splitlines()[-1])
    return (got[1], 1 / row['encode_bytes_per_second'],
            1 / row['decode_bytes_per_second'])


def judged(pairs):
    """Ratio of new over old and its noise; pairs are (old, new) of each round."""
    ratios = [new[0] / old[0] for old, new in pairs]
    ratio = statistics.median(ratios)
    deviation = statistics.median(abs(r - ratio) for r in ratios)
    # of the median of normal data, from the median absolute deviation
    noise = 3 * 1.4826 * deviation * 1.2533 / len(ratios) ** .5
    return ratio, max(noise, LEAST_NOISE)


def fastest(pairs, k):
    old, new = (min(pair[i][k] for pair in pairs) for i in (0, 1))
    return new / old


def measure(builds, options, repeat, pairs, rounds):
    """Adds rounds to pairs; false when a build does not do it."""
    for i in range(rounds):
        pair = [None, None]
        for which in (0, 1) if i % 2 == 0 else (1, 0):
            pair[which] = cost(builds[which], options, repeat)
        if None in pair:
            return False
        pairs.append(pair)
    return True


def compare(name, builds, options):
    """Prints a row; whether it is slower."""
    pairs = []
    rounds = ROUNDS
    repeat = repeats(builds[0], options)
    for _ in range(1 + AGAIN):
        if not measure(builds, options, repeat, pairs, rounds):
            print('%-34s one of the builds refuses it: slower' % name)
            return True
        ratio, noise = judged(pairs)
        if ratio <= 1 + noise:
            break
        rounds = 2 * rounds
    old, new = (c.spread([pair[i][0] for pair in pairs]) for i in (0, 1))
    word = 'slower' if ratio > 1 + noise else \
        'faster' if ratio < 1 - noise else 'equal'
    print('%-34s %9.4f %9.4f %7.3f %6.1f%% %7.1f%% %7.3f %7.3f  %s' % (
        name, old[0] / repeat, new[0] / repeat, ratio, 100 * noise,
        max(old[1], new[1]), fastest(pairs, 1), fastest(pairs, 2), word))
    sys.stdout.flush()
    return word == 'slower'


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    builds = [Build(os.path.abspath(folder)) for folder in sys.argv[1:3]]
    c.machine()
    print('# old and new: processor seconds; spread: half the range of the rounds')
    print('%-34s %9s %9s %7s %7s %8s %7s %7s' % (
        '', 'old', 'new', 'ratio', 'noise', 'spread', 'encode', 'decode'))
    rows = slower = 0
    only = os.environ.get('ISA')
    for path in sys.argv[3:] or [c.SAMPLE + 'bf16-160.safetensors']:
        print('# ' + os.path.basename(path))
        with tempfile.TemporaryDirectory() as folder:
            for name, options in plans(builds[0], path, folder):
                for isa in kernels(builds[0], options, path):
                    if only and isa != only:
                        continue
                    rows += 1
                    slower += compare('%s %s' % (name, isa), builds,
                                      options + ['--isa', isa, path])
    print('%d rows, %d slower' % (rows, slower))
    sys.exit(1 if slower or not rows else 0)


if __name__ == '__main__':
    main()
