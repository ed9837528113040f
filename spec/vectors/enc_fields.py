# SPDX-License-Identifier: BSD-3-Clause
"""Fields, keys, dtypes and random numbers of the vector encoder."""

import os
import struct
import sys
from hashlib import blake2b

# For xxh3.
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "reference"))

BYTES, F32, F16, BF16, E4M3, E5M2, I8, U8 = range(8)
CODE = {BYTES: "B", F32: "I", F16: "H", BF16: "H", E4M3: "B", E5M2: "B",
        I8: "B", U8: "B"}
# Of later versions.
LATER_1, LATER_2, LATER_4 = 8, 127, 128
CODE.update({LATER_1: "B", LATER_2: "H", LATER_4: "I"})
SIZE = {d: struct.calcsize(c) for d, c in CODE.items()}
EXPONENT_BITS = {F32: 8, F16: 5, BF16: 8, E4M3: 4, E5M2: 5}
MANTISSA_BITS = {F32: 23, F16: 10, BF16: 7, E4M3: 3, E5M2: 2}


def b128(data):
    """1.4"""
    return blake2b(data, digest_size=16).digest()


class Random:
    """The same numbers on every machine and in every Python version."""

    def __init__(self, seed):
        self.state = seed * 2 + 1

    def bits(self, n):
        out = 0
        for i in range(0, n, 16):
            self.state = (self.state * 6364136223846793005
                          + 1442695040888963407) % 2 ** 64
            out |= (self.state >> 40 & 0xFFFF) << i
        return out & ((1 << n) - 1)

    def below(self, n):
        return self.bits(48) % n

    def between(self, low, high):
        return low + self.below(high - low + 1)

    def chance(self, one_in):
        return self.below(one_in) == 0

    def pick(self, values):
        return values[self.below(len(values))]

    def gauss(self):
        """About normal with variance 1: exact arithmetic only."""
        return (sum(self.bits(16) for _ in range(12)) - 12 * 32767.5) / 65536


# ------------------------------------------------------------------- fields

def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes([value])


def zigzag(value):
    return varint(value << 1 if value >= 0 else (-value << 1) - 1)


def string(text):
    if isinstance(text, str):
        text = text.encode()
    return varint(len(text)) + text


def zstd_frame(content):
    """A single-segment Zstandard frame: one raw block, or an RLE block where
    that does; large contents in several blocks of both."""
    n = len(content)
    if n < 256:
        out = struct.pack("<IBB", 0xFD2FB528, 0x20, n)
    elif n < 65536 + 256:
        out = struct.pack("<IBH", 0xFD2FB528, 0x60, n - 256)
    else:
        return struct.pack("<IBI", 0xFD2FB528, 0xA0, n) + zstd_blocks(content)
    if n > 1 and len(set(content)) == 1:
        return out + (n << 3 | 3).to_bytes(3, "little") + content[:1]
    return out + (n << 3 | 1).to_bytes(3, "little") + content


def zstd_blocks(content):
    """Blocks of at most 64 KiB: runs of 64 equal bytes or more are RLE."""
    blocks, plain, at = [], 0, 0
    while at <= len(content):
        run = at
        while content[run:run + 1] == content[at:at + 1] and run < min(
                len(content), at + (1 << 16)):
            run += 1
        long = run - at >= 64
        if plain < at and (long or at == len(content)
                           or at - plain >= 1 << 15):
            blocks.append((0, at - plain, content[plain:at]))
            plain = at
        if long:
            blocks.append((1, run - at, content[at:at + 1]))
            plain = run
        at = max(run, at + 1)
    return b"".join((size << 3 | kind << 1 | (i == len(blocks) - 1)).to_bytes(
        3, "little") + data for i, (kind, size, data) in enumerate(blocks))


def packed(content, method=0):
    return bytes([method]) + (zstd_frame(content) if method else content)


def pack_elements(dtype, values):
    return struct.pack("<%d%s" % (len(values), CODE[dtype]), *values)
