# SPDX-License-Identifier: BSD-3-Clause
"""Invalid archives with encrypted frames and references into a store
(frames.md), and those whose key or object is missing. What PARITY frames must
not do is in frame_vectors.REPAIRS."""

import struct

from bad_base import RAW, base, edit, poke, vector
from enc_fields import U8, varint
from enc_frames import OUTER, PASSPHRASE, Cipher, key_line
from frame_vectors import (
    F16_VALUES, commit_only, referring, sample, stored_segments,
    turns_of_store)
from kvarc_enc import KEY, Writer, tensor

BESIDE = {".key": key_line()}
FRAMES = ("GEOMETRY", "IDENTITY", "RESTORE", "BLOB", "SEGMENT", "CHUNK",
          "COMMIT", "INDEX", "FOOTER")


def encrypted(name, text, frame=None, change=None, answer="data", slots=None,
              beside=None, close=Writer.close, **edits):
    """`sample` with an edit of one frame, or of the KEY frames."""
    def make():
        w = sample(Writer(cipher=Cipher(slots or (OUTER,), **edits),
                          incompat=1, edits={(frame, 0): change or {}}),
                   close=close)
        return bytes(w.out), BESIDE if beside is None else beside
    vector("encrypted-" + name, text, answer)(make)


# ------------------------------------------------------------- KEY (R12.1 to 6)

edit("frame-encrypted", "an ENCRYPTED frame, feature_incompat bit 0 is not "
     "set", "IDENTITY", {"type": 14, "flags": 1})
vector("frame-key", "a KEY frame, feature_incompat bit 0 is not set")(
    lambda: (bytes(sample(Writer(cipher=Cipher(), edits={
        (f, i): {"plain": True} for f in FRAMES for i in range(9)})).out),
        BESIDE))
vector("encrypted-not", "frames that are not encrypted, feature_incompat "
       "bit 0 is set")(lambda: bytes(base(incompat=1).out))
encrypted("plain", "a CHUNK that is not encrypted", "CHUNK", {"plain": True})
encrypted("plain-index", "an INDEX that is not encrypted", "INDEX",
          {"plain": True})
encrypted("footer", "a FOOTER that is encrypted", "FOOTER", {"plain": False})


@vector("encrypted-no-key", "no KEY frame")
def _():
    cipher = Cipher(())
    return bytes(sample(Writer(cipher=cipher, incompat=1)).out), BESIDE


@vector("encrypted-key-late", "the KEY frame behind GEOMETRY")
def _():
    cipher = Cipher(())
    w = Writer(cipher=cipher, incompat=1)
    w.geometry([], [(0, 0, "")], [])
    cipher.key_frame(w, OUTER)
    w.close()
    return bytes(w.out), BESIDE


PASS = {"slots": (PASSPHRASE,), "beside": {".key": key_line(PASSPHRASE)}}
encrypted("key-passes-0", "no passes of Argon2id", passes=0, **PASS)
encrypted("key-passes-65", "65 passes of Argon2id", passes=65, **PASS)
encrypted("key-memory-7", "7 KiB for Argon2id", memory=7, **PASS)
encrypted("key-memory-huge", "4 GiB and 1 KiB for Argon2id",
          memory=(1 << 22) + 1, **PASS)
encrypted("key-reserved", "a reserved byte of a KEY frame",
          reserved=bytes(6) + b"\1")
encrypted("key-passphrase-reserved", "the same of a passphrase",
          reserved=bytes(6) + b"\1", **PASS)
encrypted("key-salt", "a salt, where the key is given", salt=b"1" * 16)
encrypted("key-memory", "memory, where the key is given", memory=64)
encrypted("key-short", "a KEY frame without its last byte",
          payload=lambda p: p[:-1])
encrypted("key-long", "a byte behind a KEY frame",
          payload=lambda p: p + b"\0")
encrypted("key-file-id", "a KEY frame with another file_id",
          file_id=b"another test id!")
encrypted("key-decoded", "decoded_bytes of a KEY frame", "KEY",
          {"decoded_bytes": 151})
encrypted("key-tag", "the tag of a KEY frame", payload=poke(-1, 0))
encrypted("key-changed", "one bit of the encrypted file key",
          payload=lambda p: p[:104] + bytes([p[104] ^ 1]) + p[105:])
encrypted("key-kind", "the kind of a KEY frame, from 2 to 1",
          payload=lambda p: b"\1" + p[1:8] + bytes(24) + p[32:],
          answer="key", **PASS)
encrypted("missing", "no key is given", answer="key", beside={})
encrypted("other", "another key is given", answer="key",
          beside={".key": key_line(b"another key of thirty-two bytes!")})
encrypted("passphrase-other", "another passphrase is given", answer="key",
          slots=(PASSPHRASE,), beside={".key": key_line("correct horse")})
