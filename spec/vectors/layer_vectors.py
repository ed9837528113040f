# SPDX-License-Identifier: BSD-3-Clause
"""Vectors of codec 4 (codecs/layers.md), good ones and bad ones."""

from bad_base import VECTORS as BAD, poke
from enc_fields import (
    BF16, E4M3, E5M2, EXPONENT_BITS, F16, F32, MANTISSA_BITS, U8, Random)
from enc_layers import Layers, fit_layers, layers
from kvarc_enc import KEY, Writer, tensor
from vector_data import any_bits, normal, put, spice
from xxh3 import h64

VECTORS = []
FLOATS = (BF16, F16, F32, E4M3, E5M2)


def good(name, text):
    def add(make):
        VECTORS.append(("layers-" + name, text, make))
        return make
    return add


def archive(*tensors):
    """tensors: dtype, heads, channels."""
    w = Writer()
    w.geometry([], [(0, 0, "")], [tensor(i, KEY, *t)
                                  for i, t in enumerate(tensors)])
    return w


def element(dtype, E, rest):
    """rest: its lowest bit is the sign."""
    e, m = EXPONENT_BITS[dtype], MANTISSA_BITS[dtype]
    return (rest & 1) << e + m | E << m | rest >> 1


def elements(rng, dtype, tops, us, planes=~0):
    """Elements of these u; planes: bits of rest that are not always 0."""
    modulus, bits = 1 << EXPONENT_BITS[dtype], MANTISSA_BITS[dtype] + 1
    return [element(dtype, (tops[i % len(tops)] - u) % modulus,
                    rng.bits(bits) & planes) for i, u in enumerate(us)]


# How often a value stands in each layer and in the bytes.
OFTEN = [2, 3, 3, 4, 4, 4, 5, 1, 6, 7, 8, 9, 0, 10, 11, 12, 15]


def some_u(rng, n, most=15):
    return [rng.pick([u for u in OFTEN if u <= most]) for _ in range(n)]


@good("bf16", "codec 4: zeros, subnormal numbers, infinities and NaN; channels "
      "of other sizes")
def _():
    rng = Random(600)
    values = spice(rng, BF16, normal(rng, BF16, 21, 9, 0.0, [
        4.0 ** (c - 4) for c in range(9)]))
    w = archive((BF16, 3, 3))
    w.segment(0, 21)
    put(w, 0, values, fit_layers(BF16, 9, values))
    w.close()
    return w


@good("f16", "codec 4, 40 tokens in two streams (32 and 8), subnormal "
      "numbers; planes of 8, 2 and 1 bits")
def _():
    rng = Random(601)
    values = spice(rng, F16, normal(rng, F16, 40, 5, 0.0, 0.001), 6)
    w = archive((F16, 1, 5))
    w.segment(0, 40)
    put(w, 0, values, fit_layers(F16, 5, values), b=0)
    w.close()
    return w


@good("f32", "codec 4, three planes of 8 bits; values that were bf16: two "
      "planes are left out")
def _():
    rng = Random(602)
    values = spice(rng, F32, normal(rng, F32, 9, 7, 3.0), 9)
    w = archive((F32, 1, 7))
    for p in (values, [v & 0xFFFF0000 for v in values]):
        w.segment(0, 9)
        put(w, 0, p, fit_layers(F32, 7, p))
        w.commit()
    w.index()
    w.footer()
    return w


@good("e4m3", "codec 4, all 256 elements of e4m3, several times")
def _():
    w = archive((E4M3, 1, 11))
    values = [i * 37 % 256 for i in range(55 * 11)]
    w.segment(0, 55)
    put(w, 0, values, fit_layers(E4M3, 11, values))
    w.close()
    return w


@good("e5m2", "codec 4, all 256 elements of e5m2, several times; tops that "
      "do not suit the data")
def _():
    w = archive((E5M2, 17, 1))
    values = [i * 91 % 256 for i in range(40 * 17)]
    w.segment(0, 40)
    put(w, 0, values, Layers([c * 5 % 32 for c in range(17)], 9), b=0)
    w.close()
    return w


