# SPDX-License-Identifier: BSD-3-Clause
"""Chain values of the reference decoder: kvarc-format.md 5.3."""

import struct
from hashlib import blake2b

from kvarc_codecs import demand

KEYS = (b"adapter", b"layout", b"lossy", b"model", b"namespace",
        b"quantization", b"tokenizer", b"weights")


def b128(data):
    return blake2b(data, digest_size=16).digest()


def varint(n):
    out = []
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out + [n])


def string(text):
    return varint(len(text)) + text


def root_of(identity, geometry):
    """geometry: content of the frame."""
    return b128(
        b"kvarc chain root" + b128(geometry) + bytes([len(KEYS)]) + b"".join(
            string(key) + string(identity.get(key, b"")) for key in KEYS))


def runs_of(positions):
    """As SEGMENT has them."""
    runs = []
    for p in positions:
        if runs and p == runs[-1][0] + runs[-1][1]:
            runs[-1][1] += 1
        else:
            runs.append([p, 1])
    return varint(len(runs)) + b"".join(
        varint(2 * p if p >= 0 else -2 * p - 1) + varint(n) for p, n in runs)


def value(before, track, runs, ids):
    return b128(b"kvarc chain link" + before + struct.pack("<Q", track) + runs
                + struct.pack("<%di" % len(ids), *ids))


class Chains:
    def __init__(self, archive):
        self.archive = archive
        self.root = None        # once there was a chain value

    def now(self):
        return root_of(self.archive.identity, self.archive.geometry.content)

    def on_identity(self):
        demand(self.root in (None, self.now()),
               "an IDENTITY that changes chain values")

    def check(self, s, last):
        """last: the segment that holds the token before its first one."""
        if s.chain is None:
            return
        if self.root is None:
            self.root = self.now()
        demand(last is None or last.chain is not None,
               "a chain value behind a segment without one")
        s.before = self.root if last is None else self.up_to(last, last.left)
        demand(s.chain == self.up_to(s, s.n), "a chain value")

    @staticmethod
    def up_to(s, n):
        """Of the first n tokens of a segment."""
        return value(s.before, s.named, runs_of(s.positions[:n]), s.ids[:n])
