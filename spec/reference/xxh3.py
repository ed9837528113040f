# SPDX-License-Identifier: BSD-3-Clause
"""XXH3-128 with seed 0 and the default secret, in plain Python.

The checks of kvarc files (kvarc-format.md 1.4). Written after the public
description of XXH3 (xxHash 0.8); test_xxh3.py compares it with xxhsum.

    h64(data)      -> int, its low 64 bits
    xxh3_64(data)  -> int, XXH3-64 of 33 to 64 bytes (2, pre-releases)
    h128(data)     -> bytes, 16 of them: low 64 bits, then high 64 bits
    h128_hex(data) -> str, high half first, as xxhsum prints it
"""

import struct

M32 = (1 << 32) - 1
M64 = (1 << 64) - 1

P32_1, P32_2, P32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
P64_1 = 0x9E3779B185EBCA87
P64_2 = 0xC2B2AE3D27D4EB4F
P64_3 = 0x165667B19E3779F9
P64_4 = 0x85EBCA77C2B2AE63
P64_5 = 0x27D4EB2F165667C5
PMX_1 = 0x165667919E3779F9
PMX_2 = 0x9FB21C651E98DF25

SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e")


def u32(data, at):
    return int.from_bytes(data[at:at + 4], "little")


def u64(data, at):
    return int.from_bytes(data[at:at + 8], "little")


def swap(value, size):
    return int.from_bytes(value.to_bytes(size, "little"), "big")


def rotl(value, bits, width):
    return (value << bits | value >> (width - bits)) & ((1 << width) - 1)


def fold(a, b):
    """The 128-bit product, both halves xored."""
    product = a * b
    return (product ^ product >> 64) & M64


def avalanche(h):
    h = (h ^ h >> 37) * PMX_1 & M64
    return h ^ h >> 32


def avalanche_xxh64(h):
    h = (h ^ h >> 33) * P64_2 & M64
    h = (h ^ h >> 29) * P64_3 & M64
    return h ^ h >> 32


def mix16(data, at, secret_at):
    return fold(u64(data, at) ^ u64(SECRET, secret_at),
                u64(data, at + 8) ^ u64(SECRET, secret_at + 8))


def xxh3_64(data):
    n = len(data)
    h = (n * P64_1 + mix16(data, 16, 32) + mix16(data, n - 32, 48)
         + mix16(data, 0, 0) + mix16(data, n - 16, 16)) & M64
    return avalanche(h)


# ------------------------------------------------------ inputs to 240 bytes

def combined_1to3(data):
    n = len(data)
    return data[0] << 16 | data[n >> 1] << 24 | data[-1] | n << 8


def short128(data):
    n = len(data)
    if n == 0:
        return (avalanche_xxh64(u64(SECRET, 64) ^ u64(SECRET, 72)),
                avalanche_xxh64(u64(SECRET, 80) ^ u64(SECRET, 88)))
    if n <= 3:
        low = combined_1to3(data)
        high = rotl(swap(low, 4), 13, 32)
        return (avalanche_xxh64(low ^ u32(SECRET, 0) ^ u32(SECRET, 4)),
                avalanche_xxh64(high ^ u32(SECRET, 8) ^ u32(SECRET, 12)))
    if n <= 8:
        h = u32(data, 0) + (u32(data, n - 4) << 32)
        h ^= u64(SECRET, 16) ^ u64(SECRET, 24)
        product = h * (P64_1 + (n << 2))
        low, high = product & M64, product >> 64
        high = (high + (low << 1)) & M64
        low ^= high >> 3
        low = (low ^ low >> 35) * PMX_2 & M64
        return low ^ low >> 28, avalanche(high)
    first, last = u64(data, 0), u64(data, n - 8)
    product = (first ^ last ^ u64(SECRET, 32) ^ u64(SECRET, 40)) * P64_1
    low, high = product & M64, product >> 64
    low = (low + ((n - 1) << 54)) & M64
    last ^= u64(SECRET, 48) ^ u64(SECRET, 56)
    high = (high + last + (last & M32) * (P32_2 - 1)) & M64
    low ^= swap(high, 8)
    product = low * P64_2
    return (avalanche(product & M64),
            avalanche(((product >> 64) + high * P64_2) & M64))


