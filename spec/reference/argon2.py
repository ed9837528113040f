# SPDX-License-Identifier: BSD-3-Clause
"""Argon2id in plain Python: RFC 9106, version 0x13. To be read and compared
with: slow; it holds all of its memory as lists of numbers.
"""

import struct
from hashlib import blake2b

MASK = (1 << 64) - 1
WORDS = 128     # of a block of 1 KiB


def long_hash(data, n):
    """RFC 9106 3.3: H'."""
    data = struct.pack("<I", n) + data
    if n <= 64:
        return blake2b(data, digest_size=n).digest()
    out, v = b"", blake2b(data).digest()
    while n - len(out) > 64:
        out += v[:32]
        left = n - len(out)
        v = blake2b(v, digest_size=min(left, 64)).digest()
    return out + v


def mix(v, a, b, c, d):
    """RFC 9106 3.6: GB."""
    def add(x, y):
        return x + y + 2 * (x & 0xFFFFFFFF) * (y & 0xFFFFFFFF) & MASK

    def rotated(x, n):
        return (x >> n | x << 64 - n) & MASK

    for first, second in ((32, 24), (16, 63)):
        v[a] = add(v[a], v[b])
        v[d] = rotated(v[d] ^ v[a], first)
        v[c] = add(v[c], v[d])
        v[b] = rotated(v[b] ^ v[c], second)


def permute(v, at):
    """RFC 9106 3.6: P of the 16 words of v whose indices at has."""
    x = [v[i] for i in at]
    for a, b, c, d in ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14),
                       (3, 7, 11, 15), (0, 5, 10, 15), (1, 6, 11, 12),
                       (2, 7, 8, 13), (3, 4, 9, 14)):
        mix(x, a, b, c, d)
    for i, value in zip(at, x):
        v[i] = value


def compress(x, y):
    """RFC 9106 3.5: G."""
    r = [a ^ b for a, b in zip(x, y)]
    z = list(r)
    for row in range(8):
        permute(z, range(16 * row, 16 * row + 16))
    for column in range(8):
        permute(z, [16 * i + 2 * column + j
                    for i in range(8) for j in range(2)])
    return [a ^ b for a, b in zip(r, z)]


def addresses(head, n):
    """RFC 9106 3.4.1.2: n pairs (J1, J2) of a segment that Argon2i fills."""
    out, zero = [], [0] * WORDS
    for counter in range(1, (n + WORDS - 1) // WORDS + 1):
        seed = list(head) + [counter] + [0] * (WORDS - len(head) - 1)
        out += compress(zero, compress(zero, seed))
    return [(j & 0xFFFFFFFF, j >> 32) for j in out[:n]]


def argon2id(password, salt, passes, memory, n, lanes=1, secret=b"", ad=b""):
    """memory: KiB; n: bytes of the tag."""
    def field(data):
        return struct.pack("<I", len(data)) + data

    h0 = blake2b(struct.pack("<6I", lanes, n, memory, passes, 0x13, 2)
                 + field(password) + field(salt) + field(secret)
                 + field(ad)).digest()
    columns = memory // (4 * lanes) * 4
    span = columns // 4         # of one of the four slices
    b = [[None] * columns for _ in range(lanes)]
    for lane in range(lanes):
        for i in range(2):
            b[lane][i] = list(struct.unpack("<128Q", long_hash(
                h0 + struct.pack("<II", i, lane), 1024)))
    for turn in range(passes * 4):
        t, part = divmod(turn, 4)
        for lane in range(lanes):
            fill(b, t, part, lane, span,
                 addresses([t, lane, part, lanes * columns, passes, 2], span)
                 if t == 0 and part < 2 else None)
    last = [0] * WORDS
    for lane in b:
        last = [x ^ y for x, y in zip(last, lane[-1])]
    return long_hash(struct.pack("<128Q", *last), n)


def fill(b, t, part, lane, span, given):
    """One segment of a lane; given: its (J1, J2), or None: Argon2d."""
    lanes, columns = len(b), 4 * span
    for i in range(2 if t == 0 and part == 0 else 0, span):
        j = part * span + i
        previous = b[lane][j - 1]
        j1, j2 = given[i] if given else (previous[0] & 0xFFFFFFFF,
                                         previous[0] >> 32)
        of = lane if t == 0 and part == 0 else j2 % lanes
        # RFC 9106 3.4.2: W, the blocks that may be read
        done = part * span if t == 0 else columns - span
        if of == lane:
            w = done + i - 1
        else:
            w = done - (i == 0)
        start = 0 if t == 0 else (part + 1) * span % columns
        z = (start + w - 1 - (w * (j1 * j1 >> 32) >> 32)) % columns
        new = compress(previous, b[of][z])
        old = b[lane][j]
        b[lane][j] = new if t == 0 else [x ^ y for x, y in zip(new, old)]
