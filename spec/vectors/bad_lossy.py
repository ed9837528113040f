# SPDX-License-Identifier: BSD-3-Clause
"""Invalid archives: lossy chunks (codecs/lossy.md, had.md)."""

import struct

from bad_base import add, cut, poke, splice, vector
from enc_codecs import GridParams
from enc_fields import BF16, E4M3, U8, Random, zstd_frame
from enc_lossy import Had, float_of, lossy_chunk, random_codes
from kvarc_enc import KEY, VALUE, Writer, tensor
from vector_data import any_bits, frequencies, one_tensor

STEP = 2.0 ** -3
SIZES = (60, 15)    # decoded bytes of the chunks


def base(edits=None, rope=1, params=None, step=STEP, near=(0, 0)):
    """Keys 1 x 6 of bf16 turned back, the third of 5 tokens exact, and values
    1 x 3 of e4m3: PARAMS, PARAMS, SEGMENT, CHUNK, CHUNK, COMMIT."""
    rng = Random(710)
    w = Writer(edits=edits)
    w.geometry([(0, 4, frequencies(4))], [(0, 0, "")],
               [tensor(0, KEY, BF16, 1, 6, rope=rope),
                tensor(0, VALUE, E4M3, 1, 3)])
    tiers = [Had([0x3F80] * 6, [-4] * 6, turned=bool(rope)),
             Had([0] * 3, [-4] * 3)]
    sequences = [w.params(i, t) for i, t in enumerate(tiers)]
    w.segment(0, 5)
    for i, t in enumerate(tiers):
        exact = {} if i else {2: any_bits(rng, BF16, 6)}
        lossy_chunk(w, i, t, random_codes(rng, t, 5 - len(exact), -24), step,
                    sequences[i] if params is None else params, -24,
                    exact=exact, near=near)
    w.commit()
    return w


# Where things are in the chunks, behind 48 bytes of header: generation, flags;
# in the first then bitmap, method, 12 bytes of a token; step, shift, near1, near2.
EXACT, BODIES = 50, (64, 50)
STREAM = 8
# PARAMS: behind tensor, heads, codec: flags, mean (low, high), k.
P = 9


def edit(name, text, frame, change, count=0, answer="data", **options):
    vector("had-" + name, text, answer)(
        lambda: bytes(base({(frame, count): change}, **options).out))


def chunk(name, text, change, count=1, answer="data"):
    edit(name, text, "CHUNK",
         {"payload": change, "decoded_bytes": SIZES[count]}, count, answer)


def body(name, text, at, value, count=1):
    chunk(name, text, poke(BODIES[count] + at, value), count)


def relaxed(name, text, **options):
    """raw_check is that of a decoder that takes it."""
    vector("had-" + name, text)(lambda: bytes(base(**options).out))


# ------------------------------------------------------------------- lossy.md

chunk("generation", "generation 0", poke(48, 0))
chunk("flags", "a reserved flag", poke(49, 4))
chunk("exact-none", "a bitmap of exact tokens without a bit",
      lambda p: p[:EXACT] + b"\0" + p[EXACT + 1:], 0)
chunk("exact-nothing", "no exact token, and none is there",
      lambda p: p[:EXACT] + b"\0\0" + p[EXACT + 14:], 0)
chunk("exact-all", "all tokens exact", lambda p: p[:EXACT] + b"\x1f\0"
      + bytes(60), 0)
chunk("exact-padding", "padding of the exact tokens",
      poke(EXACT, 0x24), 0)
chunk("exact-two", "another bit: a token too many", poke(EXACT, 0x0C), 0)
chunk("exact-cut", "a payload that ends in an exact token",
      lambda p: p[:EXACT + 9], 0)
chunk("exact-no-method", "a payload that ends behind the bitmap",
      lambda p: p[:EXACT + 1], 0)
chunk("exact-method", "method 2 of exact tokens", poke(EXACT + 1, 2), 0,
      "unsupported")


def packed(content, size=None):
    frame = content
    if size is None:
        size = len(frame)
    return splice(EXACT + 1, 13, b"\1" + bytes([size]) + frame)


chunk("exact-empty", "exact tokens in 0 bytes of Zstandard", packed(b""), 0)
chunk("exact-short", "a Zstandard frame of 11 bytes for a token of 12",
      packed(zstd_frame(bytes(range(11)))), 0)