encrypted("passphrase-passes", "other passes than the key was made with",
          payload=poke(8, 3), answer="key", **PASS)
encrypted("work", "64 passes of Argon2id with 4 GiB, in the ranges of the "
          "fields", payload=lambda p: p[:8] + struct.pack("<II", 64, 1 << 22)
          + p[16:], answer="key", **PASS)
encrypted("unlisted", "only a KEY frame of a kind that is not known",
          payload=poke(0, 9), answer="key")

# ------------------------------------------------------ ENCRYPTED (R12.7 to 10)


@vector("encrypted-short", "an ENCRYPTED frame of 47 bytes")
def _():
    w = Writer(cipher=Cipher(), incompat=1)
    w.geometry([], [(0, 0, "")], [])
    w.frame("ENCRYPTED", bytes([2]) + bytes(46))
    w.close()
    return bytes(w.out), BESIDE


for _type, _word in ((0, "0"), (10, "FOOTER"), (13, "PARITY"),
                     (14, "ENCRYPTED"), (16, "KEY")):
    encrypted("inner-" + _word.lower(), "an encrypted frame of type " + _word,
              "IDENTITY", {"type": _type, "flags": int(_type == 14)})
encrypted("inner-critical", "an encrypted CHUNK without the critical flag",
          "CHUNK", {"flags": 0})
encrypted("inner-flags", "a reserved flag of an encrypted frame", "IDENTITY",
          {"flags": 2})
encrypted("inner-reserved", "the reserved field of an ENCRYPTED frame",
          "IDENTITY", {"seal": lambda a: dict(a, reserved=1)})
encrypted("inner-new", "an encrypted critical frame of a type not known",
          "IDENTITY", {"type": 99, "flags": 1}, "unsupported")
encrypted("tag", "one bit of a tag", "CHUNK",
          {"sealed": lambda p: p[:-1] + bytes([p[-1] ^ 1])})
encrypted("bit", "one bit of a ciphertext", "CHUNK",
          {"sealed": lambda p: p[:80] + bytes([p[80] ^ 1]) + p[81:]})
encrypted("nonce", "one bit of a nonce", "CHUNK",
          {"sealed": lambda p: p[:8] + bytes([p[8] ^ 1]) + p[9:]})
encrypted("type", "an IDENTITY that was encrypted as a private frame",
          "IDENTITY", {"sealed": poke(0, b"\2\0"), "type": 0x8002},
          close=commit_only)
encrypted("flags", "a private frame that was encrypted as a critical one",
          "IDENTITY", {"sealed": poke(2, 0), "type": 0x8002, "flags": 1},
          close=commit_only)


def header(at, code, value):
    """The cipher is given another header."""
    return {"seal": lambda a: dict(a, header=poke(at, struct.pack(
        "<" + code, value))(a["header"]))}


encrypted("moved", "a frame that was encrypted at another offset", "CHUNK",
          {"seal": lambda a: dict(a, place=struct.pack("<Q", 4096))})
encrypted("sequence", "a frame that was encrypted with another sequence "
          "number", "CHUNK", header(16, "Q", 77))
encrypted("decoded-bytes", "the same with other decoded_bytes", "CHUNK",
          header(24, "I", 77))
encrypted("sync", "the same with the sync of another file", "CHUNK",
          header(0, "Q", 77))
encrypted("other-file", "the same for another file_id", "CHUNK",
          {"seal": lambda a: dict(a, file_id=b"another test id!")})
encrypted("other-key", "the same under another file key", "CHUNK",
          {"seal": lambda a: dict(a, key=bytes(32))})
encrypted("decoded", "decoded_bytes of an encrypted COMMIT", "COMMIT",
          {"decoded_bytes": 77})
encrypted("raw-check", "raw_check of an encrypted CHUNK", "CHUNK",
          poke(32, b"12345678"))
vector("encrypted-incompat", "feature_incompat bit 2 beside bit 0",
       "unsupported")(lambda: (bytes(sample(Writer(
           cipher=Cipher(), incompat=5)).out), BESIDE))


# -------------------------------------------------------- STOREREF (R12.18 on)

def storeref(name, text, answer="data", segments=None, edits=None, **how):
    """`referring` with an edit of a frame, of the STOREREF or of what is in
    the store."""
    vector("storeref-" + name, text, answer)(lambda: bytes(referring(
        Writer(incompat=2, edits=edits), segments and segments(), **how).out))


def changed(which, field, value):
    """The segments of the store with a field of one changed, under the keys
    of those that are there."""
    def make():
        keys = referring(Writer()).keys
        out = [list(s[:3]) + [s[3] and key]
               for s, key in zip(stored_segments(), keys)]
        out[which][field] = value(out[which][field])
        return out
    return make


