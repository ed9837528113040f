# SPDX-License-Identifier: BSD-3-Clause
"""Invalid archives: CHUNK and PARAMS (kvarc-format.md 7, 8, codecs/)."""

import struct

from bad_base import (
    G_TENSOR, K_STATE, K_STREAM, MASK, P, RAW, chunk, cut, edit, poke, small, vector)
from enc_codecs import (
    GridParams, Payload, aligned, fit_bytes, plane_head)
from enc_fields import (
    F32, U8, Random, pack_elements, varint, zstd_frame)
from kvarc_enc import KEY, VALUE, Writer, tensor
from xxh3 import h64


# ------------------------------------------------------------------- 7 CHUNK

chunk("tensor", "a tensor that is not there", 0, 2)
chunk("heads", "more heads than the tensor has", 6, 2)
chunk("heads-0", "0 heads", 6, 0)
chunk("first-head", "first head past the last", 4, 1)
chunk("segment", "the sequence number of a PARAMS frame", 8, 2)
chunk("params", "PARAMS of the other tensor", 16, 2)
chunk("params-not", "the sequence number of the SEGMENT", 16, 3)
chunk("n", "n of 4", 26, 4)
chunk("t0", "t0 of 1", 28, 1)
chunk("raw-check", "one bit of raw_check", 32,
      lambda p: p[:32] + bytes([p[32] ^ 1]) + p[33:])
chunk("codec", "codec 10 with PARAMS of codec 5", 24, 10)
chunk("codec-none", "codec 4, which has no PARAMS, with those of codec 5", 24,
      4)


@vector("chunk-params-heads", "PARAMS of another head of the tensor")
def _():
    w = Writer()
    w.geometry([], [(0, 0, "")], [tensor(0, KEY, U8, 2, 2)])
    p = fit_bytes(2, RAW)
    number = w.params(0, p, heads=1)
    w.segment(0, 2)
    w.chunk(0, RAW, 6, p, number, heads=1)
    w.chunk(0, RAW, 6, p, number, first=1, heads=1)
    w.close()
    return bytes(w.out)


edit("chunk-decoded-bytes", "decoded_bytes of another size", "CHUNK",
     {"decoded_bytes": 62})


def raw_chunk(name, text, payload, codec=0, params=0, values=RAW, size=3,
              section_bytes=0):
    """One U8 tensor 1 x 2, one segment of 2 tokens, this chunk."""
    @vector("chunk-" + name, text)
    def _():
        def steps(w):
            w.segment(0, 2)
            p = Payload(payload)
            p.stream_size, p.section_bytes = size, section_bytes
            w.chunk_frame(0, 0, 1, codec, params, pack_elements(U8, values), p)
        return small(steps, 1)


raw_chunk("raw-long", "codec 0, a byte too many", bytes(RAW) + b"\0")
raw_chunk("raw-short", "codec 0, a byte is missing", bytes(RAW[:3]))
raw_chunk("raw-params", "codec 0 with the number of a PARAMS frame",
          bytes(RAW), params=1)
raw_chunk("raw-stream-size", "codec 0 with streams of 32 tokens", bytes(RAW),
          size=0)
raw_chunk("raw-section", "codec 0 with a section", bytes(RAW),
          section_bytes=4)
raw_chunk("zstd-size", "codec 1, content of 5 bytes",
          zstd_frame(bytes(RAW) + b"\0"), 1)
raw_chunk("zstd-garbage", "codec 1, a byte after the frame",
          zstd_frame(bytes(RAW)) + b"\0", 1)
raw_chunk("zstd-empty", "codec 1 without a payload", b"", 1)
raw_chunk("constant-size", "codec 2 with an element of 2 bytes", b"\7\7", 2,
          values=[7] * 4)
raw_chunk("constant-value", "codec 2 with another value", b"\7", 2,
          values=[8] * 4)
raw_chunk("no-params", "codec 6 without PARAMS", b"\0" * 133, 6)


