# SPDX-License-Identifier: BSD-3-Clause
"""Vectors of codec 11, good and bad."""

from bad_base import add, cut, poke, vector
from enc_fields import BF16, E4M3, E5M2, F16, F32, U8, Random
from enc_tsc import Body, put
from kvarc_enc import KEY, Writer, tensor

NAMES = {F32: "f32", F16: "f16", BF16: "bf16", E4M3: "e4m3", E5M2: "e5m2"}
GOOD = []


def good(name, text):
    def add_it(make):
        GOOD.append(("tsc-" + name, text, make))
        return make
    return add_it


def random_body(rng, dtype, heads, channels, n, kappa, block, most, **options):
    blocks = heads * -(-channels // block)
    steps = [0x3C00 + rng.below(0x200) for _ in range(n * blocks)]
    codes = [rng.between(-most[t % kappa != 0], most[t % kappa != 0])
             for t in range(n) for _ in range(heads * channels)]
    return Body(dtype, heads, channels, n, kappa, block, most, steps, codes,
                **options)


def one(dtype, heads, channels, n, edits=None):
    w = Writer(edits=edits)
    w.geometry([], [(0, 0, "")], [tensor(0, KEY, dtype, heads, channels)])
    w.segment(0, n)
    return w


def add_dtype(dtype, number):
    @good(NAMES[dtype], "%s, keyframes as bytes and differences as a stream"
          % NAMES[dtype])
    def _():
        rng = Random(900 + number)
        w = one(dtype, 2, 10, 37)
        body = random_body(
            rng, dtype, 2, 10, 37, 5, 4, (127, 7),
            classes=(None, [rng.below(33) for _ in range(20)]),
            method=number % 2)
        put(w, body, 2)
        w.close()
        return w


for _number, _dtype in enumerate(sorted(NAMES)):
    add_dtype(_dtype, _number)


@good("kappa-1", "keyframes alone, all of them a stream")
def _():
    rng = Random(910)
    w = one(BF16, 1, 6, 33)
    body = random_body(rng, BF16, 1, 6, 33, 1, 65535, (7, 1),
                       classes=([20] * 6, None))
    put(w, body, 1)
    w.close()
    return w


@good("differences", "one keyframe and 255 differences, generation 255")
def _():
    rng = Random(911)
    w = one(F16, 1, 3, 256)
    put(w, random_body(rng, F16, 1, 3, 256, 256, 2, (1, 127)), 1,
        generation=255)
    w.close()
    return w


@good("exact", "tokens that stay as they are, NaNs among them; two head groups")
def _():
    rng = Random(912)
    w = one(BF16, 2, 4, 12)
    exact = {t: [rng.bits(16) for _ in range(4)] for t in (0, 5, 11)}
    put(w, random_body(rng, BF16, 1, 4, 9, 2, 3, (31, 31)), 1, exact=exact)
    put(w, random_body(rng, BF16, 1, 4, 11, 3, 1, (127, 127)), 1,
        exact={5: [0x7FC0, 0xFF80, 0, 0x8000]}, first=1, method=1)
    w.close()
    return w


@good("saturates", "sums beyond the largest number, and steps of 2^127")
def _():
    w = one(E4M3, 1, 2, 3)
    put(w, Body(E4M3, 1, 2, 3, 3, 1, (127, 127),
                [0x4300, 0x7F00, 0x4300, 0x7F00, 0x4300, 0x3F80],
                [3, -1, 2, -1, -5, 1]), 1)
    w.commit()
    w.segment(0, 2)
    put(w, Body(E4M3, 1, 2, 2, 1, 2, (127, 127), [0x0080, 0x7F7F],
                [127, -127, 127, -127]), 1)
    w.close()
    return w


# A body of 2 tokens of 2 channels: chunk header, generation, flags; then kappa,
# block, most (2); method and planes of 2 steps; method and codes of each kind.
BODY = 48 + 2
STEPS = BODY + 6


def base(change, classes=(None, None)):
    w = one(BF16, 1, 2, 2, {("CHUNK", 0): change} if change else None)
    put(w, Body(BF16, 1, 2, 2, 2, 2, (127, 7), [0x3F80, 0x3E80],
                [100, -100, 7, -7], classes), 1)
    w.close()
    return bytes(w.out)


def bad(name, text, at, value=0, answer="data", **options):
    change = at if callable(at) else poke(at, value)
    vector("tsc-" + name, text, answer)(lambda: base(change, **options))


@vector("tsc-dtype", "codec 11 for a tensor of u8")
def _():
    w = one(E4M3, 1, 2, 2, {("GEOMETRY", 0): poke(9, U8)})
    put(w, Body(E4M3, 1, 2, 2, 2, 2, (127, 7), [0x3F80, 0x3E80],
                [100, -100, 7, -7]), 1)
    w.close()
    return bytes(w.out)


bad("kappa-0", "kappa 0", BODY)
bad("kappa-high", "kappa 258", BODY + 1, 1)
bad("block-0", "blocks of no channels", BODY + 2)
bad("most-0", "most 0", BODY + 5)
bad("most-high", "most 128", BODY + 4, 128)
bad("code-key", "a keyframe's code beyond most", BODY + 4, 99)
bad("code", "a difference's code beyond most", BODY + 5, 6)
bad("code-minus-128", "code -128", STEPS + 6, 0x80)
bad("step-0", "steps of nothing", STEPS + 1, bytes(4))
bad("step-subnormal", "a subnormal step", STEPS + 1, b"\x7f\x80\0\x3e")
bad("step-infinite", "an infinite step", STEPS + 1, b"\x80\x80\x7f\x3e")
bad("step-nan", "a step that is no number", STEPS + 1, b"\x81\x80\x7f\x3e")
bad("step-negative", "a negative step", STEPS + 3, 0xBF)
bad("step-method", "method 2 of steps", STEPS, 2, "unsupported")
bad("step-empty", "steps in an empty Zstandard frame", STEPS, b"\1\0")
bad("code-method", "method 2 of codes", STEPS + 5, 2, "unsupported")
bad("class", "class 33", STEPS + 6, 33, classes=([12, 12], None))
bad("short", "the last code is missing", cut(1))
bad("long", "a byte behind the last code", add(b"\0"))
bad("generation", "generation 0", BODY - 2)