vector("frame-storeref", "a STOREREF frame, feature_incompat bit 1 is not "
       "set")(lambda: bytes(referring(Writer()).out))
storeref("no-commit", "no COMMIT between STOREREF and SEGMENT",
         between=lambda w: None)
storeref("t0", "t0 of a STOREREF", t0=1)
storeref("none", "a STOREREF of no segments", segments=list, count=0)
storeref("many", "4097 segments announced", count=4097)
storeref("n-0", "a segment of no tokens", n=0)
storeref("n-257", "a segment of 257 tokens", n=257)
storeref("bytes", "another number of bytes", bytes=83)
storeref("long", "a byte behind the last field", tail=b"\0")
storeref("flags", "a reserved flag of a segment", flags=3)
storeref("chain", "a chain value that is not that of the segment",
         segments=changed(1, 3, lambda chain: bytes([255]) * 16))
storeref("missing", "the store has nothing under the chain value", "store",
         changed(0, 3, lambda chain: bytes(16)))
storeref("nothing", "the store has nothing under the content digest", "store",
         changed(2, 2, lambda elements: [e[::-1] for e in elements]))
storeref("digest", "the object has another content digest", "store",
         digest=bytes(16))
storeref("ids", "the object has other token ids", "store",
         changed(1, 1, lambda ids: ids[::-1]))
storeref("positions", "the object has other positions", "store",
         changed(1, 0, lambda positions: [1] + positions[1:]))


@vector("storeref-dtype", "the object's values are bf16, those of the file "
        "f16", "store")
def _():
    return bytes(referring(Writer(incompat=2), tensors=F16_VALUES).out)


@vector("storeref-chunk", "a CHUNK behind a STOREREF, which names it")
def _():
    def between(w):
        w.current = (0, 11, 4, [])
        w.current_sequence = w.sequence - 1
        w.chunk(0, [1] * 32)
        w.commit()
    return bytes(referring(Writer(incompat=2), between=between).out)


@vector("storeref-repeat", "codec 3 that repeats a chunk of the store")
def _():
    def between(w):
        at = w.frames[-1][1]
        w.commit()
        w.segment(0, 6)
        values = stored_segments()[0][2]
        w.chunk(0, values[0], 3, of=(w.sequence - 3, at))
        w.chunk(1, values[1])
        w.commit()
    return bytes(referring(Writer(incompat=2), between=between).out)


@vector("storeref-early", "a STOREREF before the COMMIT of a segment")
def _():
    w = Writer(incompat=2)
    w.geometry([], [(0, 0, "")], [tensor(0, KEY, U8, 1, 2)])
    w.segment(0, 2)
    w.chunk(0, RAW)
    w.frame("STOREREF", b"\0" + varint(2) + b"\1" + varint(2) + b"\0"
            + varint(4) + bytes(16))
    w.close()
    return bytes(w.out)


storeref("index", "14 tokens in the INDEX entry of a STOREREF of 15", edits={
    ("INDEX", 0): lambda c: c.replace(b"\0\0\x0f\x08", b"\0\0\x0e\x08")})


# -------------------------------------------------- STOREREF that rewinds (6.2)

def rewinding(name, text, answer="data", last=None, edits=None, **how):
    vector("storeref-rewind-" + name, text, answer)(lambda: bytes(
        turns_of_store(Writer(incompat=2, edits=edits), last and last(),
                       **how).out))


rewinding("chain", "a chain value behind a rewind that depends on tokens "
          "which are gone", last=lambda: turns_of_store().gone_key)
rewinding("t0", "t0 of a STOREREF behind the tokens that a rewind has left",
          t0=12)
rewinding("index", "the INDEX entry of a STOREREF that rewinds, at another t0",
          edits={("INDEX", 0): lambda c: c.replace(
              b"\0\3\2\x08", b"\0\x0b\2\x08")})
rewinding("missing", "the store has nothing under the value behind a rewind",
          "store", last=lambda: bytes(16))


@vector("storeref-rewind-commit", "a COMMIT with the tokens before a STOREREF "
        "that rewinds")
def _():
    return bytes(turns_of_store(Writer(incompat=2, edits={
        ("COMMIT", 2): poke(17, 11)})).out)


@vector("storeref-rewind-repeat", "codec 3 that repeats a chunk of a segment "
        "of the store which was replaced")
def _():
    w = Writer(incompat=2)
    values = stored_segments()[0][2]

    def between(w):
        at = w.frames[-1][1]
        w.commit()
        w.segment(0, 6, t0=0)
        w.chunk(0, values[0], 3, of=(w.sequence - 3, at))
        w.chunk(1, values[1])
        w.commit()
    return bytes(referring(w, between=between).out)