def repeat_chunk(name, text, of, values=RAW, extra=b"", section=0):
    """Two segments; the second repeats. Frames: GEOMETRY 0, SEGMENT 1,
    CHUNK 2, COMMIT 3, SEGMENT 4, CHUNK 5 (a repeat of 2), ..."""
    @vector("repeat-" + name, text)
    def _():
        def steps(w):
            offsets = {}
            for i in range(3):
                w.segment(0, 2)
                if i == 0:
                    w.chunk(0, RAW)
                else:
                    payload = Payload(struct.pack("<QQ", *of(i, offsets))
                                      + (extra if i == 2 else b""))
                    payload.section_bytes = section if i == 2 else 0
                    w.chunk_frame(0, 0, 1, 3, 0, pack_elements(
                        U8, values if i == 2 else RAW), payload)
                offsets[i] = (w.sequence - 1, w.frames[-1][1])
                w.commit()
        return small(steps, 1)


repeat_chunk("of-repeat", "a repeat of a repeat",
             lambda i, o: o[0] if i == 1 else o[1])
repeat_chunk("offset", "the right number, the wrong offset",
             lambda i, o: o[0] if i == 1 else (o[0][0], o[0][1] + 8))
repeat_chunk("sequence", "the right offset, the wrong number",
             lambda i, o: o[0] if i == 1 else (o[0][0] + 1, o[0][1]))
repeat_chunk("not-a-chunk", "a repeat of a COMMIT",
             lambda i, o: o[0] if i == 1 else (3, 64))
repeat_chunk("later", "a repeat of a frame past the end",
             lambda i, o: o[0] if i == 1 else (99, 1 << 40))
repeat_chunk("other-content", "raw_check of other bytes", lambda i, o: o[0],
             values=[1, 2, 3, 5])
repeat_chunk("long", "a byte after the two numbers", lambda i, o: o[0],
             extra=b"\0")
repeat_chunk("section", "a repeat with a section", lambda i, o: o[0],
             section=16)

# ------------------------------------------------------------------ 8 PARAMS

edit("params-tensor", "a tensor that is not there", "PARAMS", poke(0, 9))
edit("params-heads", "2 heads of a tensor of 1", "PARAMS", poke(6, 2))
edit("params-codec", "codec 5 for a tensor of u8", "PARAMS",
     lambda c: c[:8] + b"\5" + bytes(1 + 5 * 3), count=1)
edit("params-codec-6", "codec 6 for a tensor of bf16", "PARAMS",
     lambda c: c[:8] + b"\6\1" + b"".join(
         varint(f) for f in [1792] + [1] * 256) + bytes(6))
edit("params-grid-flags", "a reserved flag", "PARAMS", poke(P, 3))
edit("params-grid-k-high", "k of 401", "PARAMS",
     lambda c: poke(P + 13, 1)(poke(P + 7, 0x91)(c)))
edit("params-grid-k-low", "k of -401", "PARAMS",
     lambda c: poke(P + 13, 0xFE)(poke(P + 7, 0x6F)(c)))
edit("params-no-rope", "rotation for a tensor without a rope", "GEOMETRY",
     poke(G_TENSOR + 12, 0), coded=True)
edit("params-tables-0", "no table", "PARAMS",
     lambda c: c[:P] + b"\0" + c[-3:], count=1)
edit("params-tables-17", "17 tables", "PARAMS", poke(P, 17), count=1)


def freq(values, escape=1):
    """Content of codec 6 PARAMS with these frequencies."""
    values = values + [0] * (256 - len(values)) + [escape]
    return lambda c: c[:P] + b"\1" + b"".join(map(varint, values)) + c[-3:]


edit("params-sum-low", "a table that adds up to 2047", "PARAMS",
     freq([2046]), count=1)
edit("params-sum-high", "a table that adds up to 2049", "PARAMS",
     freq([2000, 48]), count=1)
edit("params-all-of-it", "a symbol with 2048 of 2048, escape 0", "PARAMS",
     freq([2048], 0), count=1)
edit("params-escape-0", "an escape without a frequency", "PARAMS",
     freq([2000, 48], 0), count=1)
edit("params-escape-all", "an escape with 2048 of 2048", "PARAMS",
     freq([], 2048), count=1)
edit("params-freq-huge", "a frequency of 2^32 + 2046", "PARAMS",
     freq([2 ** 32 + 2046, 1]), count=1)
edit("params-table-number", "a channel that names table 1 of 1", "PARAMS",
     poke(-3, 1), count=1)

# ------------------------------------------------------ masks, streams, planes

chunk("mask-flags", "a reserved flag of the mask", MASK, 7)
chunk("mask-padding", "padding of the channel bitmap", MASK + 1, 0xA0)
chunk("mask-empty", "an empty channel bitmap", MASK + 1,
      lambda p: p[:MASK + 1] + b"\0" + p[MASK + 4:])
