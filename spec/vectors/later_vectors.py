# SPDX-License-Identifier: BSD-3-Clause
"""What versions behind 1.0 may add (kvarc-format.md 1.9), and tensors that
belong to others (4). GOOD has (name, text, make) as in good_container; invalid
ones go into bad_base.VECTORS."""

import struct

from bad_base import base, edit, vector
from enc_fields import (
    BF16, E4M3, F16, F32, LATER_1, LATER_2, LATER_4, Random, varint)
from kvarc_enc import KEY, VALUE, Writer, fields, tensor
from vector_data import any_bits

GOOD = []

# In ascending order, with and without bytes; a number of private use.
LATER = fields([(0, b"a later version"), (3, b""), (1 << 15, b"private")])


def good(name, text):
    def add(make):
        GOOD.append((name, text, make))
        return make
    return add


def with_fields(content):
    return content + LATER


def chunk_fields(payload):
    return payload[:44] + struct.pack("<I", len(LATER)) + payload[48:] + LATER


@good("later", "of a later version: kinds of track, tensor and item, roles, "
      "dtypes of 1, 2 and 4 bytes with codecs 0 to 2, a kind of predictor with "
      "PROFILE frames")
def _():
    w = Writer(minor=1)
    w.geometry([], [(4, 0, "later")],
               [tensor(0, 10, LATER_1, 1, 4), tensor(0, 10, LATER_2, 2, 3),
                tensor(0, 255, LATER_4, 1, 3, role=5)])
    w.frame("PREDICTOR", b"\3\2??")
    w.frame("PROFILE", b"what belongs to it")
    content = bytes(range(50))
    w.restore(9, "x", [50])
    w.blob(0, 0, content)
    w.item(content)
    rng = Random(900)
    for segment in range(3):
        w.segment(0, 5)
        if segment == 2:
            w.chunk(0, [7] * 20, 2)
        else:
            w.chunk(0, any_bits(rng, LATER_1, 20))
        values = [v % 3 for v in any_bits(rng, LATER_2, 30)]
        w.chunk(1, values, 1 if segment else 0)
        w.chunk(2, any_bits(rng, LATER_4, 15))
        w.commit()
    w.close()
    return w


@good("extensions", "extension fields in GEOMETRY, PREDICTOR, RESTORE, "
      "SEGMENT, CHUNK, COMMIT and INDEX; a segment has ids and one none")
def _():
    names = [("GEOMETRY", 0), ("PREDICTOR", 0), ("RESTORE", 0)] + [
        (name, i) for name in ("SEGMENT", "COMMIT", "INDEX")
        for i in range(2)]
    edits = {name: with_fields for name in names}
    edits.update({("CHUNK", i): chunk_fields for i in range(2)})
    w = Writer(minor=3, edits=edits)
    w.geometry([], [(0, 0, "")], [tensor(0, KEY, BF16, 1, 4)])
    w.frame("PREDICTOR", b"\0\0")
    w.restore(1, "x", [])
    w.item(b"")
    rng = Random(901)
    for ids in ([1, 2, 3], None):
        w.segment(0, 3, ids=ids)
        w.chunk(0, any_bits(rng, BF16, 12), 1 if ids else 0)
        w.commit()
        w.index()
    w.close()
    return w


@good("pad", "PAD frames, so that the codec payload of each CHUNK lies at a "
      "multiple of 4096")
def _():
    w = Writer()
    w.geometry([], [(0, 0, "")], [tensor(0, KEY, BF16, 1, 4),
                                  tensor(0, VALUE, BF16, 1, 4)])
    rng = Random(903)
    for _ in range(2):
        w.segment(0, 3)
        for number in range(2):
            w.frame("PAD", bytes((-len(w.out) - 48 - 80) % 4096))
            assert (len(w.out) + 80) % 4096 == 0
            w.chunk(number, any_bits(rng, BF16, 12))
        w.commit()
    w.close()
    return w


edit("frame-pad-critical", "a critical PAD frame", "BLOB",
     {"type": 17, "flags": 1})


def scales():
    """fp8 keys with a scale for each group of 16, values with one a token
    and a minimum of each head."""
    return [tensor(0, KEY, E4M3, 2, 48),
            dict(tensor(0, KEY, F32, 2, 3, role=1), of=1, group=16),
            tensor(0, VALUE, E4M3, 2, 24),
            dict(tensor(0, VALUE, F16, 1, 1, role=1), of=3, group=48),
            dict(tensor(0, VALUE, F16, 2, 1, role=2), of=3, group=24),
            dict(tensor(0, VALUE, F16, 1, 7, role=4), of=3, group=7)]


@good("scales", "tensors of scales and minimums that belong to others: of "
      "groups, heads, tokens, and of a group that does not divide the width")
def _():
    w = Writer()
    w.geometry([], [(0, 0, "")], scales())
    rng = Random(902)
    w.segment(0, 4)
    for number, t in enumerate(scales()):
        w.chunk(number, any_bits(rng, t["dtype"],
                                 4 * t["heads"] * t["channels"]))
    w.close()
    return w


def bad_scales(name, text, number, tracks=1, **change):
    def make():
        w = Writer()
        tensors = scales()
        tensors[number].update(change)
        w.geometry([], [(0, 0, "")] * tracks, tensors)
        w.commit()
        return bytes(w.out)
    vector("belongs-" + name, text, "data")(make)


bad_scales("missing", "a tensor belongs to number 7 of 6", 1, of=8)
bad_scales("itself", "a tensor belongs to itself", 1, of=2)
bad_scales("chain", "a tensor belongs to one that belongs to another", 3,
           of=2, group=6)
bad_scales("track", "a tensor belongs to one of another track", 1, tracks=2,
           track=1)
bad_scales("group-0", "a group of 0", 1, group=0)
bad_scales("group-large", "a group of 2^20 + 1", 3, group=(1 << 20) + 1)
bad_scales("group-small", "too few groups", 1, group=15)
bad_scales("group-many", "too many groups", 1, group=20)

for kind in ("GEOMETRY", "SEGMENT", "COMMIT", "INDEX", "RESTORE"):
    lower = kind.lower()
    edit("extensions-cut-" + lower, "an extension field of %s reaches past "
         "the end" % kind, kind, lambda c: c + b"\1\2a")
    edit("extensions-order-" + lower, "extension fields of %s in descending "
         "order" % kind, kind, lambda c: c + fields([(2, b""), (1, b"")]))
edit("extensions-twice", "an extension field twice", "SEGMENT",
     lambda c: c + fields([(2, b""), (2, b"")]))
edit("extensions-number", "an extension field whose number is 2^53",
     "SEGMENT", lambda c: c + varint(1 << 53) + b"\0")
edit("chunk-extensions-long", "extension_bytes is more than the payload",
     "CHUNK", lambda p: p[:44] + struct.pack("<I", len(p) - 47) + p[48:])
edit("chunk-extensions-cut", "an extension field of CHUNK reaches past the "
     "end", "CHUNK", lambda p: p[:44] + struct.pack("<I", 3) + p[48:]
     + b"\1\2a")
edit("chunk-extensions-less", "extension_bytes is one more than there are",
     "CHUNK", lambda p: p[:44] + struct.pack("<I", 3) + p[48:] + b"\1\0")


@vector("extensions-of-predictor", "a byte behind a PREDICTOR that is no "
        "extension field")
def _():
    w = base(close=False)
    w.frame("PREDICTOR", b"\0\0\1")
    w.close()
    return bytes(w.out)
