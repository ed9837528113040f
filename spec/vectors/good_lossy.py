# SPDX-License-Identifier: BSD-3-Clause
"""Valid archives with lossy chunks: VECTORS has (name, text, make). What they
decode to comes from their codes."""

from enc_fields import BF16, E4M3, E5M2, F16, F32, U8, Random
from enc_lossy import (
    Had, f32, lossy_chunk, narrowed, random_codes, usual_shift)
from kvarc_enc import KEY, VALUE, Writer, tensor
from vector_data import any_bits, frequencies, one_tensor

VECTORS = []
STEP = f32(0.11)


def vector(name, text):
    def add(make):
        VECTORS.append((name, text, make))
        return make
    return add


def means(rng, columns):
    return [narrowed(rng.gauss() * 4, BF16) for _ in range(columns)]


def classes(rng, columns, step=STEP):
    """k of coefficients about as large as the step, or not."""
    shift = usual_shift(step)
    return [max(-128, min(127, shift + rng.between(4, 24)))
            for _ in range(columns)]


def random_had(rng, columns, **options):
    return Had(means(rng, columns), classes(rng, columns), **options)


def put_had(w, rng, number, tier, n_coded, step=STEP, first=0, heads=None,
            sequence=None, **options):
    if sequence is None:
        sequence = w.params(number, tier, first, heads)
    shift = options.setdefault("shift", usual_shift(step))
    codes = random_codes(rng, tier, n_coded, shift)
    lossy_chunk(w, number, tier, codes, step, sequence, first=first,
                heads=heads, **options)
    return sequence


@vector("had-bf16", "codec 13, keys turned back (half-split "
        "pairs), 33 tokens of which 3 are exact: infinities and NaN")
def _():
    rng = Random(700)
    w = one_tensor(BF16, 2, 8, (0, 8, frequencies(8)))
    w.segment(0, 33, list(range(-3, 9)) + list(range(100, 121)))
    exact = {0: any_bits(rng, BF16, 16), 1: [0x7F80, 0xFF80] * 8,
             20: [0x7FC1] + [0x3F80] * 15}
    put_had(w, rng, 0, random_had(rng, 16, turned=True), 30, near=(3, -2),
            exact=exact)
    w.close()
    return w


@vector("had-f16", "codec 13, 6 of 11 channels turned back "
        "(interleaved pairs): blocks of 8, 2 and 1; exact tokens by Zstandard")
def _():
    rng = Random(701)
    w = one_tensor(F16, 1, 11, (1, 6, frequencies(6)))
    w.segment(0, 20, list(range(17)) + [2 ** 31 - 1, -2 ** 31, 123456])
    put_had(w, rng, 0, random_had(rng, 11, turned=True), 18, near=(16, -16),
            method=1, exact={4: [0x3C00] * 11, 19: [0x3C00] * 11})
    w.close()
    return w


@vector("had-f32", "codec 13 without the Hadamard transform, of f32; "
        "generation 255")
def _():
    rng = Random(702)
    w = one_tensor(F32, 3, 5)
    w.segment(0, 40)
    put_had(w, rng, 0, random_had(rng, 15, hadamard=False), 40,
            generation=255, near=(-16, 16))
    w.close()
    return w


@vector("had-fp8", "codec 13 of e4m3 and e5m2, a step so large that elements "
        "are the largest finite numbers; and one so small that they are "
        "subnormal")
def _():
    rng = Random(703)
    w = Writer()
    w.geometry([], [(0, 0, "")], [
        tensor(i // 2, i % 2, (E4M3, E5M2)[i // 2], 1, 6) for i in range(4)])
    w.segment(0, 34)
    for i, step in enumerate((150.0, 2.0 ** -9, 20000.0, 2.0 ** -16)):
        tier = Had([0] * 6, classes(rng, 6, step), hadamard=i % 2 == 0)
        put_had(w, rng, i, tier, 34, step, near=(i, -i))
    w.close()
    return w


@vector("had-keys", "codec 13 of keys that are not turned back, with a rope; "
        "of values; a value tensor that is raw between")
def _():
    rng = Random(704)
    w = Writer()
    w.geometry([(0, 4, frequencies(4))], [(0, 0, "")],
               [tensor(0, KEY, BF16, 1, 4, rope=1),
                tensor(0, VALUE, U8, 1, 2), tensor(0, VALUE, F16, 1, 64)])
    w.segment(0, 9)
    put_had(w, rng, 0, random_had(rng, 4), 9)
    w.chunk(1, any_bits(rng, U8, 18))
    put_had(w, rng, 2, random_had(rng, 64), 7,
            exact={0: any_bits(rng, F16, 64), 8: any_bits(rng, F16, 64)})
    w.close()
    return w


@vector("had-groups", "codec 13: head groups of 1 and 2 of 3 heads, PARAMS of "
        "an earlier segment, segments of 1 and 3 tokens, a repeat")
def _():
    rng = Random(705)
    w = one_tensor(BF16, 3, 4)
    tiers = [random_had(rng, 4), random_had(rng, 8)]
    sequences = [None, None]
    of = None
    for n in (32, 1, 3):
        w.segment(0, n)
        for i, (first, heads) in enumerate(((0, 1), (1, 2))):
            sequences[i] = put_had(w, rng, 0, tiers[i], n, first=first,
                                   heads=heads, sequence=sequences[i],
                                   generation=1 + n % 4)
        of = of or (w.sequence - 1, w.frames[-1][1], w.last_elements)
        w.commit()
    w.segment(0, 32)
    w.chunk(0, any_bits(rng, BF16, 128), first=0, heads=1)
    sequence, offset, raw = of
    w.chunk(0, raw, 3, first=1, heads=2, of=(sequence, offset))
    w.close()
    return w


@vector("had-extremes", "codec 13: steps of 2^-126 and just below 2^100, "
        "shifts of -32768 and 32767, k of -128 and 127, codes of -128 and "
        "127, the largest means, turned by any frequency: what is too large "
        "for f32")
def _():
    rng = Random(706)
    w = Writer()
    w.geometry([(1, 8, [2 ** 64 - 1, 2 ** 63, 2 ** 61 + 12345, 1])],
               [(0, 0, "")], [tensor(i, KEY, d, 1, 32, rope=1)
                              for i, d in enumerate((F32, F32, BF16, F16))])
    w.segment(0, 8, list(range(-4, 4)))
    for i, (step, shift) in enumerate((
            (2.0 ** -126, -32768), (f32(2.0 ** 100 - 2.0 ** 76), 32767),
            (f32(2.0 ** 100 - 2.0 ** 76), 0), (1.0, -300))):
        mean = [rng.pick([0x7F7F, 0xFF7F, 0x8000, 1, 0x0080])
                for _ in range(32)]
        tier = Had(mean, [rng.pick([-128, 127, 0]) for _ in range(32)],
                   turned=True, hadamard=i != 3)
        codes = [rng.pick([-128, 127, 0, 1, -1]) for _ in range(256)]
        codes[:32] = [127] * 32
        lossy_chunk(w, i, tier, codes, step, w.params(i, tier), shift,
                    near=(16, 16) if i % 2 else (-16, -16))
    w.close()
    return w
