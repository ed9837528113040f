# SPDX-License-Identifier: BSD-3-Clause
"""Chunk codecs of the reference decoder: spec/codecs/*.md, step by step.

Written from the specification for reading, not for speed. Everything is
integer arithmetic; tables come from spec/tables/.
"""

import os
import struct
import subprocess

from xxh3 import h64

TABLES = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                      "..", "tables")

# kvarc-format.md 4.1: element bytes; sign, exponent, mantissa bits; bias.
BYTES, F32, F16, BF16, E4M3, E5M2, I8, U8 = range(8)
DTYPE_NAMES = ["bytes", "f32", "f16", "bf16", "e4m3", "e5m2", "i8", "u8"]
# 4.1: of dtypes that are not listed, by their number
ELEMENT_BYTES = [1, 4, 2, 2, 1, 1, 1, 1] + [1] * 56 + [2] * 64 + [4] * 64
FLOAT = {F32: (8, 23, 127), F16: (5, 10, 15), BF16: (8, 7, 127),
         E4M3: (4, 3, 7), E5M2: (5, 2, 15)}


class Bad(Exception):
    """kvarc-format.md 1.6: kind is "format", "unsupported", "predictor",
    "key", "store" or "data"."""

    def __init__(self, kind, text):
        super().__init__(text)
        self.kind = kind


def demand(condition, text, kind="data"):
    if not condition:
        raise Bad(kind, text)


class Cursor:
    """Reads the fields of kvarc-format.md 1.1 to 1.3 from bytes."""

    def __init__(self, content):
        self.content = bytes(content)
        self.at = 0

    def left(self):
        return len(self.content) - self.at

    def take(self, n):
        demand(n <= self.left(), "a field reaches past the end")
        self.at += n
        return self.content[self.at - n:self.at]

    def rest(self):
        return self.take(self.left())

    def align(self):
        """Zeros to a multiple of 16."""
        demand(not any(self.take(-self.at % 16)), "padding is not zero")

    def number(self, code):
        return struct.unpack("<" + code, self.take(struct.calcsize(code)))[0]

    def u8(self):
        return self.number("B")

    def u16(self):
        return self.number("H")

    def u32(self):
        return self.number("I")

    def u64(self):
        return self.number("Q")

    def numbers(self, code, n):
        return list(struct.unpack("<%d%s" % (n, code),
                                  self.take(n * struct.calcsize(code))))

    def u8_flags(self, known, what):
        flags = self.u8()
        demand(flags & ~known == 0, what)
        return flags

    def varint(self, most=2 ** 53 - 1):
        # 1.2 "It MUST be minimal and below 2^53"
        value = 0
        for i in range(8):
            byte = self.u8()
            value |= (byte & 127) << 7 * i
            if byte < 128:
                demand(byte or i == 0, "a varint is not minimal")
                demand(value <= most, "a number is too large")
                return value
        raise Bad("data", "a varint is longer than 8 bytes")

    def zigzag(self):
        z = self.varint()
        return (z >> 1) ^ -(z & 1)

    def string(self):
        text = self.take(self.varint(65535))
        demand(0 not in text, "a string with the byte 0")
        return text

    def end(self):
        demand(not self.left(), "bytes follow the last field")

    def extensions(self):
        """1.9: extension fields up to the end, in ascending order."""
        least = 0
        while self.left():
            number = self.varint()
            demand(number >= least, "the order of extension fields")
            self.take(self.varint())
            least = number + 1


# --------------------------------------------------------------- Zstandard

