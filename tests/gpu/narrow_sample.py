#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""narrow_sample.py BF16.safetensors E4M3.safetensors: the same tensors, their elements rounded."""
import array
import bisect
import json
import struct
import sys


def value(bits):
    """Of an e4m3 pattern that is not negative."""
    exponent, mantissa = bits >> 3, bits & 7
    return (8 + mantissa) * 2.0 ** (exponent - 10) if exponent else mantissa * 2.0 ** -9


VALUES = [value(bits) for bits in range(0x7f)]  # 0x7f is NaN
BETWEEN = [(a + b) / 2 for a, b in zip(VALUES, VALUES[1:])]


def rounded(bits):
    """The e4m3 pattern of a bf16 pattern; what is too large is the largest number."""
    number = struct.unpack("<f", struct.pack("<HH", 0, bits & 0x7fff))[0]
    return (bits >> 15) << 7 | (0x7f if number != number else bisect.bisect_left(BETWEEN, number))


def main(source, to):
    with open(source, "rb") as f:
        head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    table = [rounded(bits) for bits in range(1 << 16)]
    parts, at = [], 0
    for tensor in head.values():
        if "data_offsets" not in tensor:
            continue
        part = data[slice(*tensor["data_offsets"])]
        if tensor["dtype"] == "BF16":
            words = array.array("H", part)
            if sys.byteorder == "big":
                words.byteswap()
            part = bytes(table[bits] for bits in words)
            tensor["dtype"] = "F8_E4M3"
        parts.append(part)
        tensor["data_offsets"] = [at, at + len(part)]
        at += len(part)
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(to, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(parts))


if __name__ == "__main__":
    main(*sys.argv[1:])
