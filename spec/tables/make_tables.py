#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Makes the static tables of the codecs (spec/codecs: grid, cells, lossy).

    make_tables.py              writes the text files next to this script and
                                the C arrays of src/tables
    make_tables.py --check      compares instead of writing, exit 1 if they differ

The text files are normative, this script only says where they come from. All
arithmetic is decimal with 40 digits, so no libm can change an entry.
"""
import os
import sys
from decimal import Decimal as D, getcontext

getcontext().prec = 40
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
TOTAL = 2048
SYMBOLS = 41
ESCAPE_WEIGHT = D("1e-5")

# Set 0: the residual of a channel about its mean. Nearly normal, with
# the shoulders and the rare far values that caches of several models show.
# (weight, width in units of sigma)
SETS = [
    [("0.950", "0.98"), ("0.045", "1.7"), ("0.004", "4"), ("0.001", "16")],
]

# Codes of lossy chunks: classes of sigma / step = 2^((class - 12) / 4).
CODE_MIX = [("0.80", "0.90"), ("0.20", "1.32")]
CODE_CLASSES = 33
CODE_MAX = 127

# Codes of codec cells: distances with codes, and most of them in first codes.
CELL_CLASSES = 16
CELL_REACH = 128
CELL_MAIN = 60

LO = list(range(8)) + [8, 10, 12, 14, 16, 20, 24, 28, 32, 64, 128, 256]
NB = [0] * 8 + [1] * 4 + [2] * 4 + [5, 6, 7, 9]

PI = D("3.1415926535897932384626433832795028841971693993751")
LN2 = D(2).ln()
ROOT_2PI = (2 * PI).sqrt()


def cosine(x):
    """cos x for 0 <= x < 2 pi, by its series."""
    term = total = D(1)
    n = 0
    while abs(term) > D("1e-38"):
        n += 2
        term = -term * x * x / (n * (n - 1))
        total += term
    return total


_normal = {}


def normal_cdf(z):
    """P(Z <= z); beyond 9 sigma the tail is taken as 0."""
    if z < 0:
        return 1 - normal_cdf(-z)
    if z > 9:
        return D(1)
    if z not in _normal:
        term = total = z
        n = 1
        while term > D("1e-38"):
            n += 2
            term = term * z * z / n
            total += term
        _normal[z] = D("0.5") + total * (-z * z / 2).exp() / ROOT_2PI
    return _normal[z]


def quantise(p):
    """Frequencies >= 1 with sum TOTAL and the least loss in code length."""
    s = sum(p)
    p = [v / s for v in p]
    f = [max(1, int(v * TOTAL + D("0.5"))) for v in p]
    while sum(f) != TOTAL:
        if sum(f) > TOTAL:
            cost = [(p[i] * (D(f[i]) / (f[i] - 1)).ln(), i)
                    for i in range(len(f)) if f[i] > 1]
            f[min(cost)[1]] -= 1
        else:
            gain = [(-p[i] * (D(f[i] + 1) / f[i]).ln(), i)
                    for i in range(len(f))]
            f[min(gain)[1]] += 1
    return f


def grid_table(mix, table):
    """Frequencies of one table: class table // 8, phase table % 8."""
    sigma = (LN2 * D(table // 8 - 16) / 4).exp()
    mean = (D(table % 8) + D("0.5")) / 8
    p = []
    for t in range(20):
        for side in (0, 1):
            lo, hi = LO[t], LO[t] + (1 << NB[t])
            if side:
                lo, hi = -hi, -lo
            p.append(sum(
                D(w) * (normal_cdf((hi - mean) / (sigma * D(s))) -
                        normal_cdf((lo - mean) / (sigma * D(s))))
                for w, s in mix))
    p.append(ESCAPE_WEIGHT)
    return quantise(p)


def code_table(k):
    """Frequencies of |code| = 0, 1 ... of a class, each but 0 stands for two.

    The escape has the rest of 2048, for codes that are not in the
    table: less likely than half of a unit, or beyond CODE_MAX.
    """
    sigma = (LN2 * D(k - 12) / 4).exp()
    p = []
    for q in range(CODE_MAX + 1):
        lo, hi = D(q) - D("0.5"), D(q) + D("0.5")
        p.append(sum(D(w) * (normal_cdf(hi / (sigma * D(s))) -
                             normal_cdf(lo / (sigma * D(s))))
                     for w, s in CODE_MIX))
    n = max(2, sum(1 for v in p if v * TOTAL >= D("0.5")))
    p = p[:n]
    weight = [1] + [2] * (n - 1)
    f = [max(1, int(v * TOTAL)) for v in p]
    while True:
        left = TOTAL - 1 - sum(a * b for a, b in zip(f, weight))
        if left < 0:
            cost = [(p[i] * (D(f[i]) / (f[i] - 1)).ln(), i)
                    for i in range(n) if f[i] > 1]
            f[min(cost)[1]] -= 1
            continue
        gain = [(-p[i] * (D(f[i] + 1) / f[i]).ln(), i)
                for i in range(n) if weight[i] <= left]
        if not gain:
            return f
        f[min(gain)[1]] += 1


def below(klass):
    """P(an element is below the cell `d` cells from the expected one), for
    d = -CELL_REACH..CELL_REACH, in 2^-60.

    The expected value is anywhere in its cell."""
    sigma = (LN2 * D(klass) / 4).exp()
    widths = [(D(w) / 8, sigma * D(s)) for w, s in SETS[0]]
    half = []
    for i in range(CELL_REACH + 1):
        total = D(0)
        for phase in range(8):
            mean = (D(phase) + D("0.5")) / 8 - D("0.5")
            total += sum(w * normal_cdf((i - mean) / s) for w, s in widths)
        half.append(int((total * 2 ** 60).to_integral_value()))
    return [2 ** 60 - v for v in half[:0:-1]] + half


def partitions(likely, first, end, bits, code, behind):
    """The cheapest ways to cut the cells `first` to `end` - 1 into intervals.

    Returns cost and size of the first interval, by the number of intervals, 0
    to 15, and by the cell that they begin with. An interval of 2^nb cells costs
    code + nb bits, nb <= bits. likely(a, b): the probability of the cells from a
    to b - 1; behind(cell): cost of what no interval takes from `cell` on.
    """
    cost, size = [], []
    for w in range(16):
        cost.append({p: behind(w, p) for p in range(end, first - 1, -1)})
        size.append({})
        for p in range(end - 1, first - 1, -1) if w else ():
            for nb in range(bits + 1):
                to = p + (1 << nb)
                if to > end:
                    break
                c = likely(p, to) * (code + nb) + cost[w - 1][to]
                if c < cost[w][p]:
                    cost[w][p] = c
                    size[w][p] = nb
    return cost, size


def walk(size, count, p):
    """The intervals that `partitions` chose from cell p on."""
    found = []
    while count and p in size[count]:
        found.append((p, size[count][p]))
        p += 1 << found[-1][1]
        count -= 1
    return found


def cell_table(klass):
    """LO and NB of the 15 first and 15 second codes of a class: the intervals
    with the least code length, 8 + nb bits for second codes and 24 for
    escapes."""
    f = below(klass)
    reach = CELL_REACH

    def likely(a, b):
        return f[b + reach] - f[a + reach]

    never = 2 ** 70
    tail, tail_size = partitions(likely, 0, reach, 7, 8,
                                 lambda w, p: (2 ** 60 - f[p + reach]) * 24)

    def split(left, right):
        return min((tail[a][left] + tail[15 - a][right], a) for a in range(16))

    best = None
    for first in range(-CELL_MAIN, 1):
        main, size = partitions(
            likely, first, CELL_MAIN, 5, 4,
            lambda w, p: split(-first, p)[0] if w == 0 and p >= 0 else never)
        if best is None or main[15][first] < best[0]:
            best = (main[15][first], first, size)
    inner = walk(best[2], 15, best[1])
    right = inner[-1][0] + (1 << inner[-1][1])
    left_count = split(-best[1], right)[1]
    outer = walk(tail_size, 15 - left_count, right)
    outer += [(-p - (1 << nb), nb)
              for p, nb in walk(tail_size, left_count, -best[1])]
    return inner + outer


def cell_codes(table):
    """The code of each distance from -CELL_REACH to CELL_REACH - 1, nb << 5, and
    the distance within the interval << 8."""
    codes = [30] * (2 * CELL_REACH)
    for code, (lo, nb) in enumerate(table):
        for within in range(1 << nb):
            codes[lo + within + CELL_REACH] = code | nb << 5 | within << 8
    return codes


def rot_entry(d, h):
    """4 log2 of the scale of a rotated channel over the second one's."""
    c = cosine(PI * (2 * h + 1) / 128)
    v = (LN2 * D(d) / 2).exp() * c * c + (1 - c * c)
    return int((2 * v.ln() / LN2).to_integral_value())


def text(title, rows):
    lines = ["# " + t for t in title]
    lines += [" ".join(str(v) for v in row) for row in rows]
    return "\n".join(lines) + "\n"


def c_array(kind, name, rows):
    out = ["", "const %s %s[] = {" % (kind, name)]
    for row in rows:
        line = "\t"
        for v in row:
            item = "%d," % v
            if len(line.expandtabs(8)) + len(item) > 79:
                out.append(line.rstrip())
                line = "\t"
            line += item + " "
        out.append(line.rstrip())
    out.append("};")
    return "\n".join(out) + "\n"


def c_file(name, purpose, arrays):
    return ("/* SPDX-License-Identifier: BSD-3-Clause */\n"
            "/* %s - %s; made by spec/tables/make_tables.py */\n"
            % (name, purpose)) + "".join(arrays)


def files():
    cos = [int((D(16384) * cosine(2 * PI * i / 4096)).to_integral_value())
           for i in range(4096)]
    cos_rows = [cos[i:i + 16] for i in range(0, 4096, 16)]
    rot = [[rot_entry(d, h) for h in range(64)] for d in range(-32, 33)]
    sets = [[grid_table(mix, t) for t in range(192)] for mix in SETS]
    yield "spec/tables/cos4096.txt", text(
        ["COS[i] = round(16384 cos(2 pi i / 4096)), spec/codecs/grid.md 2"],
        cos_rows)
    yield "spec/tables/rot.txt", text(
        ["ROT[D + 32][h], one line for each D = -32..32, h = 0..63, "
         "spec/codecs/grid.md 2",
         "round(4 log2 sqrt(2^(D/2) cos^2 a + sin^2 a)), "
         "a = pi (h + 1/2) / 64"], rot)
    for n, tables in enumerate(sets):
        yield "spec/tables/grid-set-%d.txt" % n, text(
            ["table set %d, spec/codecs/grid.md 5: tables 0..191, one line "
             "each, frequencies of symbols 0..40" % n], tables)
    codes = [code_table(k) for k in range(CODE_CLASSES)]
    yield "spec/tables/codes.txt", text(
        ["codes of lossy chunks, spec/codecs/lossy.md 4: classes 0..32, one "
         "line each, frequencies of the codes 0, 1 (and -1), 2 (and -2) ..."],
        codes)
    cells = [cell_table(k) for k in range(CELL_CLASSES)]
    spare = [(0, 0)] * (32 - 30)
    yield "spec/tables/cells.txt", text(
        ["codes of codec cells, spec/codecs/cells.md 3: classes 0..15, one "
         "line each, LO and NB of the first codes 0..14 and of the second "
         "codes 0..14"], [[v for entry in t for v in entry] for t in cells])
    yield "src/tables/cells.inc", c_file(
        "cells.inc", "codes of codec cells by class",
        [c_array("int8_t", "kvi_cells_lo",
                 [[lo for lo, nb in t + spare] for t in cells]),
         c_array("uint8_t", "kvi_cells_nb",
                 [[nb for lo, nb in t + spare] for t in cells]),
         c_array("uint16_t", "kvi_cells_code",
                 [cell_codes(t) for t in cells])])
    yield "src/tables/code_freq.inc", c_file(
        "code_freq.inc", "frequencies of the codes of lossy chunks",
        [c_array("uint8_t", "kvi_code_counts", [[len(r) for r in codes]]),
         c_array("uint16_t", "kvi_code_freq", codes)])
    yield "src/tables/rotate_tables.inc", c_file(
        "rotate_tables.inc", "cosines and scales of rotating channels",
        [c_array("int16_t", "kvi_cos4096", cos_rows),
         c_array("int8_t", "kvi_rot_scale", rot)])
    yield "src/tables/grid_sets.inc", c_file(
        "grid_sets.inc", "frequencies of the table sets",
        [c_array("uint16_t", "kvi_grid_set_%d" % n, tables)
         for n, tables in enumerate(sets)])


def main():
    differ = 0
    for name, content in files():
        path = os.path.join(ROOT, name)
        if sys.argv[1:] == ["--check"]:
            with open(path, encoding="ascii") as f:
                if f.read() != content:
                    print("%s: differs from what this script makes" % name)
                    differ = 1
        else:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="ascii") as f:
                f.write(content)
    return differ


if __name__ == "__main__":
    sys.exit(main())
