# SPDX-License-Identifier: BSD-3-Clause
"""Invalid archives: metadata frames (kvarc-format.md 4 to 6, 9, 10)."""

import struct

from bad_base import (
    G_TENSOR, G_TRACKS, RAW, add, base, cut, edit, poke, small, splice, vector)
from enc_codecs import fit_bytes
from enc_fields import U8, varint, zigzag
from kvarc_enc import KEY, VALUE, Writer, linked, tensor


# ---------------------------------------------------------------- 4 GEOMETRY

edit("geometry-rotary-odd", "rotary of 3", "GEOMETRY", poke(2, 3))
edit("geometry-rotary-0", "rotary of 0", "GEOMETRY",
     splice(2, 17, b"\0"))
edit("geometry-rotary-wide", "rotary of 4 in a tensor of 3 channels",
     "GEOMETRY", poke(G_TENSOR + 10, 3))
edit("geometry-ropes-65", "65 ropes", "GEOMETRY",
     lambda c: varint(65) + c[1:G_TRACKS] * 65 + c[G_TRACKS:])
edit("geometry-window", "a window of 2^32 tokens", "GEOMETRY",
     splice(G_TRACKS + 2, 1, varint(2 ** 32)))
edit("geometry-no-track", "no track", "GEOMETRY",
     splice(G_TRACKS, 5, b"\0"))
edit("geometry-heads-0", "a tensor of 0 heads", "GEOMETRY",
     poke(G_TENSOR + 8, 0))
edit("geometry-width", "65535 heads of 17 channels", "GEOMETRY",
     splice(G_TENSOR + 8, 3, varint(65535) + b"\2\x11"))
edit("geometry-axes-0", "a tensor without axes", "GEOMETRY",
     splice(G_TENSOR + 4, 7, b"\0"))
edit("geometry-track", "a tensor of a track that is not there", "GEOMETRY",
     poke(G_TENSOR + 11, 1))
edit("geometry-rope", "a rope that is not there", "GEOMETRY",
     poke(G_TENSOR + 12, 2))
edit("geometry-flags", "a reserved flag of a tensor", "GEOMETRY",
     poke(G_TENSOR + 15, 4))
edit("geometry-shard", "heads 1 to 1 of 1", "GEOMETRY",
     poke(G_TENSOR + 13, 1))
edit("geometry-total-heads", "1 head of 0", "GEOMETRY",
     poke(G_TENSOR + 14, 0))
edit("geometry-total-heads-high", "total_heads of 2^32", "GEOMETRY",
     splice(G_TENSOR + 14, 1, varint(2 ** 32)))
edit("geometry-source-type", "source type 8", "GEOMETRY",
     poke(G_TENSOR + 16, 8))
edit("geometry-layer", "layer 65536", "GEOMETRY",
     splice(G_TENSOR, 1, varint(65536)))
edit("geometry-extension", "an extension longer than the content",
     "GEOMETRY", lambda c: c[:-1] + b"\1\1\5ab")

# ------------------------------------------------------- 5 IDENTITY, 6 SEGMENT

edit("identity-order", "keys in descending order", "IDENTITY",
     lambda c: b"\2\1b\0011\1a\0012")
edit("identity-twice", "a key twice", "IDENTITY",
     lambda c: b"\2\1a\0011\1a\0012")
edit("identity-zero-byte", "a string with the byte 0", "IDENTITY",
     lambda c: b"\1\1a\1\0")
edit("identity-many", "4097 pairs announced", "IDENTITY",
     lambda c: varint(4097))


