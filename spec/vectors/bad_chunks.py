# SPDX-License-Identifier: BSD-3-Clause
"""Invalid archives: CHUNK and PARAMS (kvarc-format.md 7, 8, codecs/)."""

import struct

from bad_base import (
    G_TENSOR, K_STREAM, MASK, P, RAW, chunk, cut, edit, poke, small, vector)
from enc_codecs import (
    TableParams, rans_stream, scale_table)
from enc_fields import E4M3, U8, pack_elements, varint, zstd_frame
from kvarc_enc import KEY, Writer, tensor


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
chunk("codec", "codec 4 with PARAMS of codec 5", 24, 4)
edit("chunk-decoded-bytes", "decoded_bytes of another size", "CHUNK",
     {"decoded_bytes": 62})


def raw_chunk(name, text, payload, codec=0, lane_order=0, params=0, values=RAW):
    """One U8 tensor 1 x 2, one segment of 2 tokens, this chunk."""
    @vector("chunk-" + name, text)
    def _():
        def steps(w):
            w.segment(0, 2)
            w.chunk_frame(0, 0, 1, codec, lane_order, params,
                          pack_elements(U8, values), payload)
        return small(steps, 1)


raw_chunk("raw-long", "codec 0, a byte too many", bytes(RAW) + b"\0")
raw_chunk("raw-short", "codec 0, a byte is missing", bytes(RAW[:3]))
raw_chunk("raw-params", "codec 0 with the number of a PARAMS frame",
          bytes(RAW), params=1)
raw_chunk("raw-lanes", "codec 0 with lane order 1", bytes(RAW), lane_order=1)
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


def repeat_chunk(name, text, of, values=RAW, extra=b""):
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
                    sequence, offset = of(i, offsets)
                    w.chunk_frame(0, 0, 1, 3, 0, 0,
                                  pack_elements(U8, values if i == 2 else RAW),
                                  struct.pack("<QQ", sequence, offset)
                                  + (extra if i == 2 else b""))
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

# ------------------------------------------------------------------ 8 PARAMS

edit("params-tensor", "a tensor that is not there", "PARAMS", poke(0, 9))
edit("params-heads", "2 heads of a tensor of 1", "PARAMS", poke(6, 2))
edit("params-codec", "codec 6 for a tensor of e4m3", "PARAMS",
     poke(8, 6), count=1)
edit("params-grid-flags", "a reserved flag", "PARAMS", poke(P, 3))
edit("params-grid-k-high", "k of 401", "PARAMS",
     lambda c: poke(P + 13, 1)(poke(P + 7, 0x91)(c)))
edit("params-grid-k-low", "k of -401", "PARAMS",
     lambda c: poke(P + 13, 0xFE)(poke(P + 7, 0x6F)(c)))
edit("params-no-rope", "rotation for a tensor without a rope", "GEOMETRY",
     poke(G_TENSOR + 12, 0), coded=True)
edit("params-tables-0", "no table", "PARAMS",
     lambda c: c[:P] + b"\0" + c[-6:], count=1)
edit("params-tables-17", "17 tables", "PARAMS", poke(P, 17), count=1)


def freq(values, n=32):
    """Content of codec 4 PARAMS with these frequencies."""
    values = values + [0] * (n - 1 - len(values)) if len(values) < n \
        else values
    if len(values) == n - 1:
        values = values + [1]
    return lambda c: c[:P] + b"\1" + b"".join(map(varint, values)) + c[-6:]


edit("params-sum-low", "a table that adds up to 2047", "PARAMS",
     freq([2046]), count=1)
edit("params-sum-high", "a table that adds up to 2049", "PARAMS",
     freq([2000, 48]), count=1)
edit("params-all-of-it", "a symbol with 2048 of 2048, escape 0", "PARAMS",
     freq([2048] + [0] * 31), count=1)
edit("params-escape-0", "an escape without a frequency", "PARAMS",
     freq([2000, 48] + [0] * 30), count=1)
edit("params-escape-all", "an escape with 2048 of 2048", "PARAMS",
     freq([0] * 31 + [2048]), count=1)
edit("params-freq-huge", "a frequency of 2^32 + 2046", "PARAMS",
     freq([2 ** 32 + 2046, 1]), count=1)
edit("params-table-number", "a channel that names table 1 of 1", "PARAMS",
     poke(-6, 1), count=1)

# ------------------------------------------------------ masks, streams, planes

chunk("mask-flags", "a reserved flag of the mask", MASK, 7)
chunk("mask-padding", "padding of the channel bitmap", MASK + 1, 0xA0)
chunk("mask-empty", "an empty channel bitmap", MASK + 1,
      lambda p: p[:MASK + 1] + b"\0" + p[MASK + 4:])
chunk("mask-row-padding", "padding of the row bitmap", MASK + 4, 0x84)
chunk("mask-row-empty", "an empty row bitmap", MASK + 4,
      lambda p: p[:MASK + 4] + b"\0" + p[MASK + 7:])
chunk("mask-value", "another value of the constant channel", MASK + 2, 1)
chunk("state-low", "a stored state below 2^16", K_STREAM + 4,
      struct.pack("<I", 0xFFFF))
chunk("state-unused", "the state of a lane that is not used",
      K_STREAM + 4 + 4 * 31, struct.pack("<I", 0x10001))
chunk("state", "one bit of the state of lane 0", 0,
      lambda p: poke(K_STREAM + 4, p[K_STREAM + 4] ^ 1)(p))
chunk("words-left", "a word left over", 0,
      lambda p: p[:K_STREAM] + struct.pack(
          "<I", struct.unpack_from("<I", p, K_STREAM)[0] + 1)
      + p[K_STREAM + 4:] + b"\0\0")
chunk("words-missing", "a word too few", 0,
      lambda p: p[:K_STREAM] + struct.pack(
          "<I", struct.unpack_from("<I", p, K_STREAM)[0] - 1)
      + p[K_STREAM + 4:-2])
chunk("words-huge", "2^32 - 1 words announced", K_STREAM, b"\xff" * 4)
chunk("word", "one bit of the last word", -1,
      lambda p: p[:-1] + bytes([p[-1] ^ 0x80]))
chunk("plane-method-2", "a constant plane where the bytes differ", 0,
      lambda p: p[:-9] + b"\2\0", count=1)
chunk("plane-short", "a plane without its last byte", 0, cut(1), count=1)
chunk("plane-padding", "padding bits of a plane", 0,
      lambda p: p[:-1] + bytes([p[-1] | 0x80]), count=1)


def exponent_chunk(name, text, top, symbol, escape=None, tail=None):
    """One e4m3 element coded with this symbol and escaped byte."""
    @vector("chunk-" + name, text)
    def _():
        w = Writer()
        w.geometry([], [(0, 0, "")], [tensor(0, KEY, E4M3, 1, 1)])
        table = scale_table([1] * 31 + [1], 31)
        p = TableParams(4, [table], [0], [top])
        sequence = w.params(0, p)
        w.segment(0, 1)
        stream = rans_stream([p.op(0, symbol, escape)], 1, 0)
        w.chunk_frame(0, 0, 1, 4, 0, sequence, b"\x00",
                      b"\0" + stream + (tail or b"\0\0"))
        w.close()
        return bytes(w.out)


exponent_chunk("exponent-escape", "an escaped exponent of 16 in e4m3", 5, 31,
               (8, 16))
exponent_chunk("exponent-low", "an exponent of -1", 5, 6)
exponent_chunk("exponent-high", "an exponent of 16 in e4m3", 20, 4)
exponent_chunk("plane-constant-padding", "padding bits of a constant plane",
               0, 0, tail=b"\2\x10")
