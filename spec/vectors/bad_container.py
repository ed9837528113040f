# SPDX-License-Identifier: BSD-3-Clause
"""Invalid archives: superblock, frames, order, packing (format 1 to 3)."""

import struct

from bad_base import RAW, add, base, cut, edit, poke, small, splice, vector
from enc_codecs import fit_bytes
from enc_fields import U8, varint, zstd_frame
from kvarc_enc import KEY, Writer, h64, tensor


# -------------------------------------------------------------- 2 superblock

vector("magic", "first byte of the magic", "format")(
    lambda: bytes(base(magic=b"\x88KVA\r\n\x1a\n").out))
vector("magic-text", "the CR LF of the magic became LF", "format")(
    lambda: bytes(base(magic=b"\x89KVA\n\x1a\n\0").out))
vector("nothing", "a file of 0 bytes", "format")(lambda: b"")
vector("magic-cut", "ends after 7 bytes of the magic", "format")(
    lambda: bytes(base().out[:7]))
vector("superblock-nothing", "the magic and nothing more")(
    lambda: bytes(base().out[:8]))
vector("other-format", "a Zstandard frame", "format")(
    lambda: zstd_frame(b"This is something else. " * 4))
vector("superblock-check", "one bit of the check")(
    lambda: bytes(base(check=1).out))
vector("superblock-reserved", "a reserved byte")(
    lambda: bytes(base(reserved=bytes(15) + b"\1").out))
vector("superblock-cut", "ends after 63 bytes")(
    lambda: bytes(base().out[:63]))
vector("no-frames", "ends after the superblock")(
    lambda: bytes(base().out[:64]))

# ------------------------------------------------------------------ 3 frames

edit("frame-sync", "sync of another file", "CHUNK", {"sync": 1})
edit("frame-header-check", "one bit", "CHUNK", {"header_check": 1 << 31})
edit("frame-check", "one bit", "CHUNK", {"check": 0x80})
edit("frame-sequence", "one too many, header and checks agree", "SEGMENT",
     {"sequence": 7})
edit("frame-place", "checks of a frame at another offset", "CHUNK",
     {"place": 16})
edit("frame-flags", "a reserved flag bit", "IDENTITY", {"flags": 2})
edit("frame-not-critical", "a CHUNK without the critical flag", "CHUNK",
     {"flags": 0})
edit("frame-critical", "an IDENTITY with the critical flag", "IDENTITY",
     {"flags": 1})
edit("frame-parity-critical", "type 13 with the critical flag", "IDENTITY",
     {"type": 13, "flags": 1})
edit("frame-encrypted-skipped", "type 14 without the critical flag",
     "IDENTITY", {"type": 14, "flags": 0})
edit("frame-type-0", "type 0", "IDENTITY", {"type": 0})
edit("frame-padding", "padding that is not zero", "BLOB", {"padding": b"\1"})
edit("frame-payload-size", "payload_bytes above 2^28", "CHUNK",
     {"payload_bytes": (1 << 28) + 1})
edit("frame-payload-past-end", "payload_bytes past the end of the file",
     "CHUNK", {"payload_bytes": 1 << 20})
edit("frame-decoded-size", "decoded_bytes above 2^28", "IDENTITY",
     {"decoded_bytes": (1 << 28) + 1})


def pieces(w):
    return [bytes(w.out[:64])] + [bytes(w.out[a:b]) for _, a, b in w.frames]


@vector("frames-swapped", "two CHUNK frames in each other's place")
def _():
    p = pieces(base())
    i = 1 + [name for name, _, _ in base().frames].index("CHUNK")
    return b"".join(p[:i] + [p[i + 1], p[i]] + p[i + 2:])


@vector("frame-twice", "the last CHUNK frame twice")
def _():
    p = pieces(base())
    i = 2 + [name for name, _, _ in base().frames].index("CHUNK")
    return b"".join(p[:i + 1] + p[i:])


@vector("frame-removed", "the IDENTITY frame taken out")
def _():
    p = pieces(base())
    return b"".join(p[:2] + p[3:])


@vector("frame-of-another-file", "a CHUNK of the same archive with another "
        "file_id")
def _():
    p, other = pieces(base()), pieces(base(file_id=b"another test id!"))
    i = 1 + [name for name, _, _ in base().frames].index("CHUNK")
    return b"".join(p[:i] + other[i:i + 1] + p[i + 1:])


vector("garbage-16", "16 zero bytes after the FOOTER")(
    lambda: bytes(base().out) + bytes(16))
vector("garbage-3", "3 bytes after the FOOTER")(
    lambda: bytes(base().out) + b"end")


def cut_after(name, extra=0):
    w = base()
    end = [b for n, _, b in w.frames if n == name][-1]
    return bytes(w.out[:end + extra])


vector("cut-after-chunk", "ends after the last CHUNK, without COMMIT")(
    lambda: cut_after("CHUNK"))
vector("cut-after-geometry", "ends after the GEOMETRY")(
    lambda: cut_after("GEOMETRY"))
