#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Sessions of the newest memories of llama.cpp, three turns each: what each turn writes.

slot_sessions.py; the command is $KVARC.

The slots are MADE, in the grammar of tests/data/make_import_data.py: a hybrid model with an
indexer, and DeepSeek V4 (a window, keys of blocks of 4 and 128 tokens, compressors). A token's row
is the same in each turn. Each turn is saved as the next version of a session, and loaded again.
The share of a turn is what a slot of its own would take, times the bytes of rows and states that
the turn before has not, over all bytes. Exit 1 where a turn wrote more than 1.3 times its share.
"""
import importlib.util
import json
import os
import random
import subprocess
import sys
import tempfile

LIMIT = 1.3
TURNS = (512, 704, 960)
TESTS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), 'tests', 'data')
WIDTH, LAYERS, WINDOW = 128, 3, 64


def writer(folder):
    """The functions of the script that writes such slots, which writes its own when it is read."""
    sys.path.insert(0, TESTS)
    spec = importlib.util.spec_from_file_location(
        'make_import_data', os.path.join(TESTS, 'make_import_data.py'))
    module = importlib.util.module_from_spec(spec)
    argv, sys.argv = sys.argv, ['make_import_data.py', folder]
    spec.loader.exec_module(module)
    sys.argv = argv
    return module


class Rows:
    """Elements that are a function of the matrix, counted from the begin of a slot, and the row."""

    def __init__(self):
        self.matrix, self.skipped, self.turn, self.new, self.all = 0, 0, 0, 0, 0
        self.known = {}

    def begin(self, turn):
        self.matrix, self.turn, self.new, self.all = 0, turn, 0, 0

    def elements(self, kind, n):
        size = {'f32': 4, 'f16': 2, 'bf16': 2}[kind]
        state = kind == 'f32'   # other numbers in each turn
        numbers = random.Random('%d %s' % (self.matrix, self.turn if state else ''))
        first = 0 if state else self.skipped * WIDTH
        values = [numbers.gauss(0, 1) for _ in range(first + n)][first:]
        known = 0 if state else self.known.get(self.matrix, 0)
        self.all += size * n
        self.new += size * min(n, max(0, first + n - known))
        self.known[self.matrix] = first + n
        self.matrix += 1
        return b''.join(map(as_f16 if size == 2 else as_f32, values))


def as_f16(x):
    import struct
    return struct.pack('<e', x)


def as_f32(x):
    import struct
    return struct.pack('<f', x)


def hybrid(w, rows, n):
    del rows
    return (w.memory(w.stream(True, n, width=WIDTH, layers=LAYERS)) +
            w.states(n - 1, 3, 5, 2048, 4096) + w.keys(n, WIDTH, LAYERS))


def deepseek4(w, rows, n):
    bare = w.memory(w.u32(n) + b''.join(w.u32(i, 1, 0) for i in range(n)) + w.u32(0, 0, 0, 0))
    rows.skipped = n - WINDOW
    window = w.keys(WINDOW, WIDTH, LAYERS, positions=range(n - WINDOW, n))
    rows.skipped = 0
    return (w.u32(0x34565344, 1, 0) + bare + window + w.block_keys(n // 4, WIDTH, LAYERS) +
            w.block_keys(n // 128, WIDTH, 1) + w.block_keys(n // 4, WIDTH, 2) + w.compressors())


def session(kvarc, folder, name, make, w):
    rows, good = Rows(), True
    w.elements = rows.elements
    store, slot, back = (os.path.join(folder, x) for x in (name, 'slot.bin', 'back.bin'))
    for turn, n in enumerate(TURNS):
        rows.begin(turn)
        data = w.seq(4, w.packed(list(range(100, 100 + n))), make(w, rows, n))
        with open(slot, 'wb') as out:
            out.write(data)
        subprocess.run([kvarc, 'pack', '-qf', '-o', slot + '.kva', slot], check=True)
        said = json.loads(subprocess.run(
            [kvarc, 'session', 'save', '--json', '--store', store, 's', slot], check=True,
            stdout=subprocess.PIPE).stdout)
        subprocess.run([kvarc, 'session', 'load', '-qf', '--store', store, '-o', back, 's'],
                       check=True)
        with open(back, 'rb') as restored:
            if restored.read() != data:
                sys.exit('%s: turn %d is not restored' % (name, turn + 1))
        share = os.path.getsize(slot + '.kva') * rows.new / rows.all
        over = said['written_bytes'] / share
        good = good and (turn == 0 or over <= LIMIT)
        print('%-10s %4d tokens  wrote %7d bytes  share %8.0f  %.2f%s' % (
            name, n, said['written_bytes'], share, over,
            '' if turn == 0 else ' (at most %.1f)' % LIMIT))
    return good


def main():
    kvarc = os.environ.get('KVARC', 'kvarc')
    os.environ['KVARC_CACHE'] = 'off'
    with tempfile.TemporaryDirectory() as folder:
        w = writer(os.path.join(folder, 'import'))
        good = [session(kvarc, folder, name, make, w)
                for name, make in (('hybrid-idx', hybrid), ('DSV4', deepseek4))]
    return 0 if all(good) else 1


if __name__ == '__main__':
    sys.exit(main())
