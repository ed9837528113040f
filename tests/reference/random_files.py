# SPDX-License-Identifier: BSD-3-Clause
"""Random archives by the encoder of spec/vectors.

    random_files.py VECTORS OUT SEED...

Writes OUT/py-SEED.kva and the digests of what went in, OUT/py-SEED.txt. They
go where the C writer does not: any parameters and tables, any mask that is
true, late escapes, any plane method, head groups and stream sizes at random.

Writes OUT/linear-SEED.kva and .txt, too: codec 7 with random models, and for half
of them the profile as OUT/linear-SEED.kvp instead of inside.

Writes OUT/lossy-SEED.kva and .txt, too: codec 13 with random parameters, codes,
steps, exact tokens, rate classes, of any float dtype; OUT/klt-SEED.kva and .txt: codec 14.

Writes OUT/edit-SEED-N.kva, too: a small archive that the bad vectors are made
from, with one random edit in one frame under checks that hold. Some of them
are still valid; decoders have to agree which.
"""

import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])

from bad_base import base  # noqa: E402
from bad_klt import SIZES as KLT_SIZES, base as klt_base  # noqa: E402
from bad_linear import base as linear_base  # noqa: E402
from bad_lossy import SIZES as LOSSY_SIZES, base as lossy_base  # noqa: E402
from enc_cells import Cells  # noqa: E402
from enc_codecs import (  # noqa: E402
    GridParams, TableParams, find_constant, scale_table)
from enc_fields import (  # noqa: E402
    BF16, BYTES, E4M3, E5M2, EXPONENT_BITS, F16, F32, I8, U8, Random,
    varint)
from enc_layers import Layers  # noqa: E402
from enc_linear import Profile  # noqa: E402
from good_klt import Below, basis_model, put as put_klt  # noqa: E402
from enc_lossy import (  # noqa: E402
    Had, float_of, lossy_chunk, narrowed, random_codes, usual_shift)