def zstd_frame_bytes(content):
    """Length of the one Zstandard frame at the start (RFC 8878 3.1.1).

    Walks the headers, so that a second frame, a dictionary or a window of
    more than 8 MiB is seen; the zstd command would accept them."""
    cursor = Cursor(content)
    demand(cursor.u32() == 0xFD2FB528, "not a Zstandard frame")
    descriptor = cursor.u8()
    single = descriptor >> 5 & 1
    size_bytes = [single, 2, 4, 8][descriptor >> 6]
    window = 0
    if not single:
        byte = cursor.u8()
        base = 1 << 10 + (byte >> 3)
        window = base + (base >> 3) * (byte & 7)
    dictionary = cursor.take([0, 1, 2, 4][descriptor & 3])
    demand(not any(dictionary), "a Zstandard frame wants a dictionary")
    if size_bytes:
        size = int.from_bytes(cursor.take(size_bytes), "little")
        size += 256 if size_bytes == 2 else 0
        window = max(window, size) if single else window
    demand(window <= 8 << 20, "the window of a Zstandard frame is too large")
    last = False
    while not last:
        header = int.from_bytes(cursor.take(3), "little")
        last = header & 1
        # Block type 1 (RLE) stores one byte whatever its size.
        cursor.take(1 if header >> 1 & 3 == 1 else header >> 3)
    cursor.take(4 if descriptor & 4 else 0)
    return cursor.at