@vector("identity-many-frames", "4096 keys, and another one in a second frame")
def _():
    w = Writer()
    w.geometry([], [(0, 0, "")], [])
    w.identity([(bytes([1 + i // 64, 1 + i % 64]), b"") for i in range(4096)])
    w.identity([("one more", "")])
    w.close()
    return bytes(w.out)


def segment(runs, n=5, flags=0, t0=0, track=0):
    return lambda c: varint(track) + varint(t0) + varint(n) + bytes([flags]) \
        + varint(len(runs)) + b"".join(
            zigzag(first) + varint(count) for first, count in runs)


edit("segment-track", "a track that is not there", "SEGMENT",
     segment([(0, 5)], track=1))
edit("segment-t0", "t0 of 1 in the first segment", "SEGMENT",
     segment([(0, 5)], t0=1))
edit("segment-t0-high", "t0 of 2^32 in the first segment", "SEGMENT",
     segment([(0, 5)], t0=2 ** 32))
edit("segment-empty", "n of 0", "SEGMENT", segment([], 0))
edit("segment-257", "n of 257", "SEGMENT", segment([(0, 257)], 257))
edit("segment-flags", "a reserved flag", "SEGMENT", segment([(0, 5)],
                                                            flags=2))
edit("segment-runs-short", "counts add up to 4", "SEGMENT",
     segment([(0, 4)]))
edit("segment-runs-long", "counts add up to 6", "SEGMENT",
     segment([(0, 3), (8, 3)]))
edit("segment-run-empty", "a run of 0 tokens", "SEGMENT",
     segment([(0, 5), (9, 0)]))
edit("segment-run-not-maximal", "a run that goes on where one ended",
     "SEGMENT", segment([(0, 3), (3, 2)]))
edit("segment-position-high", "a run past 2^31 - 1", "SEGMENT",
     segment([(2 ** 31 - 3, 5)]))
edit("segment-chain-flags", "a chain value without ids", "SEGMENT",
     lambda c: segment([(0, 5)], flags=4)(c) + bytes(16))
edit("segment-position-low", "position -2^31 - 1", "SEGMENT",
     segment([(-2 ** 31 - 1, 5)]))

# ------------------------------------------------------- 5.3 chain values

def chained(name, text, *values, identity=None, listed=None):
    """Segments of two tokens each, with these chain values. listed: what the
    INDEX says behind the last one's track, t0 and n."""
    @vector("chain-" + name, text)
    def _():
        w = Writer()
        w.geometry([], [(0, 0, "")], [tensor(0, KEY, U8, 1, 2)])
        w.identity([("model", "m")])
        for chain in values:
            w.segment(0, 2, ids=[1, 2], chain=chain)
            if listed is not None:
                *frame, entry = w.pending.pop()
                w.pending.append((*frame, entry[:3] + listed))
            w.chunk(0, RAW)
            w.commit()
        if identity:
            w.identity(identity)
        w.close()
        return bytes(w.out)


chained("value", "another value", True, b"\1" * 16)
chained("first", "a value that does not depend on the identity",
        bytes.fromhex("00112233445566778899aabbccddeeff"))
chained("behind-none", "a segment without a value before one that has it",
        False, b"\2" * 16)


@vector("chain-rewind", "a value behind a rewind that depends on a token "
        "which is gone")
def _():
    w = Writer()
    w.geometry([], [(0, 0, "")], [tensor(0, KEY, U8, 1, 2)])
    w.chains = True
    for t0, n in ((0, 2), (1, 1)):
        w.segment(0, n, ids=[3] * n, t0=t0, chain=linked(
            w.state[0][0][5], 0, [1], [3]) if t0 else True)
        w.chunk(0, RAW[:2 * n])
        w.commit()
    w.close()
    return bytes(w.out)


@vector("commit-rewound", "the number of tokens before a rewind")
def _():
    w = Writer(edits={("COMMIT", 1): poke(17, 2)})
    w.geometry([], [(0, 0, "")], [tensor(0, KEY, U8, 1, 2)])
    for t0, n in ((0, 2), (0, 1)):
        w.segment(0, n, t0=t0)
        w.chunk(0, RAW[:2 * n])
        w.commit()
    w.close()
    return bytes(w.out)


chained("identity", "an IDENTITY that changes the model", True,
        identity=[("model", "n")])
chained("namespace", "an IDENTITY that adds a namespace", True, True,
        identity=[("namespace", "n")])
chained("index", "another value in the INDEX", True, listed=b"\1" + bytes(16))
chained("index-none", "no value in the INDEX", True, listed=b"\0")
chained("index-flags", "a reserved flag in the INDEX", False, listed=b"\2")

# ------------------------------------------------------------------ 8 PARAMS

for _codec in (0, 3, 4, 11, 14, 15, 16):
    edit("params-codec-%d" % _codec, "PARAMS of codec %d" % _codec, "PARAMS",
         poke(8, _codec))

# ------------------------------------------------- 9 COMMIT, INDEX, FOOTER

edit("commit-count", "the number of frames", "COMMIT", poke(0, 8))
edit("commit-offset", "the offset", "COMMIT", poke(8, 8))
edit("commit-decoded-bytes", "decoded_bytes of 20 for a payload of 19",
     "COMMIT", {"decoded_bytes": 20})
edit("commit-tracks", "tokens of two tracks", "COMMIT",
     lambda c: c[:16] + b"\2\5\0\0")
edit("commit-tokens", "the number of tokens", "COMMIT", poke(17, 6))
edit("commit-flags", "a reserved flag", "COMMIT", poke(18, 2))
edit("commit-checkpoint-0", "a checkpoint of number 0", "COMMIT",
     lambda c: c[:18] + b"\1\0\0\0")
edit("commit-label", "a label with the byte 0", "COMMIT",
     lambda c: c[:18] + b"\1\1\0\1\0")
edit("commit-label-cut", "a label longer than the COMMIT", "COMMIT",
     lambda c: c[:18] + b"\1\1\0\2a")


@vector("commit-checkpoint-order", "two checkpoints of number 3")
def _():
    w = Writer()
    w.geometry([], [(0, 0, "")], [])
    for _ in range(2):
        w.commit((3, 0, ""))
    w.close()
    return bytes(w.out)


edit("index-previous", "a previous INDEX that is not there", "INDEX",
     poke(0, 64))
vector("index-previous-itself", "an INDEX that is its own previous one")(
    lambda: bytes(base({("INDEX", 0): poke(0, struct.pack("<QI", *[
        (at, end - at) for name, at, end in base().frames
        if name == "INDEX"][0]))}).out))
edit("index-type", "another type in the first entry", "INDEX", poke(21, 2))
edit("index-offset", "another offset in the first entry", "INDEX",
     poke(22, 16))
edit("index-bytes", "another size in the first entry", "INDEX",
     lambda c: poke(24, c[24] + 1)(c))
edit("index-codecs", "a codec less, of the only chunk", "INDEX",
     poke(12, bytes(8)))
edit("index-codecs-more", "a codec more, which no chunk has", "INDEX",
     lambda c: poke(12, c[12] ^ 2)(c))
edit("index-previous-bytes", "a size of a previous INDEX, and none", "INDEX",
     poke(8, 64))
edit("index-chunk", "another tensor in the entry of the last CHUNK", "INDEX",
     lambda c: poke(-10, 0)(c))
edit("index-missing", "the entry of the COMMIT is missing", "INDEX",
     lambda c: poke(20, c[20] - 1)(c)[:-5])
edit("index-checkpoint", "a checkpoint that is none", "INDEX", poke(-1, 1))
edit("footer-index", "the offset of the INDEX", "FOOTER",
     lambda c: poke(0, c[0] ^ 16)(c))
edit("footer-commit", "the offset of the COMMIT", "FOOTER",
     lambda c: poke(8, c[8] ^ 16)(c))
edit("footer-count", "the number of frames", "FOOTER",
     lambda c: poke(16, c[16] ^ 1)(c))
edit("footer-index-bytes", "the size of the INDEX", "FOOTER",
     lambda c: poke(24, c[24] ^ 16)(c))
edit("footer-commit-bytes", "the size of the COMMIT", "FOOTER",
     lambda c: poke(28, c[28] ^ 16)(c))

edit("footer-decoded-bytes", "decoded_bytes of 0", "FOOTER",
     {"decoded_bytes": 0})


def listed(name, text, steps=lambda w: w.list(), edits=None):
    """Three segments of two chunks each; steps: called behind the last."""
    @vector("list-" + name, text)
    def _():
        w = Writer(edits=edits)
        w.geometry([], [(0, 0, "")], [tensor(0, KEY, U8, 1, 2),
                                      tensor(0, VALUE, U8, 1, 2)])
        for _ in range(3):
            w.segment(0, 2)
            w.chunk(0, RAW)
            w.chunk(1, RAW)
            w.commit()
        steps(w)
        w.close()
        return bytes(w.out)


def drop_last(n):
    """Without the last n entries, which have 9 bytes each here."""
    return lambda content: poke(0, content[0] - n)(content)[:-9 * n]


def in_segment(w):
    w.segment(0, 2)
    w.chunk(0, RAW)
    w.list()
    w.chunk(1, RAW)
    w.commit()


def of_part(w):
    w.segment(0, 2)
    w.chunk(0, RAW)
    w.index()
    w.chunk(1, RAW)
    w.commit()
    w.list()


def twice(w):
    chunks = [e for e in w.pending if e[0] == 7]
    w.list()
    w.pending = sorted(w.pending + chunks, key=lambda e: e[1])


def unlisted(w):
    w.list()
    w.pending.pop()


listed("in-segment", "a LIST in a segment", in_segment)
listed("empty", "two LIST frames, and no chunk between them",
       lambda w: (w.list(), w.list()))
listed("missing", "the last chunk is not in the LIST",
       edits={("LIST", 0): drop_last(1)})
listed("segment", "the chunks of the last segment are not in the LIST",
       edits={("LIST", 0): drop_last(2)})
listed("tensor", "another tensor in an entry", edits={
    ("LIST", 0): lambda c: poke(5, 1)(c)})
listed("bytes", "another size in an entry", edits={
    ("LIST", 0): lambda c: poke(4, c[4] + 1)(c)})
listed("type", "an entry that is not of a CHUNK", edits={
    ("LIST", 0): lambda c: poke(1, 4)(c)})
listed("part", "a LIST of the second chunk of a segment, of which an INDEX "
       "has the first", of_part)
listed("follow-bytes", "another size of the INDEX that an INDEX follows",
       lambda w: (w.list(), w.index()), edits={
           ("INDEX", 1): lambda c: poke(8, c[8] ^ 16)(c)})
listed("twice", "an INDEX has the chunks of a LIST, too", twice)
listed("unlisted", "an INDEX has neither a LIST nor its chunks", unlisted)
listed("number", "another number of entries in the entry of the LIST", edits={
    ("INDEX", 0): lambda c: poke(-6, 5)(c)})
listed("extra", "bytes behind the entries of a LIST",
       edits={("LIST", 0): lambda c: c + bytes(1)})
listed("critical", "a LIST that is critical", edits={("LIST", 0): {"flags": 1}})


@vector("footer-unlisted", "a FOOTER without an INDEX before it")
def _():
    w = Writer()
    w.geometry([], [(0, 0, "")], [])
    w.commit()
    w.footer()
    return bytes(w.out)


@vector("footer-uncommitted", "a FOOTER without a COMMIT before it")
def _():
    w = Writer()
    w.geometry([], [(0, 0, "")], [])
    w.index()
    w.footer()
    return bytes(w.out)


@vector("index-copy-itself", "a PARAMS frame that is a copy of itself")
def _():
    def steps(w):
        w.params(0, fit_bytes(2, RAW), copy_of=1)
        w.segment(0, 2)
        w.chunk(0, RAW)
    return small(steps, 1)


@vector("index-copy-later", "a PARAMS frame that is a copy of a later one")
def _():
    def steps(w):
        w.params(0, fit_bytes(2, RAW), copy_of=2)
        w.params(0, fit_bytes(2, RAW))
        w.segment(0, 2)
        w.chunk(0, RAW)
    return small(steps, 1)


# ------------------------------------------------------------ 10 RESTORE, BLOB
# Content: kind (2), name (2), file_bytes, n_pieces, literal (2), area: type,
# bytes, track, t0, n_tokens, n_views, views of 6 numbers.
R_AREA = 8
R_VIEW = R_AREA + 6

edit("restore-size", "file_bytes is not the sum of the pieces", "RESTORE",
     poke(4, 79))
edit("restore-literal-0", "a literal of 0 bytes", "RESTORE",
     lambda c: poke(5, 3)(c[:8] + b"\0\0" + c[8:]))
edit("restore-views", "the views do not fill the area", "RESTORE",
     lambda c: poke(R_AREA + 1, 76)(poke(4, 79)(c)))
edit("restore-outside", "an element past the end of the area", "RESTORE",
     poke(R_VIEW + 2, 17))
edit("restore-outside-block", "an element past the end, by its block",
     "RESTORE", lambda c: splice(R_VIEW + 3, 2, b"\1\x7f")(c))
edit("restore-block-0", "block_elems of 0", "RESTORE", poke(R_VIEW + 3, 0))
edit("restore-tensor", "a tensor that is not there", "RESTORE",
     poke(R_VIEW, 2))
edit("restore-track", "a track that is not there", "RESTORE",
     poke(R_AREA + 2, 1))
edit("restore-tokens", "tokens 1 to 5 of 5", "RESTORE", poke(R_AREA + 3, 1))
edit("restore-huge-stride", "a token stride of 2^52", "RESTORE",
     splice(R_VIEW + 2, 1, varint(2 ** 52)))
edit("varint-53", "the number of an extension is 2^53", "GEOMETRY",
     lambda c: c[:-1] + b"\1" + varint(2 ** 53) + b"\0")
edit("blob-short", "fewer literal bytes than the pieces want", "BLOB", cut(1))
edit("blob-long", "more literal bytes than the pieces want", "BLOB",
     add(b"d"))
edit("blob-offset", "offset 1 in the first BLOB", "BLOB", poke(1, 1))
edit("blob-empty", "a BLOB of 0 bytes", "BLOB", cut(3))
edit("blob-item", "an item that is not there", "BLOB", poke(0, 1))


@vector("restore-other-track", "a view of a tensor of another track")
def _():
    w = Writer()
    w.geometry([], [(0, 0, ""), (0, 0, "")],
               [tensor(0, KEY, U8, 1, 2, track=1)])
    w.restore(2, "", [(4, 0, 0, 2, [(0, 0, 2, 2, 0, 1)])])
    for track in (0, 1):
        w.segment(track, 2)
        if track:
            w.chunk(0, RAW)
        w.commit()
    w.close()
    return bytes(w.out)