from kvarc_enc import Writer, tensor  # noqa: E402
from linear_data import Session, random_model, token_table  # noqa: E402
from rate_vectors import base as rates_base  # noqa: E402
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
        return TableParams([random_table(rng, 257) for _ in range(n)],
                           [rng.below(n) for _ in range(columns)])
    if rng.chance(3):
        modulus = 1 << EXPONENT_BITS[dtype]
        top, reach = rng.below(modulus), rng.pick([0, 3, 9, modulus])
        tops = [(top + rng.between(-reach, reach)) % modulus
                for _ in range(columns)]
        return Layers(None if rng.chance(4) else tops,
                      rng.pick([top, rng.below(modulus)]),
                      stored=range(rng.below(4)))
    k = [rng.pick([rng.between(-30, 30), rng.between(-90, 90),
                   rng.between(-400, 400)]) for _ in range(columns)]
    mean = [rng.pick([0, rng.between(-200, 200),
                      rng.between(-32768, 32767)]) for _ in range(columns)]
    rotate = bool(rope) and not rng.chance(4)
    if dtype in (F32, F16, BF16) and rng.chance(2):
        return Cells(k, mean, rotate, escaped={
            rng.below(4000) for _ in range(rng.pick([0, 0, 100, 4000]))})
    return GridParams(k, mean, rotate, late=rng.chance(2))


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
    sequence = 0
    if params.codec != Layers.codec:
        sequence = w.params(number, params, first, heads, method=rng.below(2))
    channels, rows = find_constant(n, columns, values)
    channels = some(rng, channels)
    # Rows that are constant in the residual of the named channels.
    rows = [r for r in rows if len(
        {values[r * columns + c] for c in range(columns)
         if c not in channels}) == 1]
    rows, size = some(rng, rows), rng.below(3)
    w.chunk(number, values, getattr(params, "chunk_codec", params.codec),
            params, sequence, first=first, heads=heads, constant_columns=channels,
            constant_rows=rows, b=size if n - len(rows) > 32 << size else 3,
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


def random_sources(rng, known, layer, kind, heads, lower):
    """Some of the models that come before, with a scope that is possible."""
    out = []
    for m in known:
        if (m.layer < layer if lower else
                m.layer == layer and m.kind < kind) and rng.chance(2):
            scope = rng.below(2) if heads % m.heads == 0 else 0
            out.append(((layer - m.layer,) if lower else ())
                       + (m.kind, scope))
    return out[-4:]


def random_models(rng, level, freq):
    out = []
    for layer in range(rng.between(1, 3)):
        for kind in (0, 1, 3):
            if kind == 3 and not rng.chance(4):
                continue
            heads, rotary = rng.between(1, 3), 0
            channels = rng.between(1, 5)
            if kind != 1 and freq and rng.chance(2):
                rotary = 2 * len(freq)
                channels = max(channels, rotary)
            same = random_sources(rng, out, layer, kind, heads, False)
            scale = rng.pick([None, (rng.between(1, 255), 0)])
            kinds = [m.kind for m in out if m.layer == layer]
            if kinds and rng.chance(2):
                scale = (rng.between(1, 40), rng.between(1, 16),
                         rng.pick(kinds))
            out.append(random_model(
                rng, level, layer, kind, heads, channels, out,
                rng.pick([30, 200, 2000]), rope=int(rotary > 0),
                rotary=rotary, own=rng.below(3), same=same, scale=scale,
                lower=random_sources(rng, out, layer, kind, heads, True)
                if level == 3 else []))
            if rng.chance(4):
                token_table(rng, out[-1], sorted(
                    {rng.below(9) - 4 for _ in range(5)}), rng.below(9),
                    rng.below(129))
    return out


def linear_file(seed):
    """-> writer, profile file or None"""
    rng = Random(seed)
    freq = [rng.bits(64) >> rng.below(30) for _ in range(rng.below(3))]
    level = rng.between(2, 3)
    models = random_models(rng, level, freq)
    profile = Profile(models, [freq] if freq else [])
    rope = (rng.below(2), 2 * len(freq), freq) if freq else None
    dtype = rng.pick(FLOATS)
    tensors = [tensor(m.layer, m.kind, rng.pick([dtype, rng.pick(FLOATS)]),
                      m.heads, m.head_channels, rope=m.rope) for m in models]
    embed = rng.chance(2)
    s = Session(rng, profile, tensors, rope, embed, level,
                piece=rng.between(50, 3000), method=rng.below(2))
    for _ in range(rng.between(1, 2)):
        n = rng.pick([1, 2, 31, 32, 33, rng.between(1, 70)])
        s.segment(n, random_positions(rng, n),
                  [rng.below(9) - 4 for _ in range(n)]
                  if rng.chance(2) else None)
        odd = rng.pick([0, 0, 3, 30])
        still = rng.pick([0, 0, 4])

        def change(t, c, x):
            if still and c % still == 1:
                return 0x41
            return any_bits(rng, E4M3, 1)[0] if odd and rng.chance(odd) else x
        for number in range(len(tensors)):
            if rng.chance(6):
                s.raw(number, change)
            else:
                s.linear(number, change)
        s.w.commit()
    s.w.close()
    return s.w, None if embed else profile.file()


def random_had(rng, columns, step, rope):
    mean = [narrowed(rng.gauss() * 8, BF16) if not rng.chance(9)
            else rng.pick([0x8000, 0x7F7F, 0xFF7F, rng.bits(14)])
            for _ in range(columns)]
    if rng.chance(4):
        k = [rng.bits(8) - 128 for _ in range(columns)]
    else:
        k = [max(-128, min(127, usual_shift(step) + rng.between(0, 32)))
             for _ in range(columns)]
    return Had(mean, k, bool(rope) and not rng.chance(3), not rng.chance(3))


def random_step(rng):
    if rng.chance(5):
        return float_of(rng.between(0x00800000, 0x717FFFFF))
    return float_of(rng.between(0x3A000000, 0x42000000))


def random_exact(rng, dtype, n, width):
    which = [i for i in range(n) if rng.chance(5)] if rng.chance(2) else []
    return {i: any_bits(rng, dtype, width) for i in which[:n - 1]}


def random_rates(rng, n):
    """A rate class for each token that is not exact, or none have any."""
    classes = rng.between(2, 4)
    if n < classes or not rng.chance(2):
        return None
    rates = [rng.below(classes) for _ in range(n)]
    for i in range(classes):
        rates[i * (n // classes)] = i
    return rates


def random_lossy(rng, w, number, t, rope, first, heads, n):
    width = heads * t["channels"]
    step = random_step(rng)
    tier = random_had(rng, width, step, rope)
    exact = random_exact(rng, t["dtype"], n, width)
    shift = rng.pick([usual_shift(step), rng.bits(16) - 32768])
    rates = random_rates(rng, n - len(exact))
    codes = random_codes(rng, tier, n - len(exact), shift)
    if rates:
        rows = [codes[i:i + width] for i in range(0, len(codes), width)]
        codes = [[q for row, r in zip(rows, rates) if r == i for q in row]
                 for i in range(max(rates) + 1)]
        step = [random_step(rng) for _ in codes]
    lossy_chunk(w, number, tier, codes, step,
                w.params(number, tier, first, heads, method=rng.below(2)),
                shift, (rng.between(-16, 16), rng.between(-16, 16)),
                exact, rates, first=first, heads=heads,
                generation=rng.between(1, 255), method=rng.below(2))


def lossy_file(seed):
    rng = Random(seed)
    w = Writer()
    rotary = 2 * rng.between(1, 6)
    rope = (rng.below(2), rotary,
            [rng.bits(64) >> rng.below(30) for _ in range(rotary // 2)])
    tensors = []
    for i in range(rng.between(1, 3)):
        turns = rng.below(2)
        tensors.append(tensor(
            i, rng.below(10), rng.pick(FLOATS), rng.between(1, 3),
            rotary * turns + rng.between(1, rng.pick([4, 40])), rope=turns))
    w.geometry([rope], [(0, 0, "")], tensors)
    for _ in range(rng.between(1, 2)):
        n = rng.pick([1, 2, 31, 32, 33, rng.between(1, 70)])
        w.segment(0, n, random_positions(rng, n))
        for i, t in enumerate(tensors):
            first = 0
            while first < t["heads"]:
                heads = rng.between(1, t["heads"] - first)
                random_lossy(rng, w, i, t, rope if t["rope"] else None,
                             first, heads, n)
                first += heads
        w.commit()
    w.close()
    return w


def random_below(rng, models, layer, heads):
    """Lower sources of a transform, out of the models before it."""
    out = []
    for m in models:
        if rng.chance(2):
            scope = int(heads % m.heads == 0 and rng.chance(2))
            out.append((layer - m.layer, m.kind, scope))
    return out


def klt_file(seed):
    rng = Random(seed)
    w, models, tensors = Writer(), [], []
    rotary = 2 * rng.between(1, 3)
    freq = [rng.bits(64) >> rng.below(30) for _ in range(rotary // 2)]
    for layer in range(rng.between(1, 2)):
        for kind in (0, 1):
            turns = rotary if not kind and rng.chance(2) else 0
            heads = rng.between(1, 3)
            m = basis_model(rng, layer, kind, heads,
                            turns + rng.between(1, 9), turns,
                            lower=random_below(rng, models, layer, heads),
                            known=models)
            if rng.chance(3):
                m.k = [rng.between(-400, 400) for _ in m.k]
                m.basis[0][:] = [rng.bits(8) for _ in m.k]
            models.append(m)
            tensors.append(tensor(layer, kind, rng.pick(FLOATS), m.heads,
                                  m.head_channels, rope=int(turns > 0)))
    p = Profile(models, [freq])
    w.geometry([(rng.below(2), rotary, freq)], [(0, 0, "")], tensors)
    predictor = w.predictor(9, p.digest, "", p.content, rng.between(50, 3000))
    for _ in range(rng.between(1, 2)):
        n = rng.pick([1, 2, 31, 32, 33, rng.between(1, 70)])
        w.segment(0, n, random_positions(rng, n))
        below = Below(w)
        for i, m in enumerate(models):
            exact = random_exact(rng, tensors[i]["dtype"], n, m.width())
            put_klt(w, rng, i, m, n - len(exact), predictor, random_step(rng),
                    below, shift=rng.between(-40, 40), exact=exact,
                    near=(rng.between(-16, 16), rng.between(-16, 16)),
                    generation=rng.between(1, 255), method=rng.below(2))
        w.commit()
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


def edited_linear(rng):
    name = rng.pick(["PREDICTOR", "PROFILE", "CHUNK"])
    change, count = random_edit(rng), rng.below(2)
    if name == "CHUNK":
        change = {"payload": change, "decoded_bytes": (18, 36)[count]}
    if name == "PREDICTOR":
        count = 0
    elif name == "PROFILE" and rng.chance(2):
        return linear_base(edit_content=change, layers=2)[0]
    return linear_base({(name, count): change})[0]


def edited_klt(rng):
    name, count = rng.pick(["PREDICTOR", "PROFILE", "CHUNK"]), 0
    change = random_edit(rng)
    if name == "CHUNK":
        count = rng.below(2)
        change = {"payload": change, "decoded_bytes": KLT_SIZES[count]}
    return klt_base({(name, count): change})[0]


def edited_lossy(rng):
    if rng.chance(3):
        return rates_base(random_edit(rng))
    name, count = rng.pick(["PARAMS", "CHUNK"]), rng.below(2)
    change = random_edit(rng)
    if name == "CHUNK":
        change = {"payload": change, "decoded_bytes": LOSSY_SIZES[count]}
    return bytes(lossy_base({(name, count): change}).out)


def edited_file(seed):
    rng = Random(seed)
    if rng.chance(3):
        return edited_linear(rng)
    if rng.chance(4):
        return edited_lossy(rng)
    if rng.chance(6):
        return edited_klt(rng)
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
    for name, writer, profile in (
            ("py-", random_file(int(number)), None),
            ("lossy-", lossy_file(int(number)), None),
            ("klt-", klt_file(int(number)), None),
            ("linear-",) + linear_file(int(number))):
        name = os.path.join(sys.argv[2], name + number)
        with open(name + ".kva", "wb") as f:
            f.write(writer.out)
        with open(name + ".txt", "w") as f:
            f.write(writer.expected())
        if profile:
            with open(name + ".kvp", "wb") as f:
                f.write(profile)