chunk("exact-long", "a Zstandard frame of 13 bytes for a token of 12",
      packed(zstd_frame(bytes(range(13)))), 0)
chunk("exact-garbage", "bytes behind the Zstandard frame",
      packed(zstd_frame(bytes(range(12))) + b"\0"), 0)
chunk("exact-huge", "a Zstandard frame that ends past the payload",
      packed(zstd_frame(bytes(range(12))), 0x7F), 0)
chunk("exact-bit", "one bit of an exact token",
      lambda p: poke(EXACT + 2, p[EXACT + 2] ^ 1)(p), 0)

# --------------------------------------------------------------------- had.md

edit("params-flags", "a reserved flag of PARAMS", "PARAMS", poke(P, 4))
edit("params-rope", "keys turned back of a tensor without a rope", "PARAMS",
     poke(P, 3), rope=0)
edit("params-rope-values", "values turned back", "PARAMS", poke(P, 3), 1)
edit("params-nan", "a mean that is no number", "PARAMS",
     lambda c: poke(P + 1, 0xC0)(poke(P + 7, 0x7F)(c)))
edit("params-infinite", "an infinite mean", "PARAMS",
     lambda c: poke(P + 6, 0x80)(poke(P + 12, 0xFF)(c)))
edit("params-short", "PARAMS without the last k", "PARAMS", cut(1))
edit("params-long", "a byte behind PARAMS", "PARAMS", add(b"\0"))


@vector("had-params-dtype", "PARAMS of codec 13 of a tensor of u8")
def _():
    w = one_tensor(U8, 1, 2)
    w.params(0, Had([0] * 2, [0] * 2))
    w.close()
    return bytes(w.out)


edit("params-codec", "a chunk of codec 13 with PARAMS of codec 5", "PARAMS",
     lambda c: c[:8] + b"\5" + GridParams([0] * 6, [0] * 6).content())
edit("no-params", "no PARAMS", "CHUNK", {}, params=0)
edit("other-params", "PARAMS of the other tensor", "CHUNK", {}, params=2)
edit("stream-size", "two streams of a lossy chunk", "CHUNK",
     {"payload": poke(25, 2), "decoded_bytes": 60})

for name, text, step in (
        ("0", "a step of 0", 0.0),
        ("subnormal", "a step below 2^-126", float_of(0x7FFFFF)),
        ("negative", "a negative step", -STEP),
        ("large", "a step of 2^100", 2.0 ** 100),
        ("infinite", "an infinite step", float_of(0x7F800000)),
        ("nan", "a step that is no number", float_of(0x7FC00000))):
    relaxed("step-" + name, text, step=step)
for name, text, near in (
        ("1-high", "a point of a code 17/32 nearer", (17, 0)),
        ("1-low", "a point of a code 17/32 farther", (-17, 0)),
        ("2-high", "near2 of 17", (0, 17)),
        ("2-low", "near2 of -128", (0, -128))):
    relaxed("near" + name, text, near=near)
body("step", "another step", 0, struct.pack("<f", 2 * STEP))
body("shift", "another shift", 4, struct.pack("<h", -23))
chunk("cut-body", "a payload that ends in the head of the body",
      lambda p: p[:BODIES[1] + 7])
chunk("cut-stream", "a payload that ends in the states",
      lambda p: p[:BODIES[1] + STREAM + 100])
chunk("cut-word", "the last byte of the stream is missing", cut(1))
chunk("cut", "a generation and nothing more", lambda p: p[:49])
chunk("empty", "an empty payload", lambda p: p[:48])
chunk("after", "a byte behind the stream", add(b"\0"))
chunk("after-exact", "two bytes behind the stream", add(b"\0\0"), 0)
body("words-huge", "2^32 - 1 words announced", STREAM, b"\xff" * 4)
body("state-low", "a stored state below 2^16", STREAM + 4,
     struct.pack("<I", 0xFFFF))
chunk("word", "one bit of the last word",
      lambda p: p[:-1] + bytes([p[-1] ^ 0x80]))
chunk("raw-check", "raw_check of other elements",
      lambda p: p[:32] + bytes([p[32] ^ 1]) + p[33:])
