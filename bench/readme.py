#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes the numbers of README.md again, and fails where README says something else.

readme.py [--quick] [--data FOLDER] [--turns FOLDER] [--fitted FOLDER] [--picture FILE]
          [--readme FILE]

The command is $KVARC, with bench/peers beside it. Prints a line for each number; exit 1 when one
differs, or when README has a size, ratio or speed that nothing here measures. What cannot be
measured here is named as skipped.

--quick    seconds: what needs the tree alone, which is the sample, README's commands and links,
           and what the picture says
--data     a folder with the caches of METHOD.md: slots/ and kv/ (default ../shared/data)
--turns    a folder of turn-*.bin, which `tests/engines/turns.py MODEL FOLDER TEXT make 40` fills;
           zstd and restic are measured on them as well
--fitted   a folder in which make_slots.py has filled slots/ and make_spread.py the rest; profiles
           are trained into profiles/ unless they are there. Needs the Python of setup.sh
--picture  writes the picture of the turns to FILE: by `kvarc log --plot`, and with the lines of
           zstd and restic, which this script adds

Ratios are of the bytes of whole files. They and sizes must be those of README, digit by digit. But
restic cuts files in another way in each repository: 6 % are allowed. The last bits of caches that
make_spread.py computes, and so profiles and ratios, depend on the processor: 1 %. Speeds are
processor time of one thread, and must be half to twice those of README.
"""
import argparse
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import common as c
from readme_page import Page

SAMPLE_SLOT = c.SAMPLE + 'f16-160.slot'
PICTURE = os.path.join(c.TOP, 'docs', 'turns.svg')
SPEED_BAND, RESTIC_BAND, FITTED_BAND = 2, .06, .01
# Row of README's table: the file below --data.
FILES = {
    'llama.cpp slot, F16': 'slots/smollm2-wiki-a-f16.bin',
    'llama.cpp slot, Q8_0': 'slots/smollm2-wiki-short-q8_0.bin',
    'f32': 'kv/smollm2-wiki-a-f32.safetensors',
}
TURNS, TURNS_Q8 = '40 turns, F16', '40 turns, Q8_0'
BF16, E4M3, SPEED = 'bf16', 'fp8 e4m3', 'one thread, MB/s, pack and unpack'
ZSTD, PACK, FIT, PROFILE, MODEL = ('zstd -3', '`pack`', '`pack -2`', 'profile, `-3`',
                                   'model, `-6`')
LINK = r'faster than ([\d.]+) MB/s'
LINES = {'restic': ('#8a63d2', 'restic'), 'zstd': ('#5c8a3a', 'zstd -3')}


def size(*paths):
    return sum(map(os.path.getsize, paths))


def folder_bytes(folder, but=None):
    return sum(os.path.getsize(os.path.join(where, name))
               for where, _, names in os.walk(folder) for name in names
               if not but or not name.startswith(but))


def ratio(whole, part):
    value = whole / part
    return ('%.2fx' if value < 9.995 else '%.1fx') % value


def packed(path, folder, *options):
    """Bytes of the archive, which was unpacked and compared."""
    return round(c.packed_bits(path, folder, *options) * c.elements(path) / 8)


def zstd_bytes(path):
    r = subprocess.run(['zstd', '-q', '-3', '-c', path], stdout=subprocess.PIPE, check=True)
    return len(r.stdout)


def tokens_of(path, archive):
    """The number of tokens of a cache, which is packed."""
    c.kvarc('pack', '-q', '-f', '-0', '-o', archive, path)
    return json.loads(c.kvarc('info', '--json', archive))['tracks'][0]['tokens']


def cut_turns(slot, folder, turns):
    """The slot's first tokens, in steps of as many tokens each."""
    whole = os.path.join(folder, 'whole.kva')
    tokens, out = tokens_of(slot, whole), []
    for i in range(1, turns + 1):
        out.append(os.path.join(folder, 'turn-%02d.bin' % i))
        c.kvarc('unpack', '-q', '-f', '--to', 'llama', '--tokens', '0-%d' %
                (tokens * i // turns - 1), '-o', out[-1], whole)
    return out


def save_turns(turns, folder):
    """Bytes of a new store, without its index, in which a session has all turns; they load."""
    store, back = os.path.join(folder, 'store'), os.path.join(folder, 'back')
    shutil.rmtree(store, ignore_errors=True)
    for turn in turns:
        c.kvarc('session', 'save', '-q', '--store', store, 'agent', turn)
    for i in (1, len(turns) // 2, len(turns)):
        c.kvarc('session', 'load', '-q', '-f', '--store', store, '-o', back, 'agent@%d' % i)
        with open(back, 'rb') as a, open(turns[i - 1], 'rb') as b:
            if a.read() != b.read():
                sys.exit('%s is not what was saved' % turns[i - 1])
    return folder_bytes(store, 'index.sqlite')


def append_turns(turns, archive):
    """Bytes of the archive behind each turn."""
    out = []
    for turn in turns:
        c.kvarc('append', '-q', archive, turn)
        out.append(os.path.getsize(archive))
    return out


def sums(sizes):
    total = 0
    for n in sizes:
        total += n
        yield total


def restic_sums(turns, folder):
    """Bytes of a repository behind each backup of a turn, under one name."""
    repository, slot = os.path.join(folder, 'restic'), os.path.join(folder, 'slot.bin')
    environment = dict(os.environ, RESTIC_REPOSITORY=repository, RESTIC_PASSWORD='x',
                       XDG_CACHE_HOME=os.path.join(folder, 'cache'))
    run = lambda *a: subprocess.run(['restic', *a, '-q'], env=environment, check=True)
    run('init')
    for turn in turns:
        shutil.copyfile(turn, slot)
        run('backup', slot)
        yield folder_bytes(repository)


def quick(page):
    """What needs no more than the tree."""
    page.check_commands(c.kvarc)
    page.check_links()
    check_picture(page)
    with tempfile.TemporaryDirectory() as folder:
        turns = cut_turns(SAMPLE_SLOT, folder, 8)
        said = page.find(r'8 turns of 20 tokens take ([\d.]+ MB) as slots, ([\d.]+ MB) with '
                         r'zstd -3, ([\d.]+ MB) with kvarc', 3)
        page.compare('8 turns of the sample', said[0], '%.1f MB' % (size(*turns) / 1e6))
        if shutil.which('zstd'):
            page.compare('  zstd -3 of each', said[1],
                         '%.1f MB' % (sum(map(zstd_bytes, turns)) / 1e6))
        else:
            page.skip('zstd of the sample', 'no zstd')
        page.compare('  session save', said[2], '%.1f MB' % (save_turns(turns, folder) / 1e6))
        check_smallest(page, os.path.join(folder, 'whole.kva'), folder)


def check_smallest(page, whole, folder):
    """The number of tokens below which a slot is kept whole; no slot gets larger."""
    said, cut = int(page.find(r'an F16 slot below (\d+) tokens is kept whole', 1)[0] or 2), {}
    few, archive = os.path.join(folder, 'few.bin'), os.path.join(folder, 'few.kva')
    for n in said - 1, said:
        c.kvarc('unpack', '-q', '-f', '--to', 'llama', '--tokens', '0-%d' % (n - 1), '-o', few,
                whole)
        c.kvarc('pack', '-q', '-f', '-o', archive, few)
        cut[n] = 'kept_whole' in c.kvarc('info', '--json', archive), size(archive) - size(few)
    page.judge('tokens of a slot that is kept whole', said, 'at %d and %d: %s' % (
        said - 1, said, cut), cut[said - 1][0] and not cut[said][0]
        and max(cut[said - 1][1], cut[said][1]) < 0)


def turns_said(page):
    """What README says of files, zstd, restic and kvarc."""
    return page.find(r'1 file a turn takes ([\d.]+ GB), zstd -3 of each ([\d.]+ GB), restic '
                     r'([\d.]+ GB), kvarc append ([\d.]+ MB)', 4)


def check_picture(page):
    """The picture says what README says."""
    with open(PICTURE, encoding='utf-8') as f:
        svg = f.read()
    for name, said in zip(('files', 'zstd', 'restic', 'archive'), turns_said(page)):
        label = re.search(r"<g class='%s'.*?bold'>([^<]*)<" % name, svg, re.S)
        label = label.group(1) if label else 'nothing'
        page.compare('picture, ' + name, said, label)
    turns = page.find(r'after each of (\d+) turns', 1)[0]
    page.judge('picture, turns', turns, '', '>%s checkpoints,' % turns in svg)


def near(page, row, column, whole, part):
    """A cell that depends on fitted numbers."""
    said = page.said(row, column)
    page.judge('%s, %s' % (row, column), said, ratio(whole, part),
               abs(float(said.rstrip('x') or 0) * part / whole - 1) <= FITTED_BAND)


def measure_file(page, row, path, folder, judge=None):
    whole = size(path)
    for column, part in ((ZSTD, zstd_bytes(path)), (PACK, packed(path, folder, '-1')),
                         (FIT, packed(path, folder, '-2'))):
        if judge:
            judge(page, row, column, whole, part)
        else:
            page.cell(row, column, ratio(whole, part))


def measure_data(page, data):
    said = page.find(r'Caches have (\d+) to (\d+) tokens, that of f32 (\d+)', 3)
    tokens = dict(zip(('llama.cpp slot, Q8_0', 'llama.cpp slot, F16', 'f32'), said))
    with tempfile.TemporaryDirectory() as folder:
        for row, name in FILES.items():
            path = os.path.join(data or '', name)
            if data and os.path.exists(path):
                page.compare(row + ', tokens', tokens[row],
                             str(tokens_of(path, os.path.join(folder, 'tokens.kva'))))
                measure_file(page, row, path, folder)
            else:
                page.skip_row(row, 'no %s in --data' % name)
        slot = os.path.join(data or '', FILES['llama.cpp slot, Q8_0'])
        if not data or not os.path.exists(slot):
            page.skip_row(TURNS_Q8, 'no slot in --data')
            return
        turns = cut_turns(slot, folder, 40)
        page.cell(TURNS_Q8, ZSTD, ratio(size(*turns), sum(map(zstd_bytes, turns))))
        page.cell(TURNS_Q8, PACK, ratio(size(*turns), save_turns(turns, folder)))


def measure_turns(page, turns, picture):
    said = turns_said(page)
    if len(turns) != 40:
        page.skip_row(TURNS, 'no 40 turns in --turns')
        page.skip('turns', 'no 40 turns in --turns')
        return
    with tempfile.TemporaryDirectory() as folder:
        plain, archive = size(*turns), os.path.join(folder, 'session.kva')
        appended = append_turns(turns, archive)[-1]
        others = {'zstd': list(sums(map(zstd_bytes, turns)))}
        if shutil.which('restic'):
            others['restic'] = list(restic_sums(turns, folder))
            measured = others['restic'][-1] / 1e9
            page.judge('restic', said[2], '%.2f GB' % measured,
                       abs(float(said[2][:-3] or 0) / measured - 1) <= RESTIC_BAND)
        else:
            page.skip('restic', 'not installed')
        page.compare('files', said[0], '%.1f GB' % (plain / 1e9))
        page.compare('zstd -3', said[1], '%.1f GB' % (others['zstd'][-1] / 1e9))
        page.compare('kvarc append', said[3], '%.1f MB' % (appended / 1e6))
        page.cell(TURNS, ZSTD, ratio(plain, others['zstd'][-1]))
        page.cell(TURNS, PACK, ratio(plain, save_turns(turns, folder)))
        if picture:
            c.kvarc('log', '-q', '-f', '--plot', picture, archive)
            add_lines(picture, others, plain)


def add_lines(path, others, plain):
    """Lines of others in the picture of `kvarc log --plot`, whose upper line is that of the files:
    its last point gives the scale."""
    with open(path, encoding='utf-8') as f:
        svg = f.read()
    points = [tuple(map(float, p.split(','))) for p in re.search(
        r"<g class='files'.*?points='([^']*)'", svg, re.S).group(1).split()]
    zero, high = points[0][1], points[-1][1]
    label_y, out = high + 5 + 17 + 22, ''
    for name, totals in sorted(others.items(), key=lambda item: -item[1][-1]):
        colour, label = LINES[name]
        ys = [zero - (zero - high) * n / plain for n in totals]
        line = ' '.join('%.1f,%.1f' % (x, y) for (x, _), y in zip(points[1:], ys))
        x = points[-1][0]
        out += ("<g class='%s' fill='%s'>\n<polyline fill='none' stroke='%s' stroke-width='2' "
                "points='%g,%g %s'/>\n<circle cx='%.1f' cy='%.1f' r='4'/>\n"
                "<text x='%g' y='%.1f'><tspan font-weight='bold'>%.1f GB</tspan> %s</text>\n</g>\n"
                % (name, colour, colour, *points[0], line, x, ys[-1], x + 12, label_y,
                   totals[-1] / 1e9, label))
        label_y += 20
    with open(path, 'w', encoding='utf-8') as f:
        f.write(svg.replace("<g class='files'", out + "<g class='files'"))


def rates(page, bf16, level3, model_row):
    """Of one thread: bench/peers, and the command at level 6."""
    import table
    rows = {r.name: r for r in table.peers(bf16, level3)}
    for column, row in ((ZSTD, rows['zstd -3']), (PACK, rows['kvarc -1']),
                        (PROFILE, rows['kvarc -3']), (MODEL, model_row)):
        said = re.findall(r'[\d.]+', page.said(SPEED, column))
        for what, a, b in zip(('pack', 'unpack'), said, (row.pack, row.unpack)):
            page.judge('%s, %s, %s' % (SPEED, column, what), a, '%.0f' % b,
                       1 / SPEED_BAND <= float(a) / b <= SPEED_BAND)
    line = page.find(LINK, 1)[0]
    slowest = rows['kvarc -1'].unpack * (1 - 1 / rows['kvarc -1'].ratio)
    page.judge('a link that is faster than unpacking', line, '%.0f' % slowest,
               1 / SPEED_BAND <= float(line) / slowest <= SPEED_BAND)


def measure_fitted(page, data, fitted):
    """With profiles and the model."""
    import table
    slots, kept = os.path.join(fitted, 'slots'), os.path.join(fitted, 'profiles')
    os.makedirs(kept, exist_ok=True)
    model, gguf = os.path.join(fitted, 'model'), c.gguf()
    wiki = {'slot': sorted(glob.glob(os.path.join(slots, 'wiki-*.slot'))),
            'bf16': sorted(glob.glob(os.path.join(fitted, 'wiki-*.safetensors'))),
            'e4m3': sorted(glob.glob(os.path.join(fitted, 'e4m3', 'wiki-*.safetensors')))}
    tests = (('slot', 'llama.cpp slot, F16', gguf, os.path.join(data, FILES[
        'llama.cpp slot, F16'])),
        ('bf16', BF16, model, os.path.join(fitted, 'test-0.safetensors')),
        ('e4m3', E4M3, model, os.path.join(fitted, 'e4m3', 'test-0.safetensors')))
    with tempfile.TemporaryDirectory() as folder:
        measure_file(page, BF16, tests[1][3], folder, near)
        measure_file(page, E4M3, tests[2][3], folder, near)
        for kind, row, weights, path in tests:
            three = c.trained(kept, kind + '-3', wiki[kind])
            six = c.trained(kept, kind + '-6', wiki[kind], '--model', weights, '--level', '6')
            near(page, row, PROFILE, size(path), packed(path, folder, '-3', '--profile', three))
            near(page, row, MODEL, size(path), packed(path, folder, '-6', '--model', weights,
                                                      '--profile', six))
            if kind == 'bf16':
                rates(page, path, three, table.with_model(6, weights, six, path, folder)[0])


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--quick', action='store_true')
    for name in 'data', 'turns', 'fitted', 'picture':
        p.add_argument('--' + name)
    p.add_argument('--readme', default=os.path.join(c.TOP, 'README.md'))
    o = p.parse_args()
    page = Page(o.readme, c.TOP)
    data = o.data or (c.SHARED if os.path.isdir(c.SHARED) else None)
    quick(page)
    if o.quick:
        data = None
    else:
        c.machine()
    turns = sorted(glob.glob(os.path.join(o.turns, 'turn-*.bin'))) if o.turns else []
    measure_data(page, data)
    measure_turns(page, turns, o.picture)
    if o.fitted and data:
        measure_fitted(page, data, o.fitted)
    else:
        for row in BF16, E4M3, SPEED, 'llama.cpp slot, F16':
            page.skip_row(row, 'no --fitted')
        page.find(LINK, 1)
    page.finish()


if __name__ == '__main__':
    main()
