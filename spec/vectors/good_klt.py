# SPDX-License-Identifier: BSD-3-Clause
"""Valid archives with chunks of codec 14: VECTORS has (name, text, make). What
they decode to comes from their codes."""

from enc_fields import BF16, E4M3, E5M2, F16, F32, Random
from enc_linear import Model, Profile, Walk, bases
from enc_lossy import Had, Klt, f32, lossy_chunk, random_codes, usual_shift
from kvarc_enc import KEY, VALUE, Writer, tensor
from linear_data import lower_rows, random_model
from vector_data import any_bits, frequencies

VECTORS = []
STEP = f32(0.3)


def vector(name, text):
    def add(make):
        VECTORS.append((name, text, make))
        return make
    return add


def numbers(rng, n, size):
    return [rng.between(-size, size) for _ in range(n)]


def basis_model(rng, layer, kind, heads, channels, rotary=0, size=4000,
                lower=(), known=()):
    """Any basis will do: a decoder multiplies. known: models before it."""
    m = Model(9, layer, kind, heads, channels, int(rotary > 0), rotary)
    C = m.width()
    m.step = [rng.between(-9, -6) for _ in range(C)]
    for unit in m.units():
        for c in unit:
            m.step[c] = m.step[unit[0]]
    m.mean = numbers(rng, C, 300)
    m.k = numbers(rng, C, 8)
    m.basis = ([rng.between(112, 118) for _ in range(C)],
               [numbers(rng, channels, size) for _ in range(C)])
    m.lower = list(lower)
    if lower:
        lower_rows(rng, m, {(k.level, k.layer, k.kind): k for k in known})
    return m


class Below:
    """Tensors of a segment as those above them see them."""

    def __init__(self, w):
        self.w, self.walks = w, {}

    def sources(self, m, token):
        return {(d, k): self.walks[m.layer - d, k][token]
                for d, k, _ in m.lower}

    def expected(self, m):
        """p of klt.md 2, of each token."""
        return [bases(m, None, self.sources(m, i))
                for i in range(self.w.current[2])]

    def add(self, number, m, values):
        """values: what a tensor decodes to, whatever its codec."""
        ropes, _, tensors = self.w.geometry_parts
        dtype, C = tensors[number]["dtype"], m.width()
        self.walks[m.layer, m.kind] = [
            Walk(m, ropes[0] if m.rotary else None, dtype, position, None,
                 self.sources(m, i), lambda channel, b, k:
                 values[i * C + channel] >> (16 if dtype == F32 else 0))
            for i, position in enumerate(self.w.current[3])]


def put(w, rng, number, model, n_coded, predictor, step=STEP, below=None,
        **options):
    """below: of the segment, when models have sources."""
    rope = w.geometry_parts[0][0] if model.rotary else None
    tier = Klt(model, rope, below and below.expected(model))
    rates = options.get("rates")
    shift = options.setdefault("shift",
                               usual_shift(step[0] if rates else step))
    codes = random_codes(rng, tier, n_coded, shift)
    if rates:
        codes = [codes[:rates.count(i) * model.width()]
                 for i in range(len(step))]
    lossy_chunk(w, number, tier, codes, step, predictor, **options)
    if below:
        below.add(number, model, w.last_elements)


@vector("klt-bf16", "codec 14, an embedded profile: keys turned back, 6 of 8 "
        "channels (half-split pairs), values; exact tokens; 33 and 2 tokens")