def zstd_content(frame, size):
    demand(zstd_frame_bytes(frame) == len(frame),
           "bytes follow the Zstandard frame")
    run = subprocess.run(["zstd", "-d", "-c", "-q"], input=frame,
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    demand(run.returncode == 0, "the Zstandard frame is damaged")
    demand(len(run.stdout) == size, "the Zstandard content has another size")
    return run.stdout


def packed_content(payload, size):
    # kvarc-format.md 1.5
    cursor = Cursor(payload)
    method = cursor.u8()
    demand(method <= 1, "packing method %d" % method, "unsupported")
    content = cursor.rest()
    if method:
        return zstd_content(content, size)
    demand(len(content) == size, "the content has another size")
    return content


# ------------------------------------------------------------ rans.md: coder

TOTAL = 2048


class Table:
    """Frequencies with total 2048, and who owns each slot."""

    def __init__(self, freq, escape):
        # rans.md 2 "Tables have a total of 2^11 = 2048; no symbol has
        # frequency 2048"; codec pages: the escape has at least 1.
        demand(sum(freq) == TOTAL, "a table does not add up to 2048")
        demand(max(freq) < TOTAL, "a symbol has all of a table")
        demand(freq[escape] >= 1, "an escape has the frequency 0")
        self.freq = freq
        self.symbol, self.start = [], []
        for symbol, f in enumerate(freq):
            self.start.append(len(self.symbol))
            self.symbol += [symbol] * f


class Lane:
    def __init__(self, state, words):
        demand(state >= 1 << 16, "a stored coder state is below 2^16")
        self.state, self.words = state, words

    def take(self, n):
        value = self.state & ((1 << n) - 1)
        self.state >>= n
        return value

    def trailing_zeros(self, most):
        n = 0
        while n < most and not self.state >> n & 1:
            n += 1
        return n

    def symbol(self, table):
        slot = self.state & 2047
        s = table.symbol[slot]
        self.state = (table.freq[s] * (self.state >> 11)
                      + slot - table.start[s]) & 0xFFFFFFFF
        return s

    def renorm(self):
        if self.state < 1 << 16:
            # 1 "a word that is needed after the last one is read as 0"
            word = self.words.pop() if self.words else None
            demand(word is not None, "the stream has too few words")
            self.state = self.state << 16 | word


def element_steps(first, end):
    """rans.md 3, order of elements: the elements (numbers in token-major
    order) of the active lanes of each step."""
    for at in range(first, end, 32):
        yield range(at, min(at + 32, end))


def token_steps(rows, columns):
    """rans.md 3, order of tokens."""
    for row in range(0, rows, 32):
        for c in range(columns):
            yield range(row * columns + c,
                        min(row + 32, rows) * columns + c, columns)


class Stream:
    """rans.md 1: stored states and words."""

    def __init__(self, states, words):
        self.states, self.words = states, words

    @staticmethod
    def read(cursor):
        """The stream of a lossy body (lossy.md 4)."""
        n_words = cursor.u32()
        states = cursor.numbers("I", 32)
        return Stream(states, cursor.numbers("H", n_words))


def decode_stream(cursor, rows, columns, table_of, finish, escape_bits):
    """A stream of a lossy body."""
    values = [0] * (rows * columns)
    decode_steps(Stream.read(cursor), token_steps(rows, columns), values,
                 table_of, finish, escape_bits)
    return values


def decode_steps(stream, all_steps, values, table_of, finish, escape_bits):
    """rans.md 2. all_steps gives the elements of each step, and may look at
    the values of earlier ones; table_of(element) -> Table; finish(element,
    symbol, lane) does the raw bits and returns the value, or None for an
    escape."""
    words = stream.words[::-1]
    lanes = [Lane(state, words) for state in stream.states]
    for step in all_steps:
        symbols = []
        for element, lane in zip(step, lanes):          # phase 1
            symbols.append(lane.symbol(table_of(element)))
            lane.renorm()
        escaped = []
        for element, lane, s in zip(step, lanes, symbols):  # phase 2
            values[element] = finish(element, s, lane)
            if values[element] is None:
                escaped.append((element, lane))
            lane.renorm()
        for element, lane in escaped:                   # phase 3
            values[element] = lane.take(escape_bits)
            lane.renorm()
    # 1 "every lane at exactly 2^16 and all words consumed"
    demand(not words, "the stream has words left over")
    demand(all(lane.state == 1 << 16 for lane in lanes),
           "the final state of the coder is wrong")


class Cut:
    """kvarc-format.md 7 and rans.md 4: how the tokens of a chunk are cut."""

    def __init__(self, size, section_bytes):
        demand(size <= 3, "the stream size")
        self.size, self.section_bytes = size, section_bytes
        self.streams, self.ends, self.checks = [], [], []

    def none(self):
        """For a codec without streams."""
        demand(self.size == 3 and not self.section_bytes,
               "streams of a codec that has none")

    def begin(self, cursor, rows):
        """The number of streams of a payload whose section was read. rows:
        the remaining tokens, by their numbers."""
        demand(cursor.at == self.section_bytes, "section_bytes")
        each = 32 << self.size
        n = (len(rows) + each - 1) // each
        # rans.md 4 "With one stream, or none, b MUST be 3."
        demand(n > 1 or self.size == 3, "the stream size of one stream")
        self.starts = list(range(0, len(rows), each)) + [len(rows)]
        self.ends = [rows[i - 1] + 1 for i in self.starts[1:]]
        return n

    def read(self, cursor, rows):
        """The streams of a payload of a codec that has the coder."""
        n = self.begin(cursor, rows)
        if not n:
            return
        cursor.align()
        table = []
        for _ in range(n):
            table.append(cursor.u32())
            demand(cursor.u32() == 0, "a reserved field of a stream")
            self.checks.append(cursor.u64())
        demand(n > 1 or self.checks == [0], "the check of a single stream")
        states = [cursor.numbers("I", 32) for _ in range(n)]
        for n_words, state in zip(table, states):
            self.streams.append(Stream(state, cursor.numbers("H", n_words)))
            cursor.align()

    def parts(self):
        """Each stream, the first of its remaining tokens, and their end."""
        return zip(self.streams, self.starts, self.starts[1:])

    def raw_check(self, raw, n):
        """rans.md 4: what raw_check has to be. n: tokens."""
        if len(self.ends) < 2:
            return h64(raw)
        row, checks, start = len(raw) // n, [], 0
        # "the last stream takes the rest"
        for end in self.ends[:-1] + [n]:
            checks.append(h64(raw[start * row:end * row]))
            start = end
        demand(checks == self.checks, "the check of a stream")
        return h64(struct.pack("<%dQ" % len(checks), *checks))


# ------------------------------------------------------ mask.md and elements

def bitmap(cursor, n):
    raw = cursor.take((n + 7) // 8)
    bits = int.from_bytes(raw, "little")
    demand(bits >> n == 0, "padding of a bitmap is not zero")
    demand(bits, "a bitmap of the mask is empty")
    return [i for i in range(n) if bits >> i & 1]


class Mask:
    def __init__(self, cursor, rows, columns, element_bytes):
        code = {1: "B", 2: "H", 4: "I"}[element_bytes]
        flags = cursor.u8()
        demand(flags < 4, "reserved bits of the mask")
        self.constant_columns, self.constant_rows = {}, {}
        if flags & 1:
            which = bitmap(cursor, columns)
            self.constant_columns = dict(
                zip(which, cursor.numbers(code, len(which))))
        if flags & 2:
            which = bitmap(cursor, rows)
            self.constant_rows = dict(
                zip(which, cursor.numbers(code, len(which))))
        self.all_rows, self.all_columns = rows, columns
        self.rows = [r for r in range(rows) if r not in self.constant_rows]
        self.columns = [c for c in range(columns)
                        if c not in self.constant_columns]

    def fill(self, values):
        """The whole matrix from the coded values, token-major."""
        coded, out = iter(values), []
        for r in range(self.all_rows):
            for c in range(self.all_columns):
                # "Constant channels win over constant rows."
                if c in self.constant_columns:
                    out.append(self.constant_columns[c])
                elif r in self.constant_rows:
                    out.append(self.constant_rows[r])
                else:
                    out.append(next(coded))
        return out


def read_plane(cursor, size):
    """rans.md 5: one plane of some bytes."""
    method, value = cursor.u8(), cursor.u8()
    demand(method <= 2, "plane method %d" % method, "unsupported")
    demand(cursor.u16() == 0, "a reserved field of a plane")
    length = cursor.u32()
    demand(cursor.u64() == 0, "a reserved field of a plane")
    demand(method == 2 or not value, "the value of a plane")
    demand(method == 1 or length == (0 if method else size),
           "the size of a plane")
    data = cursor.take(length)
    if method == 0:
        plane = data
    elif method == 1:
        plane = zstd_content(data, size)
    else:
        plane = bytes([value]) * size
    cursor.align()
    return list(plane)


def read_low_halves(cursor, n):
    """The low 16 bits of n elements of f32, in two planes."""
    low, high = read_plane(cursor, n), read_plane(cursor, n)
    return [l | h << 8 for l, h in zip(low, high)]


# ------------------------------------------------------------------- PARAMS

def table_group(cursor, symbols, columns):
    n_tables = cursor.u8()
    demand(1 <= n_tables <= 16, "number of tables")
    tables = [Table([cursor.varint(TOTAL) for _ in range(symbols)],
                    symbols - 1) for _ in range(n_tables)]
    table = cursor.numbers("B", columns)
    demand(max(table) < n_tables, "a channel names a table that is not there")
    return [tables[t] for t in table]


class Params:
    """kvarc-format.md 8, after `u8 codec`."""

    def __init__(self, cursor, codec, tensor, heads, rope):
        columns = heads * tensor.channels
        suits = tensor.dtype in FLOAT if codec != 6 else \
            tensor.dtype not in FLOAT and ELEMENT_BYTES[tensor.dtype] == 1
        demand(suits, "the codec does not suit the dtype")
        self.codec, self.rotate = codec, False
        if codec == 6:      # bytes.md
            self.table = table_group(cursor, 257, columns)
        else:               # grid.md 1
            flags = cursor.u8()
            demand(flags < 2, "reserved flags of grid parameters")
            self.rotate = bool(flags)
            demand(rope or not flags, "rotation without a rope")
            self.set = cursor.numbers("B", columns)
            self.k = self.planes16(cursor, columns)
            self.mean = self.planes16(cursor, columns)
            demand(all(-400 <= k <= 400 for k in self.k), "a scale class")
            for number in sorted(set(self.set)):
                grid_set(number)
        cursor.end()

    @staticmethod
    def planes16(cursor, n):
        low, high = cursor.numbers("B", n), cursor.numbers("b", n)
        return [h * 256 + l for h, l in zip(high, low)]


# --------------------------------------------------------- grid.md: numbers

_table_cache = {}


def table_file(name):
    """All integers of a file of spec/tables/, without comments."""
    if name not in _table_cache:
        with open(os.path.join(TABLES, name)) as f:
            _table_cache[name] = [int(n) for line in f
                                  for n in line.split("#")[0].split()]
    return _table_cache[name]


def grid_set(number):
    """grid.md 5: the 192 tables of a set."""
    name = "grid-set-%d.txt" % number
    demand(os.path.exists(os.path.join(TABLES, name)),
           "grid table set %d" % number, "unsupported")
    if ("set", number) not in _table_cache:
        freq = table_file(name)
        assert len(freq) == 192 * 41 and min(freq) >= 1
        _table_cache["set", number] = [
            Table(freq[41 * t:41 * t + 41], 40) for t in range(192)]
    return _table_cache["set", number]


def clamp(value, low, high):
    return max(low, min(high, value))


def binary32(number, exponent):
    """Bit pattern of number x 2^exponent, exact and normal by 2."""
    if number == 0:
        return 0
    size = abs(number)
    top = size.bit_length() - 1
    assert top <= 23 and 0 < top + exponent + 127 < 255
    return ((number < 0) << 31 | top + exponent + 127 << 23
            | (size << 23 - top) & 0x7FFFFF)


def expected(params, rope, head_channels, channel, position):
    """grid.md 2: bit pattern of mu and the class k."""
    head, at = divmod(channel, head_channels)
    if not params.rotate or at >= rope.rotary:
        k = params.k[channel]
        return binary32(params.mean[channel], k // 4 - 4), k
    half = rope.rotary // 2
    # kvarc-format.md 4, pairing
    if rope.pairing == 0:
        pair, second = at % half, at >= half
        a, b = pair, pair + half
    else:
        pair, second = at // 2, at & 1
        a, b = 2 * pair, 2 * pair + 1
    a, b = a + head * head_channels, b + head * head_channels
    ka, kb = params.k[a], params.k[b]
    ma, mb = params.mean[a], params.mean[b]
    turn = position * rope.freq[pair] % 2 ** 64
    i = ((turn >> 51) + 1 >> 1) % 4096
    cos = table_file("cos4096.txt")
    c, s = cos[i], cos[(i + 3072) % 4096]
    e = max(ka, kb) // 4 - 4
    h = (i >> 5) & 63
    rot = table_file("rot.txt")
    row = 64 * (clamp(ka - kb, -32, 32) + 32)
    if second:
        number, k = (mb * c + ma * s) >> 6, kb + rot[row + (h + 32) % 64]
    else:
        number, k = (ma * c - mb * s) >> 6, kb + rot[row + h]
    return binary32(number, e - 8), k


M4 = [0, 0x1837F0, 0x3504F3, 0x5744FD]


class Context:
    """grid.md 3."""

    def __init__(self, b, k, m, emin, half=1):
        """half: near.md adds none to am."""
        self.neg = b >> 31
        am = b & 0x7FFFFFFF
        sigma = (k // 4 + 1 + 127) << 23 | M4[k & 3]
        xa, xs = am >> 23, sigma >> 23
        x = max(xa, xs)
        ma = 0 if xa == 0 else (
            (am & 0x7FFFFF | 0x800000) >> min(x - xa, 31))
        ms = (sigma & 0x7FFFFF | 0x800000) >> min(x - xs, 31)
        e = x + ((ma + ms) >> 24)
        g = max(k // 4 - 1 + 127, e - m, emin - m + 127)
        self.G = g - 127
        ar = am + half * (1 << (22 - m))
        man = ar & 0x7FFFFF | 0x800000
        sh = 20 + g - (ar >> 23)
        y = self.y = 0 if sh > 31 else man >> sh
        self.M, phase = y >> 3, y & 7
        self.table = (clamp(k - 4 * self.G, -16, 7) + 16) * 8 + phase


# grid.md 4: distances from LO[t], 2^NB[t] of them.
LO = list(range(8)) + [8, 10, 12, 14] + [16, 20, 24, 28] + [32, 64, 128, 256]
NB = [0] * 8 + [1] * 4 + [2] * 4 + [5, 6, 7, 9]
# mantissa bits, emin, element bits, deepest zero bucket
GRID = {BF16: (7, -126, 16, 7), F16: (10, -14, 16, 5),
        E4M3: (3, -6, 8, 11), E5M2: (2, -14, 8, 11)}


def grid_element(context, s, lane, form):
    """grid.md 4: the element's bits, or None for an escape."""
    m, emin, w, Z = form
    if s == 40:
        return None
    G, nb = context.G, NB[s >> 1]
    e = LO[s >> 1] + lane.take(nb)
    X = context.M + (-e - 1 if s & 1 else e)
    j = -X - 1 if X < 0 else X
    sign = (X < 0) ^ context.neg
    N = G + m - emin
    if j > 0:
        L = j.bit_length() - 1
        n = max(0, min(m - L, N))
        full = j >> (L - m) if L > m else j
        full = full << n | lane.take(n)
        bits = full + ((G + L - emin) << m) if m - L <= N else full
    else:
        if nb > 1:
            return None
        B = G - emin
        if B <= 0:
            bits = lane.take(N)
        else:
            z = lane.trailing_zeros(min(Z, B))
            if z < min(Z, B):
                lane.take(z + 1)
                bits = ((G - 1 - z - emin + 1) << m) + lane.take(m)
            elif B <= Z:
                lane.take(B)
                bits = lane.take(m)
            else:
                lane.take(Z)
                return None
    return (sign << (w - 1) | bits) & ((1 << w) - 1)


# ------------------------------------------------------------------- chunks

def decode_elements(cut, width, table_of, finish, escape_bits):
    """The streams of codecs 5 and 6; width: remaining channels."""
    values = [0] * (cut.starts[-1] * width)
    for stream, first, end in cut.parts():
        decode_steps(stream, element_steps(first * width, end * width),
                     values, table_of, finish, escape_bits)
    return values


def decode_grid(cursor, cut, params, mask, dtype, head_channels, rope,
                positions):
    rows, columns = mask.rows, mask.columns
    width = len(columns)
    form = GRID[BF16 if dtype == F32 else dtype]
    cache = {}

    def context(element):
        channel = columns[element % width]
        position = (positions[rows[element // width]] if params.rotate
                    else None)
        if (channel, position) not in cache:
            b, k = expected(params, rope, head_channels, channel, position)
            cache[channel, position] = Context(b, k, form[0], form[1])
        return cache[channel, position]

    values = decode_elements(
        cut, width,
        lambda element: grid_set(params.set[columns[element % width]])[
            context(element).table],
        lambda element, s, lane: grid_element(context(element), s, lane,
                                              form),
        form[2])
    if dtype == F32:
        low = read_low_halves(cursor, len(values))
        values = [h << 16 | l for h, l in zip(values, low)]
    return values


def decode_bytes(cut, params, mask):
    columns = mask.columns
    width = len(columns)
    return decode_elements(
        cut, width,
        lambda element: params.table[columns[element % width]],
        lambda element, symbol, lane: None if symbol == 256 else symbol, 8)


def decode_chunk(codec, cut, payload, tensor, heads, n, params, rope,
                 positions):
    """The decoded bytes of a chunk of codec 0, 1, 2, 5 or 6."""
    columns = heads * tensor.channels
    size = ELEMENT_BYTES[tensor.dtype]
    if codec <= 2:
        cut.none()
    if codec == 0:      # raw.md
        demand(len(payload) == n * columns * size, "raw chunk of another size")
        return payload
    if codec == 1:      # zstd.md
        return zstd_content(payload, n * columns * size)
    if codec == 2:      # constant.md
        demand(len(payload) == size, "constant chunk of another size")
        return payload * (n * columns)
    cursor = Cursor(payload)
    mask = Mask(cursor, n, columns, size)
    values = []
    # rans.md 4 "Where nothing remains, there are no streams."
    cut.read(cursor, mask.rows if mask.columns else [])
    if cut.streams:
        if codec == 5:
            values = decode_grid(cursor, cut, params, mask, tensor.dtype,
                                 tensor.channels, rope, positions)
        else:
            values = decode_bytes(cut, params, mask)
    cursor.end()
    code = {1: "B", 2: "H", 4: "I"}[size]
    return struct.pack("<%d%s" % (n * columns, code), *mask.fill(values))