def middle128(data):
    n = len(data)
    low, high = n * P64_1 & M64, 0

    def mix32(low, high, one, two, secret_at):
        low = (low + mix16(data, one, secret_at)) & M64
        low ^= (u64(data, two) + u64(data, two + 8)) & M64
        high = (high + mix16(data, two, secret_at + 16)) & M64
        high ^= (u64(data, one) + u64(data, one + 8)) & M64
        return low, high

    if n <= 128:
        for i in range((n - 1) // 32, -1, -1):
            low, high = mix32(low, high, 16 * i, n - 16 * (i + 1), 32 * i)
    else:
        for i in range(4):
            low, high = mix32(low, high, 32 * i, 32 * i + 16, 32 * i)
        low, high = avalanche(low), avalanche(high)
        for i in range(4, n // 32):
            low, high = mix32(low, high, 32 * i, 32 * i + 16,
                              32 * (i - 4) + 3)
        low, high = mix32(low, high, n - 16, n - 32, 103)
    return (avalanche((low + high) & M64),
            -avalanche((low * P64_1 + high * P64_4 + n * P64_2) & M64) & M64)


# ------------------------------------------------------------- long inputs

def accumulate(acc, data, at, secret_at):
    values = struct.unpack_from("<8Q", data, at)
    keys = struct.unpack_from("<8Q", SECRET, secret_at)
    for i in range(8):
        value = values[i]
        key = value ^ keys[i]
        acc[i ^ 1] = (acc[i ^ 1] + value) & M64
        acc[i] = (acc[i] + (key & M32) * (key >> 32)) & M64


def merge(acc, secret_at, start):
    for i in range(0, 8, 2):
        start += fold(acc[i] ^ u64(SECRET, secret_at + 8 * i),
                      acc[i + 1] ^ u64(SECRET, secret_at + 8 * i + 8))
    return avalanche(start & M64)


def long_accumulators(data):
    """Blocks of 16 stripes of 64 bytes, a scramble after each full block,
    then the rest and the last 64 bytes."""
    acc = [P32_3, P64_1, P64_2, P64_3, P64_4, P32_2, P64_5, P32_1]
    n = len(data)
    blocks = (n - 1) // 1024
    for block in range(blocks):
        for stripe in range(16):
            accumulate(acc, data, 1024 * block + 64 * stripe, 8 * stripe)
        for i in range(8):
            h = acc[i]
            acc[i] = (h ^ h >> 47 ^ u64(SECRET, 128 + 8 * i)) * P32_1 & M64
    for stripe in range((n - 1 - 1024 * blocks) // 64):
        accumulate(acc, data, 1024 * blocks + 64 * stripe, 8 * stripe)
    accumulate(acc, data, n - 64, 192 - 64 - 7)
    return acc


def _h128(data):
    n = len(data)
    if n <= 16:
        return short128(data)
    if n <= 240:
        return middle128(data)
    acc = long_accumulators(data)
    return (merge(acc, 11, n * P64_1 & M64),
            merge(acc, 192 - 64 - 11, ~(n * P64_2) & M64))


def h64(data):
    if len(data) > 240:     # the low half alone
        return merge(long_accumulators(data), 11, len(data) * P64_1 & M64)
    return _h128(data)[0]


def h128(data):
    return struct.pack("<QQ", *_h128(data))


def frame_check(header, place, body):
    """3.1: of a frame; place: its offset, 8 bytes; body: payload, padding."""
    return h128(header + place + body[:48] + h128(body[48:]))


def h128_hex(data):
    low, high = _h128(data)
    return "%016x%016x" % (high, low)
