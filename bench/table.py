#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Every level next to zstd, ZipNN and prefill, and the links on which it wins.

table.py MODEL CALIBRATION TEST [PROFILES [TEXTFILE]]; the command is $KVARC, with
bench/peers and bench/matmul beside it. MODEL, CALIBRATION and TEST as for
models.py; profiles of levels 2 to 7 are trained into the folder PROFILES unless
they are there. TEXTFILE: what llama.cpp prefills (prefill.py).

All in processor time of one thread; levels 0 to 3 and the peers in memory, fastest
of several; levels 4 to 7 with the command, median of $ROUNDS (3): what 1024 tokens take
longer than 64, so that opening the model is left out; it has a line of its own.
Seconds over a link are those of the bytes of the archive on it and of unpacking after
that. Prefill gives keys and values that are close, not the same bits.
"""
import glob
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile

import common as c

ROUNDS = int(os.environ.get('ROUNDS', '3'))
BUILD = os.path.dirname(os.path.abspath(c.KVARC))
MODEL_LEVELS = (4, 5, 6, 7)
TOKENS, SHORT = 1024, 64 # of TEST, and of the cache that costs little more than opening


class Row:
    """Rates are of raw bytes, MB/s; ratio 1 and no time: the bytes as they are."""
    def __init__(self, name, ratio, pack, unpack):
        self.name, self.ratio = name, ratio
        self.pack, self.unpack = pack, unpack

    def seconds(self, link):
        """Seconds for 1 MB over a link of `link` MB/s."""
        return 1 / self.ratio / link + (1 / self.unpack if self.unpack else 0)


def peers(test, profile):
    """Rows of bench/peers: zstd, and levels 0 to 3."""
    out = subprocess.run([os.path.join(BUILD, 'bench', 'peers'), '-p', profile,
                          test], stdout=subprocess.PIPE, check=True).stdout
    for line in out.decode().splitlines()[2:]:
        f = line.split()
        name = ' '.join(f[:-7])
        yield Row(name.replace(' --profile', ''), float(f[-6][:-1]),
                  float(f[-4]), float(f[-2]))


def zipnn(test):
    raw = c.tensors(test)
    pack, unpack = c.peer_zipnn('bfloat16')
    times = []
    for _ in range(ROUNDS + 2):
        packed, a = c.processor_timed(pack, bytearray(raw))
        size = len(packed)
        _, b = c.processor_timed(unpack, packed)
        times.append((a, b))
    return Row('ZipNN', len(raw) / size, *(len(raw) / 1e6 / min(t)
                                           for t in zip(*times)))


def shortened(path, n, out):
    """The cache's first n tokens."""
    with open(path, 'rb') as f:
        head = json.loads(f.read(struct.unpack('<Q', f.read(8))[0]))
        data = f.read()
    new, parts, at = {}, [], 0
    for name, t in head.items():
        raw, shape = data[slice(*t['data_offsets'])], list(t['shape'])
        axis = len(shape) // 2 # [heads, tokens, channels] or [tokens]
        step = len(raw) // (shape[0] if axis else 1)
        kept = step // shape[axis] * n
        raw = b''.join(raw[i:i + kept] for i in range(0, len(raw), step))
        shape[axis] = n
        new[name] = dict(t, shape=shape, data_offsets=[at, at + len(raw)])
        parts.append(raw)
        at += len(raw)
    text = json.dumps(new).encode()
    text += b' ' * (-len(text) % 8)
    with open(out, 'wb') as f:
        f.write(struct.pack('<Q', len(text)) + text + b''.join(parts))


def with_model(level, model, profile, test, folder):
    """A level's row, and the seconds of opening the model and of some tokens."""
    short = os.path.join(folder, 'short.safetensors')
    shortened(test, SHORT, short)
    runs = [(c.with_model(test, level, model, profile, folder),
             c.with_model(short, level, model, profile, folder))
            for _ in range(ROUNDS)]
    size = len(c.tensors(test)) / 1e6
    between = size - len(c.tensors(short)) / 1e6
    rates = [between / statistics.median(a[i] - b[i] for a, b in runs)
             for i in (0, 1)]
    return (Row('kvarc -%d' % level, size * 1e6 / runs[0][0][2], *rates),
            statistics.median(b[1] for _, b in runs))