def _():
    rng, freq = Random(720), frequencies(6)
    models = [basis_model(rng, 0, 0, 2, 8, 6), basis_model(rng, 0, 1, 3, 5)]
    p = Profile(models, [freq])
    w = Writer()
    w.geometry([(0, 6, freq)], [(0, 0, "")],
               [tensor(0, KEY, BF16, 2, 8, rope=1),
                tensor(0, VALUE, BF16, 3, 5)])
    predictor = w.predictor(9, p.digest, "basis", p.content, 300)
    w.segment(0, 33, list(range(-3, 9)) + list(range(100, 121)))
    put(w, rng, 0, models[0], 31, predictor, near=(4, -3), generation=2,
        exact={0: any_bits(rng, BF16, 16), 32: [0x7F80] * 16})
    put(w, rng, 1, models[1], 33, predictor)
    w.commit()
    w.segment(0, 2, [121, 4000])
    for i in range(2):
        put(w, rng, i, models[i], 2, predictor, near=(16, 16))
    w.close()
    return w


@vector("klt-extremes", "codec 14 and a profile beside: q of 0, 1 and 255, "
        "rows of 0 and of 65536, steps of -100 and 100, classes far apart, "
        "interleaved pairs at any position, f32 and f16; a latent")
def _():
    rng, freq = Random(721), [2 ** 64 - 1, 12345678901234567]
    models = [basis_model(rng, 0, 0, 1, 6, 4, 30000),
              basis_model(rng, 0, 1, 2, 4), basis_model(rng, 0, 3, 1, 3)]
    m = models[0]
    m.basis = ([0, 1, 255, 128, 2, 254],
               [[-32768, 32767, 1, 0, 0, 0], [0] * 6, [1] * 6,
                [32767, -32768, 0, 0, 0, 1]] + m.basis[1][4:5] + [[2] * 6])
    m.basis[1][4] = [v // 4 for v in m.basis[1][4]]
    m.step = [-100, -100, 100, 100, 100, -100]
    m.mean = [32767, -32767, 32767, 1, -32767, 0]
    models[1].k = [-400, 400] * 4
    p = Profile(models, [freq], pairs=[("model", "extreme")])
    w = Writer()
    w.geometry([(1, 4, freq)], [(0, 0, "")],
               [tensor(0, KEY, F32, 1, 6, rope=1),
                tensor(0, VALUE, F16, 2, 4), tensor(0, 3, F32, 1, 3)])
    predictor = w.predictor(9, p.digest)
    w.segment(0, 12, list(range(9)) + [2 ** 31 - 1, -2 ** 31, 77])
    for i, step in enumerate((1.0, STEP, 2.0 ** -126)):
        put(w, rng, i, models[i], 12, predictor, step,
            shift=-9 if i < 2 else 32767, near=(-16, 16))
    w.close()
    return w, p.file()


@vector("klt-infinite", "codec 14: q and a step so large that a row of 0 gives "
        "what is no number, others infinities; turned by RoPE infinities less "
        "infinities; of five dtypes")
def _():
    rng, freq = Random(724), frequencies(4)
    models, tensors = [], []
    for layer, dtype in enumerate((F32, F16, BF16, E4M3, E5M2)):
        for kind in (0, 1):
            m = basis_model(rng, layer, kind, 1, 4, 4 * (1 - kind))
            m.basis[0][:] = [255, 255, 118, 255]
            m.basis[1][1] = [0] * 4
            models.append(m)
            tensors.append(tensor(layer, kind, dtype, 1, 4, rope=1 - kind))
    p = Profile(models, [freq])
    w = Writer()
    w.geometry([(0, 4, freq)], [(0, 0, "")], tensors)
    predictor = w.predictor(9, p.digest, "basis", p.content)
    w.segment(0, 9, [0, *range(1000, 1008)])
    for i, m in enumerate(models):
        put(w, rng, i, m, 9, predictor, 128.0)
    w.close()
    return w


@vector("klt-others", "codec 14 among others: a raw tensor and one of codec "
        "13, repeats of a chunk of codec 14; the profile has a model of "
        "level 3, too")
def _():
    rng = Random(722)
    models = [random_model(rng, 3, 0, 0, 1, 4), basis_model(rng, 0, 0, 1, 4),
              basis_model(rng, 0, 1, 1, 4), basis_model(rng, 1, 0, 1, 4)]
    p = Profile(models)
    w = Writer()
    w.geometry([], [(0, 0, "")], [
        tensor(i // 2, i % 2, E4M3, 1, 4) for i in range(4)])
    predictor = w.predictor(9, p.digest, "both", p.content)
    had = Had([0x3F00] * 4, [0] * 4)
    sequence = w.params(3, had)
    for segment in range(3):
        w.segment(0, 20)
        if segment < 2:
            w.chunk(0, any_bits(rng, E4M3, 80))
            put(w, rng, 1, models[2], 20, predictor)
            of = (w.sequence - 1, w.frames[-1][1])
            values = w.last_elements
            if segment:
                w.chunk(2, values, 3, of=of)
            else:
                put(w, rng, 2, models[3], 20, predictor)
        else:
            for number in range(3):
                w.chunk(number, values, 3, of=of)
        lossy_chunk(w, 3, had, random_codes(rng, had, 20, -12), 0.5, sequence,
                    -12)
        w.commit()
    w.close()
    return w


def models_below(rng):
    """Two layers of keys 2 x 5, 4 channels of which turn, and values 4 x 3."""
    out = []
    for layer, kind, lower in (
            (0, 0, []), (0, 1, [(0, 0, 1)]), (1, 0, [(1, 0, 0), (1, 1, 0)]),
            (1, 1, [(0, 0, 1), (1, 1, 1), (1, 0, 0)])):
        out.append(basis_model(rng, layer, kind, *((4, 3) if kind else
                                                   (2, 5, 4)),
                               lower=lower, known=out))
    m = out[2]
    m.a[4] = [-32768, 32767] + [0] * 19 + [1]
    m.qa[4], m.qa[9] = 0, 16
    return out


@vector("klt-below", "codec 14 and tensors before it: keys from keys and "
        "values of the layer below, values from keys of their own, too; all "
        "heads of a source or one; exact tokens, rate classes; sources that "
        "are raw or of codec 13")
def _():
    rng, freq = Random(723), frequencies(4)
    models = models_below(rng)
    p = Profile(models, [freq])
    w = Writer()
    w.geometry([(0, 4, freq)], [(0, 0, "")], [
        tensor(0, KEY, BF16, 2, 5, rope=1), tensor(0, VALUE, F32, 4, 3),
        tensor(1, KEY, F16, 2, 5, rope=1), tensor(1, VALUE, BF16, 4, 3)])
    predictor = w.predictor(9, p.digest, "basis", p.content)
    w.segment(0, 33, list(range(-3, 9)) + list(range(100, 121)))
    below = Below(w)
    put(w, rng, 0, models[0], 32, predictor, below=below,
        exact={0: any_bits(rng, BF16, 10)})
    put(w, rng, 1, models[1], 33, predictor, (STEP, f32(0.07)), below,
        rates=[i % 3 // 2 for i in range(33)])
    put(w, rng, 2, models[2], 30, predictor, (STEP, 0.5), below,
        rates=[i % 7 // 6 for i in range(30)], near=(3, -2),
        exact={i: any_bits(rng, F16, 10) for i in (1, 8, 32)})
    put(w, rng, 3, models[3], 33, predictor, below=below)
    w.commit()
    w.segment(0, 2, [121, 4000])
    below = Below(w)
    raw = any_bits(rng, BF16, 20)
    w.chunk(0, raw)
    below.add(0, models[0], raw)
    for i in range(1, 4):
        put(w, rng, i, models[i], 2, predictor, below=below)
    w.commit()
    had = Had([0x3F00] * 12, [0] * 12)
    sequence = w.params(1, had)
    w.segment(0, 5)
    below = Below(w)
    put(w, rng, 0, models[0], 5, predictor, below=below)
    lossy_chunk(w, 1, had, random_codes(rng, had, 5, -12), 0.5, sequence, -12)
    below.add(1, models[1], w.last_elements)
    for i in (2, 3):
        put(w, rng, i, models[i], 5, predictor, below=below)
    w.close()
    return w