@good("exponents", "codec 4, every exponent with tops at both ends and "
      "between: all values of u, each of which wraps somewhere")
def _():
    rng = Random(603)
    dtypes = BF16, F32, F16
    w = archive(*((d, 1, 5) for d in dtypes))
    w.segment(0, 256)
    for i, d in enumerate(dtypes):
        top = (1 << EXPONENT_BITS[d]) - 1
        tops = [0, 1, top, top // 2, 11]
        values = [element(d, (r + c) & top, rng.bits(MANTISSA_BITS[d] + 1))
                  for r in range(256) for c in range(5)]
        put(w, i, values, Layers(tops, 2))
    w.close()
    return w


@good("one-top", "codec 4 with flag bit 0: one token and few; a base of 0 and "
      "the highest")
def _():
    rng = Random(604)
    w = archive(*((d, 2, 5) for d in FLOATS))
    for n in (1, 1, 4, 8):
        w.segment(0, n)
        for i, d in enumerate(FLOATS):
            values = any_bits(rng, d, 10 * n)
            modulus = 1 << EXPONENT_BITS[d]
            p = {1: fit_layers(d, 10, values, True), 4: Layers(base=0),
                 8: Layers(base=modulus - 1)}[n]
            put(w, i, values, p, mask=False)
        w.commit()
    w.index()
    w.footer()
    return w


@good("tails", "codec 4, one channel and 1 to 255 elements: blocks that end "
      "anywhere")
def _():
    rng = Random(605)
    dtypes = F16, E4M3, E5M2, BF16
    w = archive(*((d, 1, 1) for d in dtypes))
    for n in (1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 31, 63, 85, 127, 171, 255):
        w.segment(0, n)
        for i, d in enumerate(dtypes):
            tops = [rng.below(1 << EXPONENT_BITS[d])]
            put(w, i, elements(rng, d, tops, some_u(rng, n)),
                Layers(tops, rng.below(1 << EXPONENT_BITS[d])), mask=False)
        w.commit()
    w.index()
    w.footer()
    return w


@good("blocks", "codec 4, 257, 512, 514 and 1280 elements: more blocks than "
      "one in planes and layers")
def _():
    rng = Random(606)
    dtypes = F16, E4M3, E5M2, BF16
    w = archive(*((d, 1, c) for d in dtypes for c in (256, 257)))
    for n in (1, 2, 5):
        w.segment(0, n)
        for i, (d, c) in enumerate((d, c) for d in dtypes
                                   for c in (256, 257)):
            tops = [rng.below(1 << EXPONENT_BITS[d]) for _ in range(c)]
            put(w, i, elements(rng, d, tops, some_u(rng, c * n)),
                Layers(tops, 3), mask=False)
        w.commit()
    w.index()
    w.footer()
    return w


@good("streams", "codec 4 in two to eight streams of 32, 64 and 128 tokens, "
      "one channel and several; one stream of 256")
def _():
    rng = Random(607)
    shapes = (F16, 1, 5), (E4M3, 1, 3), (BF16, 1, 1)
    w = archive(*shapes)
    for n, b in ((100, 0), (100, 1), (256, 0), (255, 1), (129, 2), (256, 2),
                 (256, 3)):
        w.segment(0, n)
        for i, (d, _, c) in enumerate(shapes):
            tops = [rng.below(1 << EXPONENT_BITS[d]) for _ in range(c)]
            us = some_u(rng, c * n)
            # A stream without escapes, and one of escapes alone.
            us[:32 * c] = [rng.between(2, 4) for _ in range(32 * c)]
            us[32 * c:64 * c] = [rng.between(12, 15) for _ in range(32 * c)]
            put(w, i, elements(rng, d, tops, us), Layers(tops, 1), b=b,
                mask=False)
        w.commit()
    w.index()
    w.footer()
    return w


@good("mask", "codec 4, constant channels, rows and both, in one stream and "
      "several; where all are constant nothing follows the mask")
def _():
    rng = Random(608)
    cases = [((), ()), ((0, 4), ()), ((), (0, 5, 40, 41, 69)),
             ((2,), tuple(range(30, 40))), (tuple(range(5)), ()),
             ((), tuple(range(70)))]
    w = archive(*((F16, 1, 5) for _ in cases))
    for b in (3, 0):
        w.segment(0, 70)
        for i, (channels, rows) in enumerate(cases):
            tops = [rng.below(32) for _ in range(5)]
            values = elements(rng, F16, tops, some_u(rng, 350))
            for r in range(70):
                for c in range(5):
                    if c in channels:
                        values[5 * r + c] = 0x7E01 + c
                    elif r in rows:
                        values[5 * r + c] = 0x8000 + r
            put(w, i, values, Layers(tops, 30), b=b, mask=False,
                constant_columns=list(channels), constant_rows=list(rows))
        w.commit()
    w.index()
    w.footer()
    return w


@good("absent", "codec 4, each set of planes left out, in two streams; planes "
      "of zeros that are stored")
def _():
    rng = Random(609)
    cases = []
    for d, planes in ((F16, (0xFF, 0x300, 0x400)), (E5M2, (3, 4)),
                      (F32, (0xFF, 0xFF00, 0xFF0000)), (BF16, (0xFF,)),
                      (E4M3, (15,))):
        for which in range(1 << len(planes)):
            cases.append((d, sum(b for i, b in enumerate(planes)
                                 if not which >> i & 1), which))
    w = archive(*((d, 1, 1) for d, _, _ in cases))
    for stored in (False, True):
        w.segment(0, 35)
        for i, (d, planes, which) in enumerate(cases):
            tops = [rng.below(1 << EXPONENT_BITS[d])]
            values = elements(rng, d, tops, some_u(rng, 35), planes)
            put(w, i, values, Layers(tops, tops[0], [
                p for p in range(3) if stored and which >> p & 1]),
                b=0, mask=False)
        w.commit()
    w.index()
    w.footer()
    return w


@good("tops", "codec 4, 600 channels whose tops stand in all layers and in "
      "bytes, below and above base; the streams begin behind them at 4")
def _():
    rng = Random(610)
    shapes = (BF16, 3, 200), (F16, 2, 255)
    w = archive(*shapes)
    for base in (0, 31):
        w.segment(0, 2)
        for i, (d, heads, c) in enumerate(shapes):
            modulus = 1 << EXPONENT_BITS[d]
            tops = [(base - u) % modulus for u in some_u(rng, heads * c - 20)]
            tops += [rng.below(modulus) for _ in range(20)]
            values = elements(rng, d, tops, some_u(rng, 2 * heads * c))
            put(w, i, values, Layers(tops, base), mask=False)
        w.commit()
    w.index()
    w.footer()
    return w


@good("layers", "codec 4, values that all stand in one layer, or in bytes; "
      "layers without a code")
def _():
    rng = Random(611)
    kinds = [(2, 3, 4), (5, 1, 6), (7, 8, 9), (0, 10, 11), (12, 13, 15),
             (2, 5), (3, 7), (4, 0), (2, 14), (1, 9), (6, 11), (8, 12)]
    w = archive(*((BF16, 1, 3) for _ in kinds))
    w.segment(0, 11)
    for i, kind in enumerate(kinds):
        tops = [rng.below(256) for _ in range(3)]
        us = [rng.pick(kind) for _ in range(33)]
        put(w, i, elements(rng, BF16, tops, us), Layers(tops, tops[1]),
            mask=False)
    w.close()
    return w


@good("groups", "codec 4, head groups of a tensor, and heads that one codec "
      "each codes")
def _():
    rng = Random(612)
    w = archive((BF16, 5, 4))
    for _ in range(2):
        w.segment(0, 6)
        for first, heads in ((0, 2), (2, 1), (3, 2)):
            values = normal(rng, BF16, 6, 4 * heads, 1.0 + first, 0.5)
            p = fit_layers(BF16, 4 * heads, values) if first != 2 else None
            put(w, 0, values, p, first=first, heads=heads)
        w.commit()
    w.index()
    w.footer()
    return w


# ---------------------------------------------------------------------- bad

def bad(name, text, change=None, dtype=F16, n=7, channels=5, b=3, edit=None,
        one_top=False, us=None, params=0, mask=(), tensor_dtype=None):
    """One chunk of codec 4. change: of its Parts; edit: of the payload of
    the CHUNK frame."""
    def make():
        rng = Random(613)
        modulus = 1 << EXPONENT_BITS[dtype]
        tops = None if one_top else [
            (9 - u) % modulus
            for u in (2, 5, 7, 10, 13)[:channels]]
        found = us or some_u(rng, n * channels)
        # Of each layer there is one, and the last one of all is of each.
        found = (list(found) + [1, 8, 10, 14, 2, 5, 7, 0, 13])[-n * channels:]
        values = elements(rng, dtype, tops or [9], found)
        for c in mask:
            values[c::channels] = values[c:c + 1] * n
        w = Writer(edits={("CHUNK", 0): {
            "payload": edit, "decoded_bytes": n * channels * {
                F32: 4, E4M3: 1, E5M2: 1}.get(dtype, 2)}} if edit else None)
        kind = dtype if tensor_dtype is None else tensor_dtype
        w.geometry([], [(0, 0, "")], [tensor(0, KEY, kind, 1, channels)])
        w.segment(0, n)
        w.geometry_parts[2][0]["dtype"] = dtype
        put(w, 0, values, Layers(tops, 9, change=change), b=b, mask=False,
            constant_columns=list(mask), params_sequence=params)
        w.close()
        return bytes(w.out)
    BAD.append(("layers-" + name, text, make, "data"))


def finishing(change):
    """change(parts, payload)."""
    def at_end(parts):
        parts.finish = lambda out: change(parts, out)
    return at_end


def filled(part, bits=0x80):
    """A plane whose last place, which no code has, is not zero."""
    return part[:-1] + bytes([part[-1] | bits])


def block_padding(name, text, pick, **options):
    """pick(parts): a list of parts and a number in it."""
    def change(parts):
        where, i = pick(parts)
        before = where[i]
        where[i] = filled(before)
        assert where[i] != before
    bad(name + "-block-padding", text, change, **options)


# 2: padding of blocks.
block_padding("tops", "padding of layer 1 of the tops",
              lambda parts: (parts.tops, 0))
for _layer in range(4):
    block_padding(
        str(_layer + 1), "padding of layer %d" % (_layer + 1),
        lambda parts, layer=_layer: (parts.values[0], layer),
        us=[2, 1, 8, 10, 14] * 7)
block_padding("plane-4", "padding of a plane of 4 bits",
              lambda parts: (parts.planes[0], 0), dtype=E4M3)
block_padding("plane-2", "padding of a plane of 2 bits",
              lambda parts: (parts.planes[0], 1))
block_padding("plane-1", "padding of a plane of 1 bit",
              lambda parts: (parts.planes[0], 2))
block_padding("second", "padding of the second block of layer 1",
              lambda parts: (parts.values[0], 0), n=53)


def first_place(parts):
    """Code 33 of 33, with two behind it: in byte 33 % 9, at 2 * (33 // 9)."""
    plane = bytearray(parts.values[0][0])
    assert len(plane) == 9 and not plane[6] & 0xC0
    plane[6] |= 0x40
    parts.values[0][0] = bytes(plane)


bad("first-padding", "a code behind the last one of layer 1, zeros behind it",
    first_place, n=11, channels=3)


def counted(parts):
    """A code 3 in the padding, and a value of layer 2 more."""
    found, parts.counts[0] = layers(
        parts.u[0], lambda layer, values: values + [5] * (layer == 1))
    found[0] = filled(found[0], 0xC0)
    parts.values[0] = found


bad("counted-padding", "code 3 in the padding of layer 1, which the count of "
    "layer 2 has", counted)


# 3: bytes and counts.
def with_bytes(changed, tops=False):
    """Values that stand in bytes, changed; the first is one of layer 4."""
    def change(parts):
        target = parts.tops if tops else parts.values[0]
        assert target[4]
        target[4] = bytes(changed(u) for u in target[4])
    return change


def as_byte(value, tops=False):
    """A value of layer 4 in a byte."""
    def change(parts):
        hidden = value + 100
        found, counts = layers(
            [hidden if u == value else u
             for u in (parts.top_u if tops else parts.u[0])])
        found[4] = bytes(u % 100 if u == hidden else u for u in found[4])
        assert value in found[4]
        if tops:
            parts.tops, parts.top_counts = found, counts
        else:
            parts.values[0], parts.counts[0] = found, counts
    return change


bad("byte-low", "a byte of 11, which is a value of layer 4", as_byte(11),
    us=[2, 11, 14, 3, 4] * 7)
bad("byte-0", "a byte of 0", as_byte(0))
bad("byte-high", "bytes of 32 and more in f16", with_bytes(lambda u: u + 32))
bad("byte-high-4", "bytes of 16 and more in e4m3",
    with_bytes(lambda u: u + 16), dtype=E4M3)
bad("tops-byte-low", "a top in a byte of 10", as_byte(10, True))
bad("tops-byte-high", "tops in bytes of 32 and more in f16",
    with_bytes(lambda u: u + 32, True))

EXTRA = [2, 5, 7, 0, 13]        # a value of each layer and of bytes


def other_count(layer, more, tops=False):
    def changed(at, values):
        if at != layer:
            return values
        if more:
            return values + EXTRA[layer:layer + 1]
        last = len(values) - 1 - values[::-1].index(EXTRA[layer])
        return values[:last] + values[last + 1:]

    def change(parts):
        found, counts = layers(parts.top_u if tops else parts.u[0], changed)
        if tops:
            parts.tops, parts.top_counts = found, counts
        else:
            parts.values[0], parts.counts[0] = found, counts
    return change


for _layer, _name in ((1, "2"), (2, "3"), (3, "4"), (4, "bytes")):
    _of = "of layer " + _name if _layer < 4 else "byte"
    bad("count-%s-more" % _name, "a value %s more than codes 3 in front of it"
        % _of, other_count(_layer, True))
    bad("count-%s-less" % _name, "a value %s less than codes 3 in front of it"
        % _of, other_count(_layer, False))
bad("tops-count", "a top of layer 2 more than codes 3 in layer 1",
    other_count(1, True, True))


def huge(i, tops=False):
    def change(parts):
        counts = parts.top_counts if tops else parts.counts[0]
        counts[i] = 0xFFFFFFFF
    return change


bad("counts-huge", "2^32 - 1 codes of layer 2 announced", huge(0))
bad("counts-huge-bytes", "2^32 - 1 bytes announced", huge(3))
bad("tops-counts-huge", "2^32 - 1 codes of layer 2 of the tops announced",
    huge(0, True))


def all_huge(parts):
    parts.counts[-1][:] = [0xFFFFFFFF] * 4


bad("counts-huge-all", "2^32 - 1 everywhere, in the last of two streams",
    all_huge, n=40, b=0)


def between_streams(parts):
    """The first value of layer 2 of the second stream is in the first one."""
    for s in range(2):
        found, parts.counts[s] = layers(
            parts.u[s], lambda layer, values: values if layer != 1
            else values + [5] if s == 0 else
            values[:values.index(5)] + values[values.index(5) + 1:])
        parts.values[s] = found


bad("count-between-streams", "a value of layer 2 of the second stream stands "
    "in the first one", between_streams, n=40, b=0)


# 4: the head.
def field(name, value):
    def change(parts):
        setattr(parts, name, value)
    return change


bad("flags", "a reserved flag", field("flags", 2))
bad("one-top-flags", "a reserved flag beside flag bit 0", field("flags", 0x81),
    one_top=True)
bad("absent-flags", "a plane left out that bf16 does not have",
    field("absent", 2), dtype=BF16)
bad("absent-f32-flags", "a plane left out that f32 does not have",
    field("absent", 8), dtype=F32)
bad("reserved", "the reserved byte", field("reserved", 1))
bad("base", "a base of 32 and more in f16", field("base", 9 + 32))
bad("base-one-top", "a base of 16 and more in e4m3 with flag bit 0",
    field("base", 9 + 16), dtype=E4M3, one_top=True)
bad("base-other", "another base", field("base", 10))
bad("one-top", "flag bit 0 where tops follow", field("flags", 1))
bad("absent-stored", "a plane left out that is stored", field("absent", 1))
bad("rest-padding", "padding in front of a plane of the rest",
    field("padding", b"\1"), dtype=BF16, n=4, channels=5)
bad("values-padding", "padding in front of layer 1 of a stream",
    field("padding", b"\1"), dtype=BF16, n=1, one_top=True)
bad("section-padding", "padding of the section", finishing(
    lambda parts, out: out[:5] + b"\1" + out[6:]))
bad("section-bytes", "section_bytes of 16", edit=poke(40, 16))

# 4: the end.
bad("long", "a byte behind the last stream", finishing(
    lambda parts, out: out + b"\0"))
bad("long-4", "zeros to a multiple of 16 and 16 more", finishing(
    lambda parts, out: out + bytes(-len(out) % 16 + 16)))
bad("nothing-long", "zeros to a multiple of 16 behind a mask that leaves "
    "nothing", finishing(lambda parts, out: out + bytes(-len(out) % 16)),
    mask=range(5))
bad("nothing-size", "no stream, and b of 0", mask=range(5), edit=poke(25, 0))


def ends(name, text, key, more, **options):
    bad("cut-" + name, text, finishing(
        lambda parts, out: out[:parts.at[key] + more]), **options)


ends("section", "ends in the zeros behind the mask", "head",
     -10)
ends("checks", "ends in the checks", "head", 12, n=40, b=0)
ends("head", "ends behind base", "head", 1)
ends("top-counts", "ends in the counts of the tops", "head", 13)
ends("counts", "ends in the counts of the second stream", "head", 62, n=40,
     b=0)
ends("tops", "ends in the tops", "tops", 1)
for _part, _text in enumerate(("plane 0", "plane 1", "plane 2", "layer 1",
                               "layer 2", "layer 3", "layer 4", "the bytes")):
    ends(_text.replace("the ", "").replace(" ", "-"), "ends in " + _text,
         (0, _part), 1)
ends("byte", "the last byte is missing", "end", -1)
ends("stream", "ends with the first of two streams", (1, 0), 0, n=40, b=0)

# rans.md 3 and 4: streams.
bad("one-check", "a check of 0 for the only stream", field("checks", [0]))
bad("one-stream-size", "one stream of 32 tokens", edit=poke(25, 0))
bad("stream-size", "streams of 64 tokens that are of 32", n=70, b=0,
    edit=poke(25, 1))
bad("streams-none", "one stream of 256 tokens that is two of 32", n=40, b=0,
    edit=poke(25, 3))
bad("dtype", "codec 4 for a tensor of u8", dtype=E4M3, tensor_dtype=U8)
bad("params", "codec 4 with the number of a frame", params=1)
bad("raw-check", "one bit of raw_check",
    edit=lambda p: poke(32, p[32] ^ 1)(p))


def check_bit(parts):
    parts.checks[1] ^= 1 << 40


def check_zeros(parts):
    parts.checks = [0, 0]
    parts.raw_check = h64(bytes(16))


def exchanged(parts):
    parts.checks.reverse()


def exchanged_streams(parts):
    for each in parts.counts, parts.planes, parts.values:
        each.reverse()


def whole_check(parts):
    parts.raw_check = None


bad("check", "one bit of the check of a stream", check_bit, n=40, b=0)
bad("checks-0", "checks of zeros, and raw_check of these", check_zeros, n=40,
    b=0)
bad("checks-exchanged", "the checks of two streams exchanged", exchanged,
    n=40, b=0)
bad("checks-missing", "no checks of two streams", field("checks", []), n=40,
    b=0)
bad("raw-check-whole", "raw_check of the decoded bytes of two streams",
    whole_check, n=40, b=0)
bad("streams-exchanged", "two streams in each other's place",
    exchanged_streams, n=64, b=0)