vector("cut-in-commit", "ends 1 byte before the end of the COMMIT")(
    lambda: cut_after("COMMIT", -1))
vector("cut-in-index", "ends 40 bytes after the start of the INDEX")(
    lambda: cut_after("COMMIT", 40))
vector("cut-in-footer", "1 byte of the FOOTER is missing")(
    lambda: bytes(base().out[:-1]))

# ------------------------------------------------------------------- 3.4 order


@vector("order-no-geometry", "the first frame is IDENTITY")
def _():
    w = Writer()
    w.identity([])
    w.geometry([], [(0, 0, "")], [])
    w.close()
    return bytes(w.out)


@vector("order-two-geometries", "a second GEOMETRY")
def _():
    w = Writer()
    w.geometry([], [(0, 0, "")], [])
    w.geometry([], [(0, 0, "")], [])
    w.close()
    return bytes(w.out)


@vector("order-value-first", "the value's CHUNK before the key's")
def _():
    def steps(w):
        w.segment(0, 2)
        w.chunk(1, RAW)
        w.chunk(0, RAW)
    return small(steps)


@vector("order-chunk-missing", "a COMMIT before the value's CHUNK was there")
def _():
    def steps(w):
        w.segment(0, 2)
        w.chunk(0, RAW)
    return small(steps)


@vector("order-chunk-twice", "the same tensor and heads twice")
def _():
    def steps(w):
        w.segment(0, 2)
        for i in (0, 0, 1):
            w.chunk(i, RAW)
    return small(steps)


def order_of_heads(name, text, n_heads, *firsts):
    """A tensor of heads with a chunk for each, that begin at `firsts`."""
    @vector("order-head-" + name, text)
    def _():
        w = Writer()
        w.geometry([], [(0, 0, "")], [tensor(0, KEY, U8, n_heads, 2),
                                      tensor(1, KEY, U8, 1, 2)])
        w.segment(0, 2)
        for first in firsts:
            w.chunk(0, RAW, first=first, heads=1)
        w.chunk(1, RAW)
        w.close()
        return bytes(w.out)


order_of_heads("first", "a CHUNK of head 1 where one of head 0 is due", 2, 1, 0)
order_of_heads("skipped", "head 2 behind head 0, and then head 1", 3, 0, 2, 1)
order_of_heads("twice", "head 0 twice and head 1 never", 2, 0, 0)


@vector("order-chunk-early", "a CHUNK before its SEGMENT")
def _():
    def steps(w):
        segment = w.sequence + 1
        raw = bytes(RAW)
        w.frame("CHUNK", struct.pack(
            "<IHHQQBBHIQII", 0, 0, 1, segment, 0, 0, 3, 2, 0, h64(raw), 0, 0)
            + raw, decoded=len(raw))
        w.segment(0, 2)
        w.chunk(0, RAW)
    return small(steps, 1)


@vector("order-no-commit", "a SEGMENT follows without a COMMIT between")
def _():
    def steps(w):
        for _ in range(2):
            w.segment(0, 2)
            w.chunk(0, RAW)
            w.chunk(1, RAW)
    return small(steps)


@vector("order-chunk-after-commit", "a CHUNK of a segment whose COMMIT came")
def _():
    def steps(w):
        w.segment(0, 2)
        w.chunk(0, RAW)
        w.chunk(1, RAW)
        w.commit()
        w.chunk(1, RAW)
    return small(steps)


@vector("order-params-late", "a CHUNK names PARAMS that come after it")
def _():
    def steps(w):
        p = fit_bytes(2, RAW)
        w.segment(0, 2)
        w.chunk(0, RAW, 6, p, 3)
        w.params(0, p)
    return small(steps, 1)


@vector("order-restore-in-segment", "a RESTORE between a SEGMENT and its CHUNK")
def _():
    def steps(w):
        w.segment(0, 2)
        w.restore(1, "", [])
        w.chunk(0, RAW)
    return small(steps, 1)


@vector("order-restore-behind-chunk", "a RESTORE between a CHUNK and the COMMIT")
def _():
    def steps(w):
        w.segment(0, 2)
        w.chunk(0, RAW)
        w.restore(1, "", [])
    return small(steps, 1)


@vector("order-blob-early", "a BLOB of an item that comes after it")
def _():
    def steps(w):
        w.blob(0, 0, b"x")
        w.restore(1, "", [1])
    return small(steps, 0)


# ------------------------------------------------------- 1.5 packed, 1.2 varint

# `zstd --check` of the content of base's IDENTITY, without its size.
IDENTITY_ZSTD = bytes.fromhex("28b52ffd0468490000020161013101620132bb6cf54c")

edit("packed-empty", "a payload without even the method", "IDENTITY",
     {"payload": lambda p: b"", "decoded_bytes": 0})
edit("packed-longer", "method 0, content longer than decoded_bytes",
     "IDENTITY", {"decoded_bytes": 8})
