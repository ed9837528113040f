# SPDX-License-Identifier: BSD-3-Clause
"""KEY and ENCRYPTED frames of the reference decoder: frames.md 12.1."""

import struct
from hashlib import blake2b

import xchacha
from argon2 import argon2id
from kvarc_codecs import demand

GEOMETRY, FOOTER, PARITY, ENCRYPTED, STOREREF, KEY = 1, 10, 13, 14, 15, 16
LIST, FORK = 18, 19
# What an ENCRYPTED frame has before and behind its ciphertext.
HEAD, TAG = 32, 16
# Passes x KiB of Argon2id for a file, and what a run counts at least.
WORK_MAX, WORK_MIN = 1 << 22, 1 << 10


def read_secret(text):
    """A line `key HEX` or `passphrase TEXT` -> (kind, bytes)."""
    word, _, value = text.rstrip("\r\n").partition(" ")
    if word == "key" and len(value) == 64:
        return 1, bytes.fromhex(value)
    assert word == "passphrase", "neither a key nor a passphrase"
    return 2, value.encode()


def key_id(outer, file_id):
    return blake2b(b"kvarc key id 1.0" + file_id, digest_size=32,
                   key=outer).digest()


class Keys:
    """Of one archive: finds its file key, opens its frames."""

    def __init__(self, superblock, secrets=()):
        self.id = superblock.file_id
        self.encrypted = superblock.incompat & 1
        self.secrets = list(secrets)
        self.frames = []            # KEY, before the first ENCRYPTED
        self.any_key = False        # of a kind that is known or not
        self.file_key = None
        self.work = 0               # passes x KiB so far

    def frame(self, f):
        """The frame to interpret in place of f."""
        if f.type == KEY:
            self.on_key(f)
        elif f.type == ENCRYPTED:
            demand(self.encrypted, "an ENCRYPTED frame without its feature")
            return self.inner(f)
        elif f.type != FOOTER and (f.type < PARITY
                                   or f.type in (STOREREF, LIST, FORK)):
            # R12.2
            demand(not self.encrypted, "a frame that is not encrypted")
        return f

    def on_key(self, f):
        demand(self.encrypted, "a KEY frame without its feature")
        self.any_key = True
        p = f.payload
        demand(len(p) == f.decoded, "decoded_bytes of a frame")
        # Kinds that are not known may have other fields.
        if p[:1] not in (b"\1", b"\2"):
            return
        demand(len(p) == 152, "the size of a KEY frame")
        passes, memory = struct.unpack("<II", p[8:16])
        if p[0] == 1:
            demand(not any(p[1:32]), "a key with fields of a passphrase")
        else:
            demand(not any(p[1:8]), "reserved bytes of a KEY frame")
            demand(1 <= passes <= 64, "the passes of a KEY frame")
            demand(8 <= memory <= 1 << 22, "the memory of a KEY frame")
        demand(p[32:48] == self.id, "the file_id of a KEY frame")
        if self.file_key is None:
            self.frames.append(p)

    def outer_key(self, p, secret):
        kind, value = secret
        if kind != p[0]:
            return None
        if kind == 2:
            passes, memory = struct.unpack("<II", p[8:16])
            # R12.6
            work = max(passes * memory, WORK_MIN)
            if self.work + work > WORK_MAX:
                return None
            self.work += work
            value = argon2id(value, p[16:32], passes, memory, 32)
        return value if key_id(value, self.id) == p[48:80] else None

    def unlock(self):
        """R12.6"""
        for p in self.frames:
            for secret in self.secrets:
                outer = self.outer_key(p, secret)
                if outer is None:
                    continue
                self.file_key = xchacha.unseal(
                    outer, p[80:104], b"kvarc file key 1" + p[:80], p[104:])
                demand(self.file_key is not None, "a damaged KEY frame")
                return
        demand(False, "no key of the file was given", "key")

    def inner(self, f):
        demand(self.any_key, "an ENCRYPTED frame without a KEY before it")
        p = f.payload
        demand(len(p) >= HEAD + TAG, "an ENCRYPTED frame is too short")
        kind, flags, reserved = struct.unpack("<HHI", p[:8])
        demand(kind not in (0, FOOTER, PARITY, ENCRYPTED, KEY),
               "an encrypted frame of type %d" % kind)
        demand(not reserved and flags < 2, "reserved fields of a frame")
        if self.file_key is None:
            self.unlock()
        plain = xchacha.unseal(
            self.file_key, p[8:HEAD], b"kvarc encrypted " + self.id
            + f.header[:28] + struct.pack("<Q", f.offset) + p[:8], p[HEAD:])
        demand(plain is not None, "an ENCRYPTED frame was changed")
        f.type, f.flags, f.payload = kind, flags, plain
        return f
