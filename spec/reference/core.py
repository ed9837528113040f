#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Core reader of kvarc archives: most of the format, to be read in an hour.

    core.py FILE [CHECKPOINT [FOLDER]]

prints a line a chunk, then one an item, and restores item i as FOLDER/item-i. It has the container,
codecs 0 to 6 and 16, and restored files; the rest is "unsupported" or "lossy". It tests what a
reader must (kvarc-format.md 1.8), no more. Numbers in comments are sections of that page, below a
line that names one they are those of a page of spec/codecs/. It needs xxh3.py, spec/tables/ and,
for Zstandard content, the command `zstd`. Exit 1: "format: ..." or "data: ..."; 3: "unsupported:
..."; 5: "lossy: ...". Nothing is printed or written before all was read and checked.
"""
import os
import shutil
import struct
import sys
import tempfile
from functools import lru_cache, partial
from io import BytesIO
from subprocess import DEVNULL, PIPE, Popen
from types import SimpleNamespace as Record

from xxh3 import frame_check, h64, h128_hex

# 3.3: types of frames; INDEX, FOOTER, PREDICTOR and PROFILE are passed over
(GEOMETRY, IDENTITY, RESTORE, BLOB, PARAMS, SEGMENT, CHUNK, COMMIT, INDEX, FOOTER, PREDICTOR,
 PROFILE) = range(1, 13)
RAW, ZSTD, CONSTANT, REPEAT, LAYERS, GRID, BYTES, CELLS = *range(7), 16     # 7: codecs
# 4.1: exponent and mantissa bits of dtypes; the element bytes of all
F32, F16, BF16, E4M3, E5M2 = range(1, 6)
FLOAT = {F32: (8, 23), F16: (5, 10), BF16: (8, 7), E4M3: (4, 3), E5M2: (5, 2)}
SIZES = [1, 4, 2, 2] + [1] * 60 + [2] * 64 + [4] * 64


class Bad(Exception):
    """1.6: "format", "unsupported", "lossy" or "data", and why."""


def demand(condition, text, kind="data"):
    if not condition:
        raise Bad(kind, text)


def pick(things, number, what):
    demand(number < len(things), "there is no such " + what)
    return things[number]


class Cursor(BytesIO):
    """Reads fields from bytes: 1.1 to 1.3."""

    def take(self, n):
        content = self.read(n)
        demand(len(content) == n, "a field reaches past the end")
        return content

    def align(self, n):
        self.take(-self.tell() % n)

    def array(self, code, n):
        form = "<%d%s" % (n, code)
        return struct.unpack(form, self.take(struct.calcsize(form)))

    def varint(self, bytes_left=8):
        byte = self.take(1)[0]
        demand(byte < 128 or bytes_left > 1, "a number is too large")
        value = byte % 128 + (128 * self.varint(bytes_left - 1) if byte > 127 else 0)
        demand(value < 1 << 53, "a number is too large")
        return value

    def fields(self, form):
        """v varint, s string, B u8, H u16, I u32, Q u64."""
        return [self.varint() if code == "v" else self.take(self.varint()) if code == "s" else
                self.array(code, 1)[0] for code in form]


# --------------------------------------------------------- 2. Superblock, 3. Frames, 1.5

def read_frames(data):
    """Each frame, when all checks up to it were verified."""
    demand(data[:8] == b"\x89KVA\r\n\x1a\n", "not a kvarc file", "format")
    cursor, sequence = Cursor(data), 0
    major, incompat, file_id, check = struct.unpack("<8xH10xI16s16xQ", cursor.take(64))
    demand(h64(data[:56]) == check, "the superblock is damaged")
    demand(major == 1 and not incompat, "encrypted, stored elsewhere, or newer", "unsupported")
    sync = h64(b"kvarc frame sync" + file_id)
    while cursor.tell() < len(data):
        offset, f, header = struct.pack("<Q", cursor.tell()), Record(), cursor.take(32)
        found, f.type, flags, size, f.sequence, f.decoded, check = Cursor(header).fields("QHHIQII")
        demand((found, f.sequence, check) == (sync, sequence, h64(header[:28] + offset) % 2 ** 32),
               "no frame, or a damaged one")
        demand(max(size, f.decoded) <= 1 << 28, "a frame is too large")
        body = cursor.take((size + 15) // 16 * 16)
        demand(cursor.take(16) == frame_check(header, offset, body), "a frame is damaged")
        demand(f.type <= PROFILE or not flags & 1, "critical frame of type %d" % f.type,
               "unsupported" if f.type > 18 else "data")
        f.payload = body[:size]
        yield f
        sequence += 1


def zstd_content(data, size):
    """1.5: no more than size bytes are taken, whatever comes."""
    demand(shutil.which("zstd"), "there is no command zstd", "unsupported")
    with tempfile.TemporaryFile() as f:
        f.write(data)
        f.seek(0)
        with Popen(["zstd", "-dcq"], stdin=f, stdout=PIPE, stderr=DEVNULL) as run:
            content = run.stdout.read(size + 1)
    demand(run.returncode == 0 and len(content) == size, "Zstandard content")
    return content


def packed(f):
    """1.5: a cursor of the content of a frame."""
    method, content = Cursor(f.payload).take(1)[0], f.payload[1:]
    demand(method <= 1, "packing method %d" % method, "unsupported")
    content = zstd_content(content, f.decoded) if method else content
    demand(len(content) == f.decoded, "the content has another size")
    return Cursor(content)


# --------------------------------------------------- 4. GEOMETRY, 6. SEGMENT, 8. PARAMS

def read_geometry(cursor):
    """Tracks and tensors."""
    ropes, tracks, tensors = [None], [], []
    for _ in range(cursor.varint()):
        pairing, rotary = cursor.fields("Bv")
        demand(pairing <= 1, "the pairing of a rope", "unsupported")
        demand(rotary % 2 == 0 < rotary, "the rotary of a rope")
        freq = cursor.array("Q", rotary // 2)
        ropes.append(Record(pairing=pairing, rotary=rotary, freq=freq))
    for _ in range(cursor.varint()):
        cursor.fields("Bvs")            # kind, window, label
        tracks.append(Record(tokens=[]))        # the segment of each
    for number in range(cursor.varint()):
        t = Record(number=number, rows={})
        t.layer, t.kind, _role, t.dtype, n_axes = cursor.fields("vBBBB")
        demand(1 <= n_axes <= 8, "the axes of a tensor")
        labels, extents = zip(*[cursor.fields("Bv") for _ in range(n_axes)])
        demand(t.dtype < len(SIZES) and labels == (0, 1, 2) and extents[0] == 0,
               "axes or a dtype", "unsupported")
        (_, t.heads, t.channels), t.size = extents, SIZES[t.dtype]
        demand(1 <= t.heads * t.channels <= 1 << 20, "the width of a tensor")
        # Behind the rope: shard, flags, source type; of, group; name
        track, rope, *_, of = cursor.fields("vvvvBHv")
        cursor.fields("vs" if of else "s")
        t.track, t.rope = pick(tracks, track, "track"), pick(ropes, rope, "rope")
        demand(not t.rope or t.rope.rotary <= t.channels, "the rotary of a tensor")
        tensors.append(t)
    return tracks, tensors


def read_segment(cursor, tracks):
    track, t0, n, flags, n_runs = cursor.fields("vvvBv")
    s = Record(track=pick(tracks, track, "track"), t0=t0, n=n, positions=[])
    demand(1 <= n <= 256 and t0 <= len(s.track.tokens), "the tokens of a segment")
    for _ in range(n_runs):
        z, tokens = cursor.fields("vv")
        first = z >> 1 ^ -(z & 1)
        s.positions += range(first, first + min(tokens, n + 1 - len(s.positions)))
    demand(len(s.positions) == n and -2 ** 31 <= min(s.positions) <= max(s.positions) < 2 ** 31,
           "positions")
    # What codecs of the core do not need: chain value (5.3); ids, or coded ones (tokens.md)
    cursor.take(16 * (flags >> 2 & 1) + (4 * n if flags & 3 == 1 else 0))
    cursor.fields("Qs" if flags & 2 else "")
    s.track.tokens[t0:] = [s] * n       # 6.2: it replaces the tokens from its first one on
    return s


def read_params(cursor, tensors):
    number, first, heads, codec = cursor.fields("IHHB")
    t = pick(tensors, number, "tensor")
    demand(codec <= CELLS, "PARAMS of codec %d" % codec, "unsupported")
    demand(1 <= heads <= t.heads - first, "the heads of PARAMS")
    p, columns = Record(names=(number, first, heads, codec)), heads * t.channels
    if codec == BYTES:                              # bytes.md
        tables = [slots(*cursor.fields("v" * 257)) for _ in range(cursor.take(1)[0])]
        p.tables = [pick(tables, i, "table") for i in cursor.take(columns)]
    if codec == GRID:                               # grid.md 1
        p.rotary = t.rope.rotary if cursor.take(1)[0] and t.rope else 0
        demand(not any(cursor.take(columns)), "a table set", "unsupported")
        low, high, mean_low, mean_high = [cursor.array(code, columns) for code in "BbBb"]
        p.k = [a + 256 * b for a, b in zip(low, high)]
        p.mean = [a + 256 * b for a, b in zip(mean_low, mean_high)]
        demand(-400 <= min(p.k) <= max(p.k) <= 400, "a scale class")
    return p


# ----------------------------------------------------------------- codec 4: layers.md

def read_codes(cursor, n, k):
    """2: n codes of k bits, in blocks of 256."""
    codes = []
    for first in range(0, n, 256):
        j = min(256, n - first)
        block = cursor.take((j * k + 7) // 8)
        codes += [block[i % len(block)] >> k * (i // len(block)) & (1 << k) - 1 for i in range(j)]
    return codes


def read_values(cursor, n, counts):
    """3: n values in four layers and bytes."""
    layers = [read_codes(cursor, size, 2) for size in (n, *counts[:3])]
    demand([codes.count(3) for codes in layers] == list(counts), "a count of layers")
    values = cursor.take(counts[3])
    for three in (0, 10, 11), (7, 8, 9), (5, 1, 6), (2, 3, 4):
        deeper = iter(values)
        values = [three[code] if code < 3 else next(deeper) for code in layers.pop()]
    return values


def decode_layers(cursor, parts, width, e, m):
    """1 and 4, behind the checks. This and the other two get what has to be known of each element
    of each stream, the number of columns, exponent and mantissa bits."""
    base, one_top, absent, _ = cursor.fields("BBBB")
    top_counts = cursor.array("I", 0 if one_top else 4)
    counts = [cursor.array("I", 4) for _ in parts]
    tops = [0] * width if one_top else read_values(cursor, width, top_counts)
    planes = [8] * ((m + 1) // 8) + [k for k in (4, 2, 1) if m + 1 & k]
    for part, count_of in zip(parts, counts):
        rest = [0] * len(part)
        for plane, k in enumerate(planes):
            if not absent >> plane & 1:
                cursor.align(4)
                codes, shift = read_codes(cursor, len(rest), k), sum(planes[:plane])
                rest = [r | code << shift for r, code in zip(rest, codes)]
        cursor.align(4)
        for i, u in enumerate(read_values(cursor, len(rest), count_of)):
            # y, rotated back: rest ends in the sign
            E = (base - tops[i % width] - u) % (1 << e)
            yield (rest[i] & 1) << e + m | E << m | rest[i] >> 1


# --------------------------------------------------------- rans.md; codec 6: bytes.md

def read_plane(cursor, size):
    """5: bytes of all elements, stored, by Zstandard, or one value."""
    method, value, _, length, _ = cursor.fields("BBHIQ")
    demand(method <= 2, "plane method %d" % method, "unsupported")
    plane = bytes([value]) * size if method == 2 else cursor.take(length)
    cursor.align(16)
    plane = zstd_content(plane, size) if method == 1 else plane
    demand(len(plane) == size, "the size of a plane")
    return plane


@lru_cache(None)
def slots(*freq):
    """2: symbol, frequency and offset of each of the 2048 slots."""
    demand(sum(freq) == 2048, "a table does not add up to 2048")
    return [(symbol, f, i) for symbol, f in enumerate(freq) for i in range(f)]


def lg(n):
    return n.bit_length() - 1


class Lane:
    """1 and 2; words: an iterator that the lanes of a stream share."""

    def __init__(self, state, words):
        self.state, self.words = state, words

    def symbol(self, table):
        symbol, f, offset = table[self.state & 2047]
        self.state = f * (self.state >> 11) + offset
        self.renorm()
        return symbol

    def take(self, n):
        value = self.state & (1 << n) - 1
        self.state >>= n
        return value

    def zeros(self, most):
        """How many of the lowest bits are zero."""
        return lg((self.state | 1 << most) & -(self.state | 1 << most))

    def renorm(self):
        if self.state < 1 << 16:
            self.state = self.state << 16 | next(self.words, 0)

    def at_end(self):
        return self.state == 1 << 16 and next(self.words, None) is None


def decode_rans(finish, cursor, parts, _width, e, m):
    """2 to 4. Of each element its table is known, and what `finish` makes the element of, which
    returns None where it is escaped."""
    streams = [cursor.fields("IIQ") for _ in parts]
    states = [cursor.array("I", 32) for _ in parts]
    for part, (n_words, _, _), state in zip(parts, streams, states):
        words = iter(cursor.array("H", n_words))
        lanes = [Lane(x, words) for x in state]
        cursor.align(16)
        for at in range(0, len(part), 32):
            step = list(zip(part[at:at + 32], lanes))
            symbols = [lane.symbol(table) for (table, _), lane in step]             # phase 1
            found = [finish(what, symbol, lane, e, m)                               # phase 2
                     for symbol, ((_, what), lane) in zip(symbols, step)]
            for lane in lanes:
                lane.renorm()
            for value, lane in zip(found, lanes):                                   # phase 3
                if value is None:
                    value = lane.take(1 + e + m)
                    lane.renorm()
                yield value
        demand(all(lane.at_end() for lane in lanes), "the end of a stream")


# ------------------------------------------------------------------- codec 5: grid.md

LO = [*range(8), 8, 10, 12, 14, 16, 20, 24, 28, 32, 64, 128, 256]
NB = [0] * 8 + [1] * 4 + [2] * 4 + [5, 6, 7, 9]
M4 = [0, 0x1837F0, 0x3504F3, 0x5744FD]


def clamp(value, low, high):
    return max(low, min(high, value))


@lru_cache(None)
def table_file(name):
    """All integers of a file of spec/tables/, without comments."""
    with open(os.path.join(os.path.dirname(__file__), "..", "tables", name)) as f:
        return [int(n) for line in f for n in line.split("#")[0].split()]


def turned(p, t, column, position, scale):
    """2: scale class of a column at a position, the largest one of its pair, its mean and that of
    the other one, with what sign, cosine and sine, which are 1 and 0 where no rope turns it."""
    at, k, mean = column % t.channels, p.k[column], p.mean[column]
    if at >= p.rotary:
        return k, k, mean, 0, 1, scale << 14, 0
    apart = 1 if t.rope.pairing else p.rotary // 2
    second, pair = at // apart % 2, at // 2 if t.rope.pairing else at % apart
    other = column + (-apart if second else apart)
    ka, kb = (p.k[other], k) if second else (k, p.k[other])
    i = ((position * t.rope.freq[pair] % 2 ** 64 >> 51) + 1 >> 1) % 4096
    c, s = [clamp(scale * table_file("cos4096.txt")[angle % 4096], -32767, 32767)
            for angle in (i, i + 3072)]
    row = 64 * (clamp(ka - kb, -32, 32) + 32)
    k = kb + table_file("rot.txt")[row + ((i >> 5) + 32 * second) % 64]
    return k, max(ka, kb), mean, p.mean[other], 1 if second else -1, c, s


def grid_context(p, t, e, m, column, position):
    """2 and 3: the table; G, M and neg."""
    k, most, mean, other, sign, c, s = turned(p, t, column, position, 1)
    number = mean * c + sign * other * s >> 6
    mu, sigma = abs(number) << most // 4 + 200, (1 << 23) + M4[k & 3] << k // 4 + 190   # x 2^212
    G = max(k // 4 - 1, lg(mu + sigma) - 212 - m, 2 - 2 ** (e - 1) - m)
    ar = 1 << 22 - m                                # binary32
    if number:
        ar += (lg(mu) - 86 << 23) + (abs(number) << 23 - lg(abs(number)))
    y = (ar & 0x7FFFFF | 0x800000) >> 147 + G - (ar >> 23)
    at = 41 * ((clamp(k - 4 * G, -16, 7) + 16) * 8 + (y & 7))
    return slots(*table_file("grid-set-0.txt")[at:at + 41]), (G, y >> 3, number < 0)


def grid_element(what, s, lane, e, m):
    """4: of a symbol and raw bits."""
    if s == 40:
        return None
    (G, M, neg), nb = what, NB[s >> 1]
    d = LO[s >> 1] + lane.take(nb)
    X = M + (-d - 1 if s & 1 else d)
    j, B = -X - 1 if X < 0 else X, G - 2 + 2 ** (e - 1)
    N, deepest = B + m, min({7: 7, 10: 5}.get(m, 11), B)
    if j > 0:
        n = clamp(m - lg(j), 0, N)
        bits = j >> max(lg(j) - m, 0) << n | lane.take(n)
        bits += B + lg(j) << m if m - lg(j) <= N else 0
    elif nb > 1:
        return None
    elif B <= 0:
        bits = lane.take(N)
    else:
        z = lane.zeros(deepest)
        lane.take(min(z + 1, deepest))
        if z == deepest < B:
            return None
        bits = (B - z << m) + lane.take(m)
    return (((X < 0) ^ neg) << e + m | bits) % (1 << 1 + e + m)


# ----------------------------------------------------------------- codec 16: cells.md

def cells_context(p, t, e, m, column, position):
    """2: M, class and base."""
    K, most, mean, other, sign, c, s = turned(p, t, column, position, 2)
    K, emin = max(K, most - 16), 2 - 2 ** (e - 1)
    v = (mean * c + (1 << 14) >> 15) + sign * (other * s + (1 << 14) >> 15)
    v = clamp(v + (v >> m + 1), -32768, 32767)
    v = ((v << most // 4 - K // 4) + 32769) % 65536 - 32768 >> 1
    g, row = K // 4 + 124, 12 + (K & 3)
    for finest in (lambda: lg(abs(v) + 64) - m, lambda: emin + 142 - m - g):
        r = max(finest(), 0)
        v, g, row = v + (1 << r >> 1) >> r, g + r, row - 4 * r
    return v, max(row, 0), min(g - 127 - emin + m, (1 << e) - 1)


def cells_element(context, code, lane, m):
    """3: of a code and raw bits."""
    M, row, base = context
    low, nb = table_file("cells.txt")[2 * (30 * row + code):][:2]
    X = M + low + lane.take(nb)
    j, z = -X - 1 if X < 0 else X, 0
    if j == 0:
        j, z = 1, 1 + lane.zeros(15)
        lane.take(z)
    n = max(0, m - lg(j))
    full = (j << n) + lane.take(n)
    lane.renorm()
    return (X < 0) << 15 | ((base - z - n << m) + full) % (1 << 15)


def decode_cells(cursor, parts, _width, _e, m):
    """4 and 5, behind the checks."""
    streams = [cursor.array("I", 3) for _ in parts]
    states = [cursor.array("I", 32) for _ in parts]
    for part, (n_second, n_escapes, n_words), state in zip(parts, streams, states):
        cursor.align(4)
        first, second = [read_codes(cursor, n, 4) for n in (len(part), n_second)]
        cursor.align(2)
        demand((first.count(15), second.count(15)) == (n_second, n_escapes), "a count of codes")
        second, escapes = iter(second), iter(cursor.array("H", n_escapes))
        words = iter(cursor.array("H", n_words))
        lanes = [Lane(x, words) for x in state]
        for i, code in enumerate(first):
            code += next(second) if code == 15 else 0
            yield next(escapes) if code == 30 else cells_element(part[i], code, lanes[i % 32], m)
        demand(all(lane.at_end() for lane in lanes), "the end of a stream")


# ------------------------------------------------------------------ mask.md, 7. CHUNK

# How to decode, what has to be known of an element for that, of what dtypes
CODECS = {
    LAYERS: (decode_layers, lambda *_: None, FLOAT),
    GRID: (partial(decode_rans, grid_element), grid_context, FLOAT),
    BYTES: (partial(decode_rans, lambda _, symbol, *__: symbol if symbol < 256 else None),
            lambda p, t, e, m, column, position: (p.tables[column], None),
            {n for n in range(64) if n not in FLOAT}),
    CELLS: (decode_cells, cells_context, (F32, F16, BF16))}


def read_constants(cursor, n, form):
    """mask.md: a bitmap, and an element for each set bit."""
    bits = int.from_bytes(cursor.take((n + 7) // 8), "little")
    which = [i for i in range(n) if bits >> i & 1]
    return dict(zip(which, cursor.array(form, len(which))))


def decode_matrix(codec, b, payload, t, heads, p, s):
    """The elements, token-major, and the token behind each stream."""
    decode, context, dtypes = CODECS[codec]
    demand(t.dtype in dtypes, "the codec does not suit the dtype")
    halves = t.dtype == F32 and codec != LAYERS
    e, m = FLOAT.get(BF16 if halves else t.dtype, (0, 7))
    cursor, form = Cursor(payload), {1: "B", 2: "H", 4: "I"}[t.size]
    width, flags = heads * t.channels, cursor.take(1)[0]
    of_column = read_constants(cursor, width, form) if flags & 1 else {}
    of_row = read_constants(cursor, s.n, form) if flags & 2 else {}
    columns = [c for c in range(width) if c not in of_column]
    rows = [r for r in range(s.n if columns else 0) if r not in of_row]
    # rans.md 4: the rows of each stream
    cut = [rows[i:i + (32 << b)] for i in range(0, len(rows), 32 << b)]
    values, of = [], lru_cache(None)(partial(context, p, t, e, m))
    if cut:
        cursor.align(16)
        cursor.take(8 * len(cut) if cut[1:] and codec in (LAYERS, CELLS) else 0)    # checks
        parts = [[of(c, s.positions[r]) for r in part for c in columns] for part in cut]
        values = list(decode(cursor, parts, len(columns), e, m))
    if cut and halves:
        cursor.align(16)
        low, high = [read_plane(cursor, len(values)) for _ in range(2)]
        values = [v << 16 | h << 8 | l for v, h, l in zip(values, high, low)]
    coded = iter(values)
    values = [of_column[c] if c in of_column else of_row[r] if r in of_row else next(coded)
              for r in range(s.n) for c in range(width)]
    return struct.pack("<%d%s" % (len(values), form), *values), [
        part[-1] + 1 for part in cut[:-1]] + [s.n]


class Archive:
    """What is in a file: chunks, and contents of items."""

    def __init__(self, data, checkpoint=0):
        """checkpoint: 9.5, its number; 0: the end of the file."""
        self.params, self.chunks, last = {}, {}, None   # by sequence number
        # Tensors and heads of which chunks have to come (3.4); items of the set at hand, the bytes
        # of all BLOBs, whether the set is closed, the number of the last checkpoint
        self.due, self.items, self.blobs, self.closed, self.number = iter(()), {}, [], False, 0
        for f in read_frames(data):
            demand((f.type == GEOMETRY) == (f.sequence == 0), "GEOMETRY is the first frame alone")
            demand(f.type not in (SEGMENT, COMMIT, FOOTER) or next(self.due, None) is None,
                   "chunks of a segment are missing")
            if self.closed and f.type in (SEGMENT, RESTORE):
                self.items, self.closed = {}, False         # 10: a new set
            if f.type <= PROFILE and f.type != INDEX:       # 3.4: frames that count
                last = f.type
            self.frame(f)
            if checkpoint and self.number == checkpoint:
                break
        demand(checkpoint in (0, self.number), "there is no such checkpoint", "unsupported")
        demand(last in (COMMIT, FOOTER), "the file was cut")
        self.contents = [self.content(number) for number in self.items]

    def frame(self, f):
        if f.type in (GEOMETRY, IDENTITY, RESTORE, BLOB, PARAMS, SEGMENT):
            cursor = packed(f)
        if f.type == GEOMETRY:
            self.tracks, self.tensors = read_geometry(cursor)
        elif f.type == IDENTITY:
            cursor.fields("ss" * min(cursor.varint(), 4096))    # keys and values
        elif f.type == PARAMS:
            self.params[f.sequence] = read_params(cursor, self.tensors)
        elif f.type == SEGMENT:
            self.segment = read_segment(cursor, self.tracks)
            self.due = ((t.number, head) for t in sorted(
                self.tensors, key=lambda t: (t.layer, t.kind, t.number))
                if t.track is self.segment.track for head in range(t.heads))
        elif f.type == CHUNK:
            self.chunks[f.sequence] = self.chunk(f)
        elif f.type == COMMIT:                              # 9.1
            cursor = Cursor(f.payload)
            _sequence, _offset, n_tracks = cursor.fields("QQv")
            *_tokens, self.closed = cursor.fields("v" * min(n_tracks, 4096) + "B")
            if self.closed:
                self.number, _time, _label = cursor.fields("vvs")
        elif f.type == RESTORE:
            self.items[len(self.blobs)] = cursor
            self.blobs.append(b"")
        elif f.type == BLOB:
            item, offset = cursor.fields("vv")
            demand(offset == len(pick(self.blobs, item, "item")), "a BLOB")
            self.blobs[item] += cursor.read()

    def chunk(self, f):
        """7. Fields that repeat those of the SEGMENT are passed over."""
        (number, first, heads, _, params, codec, b, n, _, raw_check, _,
         extension_bytes) = Cursor(f.payload).fields("IHHQQBBHIQII")
        demand(48 + extension_bytes <= len(f.payload), "extension fields")
        payload = f.payload[48:len(f.payload) - extension_bytes]
        demand(heads and all(next(self.due, None) == (number, head)
                             for head in range(first, first + heads)), "the order of the chunks")
        t, s = self.tensors[number], self.segment
        row, ends = heads * t.channels * t.size, [n]
        size = n * row
        demand((f.decoded, n) == (size, s.n) and b <= 3, "sizes of a CHUNK")
        if codec == RAW:
            raw = payload
        elif codec == ZSTD:
            raw = zstd_content(payload, size)
        elif codec == CONSTANT:
            raw = payload * (size // t.size)
        elif codec == REPEAT:
            source = self.chunks.get(Cursor(payload).fields("QQ")[0])
            demand(source, "a repeat of nothing")
            raw, ends = source.raw, source.ends
        else:
            demand(codec in CODECS, "codec %d" % codec,
                   "lossy" if 10 <= codec <= 14 else "unsupported")
            p, of = self.params.get(params), GRID if codec == CELLS else codec
            demand(codec == LAYERS or p and p.names == (number, first, heads, of), "the PARAMS")
            raw, ends = decode_matrix(codec, b, payload, t, heads, p, s)
        demand(len(raw) == size, "a CHUNK of another size")
        # rans.md 4: each stream has a check of its own
        checks = [h64(raw[start * row:end * row]) for start, end in zip([0] + ends, ends)]
        whole = h64(struct.pack("<%dQ" % len(checks), *checks)) if checks[1:] else checks[0]
        demand(raw_check == whole, "raw_check of a CHUNK")
        for i in range(n):
            t.rows[s.t0 + i] = (t.rows[s.t0 + i] if first else b"") + raw[i * row:i * row + row]
        return Record(t=t, first=first, heads=heads, s=s, raw=raw, ends=ends)

    def content(self, number):
        """10: of a restored file, from its pieces."""
        cursor, literals, out = self.items[number], Cursor(self.blobs[number]), b""
        _kind, _name, size, n_pieces = cursor.fields("Hsvv")
        for _ in range(n_pieces):
            kind, n = cursor.fields("Bv")
            demand(kind <= 2, "piece type %d" % kind, "unsupported")
            if kind == 0:
                out += literals.take(n)
            elif kind == 1:
                out += self.area(cursor, n)
            else:
                item, offset = cursor.fields("vv")
                source = Cursor(pick(self.blobs[:number], item, "item"))
                source.take(offset)
                out += source.take(n)
        demand(len(out) == size, "the pieces of an item")
        return out

    def area(self, cursor, size):
        """10: elements of tokens, where each view says."""
        track, t0, n, n_views = cursor.fields("vvvv")
        track = pick(self.tracks, track, "track")
        demand(t0 + n <= len(track.tokens), "an item needs more tokens")
        views = [cursor.fields("vvvvvv") for _ in range(n_views)]
        tensors = [pick(self.tensors, view[0], "tensor") for view in views]
        demand(all(t.track is track for t in tensors) and
               size == sum(n * t.heads * t.channels * t.size for t in tensors), "the views")
        out = bytearray(size)
        for t, (_, offset, of_token, block, of_block, of_element) in zip(tensors, views):
            demand(block, "the blocks of a view")
            for i in range(n):
                row = Cursor(t.rows[t0 + i])
                for c in range(t.heads * t.channels):
                    at = offset + i * of_token + c // block * of_block + c % block * of_element
                    demand(at + t.size <= size, "a view reaches past its area")
                    out[at:at + t.size] = row.take(t.size)
        return out

    def digest(self):
        """The lines of the .txt files of spec/vectors/."""
        for c in self.chunks.values():
            left = sum(s is c.s for s in c.s.track.tokens)
            if left:
                yield "%d %d %d %d %d %s\n" % (c.t.number, c.first, c.heads, c.s.t0, left,
                                               h128_hex(c.raw[:len(c.raw) // c.s.n * left]))
        for content in self.contents:
            yield "item %d %s\n" % (len(content), h128_hex(content))


def main(path, checkpoint="0", folder=None):
    try:
        with open(path, "rb") as f:
            archive = Archive(f.read(), int(checkpoint))
    except Bad as error:
        print("%s: %s" % error.args)
        return {"unsupported": 3, "lossy": 5}.get(error.args[0], 1)
    print(*archive.digest(), sep="", end="")
    for i, content in enumerate(archive.contents if folder else ()):
        with open(os.path.join(folder, "item-%d" % i), "wb") as f:      # 10.1: names are not used
            f.write(content)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) if 1 < len(sys.argv) < 5 else __doc__)
