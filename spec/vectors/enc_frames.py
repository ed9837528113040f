# SPDX-License-Identifier: BSD-3-Clause
"""Encrypted frames, parity frames and references into a store, for the vector
encoder (frames.md). Of reference/ it uses the ciphers and hashes alone.
"""

import struct
from hashlib import blake2b

import xchacha
from argon2 import argon2id
from enc_fields import b128, pack_elements, varint
from xxh3 import h128

OUTER = bytes(range(32))
PASSPHRASE = "correct horse battery staple"


def key_line(outer=OUTER):
    """The .key file of a key, or of a passphrase."""
    if isinstance(outer, bytes):
        return b"key " + outer.hex().encode() + b"\n"
    return b"passphrase " + outer.encode() + b"\n"


class Cipher:
    """Encrypts the frames of one archive. Its keys and nonces are made of
    what they are for, so that the same vectors come out anywhere; writers of
    real files draw them at random.

    slots: outer keys (bytes) and passphrases (str), a KEY frame each.
    edits: {field: value} of the KEY frames (see key_frame)."""

    def __init__(self, slots=(OUTER,), file_id=b"kvarc test file!", **edits):
        self.id, self.slots, self.edits = file_id, slots, edits
        self.file_key = self.drawn(b"file key", 0, 32)

    def drawn(self, what, number, n):
        return blake2b(self.id + what + struct.pack("<Q", number),
                       digest_size=n).digest()

    def begin(self, w):
        for slot in self.slots:
            self.key_frame(w, slot)

    def key_frame(self, w, slot, **edits):
        e = dict(self.edits, **edits)
        passphrase = isinstance(slot, str)
        passes, memory = e.get("passes", 2), e.get("memory", 16)
        salt = e.get("salt", self.drawn(b"salt", w.sequence, 16)
                     if passphrase else bytes(16))
        if passphrase:
            # What no reader may derive has any key.
            small = 1 <= passes <= 64 and 8 <= memory <= 1024
            outer = argon2id(slot.encode(), salt, passes if small else 1,
                             memory if small else 8, 32)
        else:
            outer = slot
            passes, memory = e.get("passes", 0), e.get("memory", 0)
        head = struct.pack("<B7sII", e.get("kind", 1 + passphrase),
                           e.get("reserved", bytes(7)), passes, memory) \
            + salt + e.get("file_id", self.id)
        head += blake2b(b"kvarc key id 1.0" + self.id, digest_size=32,
                        key=outer).digest()
        nonce = self.drawn(b"key nonce", w.sequence, 24)
        payload = head + nonce + xchacha.seal(
            outer, nonce, b"kvarc file key 1" + head, self.file_key)
        return w.frame("KEY", e.get("payload", lambda p: p)(payload))

    def seal(self, payload, kind, flags, header, place, number, key=None,
             reserved=0, file_id=None, nonce=None):
        head = struct.pack("<HHI", kind, flags, reserved)
        if nonce is None:
            nonce = self.drawn(b"nonce", number, 24)
        return head + nonce + xchacha.seal(
            key or self.file_key, nonce, b"kvarc encrypted "
            + (file_id or self.id) + header + place + head, payload)


# -------------------------------------------------------------------- parity

def product(a, b):
    """In GF(2^8) with 0x11d."""
    out = 0
    while b:
        out ^= a if b & 1 else 0
        a, b = a << 1 ^ (0x11D if a & 0x80 else 0), b >> 1
    return out


def quotient(a, b):
    """a / b = a * b^254."""
    for _ in range(254):
        a = product(a, b)
    return a


def parity_payload(data, pieces, r, rows=1):
    """pieces: (offset, bytes)."""
    k = len(pieces)
    row = bytearray(max(n for _, n in pieces))
    out = struct.pack("<HHH10x", k, r, rows)
    for j, (at, n) in enumerate(pieces):
        piece = bytes(data[at:at + n])
        out += struct.pack("<qII", at, n, 0) + h128(piece)
        c = quotient(k ^ j, (k + r) ^ j)
        for i, x in enumerate(piece):
            row[i] ^= product(c, x)
    return out + bytes(row)


def parity(w, pieces, rows=1):
    """PARITY frames for pieces of what was written."""
    for r in range(rows):
        w.frame("PARITY", parity_payload(w.out, pieces, r, rows))


def frame_pieces(w, names=None):
    """The superblock and the frames as pieces."""
    return ([(0, 64)] if not names else []) + [
        (a, b - a) for name, a, b in w.frames
        if not names or name in names]


# --------------------------------------------------------------------- store

def content_digest(tensors, positions, ids, values):
    """tensors of the track and their elements, in the order of chunks."""
    n = len(positions)
    out = b"kvarc content 10" + struct.pack(
        "<II%di" % n, n, ids is not None, *positions)
    if ids is not None:
        out += struct.pack("<%di" % n, *ids)
    for t, elements in zip(tensors, values):
        heads, channels = t["heads"], t["channels"]
        out += struct.pack("<IBBBBII", t["layer"], t["kind"], t["role"],
                           t["dtype"], 0, heads, channels)
        for head in range(heads):
            out += h128(pack_elements(t["dtype"], [
                elements[(token * heads + head) * channels + c]
                for token in range(n) for c in range(channels)]))
    return b128(out)


def storeref(w, track, segments, at=None, **edits):
    """segments: (positions, ids, elements of the tensors in the order of
    chunks, chain: True, a value or None); at: t0, where it rewinds; edits:
    count, t0, n, flags, bytes, digest, tail. Returns the keys that the store
    is asked for."""
    order = sorted((t["layer"], t["kind"], i)
                   for i, t in enumerate(w.geometry_parts[2])
                   if t["track"] == track)
    tensors = [w.geometry_parts[2][i] for _, _, i in order]
    t0, keys = w.tokens[track] if at is None else at, []
    first = t0
    content = varint(track) + varint(edits.get("t0", t0)) + varint(
        edits.get("count", len(segments)))
    for positions, ids, values, chain in segments:
        n = len(positions)
        raws = [pack_elements(t["dtype"], v) for t, v in zip(tensors, values)]
        digest = content_digest(tensors, positions, ids, values)
        chain = w.enter(track, t0, list(positions), list(ids or []), chain)
        content += varint(edits.get("n", n)) + bytes([edits.get(
            "flags", bool(chain))]) + varint(edits.get(
                "bytes", sum(map(len, raws)))) \
            + edits.get("digest", digest) + (chain or b"")
        keys.append(chain or digest)
        for (_, _, i), t, raw in zip(order, tensors, raws):
            w.digest(i, 0, t["heads"], t0, n, raw)
        t0 += n
    w.tokens[track] = t0
    w.frame("STOREREF", content + edits.get("tail", b""),
            method=edits.get("method", 0), entry=varint(track)
            + varint(first) + varint(t0 - first))
    return keys