chunk("mask-row-padding", "padding of the row bitmap", MASK + 4, 0x84)
chunk("mask-row-empty", "an empty row bitmap", MASK + 4,
      lambda p: p[:MASK + 4] + b"\0" + p[MASK + 7:])
chunk("mask-value", "another value of the constant channel", MASK + 2, 1)
chunk("state-low", "a stored state below 2^16", K_STATE,
      struct.pack("<I", 0xFFFF))
chunk("state-unused", "the state of a lane that is not used",
      K_STATE + 4 * 31, struct.pack("<I", 0x10001))
chunk("state", "one bit of the state of lane 0", 0,
      lambda p: poke(K_STATE, p[K_STATE] ^ 1)(p))
chunk("words-huge", "2^32 - 1 words announced", K_STREAM, b"\xff" * 4)
chunk("words-past", "a word more announced than the payload has", 0,
      lambda p: poke(K_STREAM, (len(p) - K_STATE - 128) // 2 + 1)(p))


def plane_edit(name, text, change, answer="data"):
    """A chunk of codec 5 that ends with a plane of 9 bytes: a head of 16, the
    bytes and 7 zeros."""
    @vector("chunk-" + name, text, answer)
    def _():
        rng = Random(102)
        values = [0x3F800000 | rng.bits(23) for _ in range(9)]
        p = GridParams([0] * 3, [0] * 3)
        w = Writer(edits={("CHUNK", 0): {
            "payload": change, "decoded_bytes": 36}})
        w.geometry([], [(0, 0, "")], [tensor(0, KEY, F32, 1, 3)])
        sequence = w.params(0, p)
        w.segment(0, 3)
        w.chunk(0, values, 5, p, sequence, methods=[0, 0])
        w.close()
        return bytes(w.out)


plane_edit("plane-method-2", "a constant plane where the bytes differ",
           lambda p: p[:-32] + plane_head(2, 0))
plane_edit("plane-short", "a plane without its last byte",
           lambda p: p[:-32] + plane_head(0, 8) + p[-16:-8] + bytes(8))
plane_edit("plane-long", "a plane of a byte too many",
           lambda p: p[:-32] + plane_head(0, 10) + p[-16:])
plane_edit("plane-after", "padding behind a plane", poke(-1, 1))
plane_edit("plane-cut", "a plane whose padding ends a byte early", cut(1))
plane_edit("plane-value", "a value of a stored plane", poke(-31, 1))
plane_edit("plane-reserved", "a reserved field of a plane", poke(-30, 1))
plane_edit("plane-reserved-2", "the other reserved field of a plane",
           poke(-17, 1))
plane_edit("plane-constant-bytes", "a constant plane with bytes",
           lambda p: p[:-32] + plane_head(2, 1) + bytes(16))
plane_edit("plane-method", "plane method 3", poke(-32, 3), "unsupported")

# ------------------------------------------------- 7 CHUNK, rans 4: streams

chunk("stream-size", "streams of 256 tokens, number 4", 25, 4)
chunk("one-stream-size", "one stream of 32 tokens", 25, 0)
chunk("extension", "an extension field of one byte", 44, 1)
chunk("section-short", "section_bytes one too few", 40, 6)
chunk("section-long", "section_bytes one too many", 40, 8)
chunk("section-huge", "section_bytes of 2^32 - 1", 40, b"\xff" * 4)
chunk("section-padding", "padding of the section", MASK + 7, 1)
chunk("table-reserved", "a reserved field of the stream table",
      K_STREAM + 4, 1)
chunk("one-check", "a check of the only stream", K_STREAM + 8, 1)
chunk("table-cut", "a payload that ends in the stream table", 0,
      lambda p: p[:K_STREAM + 8])
chunk("states-cut", "a payload that ends in the states", 0,
      lambda p: p[:K_STATE + 100])


def stream_values(n):
    rng = Random(101)
    return [3 if i // 8 == 1 else rng.below(40) * rng.below(40) // 40
            for i in range(8 * n)]


def streams(name, text, change=None, b=0, n=91):
    """U8 1 x 8, n tokens of which the second is constant; change(payload)."""
    @vector("streams-" + name, text)
    def _():
        values = stream_values(n)
        edits = {("CHUNK", 0): {"payload": change, "decoded_bytes": 8 * n}}
        w = Writer(edits=edits if change else None)
        w.geometry([], [(0, 0, "")], [tensor(0, KEY, U8, 1, 8)])
        p = fit_bytes(8, values)
        sequence = w.params(0, p)
        w.segment(0, n)
        w.chunk(0, values, 6, p, sequence, b=b, constant_rows=[1])
        w.close()
        return bytes(w.out)


# The section has 14 bytes: flags, a bitmap of 12, an element. Then the table.
TABLE = 48 + 16


def exchanged(p):
    """The checks of two streams in each other's place."""
    return p[:TABLE + 8] + p[TABLE + 24:TABLE + 32] + p[
        TABLE + 16:TABLE + 24] + p[TABLE + 8:TABLE + 16] + p[TABLE + 32:]


def check_zeros(p):
    """All checks are zero, and raw_check is that of zeros."""
    zeros = p[:32] + struct.pack("<Q", h64(bytes(24))) + p[40:TABLE]
    return zeros + b"".join(
        p[TABLE + 16 * i:TABLE + 16 * i + 8] + bytes(8) for i in range(3)) \
        + p[TABLE + 48:]


streams("check", "one bit of the check of a stream",
        lambda p: poke(TABLE + 24, p[TABLE + 24] ^ 1)(p))
streams("checks-exchanged", "the checks of two streams exchanged", exchanged)
streams("checks-0", "checks of zeros, and raw_check of these", check_zeros)
streams("raw-check", "one bit of raw_check",
        lambda p: poke(32, p[32] ^ 1)(p))
streams("raw-check-whole", "raw_check of the decoded bytes",
        lambda p: p[:32] + struct.pack("<Q", h64(bytes(stream_values(91))))
        + p[40:])
streams("size-1", "streams of 64 tokens whose table is of 32", poke(25, 1))
streams("size-3", "one stream whose table is of three", poke(25, 3))
streams("size-one", "32 tokens remain: one stream of size 0", b=0, n=33)
streams("cut", "a payload that ends in the second stream",
        lambda p: p[:TABLE + 48 + 384 + 80])
streams("after", "16 bytes behind the last stream", lambda p: p + bytes(16))
streams("state", "a state of the last stream below 2^16",
        poke(TABLE + 48 + 256, bytes(4)))


def with_words(change):
    """The last of three streams with other words."""
    def edited(p):
        n = [struct.unpack_from("<I", p, TABLE + 16 * i)[0] for i in range(3)]
        at = TABLE + 48 + 384 + sum(2 * m + -2 * m % 16 for m in n[:2])
        assert 1 < n[2] and n[2] % 8, n
        words = change(p[at:at + 2 * n[2]])
        return p[:TABLE + 32] + struct.pack("<I", len(words) // 2) \
            + p[TABLE + 36:at] + aligned(words)
    return edited


streams("words-left", "a word left over", with_words(lambda w: w + b"\0\0"))
streams("words-missing", "a word too few", with_words(lambda w: w[:-2]))
streams("word", "one bit of the last word",
        with_words(lambda w: w[:-1] + bytes([w[-1] ^ 0x80])))
streams("words-padding", "padding of the words", lambda p: p[:-1] + b"\1")
streams("words-no-padding", "words without their padding", cut(1))
streams("words", "a word of the second stream is one of the first",
        lambda p: poke(TABLE, p[TABLE] + 1)(
            poke(TABLE + 16, p[TABLE + 16] - 1)(p)))


@vector("streams-repeat-size", "a repeat of another stream size")
def _():
    def steps(w):
        for i in range(2):
            w.segment(0, 2)
            if i == 0:
                of = w.chunk(0, RAW), w.frames[-1][1]
            else:
                w.chunk(0, RAW, 3, of=of + (0, None))
            w.commit()
    return small(steps, 1)


@vector("streams-repeat-n", "a repeat with as many bytes in fewer tokens")
def _():
    w = Writer()
    w.geometry([], [(0, 0, "a"), (0, 0, "b")],
               [tensor(0, KEY, U8, 1, 2), tensor(0, VALUE, U8, 1, 1, track=1)])
    w.segment(0, 2)
    of = w.chunk(0, RAW), w.frames[-1][1]
    w.commit()
    w.segment(1, 4)
    w.chunk(1, RAW, 3, of=of)
    w.close()
    return bytes(w.out)
