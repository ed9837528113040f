# SPDX-License-Identifier: BSD-3-Clause
"""Repair by PARITY frames: frames.md 12.2. It needs no superblock, no key and
nothing of the other frames.
"""

import struct

from xxh3 import frame_check, h64, h128

PARITY, LIMIT = 13, 1 << 28

# The field: powers of x, and their logarithms.
EXP, LOG = [1] * 510, [0] * 256
for _i in range(1, 510):
    EXP[_i] = EXP[_i - 1] << 1 ^ (0x11D if EXP[_i - 1] > 127 else 0)
for _i in range(255):
    LOG[EXP[_i]] = _i


def times(a, b):
    return EXP[LOG[a] + LOG[b]] if a and b else 0


def inverse(a):
    return EXP[255 - LOG[a]]


def coefficient(k, r, j):
    return times(k ^ j, inverse((k + r) ^ j))


def add_scaled(to, c, data):
    """to += c * data; data may be shorter."""
    product = bytes(times(c, x) for x in range(256))
    for i, x in enumerate(data.translate(product)):
        to[i] ^= x


class Row:
    """A PARITY frame."""

    def __init__(self, at, header, payload):
        self.at, self.header, self.payload = at, header, payload
        self.number, self.sequence = struct.unpack("<2xH", payload[:4])[0], \
            struct.unpack("<Q", header[16:24])[0]
        k = struct.unpack("<H", payload[:2])[0]
        self.size = 48 + (len(payload) + 15) // 16 * 16
        # What all rows of a group have.
        self.table = payload[:2] + payload[4:16 + 32 * k]
        self.pieces = [struct.unpack("<QII16s", payload[i:i + 32])
                       for i in range(16, 16 + 32 * k, 32)]
        self.row = payload[16 + 32 * k:]


def valid(at, p):
    """R12.12 and R12.13"""
    if len(p) < 48:
        return False
    k, r, rows = struct.unpack("<HHH", p[:6])
    if not k or r >= rows or k + rows > 256 or any(p[6:16]) \
            or len(p) < 16 + 32 * k:
        return False
    last = longest = 0
    for i in range(16, 16 + 32 * k, 32):
        offset, size, reserved = struct.unpack("<QII", p[i:i + 16])
        if reserved or offset % 16 or size % 16 or not 16 <= size <= LIMIT \
                or offset < last:
            return False
        last, longest = offset + size, max(longest, size)
    return last <= at and len(p) == 16 + 32 * k + longest


def frame_at(data, at):
    """(header, payload) of a whole frame of any file_id, or None."""
    header, place = data[at:at + 32], struct.pack("<Q", at)
    if len(header) < 32:
        return None
    size, check = struct.unpack("<12xI12xI", header)
    end = at + 32 + (size + 15) // 16 * 16
    if h64(header[:28] + place) & 0xFFFFFFFF != check or size > LIMIT \
            or frame_check(header, place, data[at + 32:end]) \
            != data[end:end + 16]:
        return None
    return header, data[at + 32:at + 32 + size]


def rows_of(data):
    """All rows that may be used."""
    for at in range(0, len(data), 16):
        # Types are compared first: hashes are slow here.
        if data[at + 8:at + 12] == struct.pack("<HH", PARITY, 0):
            frame = frame_at(data, at)
            if frame and valid(at, frame[1]):
                yield Row(at, *frame)


def solve(rows, values):
    """Gauss: rows of coefficients times unknowns are values (bytearrays)."""
    n = len(rows)
    for i in range(n):
        pivot = next(j for j in range(i, n) if rows[j][i])
        rows[i], rows[pivot] = rows[pivot], rows[i]
        values[i], values[pivot] = values[pivot], values[i]
        c = inverse(rows[i][i])
        rows[i] = [times(c, x) for x in rows[i]]
        scaled = bytearray(len(values[i]))
        add_scaled(scaled, c, bytes(values[i]))
        values[i] = scaled
        for j in range(n):
            c = rows[j][i]
            if j != i and c:
                rows[j] = [x ^ times(c, y) for x, y in zip(rows[j], rows[i])]
                add_scaled(values[j], c, bytes(values[i]))
    return values


def restored(data, group):
    """The data with the lost pieces of a group (its rows by number); None
    when nothing is lost, or more than its rows give."""
    pieces = next(iter(group.values())).pieces

    def there(j):
        offset, size = pieces[j][:2]
        return data[offset:offset + size]

    k = len(pieces)
    lost = [j for j in range(k) if h128(there(j)) != pieces[j][3]]
    chosen = sorted(group.items())[:len(lost)]
    if not lost or len(chosen) < len(lost):
        return None
    values = []
    for r, row in chosen:
        value = bytearray(row.row)
        for j in range(k):
            if j not in lost:
                add_scaled(value, coefficient(k, r, j), there(j))
        values.append(value)
    found = solve([[coefficient(k, r, j) for j in lost] for r, _ in chosen],
                  values)
    out = bytearray(data)
    for j, value in zip(lost, found):
        offset, size, _, check = pieces[j]
        if h128(bytes(value[:size])) != check:
            return None
        out += bytes(max(offset + size - len(out), 0))
        out[offset:offset + size] = value[:size]
    return bytes(out)


def with_rows(data, group):
    """The data with the lost rows of a group whose pieces are all there; None
    when none is lost."""
    any_row = next(iter(group.values()))
    k, rows = struct.unpack("<H2xH", any_row.payload[:6])
    out = bytearray(data)
    for offset, size, _, check in any_row.pieces:
        if h128(data[offset:offset + size]) != check:
            return None
    for r in set(range(rows)) - set(group):
        at = any_row.at + (r - any_row.number) * any_row.size
        sequence = any_row.sequence + r - any_row.number
        if at < 64 or sequence < 0 or frame_at(data, at):
            return None
        row = bytearray(len(any_row.row))
        for j, (offset, size, _, _) in enumerate(any_row.pieces):
            add_scaled(row, coefficient(k, r, j), data[offset:offset + size])
        place = struct.pack("<Q", at)
        header = any_row.header[:16] + struct.pack("<Q", sequence) \
            + any_row.header[24:28]
        header += struct.pack("<I", h64(header + place) & 0xFFFFFFFF)
        body = any_row.payload[:2] + struct.pack("<H", r) \
            + any_row.payload[4:16 + 32 * k] + row
        body += frame_check(header, place, body)
        out += bytes(max(at + any_row.size - len(out), 0))
        out[at:at + any_row.size] = header + body
    return bytes(out) if len(group) < rows else None


def repair(data):
    """The data, repaired as far as its PARITY frames can."""
    while True:
        groups = {}
        for row in rows_of(data):
            groups.setdefault(row.table, {})[row.number] = row
        for step in (restored, with_rows):
            better = next((b for b in (step(data, g) for g in groups.values())
                           if b is not None), None)
            if better is not None:
                break
        if better is None:
            return data
        data = better
