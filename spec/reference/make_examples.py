#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes spec/examples.md from vectors/good-example.kva.

    make_examples.py FILE            writes FILE
    make_examples.py --check FILE    exit 1 when FILE is not what it writes
"""

import os
import struct
import sys

sys.dont_write_bytecode = True

import kvarc_codecs as codecs  # noqa: E402
import kvarc_ref  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
VECTOR = os.path.join(HERE, "..", "vectors", "good-example.kva")

HEAD = """<!-- SPDX-License-Identifier: BSD-3-Clause -->
# A file, byte by byte

Written by `reference/make_examples.py` from `vectors/good-example.kva` (do not
edit; `make check` compares). The numbers in brackets are sections of
[kvarc-format.md](kvarc-format.md) and the pages of `codecs/`. All numbers in
the left column are offsets in the file, in hexadecimal, as are the bytes.

The file holds one tensor: keys of layer 0, bf16, one head of 4 channels, for 12
tokens. Channel 1 is 1.0 everywhere; the others are coded with codec 5.
"""


class Dump:
    """Takes fields from a file and writes one line for each."""

    def __init__(self, data):
        self.data, self.at, self.lines = data, 0, []

    def field(self, n, name, code=None, show=str):
        raw = self.data[self.at:self.at + n]
        shown = raw.hex(" ") if n <= 16 else raw[:13].hex(" ") + " .."
        value = struct.unpack("<" + code, raw)[0] if code else None
        text = name if code is None else "%s = %s" % (name, show(value))
        self.lines.append("%04x  %-47s  %s" % (self.at, shown, text))
        self.at += n
        return value if code else raw

    def varint(self, name, show=str):
        n = 1
        while self.data[self.at + n - 1] & 128:
            n += 1
        value = codecs.Cursor(self.data[self.at:self.at + n]).varint()
        self.field(n, "%s = %s" % (name, show(value)))
        return value

    def zigzag(self, name):
        return self.varint(name, lambda z: "%d: %d" % (
            z, (z >> 1) ^ -(z & 1)))

    def block(self, title, text):
        out = "\n## %s\n%s\n```\n%s\n```\n" % (
            title, "\n%s\n" % text if text else "", "\n".join(self.lines))
        self.lines = []
        return out


def hexadecimal(value):
    return "0x%x" % value


def superblock(d):
    d.field(8, "magic")
    d.field(2, "version_major", "H")
    d.field(2, "version_minor", "H")
    for name in ("feature_compat", "feature_ro_compat", "feature_incompat"):
        d.field(4, name, "I")
    d.field(16, "file_id")
    d.field(16, "reserved")
    d.field(8, "check: H64 of bytes 0 to 37", None)
    return d.block("Superblock [2]", "")


def geometry(d):
    d.field(1, "packed: method 0, the content itself [1.5]")
    d.varint("n_ropes")
    d.varint("n_tracks")
    d.field(1, "track 0: kind", "B", lambda k: "%d, self-attention" % k)
    d.varint("window")
    d.varint("label: length")
    d.varint("n_tensors")
    d.varint("tensor 0: layer")
    d.field(1, "kind", "B", lambda k: "%d, key" % k)
    d.field(1, "role", "B")
    d.field(1, "dtype", "B", lambda k: "%d, bf16" % k)
    d.field(1, "n_axes", "B")
    for axis in ("token", "head", "channel"):
        d.field(1, "axis", "B", lambda k: "%d, %s" % (k, axis))
        d.varint("extent")
    for name in ("track", "rope", "first_head", "total_heads"):
        d.varint(name)
    d.field(1, "flags", "B")
    d.field(2, "source_type", "H")
    d.varint("of: it belongs to no other tensor")
    d.varint("name: length")


def params(d):
    d.field(1, "packed: method 0")
    d.field(4, "tensor", "I")
    d.field(2, "first head", "H")
    d.field(2, "number of heads", "H")
    d.field(1, "codec", "B", lambda c: "%d, grid" % c)
    d.field(1, "flags [grid 1]: no rotation")
    d.field(4, "table set of channels 0 to 3")
    k = list(struct.unpack("<4b", d.data[d.at:d.at + 4]))
    d.field(4, "k: low bytes")
    d.field(4, "k: high bytes: k = %s" % k)
    low, high = d.data[d.at:d.at + 4], d.data[d.at + 4:d.at + 8]
    mean = [struct.unpack("<h", bytes(p))[0] for p in zip(low, high)]
    d.field(4, "mean: low bytes")
    d.field(4, "mean: high bytes: mean = %s" % mean)


def segment(d):
    d.field(1, "packed: method 0")
    d.varint("track")
    d.varint("t0")
    n = d.varint("n")
    d.field(1, "flags: token ids and chain value present")
    for _ in range(d.varint("n_runs")):
        d.zigzag("first")
        d.varint("count")
    d.field(16, "chain value [5.3]")
    d.field(4 * n, "ids: 11, 22, 33, 11, ..")


def chunk(d):
    d.field(4, "tensor", "I")
    d.field(2, "first head", "H")
    d.field(2, "number of heads", "H")
    d.field(8, "sequence number of the SEGMENT", "Q")
    d.field(8, "sequence number of the PARAMS", "Q")
    d.field(1, "codec", "B", lambda c: "%d, grid" % c)
    d.field(1, "stream size", "B", lambda b: "%d: one stream" % b)
    d.field(2, "n", "H")
    d.field(4, "t0", "I")
    d.field(8, "raw_check: H64 of the decoded bytes")
    d.field(4, "section_bytes", "I")
    d.field(4, "reserved")
    d.field(1, "mask flags [mask]: constant channels")
    d.field(1, "bitmap: channel 1")
    d.field(2, "its element: 1.0")
    d.field(12, "zeros to a multiple of 16 [rans 4]")
    n = d.field(4, "stream table: n_words", "I")
    d.field(4, "reserved")
    d.field(8, "check: 0, there is one stream")
    for lane in range(5):
        d.field(4, "state of lane %d" % lane, "I", hexadecimal)
    d.field(4 * 27, "states of lanes 5 to 31")
    for i in range(n):
        d.field(2, "word %d" % i, "H", hexadecimal)
    if n % 8:
        d.field(-2 * n % 16, "zeros to a multiple of 16")


def commit(d):
    d.field(8, "frames before this one", "Q")
    d.field(8, "offset of this frame", "Q", hexadecimal)
    d.varint("n_tracks")
    d.varint("tokens of track 0")
    d.field(1, "flags: no checkpoint")


def index(d):
    d.field(1, "packed: method 0")
    d.field(8, "offset of the INDEX that it follows: none", "Q")
    d.field(4, "bytes of that frame", "I")
    d.field(8, "codecs of the chunks: bit 5", "Q", hexadecimal)
    for i in range(d.varint("n")):
        kind = d.field(1, "type", "B",
                       lambda k: "%d, %s" % (k, kvarc_ref.TYPES[k][0]))
        d.varint("offset - end of the entry before, / 16")
        d.varint("sequence - that of the entry before")
        d.varint("bytes of the frame / 16")
        names = {kvarc_ref.PARAMS: ["tensor", "first head", "heads"],
                 kvarc_ref.SEGMENT: ["track", "t0", "n"],
                 kvarc_ref.COMMIT: ["number of the checkpoint: none"],
                 kvarc_ref.CHUNK: ["tensor", "first head", "heads",
                                   "own sequence - that of its SEGMENT",
                                   "sequence of the PARAMS"]}
        for name in names.get(kind, []):
            d.varint("  " + name)
        if kind == kvarc_ref.SEGMENT:
            d.field(1, "  flags: chain value", "B")
            d.field(16, "  chain value")
        if kind == kvarc_ref.PARAMS:
            d.field(1, "  codec", "B")
            d.varint("  sequence of the frame it copies")


def footer(d):
    d.field(8, "offset of the last INDEX", "Q", hexadecimal)
    d.field(8, "offset of the last COMMIT", "Q", hexadecimal)
    d.field(8, "frames before this one", "Q")
    d.field(4, "bytes of the INDEX frame", "I")
    d.field(4, "bytes of the COMMIT frame", "I")


TEXT = {
    "GEOMETRY": (geometry, "4", "The first frame. decoded_bytes counts the "
                 "content without the method byte."),
    "PARAMS": (params, "8, grid 1", ""),
    "SEGMENT": (segment, "6", "12 tokens at the positions -1 to 8, 20, 21."),
    "CHUNK": (chunk, "7, mask, rans", "12 x 3 elements are left after the "
              "mask: one step of 32 lanes, then one of 4.\nLanes 4 to 31 carry "
              "one element each."),
    "COMMIT": (commit, "9.1", ""), "INDEX": (index, "9.2", ""),
    "FOOTER": (footer, "9.3", "80 bytes before the end of the file."),
}


def frame(d, f, name):
    fields, section, text = TEXT[name]
    start = d.at
    d.field(8, "sync: H64( \"kvarc frame sync\" || file_id )")
    d.field(2, "type", "H", lambda k: "%d, %s" % (k, name))
    d.field(2, "flags", "H", lambda k: "%d%s" % (
        k, ", critical" if k else ""))
    payload = d.field(4, "payload_bytes", "I")
    d.field(8, "sequence", "Q")
    d.field(4, "decoded_bytes", "I")
    d.field(4, "header_check")
    fields(d)
    assert d.at == start + 32 + payload, name
    if payload % 16:
        d.field(-payload % 16, "padding")
    d.field(16, "check: of header, offset, front and rest")
    return d.block("Frame %d: %s [3, %s]" % (f.sequence, name, section), text)


def element_walk(archive):
    """How the first element of the chunk comes out of lane 0."""
    p = next(iter(archive.params.values()))
    c = archive.chunks[0]
    payload = [f.payload for f in archive.frames if f.type == 7][0][48:]
    cursor = codecs.Cursor(payload)
    cursor.take(4)
    cursor.align()
    n_words = cursor.u32()
    cursor.take(12)
    state = cursor.u32()
    cursor.take(31 * 4)
    words = cursor.numbers("H", n_words)
    form = codecs.GRID[codecs.BF16]
    b, k = codecs.expected(p, None, 4, 0, -1)
    context = codecs.Context(b, k, form[0], form[1])
    table = codecs.grid_set(0)[context.table]
    lane = codecs.Lane(state, words[::-1])
    s = lane.symbol(table)
    after = lane.state
    lane.renorm()
    e = codecs.LO[s >> 1] + (lane.state & ((1 << codecs.NB[s >> 1]) - 1))
    before_raw = lane.state
    bits = codecs.grid_element(context, s, lane, form)
    used = next(n for n in range(17) if before_raw >> n == lane.state)
    assert bits == struct.unpack("<H", c.raw[:2])[0]
    value = struct.unpack("<f", struct.pack("<I", bits << 16))[0]
    return "\n".join([
        "\n## The first element: token 0, channel 0 [grid 2 to 4]\n",
        "It is element 0 in token-major order, so it is in step 0, lane 0.",
        "",
        "1. k = %d, mean = %d, so mu = %d x 2^(fl(%d/4) - 4) = %g, bit "
        "pattern 0x%08x." % (p.k[0], p.mean[0], p.mean[0], p.k[0],
                             p.mean[0] * 2.0 ** (p.k[0] // 4 - 4), b),
        "2. The context: G = %d (a cell is 2^%d wide), M = %d, neg = %d, "
        "table %d." % (context.G, context.G, context.M, context.neg,
                       context.table),
        "3. state = 0x%x, slot = state & 2047 = %d. In the table, symbol %d "
        "has cum = %d, freq = %d." % (state, state & 2047, s,
                                      table.start[s], table.freq[s]),
        "4. state = %d * (0x%x >> 11) + %d - %d = 0x%x. %s" % (
            table.freq[s], state, state & 2047, table.start[s], after,
            "That is below 2^16,\n   so word 0 follows at the low end: 0x%x."
            % before_raw if after < 1 << 16 else
            "That is not below 2^16, so no word is read."),
        "5. Symbol %d is token pair t = %d, side %d: LO = %d, NB = %d, so "
        "e = %d and d = %d; X = M + d = %d." % (
            s, s >> 1, s & 1, codecs.LO[s >> 1], codecs.NB[s >> 1], e,
            -e - 1 if s & 1 else e,
            context.M + (-e - 1 if s & 1 else e)),
        "6. What is left inside the cell are raw bits: %d of them, 0x%x, "
        "leave the low end of the state." % (
            used, before_raw & ((1 << used) - 1)),
        "7. The element is 0x%04x, %g." % (bits, value),
        "8. Later, in step 1, lane 0 carries element 32, channel %d of token "
        "%d. At the end all 32\n   lanes are at 0x10000 and all words are used." % ([0, 2, 3][32 % 3], 32 // 3), ""])


def make():
    with open(VECTOR, "rb") as f:
        data = f.read()
    archive = kvarc_ref.Archive(data)
    d = Dump(data)
    out = HEAD + superblock(d)
    for f in archive.frames:
        out += frame(d, f, kvarc_ref.TYPES[f.type][0])
        if f.type == kvarc_ref.CHUNK:
            out += element_walk(archive)
    assert d.at == len(data)
    return out


def main():
    text = make()
    if sys.argv[1] == "--check":
        with open(sys.argv[2]) as f:
            if f.read() != text:
                print("%s is not what make_examples.py writes" % sys.argv[2])
                return 1
        return 0
    with open(sys.argv[1], "w") as f:
        f.write(text)
    return 0


sys.exit(main())
