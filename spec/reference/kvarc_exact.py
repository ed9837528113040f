# SPDX-License-Identifier: BSD-3-Clause
"""Exact arithmetic of the reference decoder: spec/arithmetic.md 1 to 6.

An fp32 number is a Python float (binary64) that fp32() gave. An operation of
two fp32 numbers in binary64, rounded once more, is the fp32 operation: 53 bits
are more than 2 x 24 + 2. So fp32() stands around every single operation but
the fused one, fma().
"""

import ctypes
import math
import struct
from array import array
from operator import add, mul

from kvarc_codecs import clamp

ROUND = 12582912.0          # 1.5 x 2^23
LEAST = 2.0 ** -60
A8, A12, A15, W8, W12, W15 = 127, 2047, 16383, 127, 2047, 16319
BLOCK = 256


# ------------------------------------------------------------- 1. Numbers

def fp32(x):
    return ctypes.c_float(x).value


def fp32s(x):
    return array("f", x).tolist()


def fma(a, b, c):
    """a * b + c, rounded once. In binary64 the product is exact; of the two
    numbers around the sum the one with the last bit set rounds as the sum."""
    p = a * b
    s = p + c
    t = s - p
    error = (p - (s - t)) + (c - t)
    if error and not struct.unpack("<Q", struct.pack("<d", s))[0] & 1:
        s = math.nextafter(s, math.copysign(math.inf, error))
    return fp32(s)


def divided(a, b):
    """a / b, where b may be 0: what is not finite is not predicted from."""
    return fp32(a / b) if b else math.inf if a > 0 else math.nan


def rint(x):
    return fp32(fp32(x + ROUND) - ROUND)


def amax(x):
    return max([0.0] + [abs(v) for v in x])


def sum16(x):
    lane = [0.0] * 16
    for i, v in enumerate(x):
        lane[i % 16] = fp32(lane[i % 16] + v)
    for w in (8, 4, 2, 1):
        for j in range(w):
            lane[j] = fp32(lane[j] + lane[j + w])
    return lane[0]


def numbers(*texts):
    return [float.fromhex(t) for t in texts]


PER_OCTAVE, OCTAVE, OCTAVE_LOW = numbers(
    "0x1.715476p+0", "0x1.63p-1", "-0x1.bd0106p-13")
POLYNOMIAL = numbers("0x1.a0d2cep-13", "0x1.6e879cp-10", "0x1.11121p-7",
                     "0x1.555382p-5", "0x1.555554p-3") + [0.5]
GELU, GELU_CUBE = numbers("0x1.988454p-1", "0x1.6e4e26p-5")


def exps(all_x):
    """exp of several numbers, each operation on all of them."""
    x = [max(v, -87.0) for v in all_x]
    t = fp32s(v + ROUND for v in fp32s(v * PER_OCTAVE for v in x))
    f = fp32s(v - ROUND for v in t)
    r = fp32s(v - w for v, w in zip(x, fp32s(v * OCTAVE for v in f)))
    r = fp32s(v - w for v, w in zip(r, fp32s(v * OCTAVE_LOW for v in f)))
    p = [POLYNOMIAL[0]] * len(x)
    for c in POLYNOMIAL[1:]:
        p = fp32s(v + c for v in fp32s(map(mul, p, r)))
    p = fp32s(map(mul, p, fp32s(map(mul, r, r))))
    p = fp32s(v + 1 for v in fp32s(map(add, p, r)))
    return [fp32(v * 2.0 ** int(n)) if e > -87 else 0.0
            for v, n, e in zip(p, f, all_x)]


def exp(x):
    return exps([x])[0]


def silu(x):
    e = exp(-abs(x))
    s = fp32((1.0 if x >= 0 else e) / fp32(1 + e))
    return fp32(x * s)


def gelu(x):
    cube = fp32(fp32(x * x) * x)
    u = fp32(GELU * fp32(x + fp32(GELU_CUBE * cube)))
    e = exp(-fp32(2 * abs(u)))
    h = fp32(fp32(1 - e) / fp32(1 + e))
    t = h if u >= 0 else -h
    return fp32(fp32(0.5 * x) * fp32(1 + t))


# ------------------------------------------------- 2. Operands, 3. Product

def integers(x, most):
    """One group: integers of at most `most`, and their scale."""
    s = max(fp32(amax(x) / most), LEAST)
    inverse = fp32(1 / s)
    up = fp32s(v + ROUND for v in fp32s(v * inverse for v in x))
    return [clamp(int(v - ROUND), -most, most) for v in up], s


def activation(x, group, wide):
    """Groups of (integers, scale), and the scale of the row."""
    if wide:
        a, s = integers(x, A15)
        return [(a[at:at + group], 1.0) for at in range(0, len(a), group)], s
    return [integers(x[at:at + group], A8)
            for at in range(0, len(x), group)], 1.0


def attended(x, most):
    """A row of one group, A8, A12 or A15, as activation() has it."""
    a, s = integers(x, most)
    return ([(a, s)], 1.0) if most == A8 else ([(a, 1.0)], s)


def two_planes(v):
    w0 = [(n + 64) >> 7 for n in v]
    return w0, [n - 128 * h for n, h in zip(v, w0)]


def weight_group(wide):
    """The columns of a group of W15 or W8."""
    return 128 if wide else 64