def print_rows(rows, token_bytes):
    print('%-18s %7s %9s %21s %21s' % ('', 'ratio', 'bits', 'pack', 'unpack'))
    for r in rows:
        rates = ['%8.1f MB/s %6.0f t/s' % (v, v * 1e6 / token_bytes)
                 for v in (r.pack, r.unpack)]
        print('%-18s %6.2fx %9.2f %s %s' % (r.name, r.ratio, 16 / r.ratio,
                                            *rates))


def break_even(a, b):
    """The links, MB/s, on which a takes less time than b, as words."""
    slower = 1 / a.unpack - (1 / b.unpack if b.unpack else 0)
    smaller = 1 / b.ratio - 1 / a.ratio
    if (slower > 0) != (smaller > 0):
        return 'always' if smaller > 0 else 'never'
    return '%s %.4g' % ('below' if slower > 0 else 'above', smaller / slower)


def over_prefill(r, prefill):
    """The same against prefill of `prefill` MB/s."""
    left = 1 / prefill - 1 / r.unpack
    return 'above %.4g' % (1 / r.ratio / left) if left > 0 else 'never'


def print_links(rows, prefill):
    raw = Row('raw', 1, None, None)
    zstd = rows[0]
    print('\n%-18s %14s %14s %16s  (MB/s of the link)' % (
        '', 'beats raw', 'beats zstd', 'beats prefill'))
    for r in rows:
        print('%-18s %14s %14s %16s' % (
            r.name, break_even(r, raw),
            break_even(r, zstd) if r != zstd else '', over_prefill(r, prefill)))
    print_best([raw] + rows)


def print_best(rows):
    """Which takes the least time, from slow links to fast ones."""
    best, link = None, .1
    while link < 1e6:
        fastest = min(rows, key=lambda r: r.seconds(link))
        if fastest != best:
            print('from %8.4g MB/s: %s' % (link, fastest.name))
        best = fastest
        link *= 1.02


def peak_fractions():
    out = subprocess.run([os.path.join(BUILD, 'bench', 'matmul')],
                         stdout=subprocess.PIPE, check=True).stdout.decode()
    print('\n' + out)


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    model, data, test = sys.argv[1:4]
    text = sys.argv[5] if len(sys.argv) > 5 else os.path.join(
        c.SHARED, 'wikitext2-test.txt')
    wiki = sorted(glob.glob(os.path.join(data, 'wiki-*.safetensors')))
    c.machine()
    with tempfile.TemporaryDirectory() as folder:
        kept = sys.argv[4] if len(sys.argv) > 4 else folder
        os.makedirs(kept, exist_ok=True)
        rows = list(peers(test, c.trained(kept, 'level3', wiki)))
        rows.insert(2, zipnn(test))
        start = []
        for level in MODEL_LEVELS:
            profile = c.trained(kept, 'level%d' % level, wiki, '--model', model,
                                '--level', str(level))
            row, short = with_model(level, model, profile, test, folder)
            rows.append(row)
            start.append(short)
    p = c.prefill(text)
    token_bytes = len(c.tensors(test)) / TOKENS
    rate = p['tokens'] / p['processor_seconds']
    print_rows(rows, token_bytes)
    print('opening the model and %d tokens: %.2f to %.2f s' %
          (SHORT, min(start), max(start)))
    print('prefill, llama.cpp, the Q4_1 GGUF: %.0f tokens/s, %.1f MB/s (%s)' %
          (rate, rate * token_bytes / 1e6, p['sets'].strip()))
    print_links(rows, rate * token_bytes / 1e6)
    peak_fractions()


if __name__ == '__main__':
    main()