edit("packed-zstd-longer", "method 1, content longer than decoded_bytes",
     "IDENTITY", {"method": 1, "decoded_bytes": 8})
edit("packed-zstd-shorter", "method 1, content shorter than decoded_bytes",
     "IDENTITY", {"method": 1, "decoded_bytes": 10})
edit("packed-zstd-magic", "the Zstandard magic", "IDENTITY",
     {"method": 1, "payload": poke(1, 0x29)})
edit("packed-zstd-block", "a reserved Zstandard block type", "IDENTITY",
     {"method": 1, "payload": lambda p: poke(7, p[7] | 6)(p)})
edit("packed-zstd-cut", "a Zstandard frame without its last byte", "IDENTITY",
     {"method": 1, "payload": cut(1)})
edit("packed-zstd-twice", "two Zstandard frames", "IDENTITY",
     {"method": 1, "payload": lambda p: b"\1" + zstd_frame(
         b"\2\1a\0011") + zstd_frame(b"\1b\0012")})
edit("packed-zstd-skippable", "a skippable frame after the Zstandard frame",
     "IDENTITY", {"method": 1, "payload": add(
         struct.pack("<II", 0x184D2A50, 2) + b"hi")})
edit("packed-zstd-garbage", "a byte after the Zstandard frame", "IDENTITY",
     {"method": 1, "payload": add(b"\0")})
edit("packed-zstd-window", "a window of 16 MiB", "IDENTITY",
     {"method": 1, "payload": splice(5, 2, b"\0" + bytes([14 << 3]))})
edit("packed-zstd-checksum", "another checksum of a Zstandard frame",
     "IDENTITY", {"payload": lambda p: b"\1" + poke(-1, 0x4D)(IDENTITY_ZSTD)})
edit("packed-zstd-dictionary", "a dictionary number", "IDENTITY",
     {"method": 1, "payload": splice(5, 1, b"\x21\x07")})
edit("varint-not-minimal", "n of a segment as 85 00", "SEGMENT",
     splice(2, 1, b"\x85\0"))
edit("varint-too-long", "t0 of a segment in 9 bytes", "SEGMENT",
     splice(1, 1, b"\x80" * 8 + b"\1"))
edit("varint-cut", "the content ends inside a varint", "IDENTITY",
     lambda c: b"\x82")


@vector("packed-zstd-single", "a single-segment Zstandard frame of 8 MiB + 1 "
        "byte, and so a window of that size")
def _():
    n = (8 << 20) + 1
    frame = struct.pack("<IBI", 0xFD2FB528, 0xA0, n) + (2 << 3).to_bytes(
        3, "little") + b"\0\0"
    for left in range(n - 2, 0, -(1 << 17)):
        size = min(left, 1 << 17)
        frame += (size << 3 | 2 | (size == left)).to_bytes(
            3, "little") + b"\0"
    w = Writer(edits={("BLOB", 0): {"payload": lambda p: b"\1" + frame,
                                    "decoded_bytes": n}})
    w.geometry([], [(0, 0, "")], [])
    w.restore(1, "", [n - 2])
    w.blob(0, 0, b"")
    w.close()
    return bytes(w.out)


def long_string(_):
    """The packed content 01 01 "a", a string of 65536 zero bytes."""
    head = b"\1\1a" + varint(65536)
    size = len(head) + 65536
    return b"\1" + struct.pack("<IBH", 0xFD2FB528, 0x60, size - 256) \
        + (len(head) << 3).to_bytes(3, "little") + head \
        + (65536 << 3 | 3).to_bytes(3, "little") + b"\0"


edit("string-too-long", "an identity value of 65536 bytes", "IDENTITY",
     {"payload": long_string, "decoded_bytes": 6 + 65536})

# ------------------------------------------------- truncated and too long

for _name, _count in (("GEOMETRY", 0), ("IDENTITY", 0), ("RESTORE", 0),
                      ("PARAMS", 0), ("PARAMS", 1), ("SEGMENT", 0),
                      ("CHUNK", 0), ("CHUNK", 1), ("COMMIT", 0),
                      ("INDEX", 0), ("FOOTER", 0)):
    _suffix = "" if _name not in ("PARAMS", "CHUNK") else (
        "-grid" if _count == 0 else "-bytes")
    for _what, _text, _change in (
            ("short", "content ends a byte early", cut(1)),
            ("long", "a byte follows the last field", add(b"\0"))):
        if _name == "CHUNK":
            # decoded_bytes is not the size of the payload here.
            _change = {"payload": _change,
                       "decoded_bytes": (60, 15)[_count]}
        edit("%s-%s%s" % (_what, _name.lower(), _suffix), _text, _name,
             _change, count=_count, coded=_name in ("PARAMS", "CHUNK"))
edit("short-chunk-header", "a CHUNK of 39 bytes", "CHUNK",
     {"payload": lambda p: p[:39], "decoded_bytes": 60})
edit("short-blob", "a BLOB without its bytes and offset", "BLOB",
     lambda c: c[:1])
