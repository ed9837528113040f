# SPDX-License-Identifier: BSD-3-Clause
"""Chain values of the reference decoder: kvarc-format.md 5.3."""

import struct

from kvarc_codecs import demand
from xxh3 import h128

KEYS = (b"adapter", b"layout", b"lossy", b"model", b"namespace",
        b"quantization", b"tokenizer", b"weights")


def string(text):
    n = len(text)
    head, n = [], n
    while n > 127:
        head.append(n & 127 | 128)
        n >>= 7
    return bytes(head + [n]) + text


def root_of(identity, geometry):
    """geometry: content of the frame."""
    return h128(h128(geometry) + bytes([len(KEYS)]) + b"".join(
        string(key) + string(identity.get(key, b"")) for key in KEYS))


def value(before, track, runs, ids):
    """runs: the positions as SEGMENT has them."""
    return h128(before + struct.pack("<Q", track) + runs
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

    def check(self, s, before):
        """before: the segment that holds the token before its first one."""
        if s.chain is None:
            return
        if self.root is None:
            self.root = self.now()
        demand(before is None or before.chain is not None,
               "a chain value behind a segment without one")
        demand(s.chain == value(before.chain if before else self.root,
                                s.track, s.runs, s.ids), "a chain value")