def weight_row(x, wide):
    """W8 or W15 of a row of floats: groups of (planes, scale, minimum)."""
    out, group = [], weight_group(wide)
    for at in range(0, len(x), group):
        v, s = integers(x[at:at + group], W15 if wide else W8)
        out.append((two_planes(v) if wide else (v,), s, None))
    return out


def product(a, row):
    """y of an activation row and a row of a weight operand."""
    groups, s_row = a
    acc = 0.0
    for (x, sa), (planes, s, m) in zip(groups, row):
        sw = fp32(128 * s) if len(planes) == 2 else s
        for w in planes:
            total = fp32(sum(map(mul, x, w)))
            acc = fma(total, fp32(sa * sw), acc)
            sw = s
        if m is not None:
            acc = fma(fp32(sum(x)), fp32(sa * m), acc)
    return fp32(acc * s_row)


def e4m3(x):
    """The nearest e4m3 number, ties to even, at most 448."""
    a = min(abs(x), 448.0)
    unit = 2.0 ** max(math.frexp(a)[1] - 4, -9)
    return math.copysign(round(a / unit) * unit, x)


def e4m3_row(x):
    """A row of an E4M3 operand: numbers, scale."""
    s = max(fp32(amax(x) / 448), LEAST)
    inverse = fp32(1 / s)
    return [e4m3(fp32(v * inverse)) for v in x], s


def product_floats(x, row):
    w, s = row
    acc = 0.0
    for a, b in zip(x, w):
        acc = fp32(acc + fp32(a * b))
    return fp32(acc * s)


# ------------------------------------------------- 4. Norms, 5. Rotation

def norm(x, gain, bias, eps):
    """-> y, root; bias None: root mean square, else layer norm."""
    n = len(x)
    if bias is not None:
        mean = fp32(sum16(x) / n)
        x = [fp32(v - mean) for v in x]
    square = fp32(sum16([fp32(v * v) for v in x]) / n)
    root = fp32(math.sqrt(fp32(square + eps)))
    inverse = divided(1.0, root)
    y = [fp32(fp32(v * inverse) * g) for v, g in zip(x, gain)]
    if bias is not None:
        y = [fp32(v + b) for v, b in zip(y, bias)]
    return y, root


def rotated(x, turns):
    """A head's channels in slots; turns: (cs, sn) of each pair."""
    out = list(x)
    for i, (cs, sn) in enumerate(turns):
        c, s = cs * 2.0 ** -14, sn * 2.0 ** -14
        a, b = x[2 * i], x[2 * i + 1]
        out[2 * i] = fp32(fp32(a * c) - fp32(b * s))
        out[2 * i + 1] = fp32(fp32(b * c) + fp32(a * s))
    return out


# ----------------------------------------------------------- 6. Attention

class Head:
    """Keys and values of one head, token after token, as weight operands of
    one group. wide_weights, wide_activations: codecs/model.md 1."""

    def __init__(self, wide_weights, wide_activations):
        self.keys, self.values = [], []
        self.most_key = W12 if wide_weights & 128 else \
            W15 if wide_weights & 32 else W8
        self.most_value = W15 if wide_weights & 64 else W8
        self.most_query = A12 if wide_weights & 128 else \
            A15 if wide_activations & 32 else A8
        self.most_share = A12 if wide_activations & 128 else \
            A15 if wide_activations & 64 else A8

    def add(self, key, value):
        for x, to, most in ((key, self.keys, self.most_key),
                            (value, self.values, self.most_value)):
            # "An element that is not finite is taken as 0."
            v, s = integers([e if math.isfinite(e) else 0.0 for e in x], most)
            to.append((two_planes(v) if most == W15 else (v,), s, None))

    def rewind(self, tokens):
        del self.keys[tokens:], self.values[tokens:]

    def block(self, q, first, end, scale):
        """m, l, o of the tokens first .. end - 1, which are in one block."""
        z = [fp32(product(q, [self.keys[j]]) * scale)
             for j in range(first, end)]
        m = max(z)
        p = exps(fp32s(v - m for v in z))
        total = sum(int(rint(fp32(v * 2.0 ** 20))) for v in p)
        seen = self.values[first:end]
        # Tokens that are not seen are 0 and change nothing.
        P = attended([fp32(v * sv) for v, (_, sv, _) in zip(p, seen)],
                     self.most_share)
        # a row of each channel, with a plane or two of all tokens
        rows = zip(*[zip(*planes) for planes, _, _ in seen])
        o = [product(P, [(tuple(zip(*row)), 1.0, None)]) for row in rows]
        return m, fp32(fp32(total) * 2.0 ** -20), o

    def attend(self, q, i, window, scale):
        """What token i sees; q: its query, rotated; window 0: none."""
        q, so_far = attended(q, self.most_query), None
        from_token = max(0, i - window + 1) if window else 0
        for start in range(from_token // BLOCK * BLOCK, i + 1, BLOCK):
            m, l, o = self.block(q, max(start, from_token),
                                 min(start + BLOCK, i + 1), scale)
            if so_far:
                M, L, O = so_far
                most = max(m, M)
                a, b = exp(fp32(M - most)), exp(fp32(m - most))
                l = fp32(fp32(L * a) + fp32(l * b))
                o = [fp32(fp32(x * a) + fp32(y * b)) for x, y in zip(O, o)]
                m = most
            so_far = m, l, o
        _, L, O = so_far
        return [fp32(x / L) for x in O]
