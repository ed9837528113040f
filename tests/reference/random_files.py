# SPDX-License-Identifier: BSD-3-Clause
"""Random archives by the encoder of spec/vectors.

    random_files.py VECTORS OUT SEED...

Writes OUT/py-SEED.kva and the digests of what went in, OUT/py-SEED.txt. They
go where the C writer does not: any parameters and tables, any mask that is
true, late escapes, any plane method, head groups and lane orders at random.

Writes OUT/edit-SEED-N.kva, too: the small archive that the bad vectors are made
from, with one random edit in one frame under checks that hold. Some of them
are still valid; decoders have to agree which.
"""

import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])

from bad_base import base  # noqa: E402
from enc_codecs import (  # noqa: E402
    GridParams, TableParams, find_constant, scale_table)
from enc_fields import (  # noqa: E402
    BF16, BYTES, E4M3, E5M2, EXPONENT_BITS, F16, F32, I8, U8, Random,
    varint)
from kvarc_enc import Writer, tensor  # noqa: E402
from vector_data import any_bits, normal, spice  # noqa: E402

FLOATS = (F32, F16, BF16, E4M3, E5M2)


def random_table(rng, n):
    """Frequencies that add up to 2048, from flat to steep."""
    steep = rng.between(0, 6)
    counts = [rng.below(1 + (1000 >> min(9, s * steep // 8)))
              for s in range(n)]
    return scale_table(counts, n - 1)


def random_params(rng, dtype, columns, rope):
    if dtype not in FLOATS:
        n = rng.between(1, 3)
        return TableParams(6, [random_table(rng, 257) for _ in range(n)],
                           [rng.below(n) for _ in range(columns)])
    if rng.chance(3):
        n = rng.between(1, 16)
        bits = EXPONENT_BITS[dtype]
        top = rng.below(1 << bits)
        return TableParams(4, [random_table(rng, 32) for _ in range(n)],
                           [rng.below(n) for _ in range(columns)],
                           [min(255, max(0, top + rng.between(-9, 9)))
                            for _ in range(columns)])
    k = [rng.pick([rng.between(-30, 30), rng.between(-90, 90),
                   rng.between(-400, 400)]) for _ in range(columns)]
    mean = [rng.pick([0, rng.between(-200, 200),
                      rng.between(-32768, 32767)]) for _ in range(columns)]
    return GridParams(k, mean, bool(rope) and not rng.chance(4),
                      late=rng.chance(2))


def random_values(rng, dtype, rows, columns):
    if dtype not in FLOATS or rng.chance(4):
        values = any_bits(rng, dtype, rows * columns)
    else:
        values = normal(rng, dtype, rows, columns,
                        [rng.gauss() * 4 for _ in range(columns)],
                        [2.0 ** rng.between(-12, 4) for _ in range(columns)])
        values = spice(rng, dtype, values, 15)
    for c in range(columns):
        if rng.chance(8):
            for r in range(rows):
                values[r * columns + c] = values[c]
    for r in range(rows):
        if rng.chance(12):
            for c in range(columns):
                values[r * columns + c] = values[r * columns]
    return values


def some(rng, numbers):
    """All of them, none, or some: a mask need not name all it could."""
    return [n for n in numbers if not rng.chance(6)] if numbers else []


def random_positions(rng, n):
    out = [rng.between(-2 ** 31, 2 ** 31 - 400) if rng.chance(5)
           else rng.between(-500, 5000)]
    while len(out) < n:
        step = 1 if not rng.chance(9) else rng.between(-50, 300)
        out.append(max(-2 ** 31, min(2 ** 31 - 1, out[-1] + step)))
    return out


def coded_chunk(rng, w, number, t, rope, first, heads, n):
    columns = heads * t["channels"]
    values = random_values(rng, t["dtype"], n, columns)
    params = random_params(rng, t["dtype"], columns, rope)
    sequence = w.params(number, params, first, heads, method=rng.below(2))
    channels, rows = find_constant(n, columns, values)
    channels = some(rng, channels)
    # Rows that are constant in what the named channels leave.
    rows = [r for r in rows if len(
        {values[r * columns + c] for c in range(columns)
         if c not in channels}) == 1]
    w.chunk(number, values, params.codec, params, sequence, rng.below(2),
            first=first, heads=heads, constant_columns=channels,
            constant_rows=some(rng, rows),
            methods=[rng.pick([None, 1, 0]) for _ in range(3)])


def random_file(seed):
    rng = Random(seed)
    w = Writer(bytes(rng.bits(8) for _ in range(16)),
               minor=rng.below(3), compat=rng.bits(32))
    ropes = []
    for _ in range(rng.below(3)):
        rotary = 2 * rng.between(1, 4)
        ropes.append((rng.below(2), rotary,
                      [rng.bits(64) >> rng.below(30)
                       for _ in range(rotary // 2)]))
    tensors = []
    for i in range(rng.between(1, 3)):
        rope = rng.below(len(ropes) + 1)
        least = ropes[rope - 1][1] if rope else 1
        tensors.append(tensor(
            i, rng.below(10), rng.pick([BYTES, F32, F16, BF16, BF16, E4M3,
                                        E5M2, I8, U8]),
            rng.between(1, 3), least + rng.below(7), rope=rope))
    w.geometry(ropes, [(0, 0, "")], tensors, method=rng.below(2))
    for _ in range(rng.between(1, 2)):
        n = rng.pick([1, 2, 31, 32, 33, rng.between(1, 70)])
        w.segment(0, n, random_positions(rng, n),
                  [rng.bits(31) for _ in range(n)] if rng.chance(2) else None,
                  method=rng.below(2))
        for i, t in enumerate(tensors):
            rope = ropes[t["rope"] - 1] if t["rope"] else None
            first = 0
            while first < t["heads"]:
                heads = rng.between(1, t["heads"] - first)
                coded_chunk(rng, w, i, t, rope, first, heads, n)
                first += heads
        w.commit()
    if not rng.chance(3):
        w.close()
    return w


FRAMES = ["GEOMETRY", "IDENTITY", "RESTORE", "BLOB", "SEGMENT", "CHUNK",
          "COMMIT", "INDEX", "FOOTER", "PARAMS", "PARAMS"]
EDITS = 8       # a seed


def random_edit(rng):
    how, value = rng.below(6), rng.bits(8)

    def change(data):
        if not data:
            return bytes([value])
        at = rng.below(len(data))
        return data[:at] + [
            lambda: bytes([data[at] ^ 1 << value % 8]) + data[at + 1:],
            lambda: bytes([value]) + data[at + 1:],
            lambda: data[at + 1:],
            lambda: bytes([value]) + data[at:],
            lambda: b"",
            lambda: varint(rng.bits(1 + value % 63)) + data[at + 1:],
        ][how]()
    return change


def edited_file(seed):
    rng = Random(seed)
    coded = not rng.chance(3)
    name = rng.pick([f for f in FRAMES if coded or f != "PARAMS"])
    count = rng.below(2) if name in ("CHUNK", "PARAMS") else 0
    change = random_edit(rng)
    if name == "CHUNK":
        change = {"payload": change, "decoded_bytes": (60, 15)[count]}
    elif rng.chance(6):
        change = {"payload": change}
    return bytes(base({(name, count): change}, coded=coded).out)


for number in sys.argv[3:]:
    for i in range(EDITS):
        path = os.path.join(sys.argv[2], "edit-%s-%d.kva" % (number, i))
        with open(path, "wb") as f:
            f.write(edited_file(int(number) * EDITS + i))
    writer = random_file(int(number))
    name = os.path.join(sys.argv[2], "py-" + number)
    with open(name + ".kva", "wb") as f:
        f.write(writer.out)
    with open(name + ".txt", "w") as f:
        f.write(writer.expected())
