/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * transform_body.h - the functions of transform.h, included once for each instruction set
 *
 * The set decides how many numbers a vector has: compilers split wider vectors through memory.
 */
#include "codecs/had/numbers_body.h"
#include "profile/profile_io.h"

static void turns(const int16_t *from, float *cosines, float *sines)
{
	for (size_t i = 0; i < KVI_LANES; i += WIDE) {
		ints both;
		memcpy(&both, from + 2 * i, sizeof both);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
		ints a = both >> 16, b = (ints)((bits)both << 16) >> 16;
#else
		ints b = both >> 16, a = (ints)((bits)both << 16) >> 16;
#endif
		store(cosines + i, __builtin_convertvector(a, floats) * 0x1p-14f);
		store(sines + i, __builtin_convertvector(b, floats) * 0x1p-14f);
	}
}

static void turn(float *x, const struct kvi_turned *turned, bool back)
{
	const size_t step = turned->half ? turned->pairs * KVI_LANES : KVI_LANES;
	for (size_t p = 0; p < turned->pairs; p++) {
		float *a = x + (turned->half ? p : 2 * p) * KVI_LANES, *b = a + step;
		const float *c = turned->cos + p * KVI_LANES;
		const float *s = turned->sin + p * KVI_LANES;
		for (size_t i = 0; i < KVI_LANES; i += WIDE) {
			floats va = load(a + i), vb = load(b + i);
			floats vc = load(c + i), vs = load(s + i);
			vs = back ? vs : -vs;
			store(a + i, va * vc + vb * vs);
			store(b + i, vb * vc - va * vs);
		}
	}
}

static inline bool flipped(size_t channel)
{
	return 0x9E3779B97F4A7C15u >> (channel & 63) & 1;
}

/* log2 of the largest power of two that is not above n. */
static inline unsigned log_of(size_t n)
{
	unsigned m = 0;
	while ((size_t)2 << m <= n)
		m++;
	return m;
}

static inline float gain_of(unsigned m)
{
	return m & 1 ? 0x1.6a09e6p-1f * power(-(int)(m / 2)) : power(-(int)(m / 2));
}

/* The butterflies over w and 2 w at once: half the memory accesses. */
#define MIX(name, number, vector, get, put)                                              \
	static void name(number *x, size_t n)                                            \
	{                                                                                \
		size_t w = KVI_LANES;                                                    \
		for (n *= KVI_LANES; 4 * w <= n; w *= 4)                                 \
			for (size_t first = 0; first < n; first += 4 * w)                \
				for (size_t i = first; i < first + w; i += WIDE) {       \
					number *at = x + i;                              \
					vector a = get(at), b = get(at + w);             \
					vector c = get(at + 2 * w), d = get(at + 3 * w); \
					vector ab = a + b, cd = c + d;                   \
					a = a - b;                                       \
					c = c - d;                                       \
					put(at, ab + cd);                                \
					put(at + w, a + c);                              \
					put(at + 2 * w, ab - cd);                        \
					put(at + 3 * w, a - c);                          \
				}                                                        \
		for (size_t i = 0; w < n && i < w; i += WIDE) {                          \
			vector a = get(x + i), b = get(x + w + i);                       \
			put(x + i, a + b);                                               \
			put(x + w + i, a - b);                                           \
		}                                                                        \
	}
MIX(mix, float, floats, load, store)
MIX(mix_ints, int32_t, ints, load_ints, store_ints)
#undef MIX

static void forward(float *x, const float *mean, size_t channels, bool hadamard)
{
	for (size_t c = 0; c < channels; c++)
		for (size_t i = 0; i < KVI_LANES; i += WIDE) {
			float *at = x + c * KVI_LANES + i;
			floats v = load(at) - mean[c];
			store(at, hadamard && flipped(c) ? -v : v);
		}
	for (size_t c = 0; hadamard && c < channels;) {
		unsigned m = log_of(channels - c);
		float *block = x + c * KVI_LANES, gain = gain_of(m);
		size_t n = (size_t)1 << m;
		mix(block, n);
		for (size_t i = 0; i < n * KVI_LANES; i += WIDE)
			store(block + i, load(block + i) * gain);
		c += n;
	}
}

static void to_channels(const int32_t *z, size_t first, size_t n, float gain, bool flips,
                        const float *mean, float *x)
{
	for (size_t c = first; c < first + n; c++)
		for (size_t i = 0; i < KVI_LANES; i += WIDE) {
			size_t at = c * KVI_LANES + i;
			ints whole = load_ints(z + at);
			/* negated before the conversion, so that no -0 arises */
			if (flips && flipped(c))
				whole = -whole;
			floats v = __builtin_convertvector(whole, floats);
			store(x + at, v * gain + mean[c]);
		}
}

static void back(const int8_t *codes, struct kvi_points points, float step, const float *mean,
                 size_t channels, bool hadamard, int32_t *buffer, float *x)
{
	points_of(codes, points, channels, buffer);
	if (!hadamard) {
		to_channels(buffer, 0, channels, step * power(-5), false, mean, x);
		return;
	}
	for (size_t c = 0; c < channels;) {
		unsigned m = log_of(channels - c);
		size_t n = (size_t)1 << m;
		mix_ints(buffer + c * KVI_LANES, n);
		to_channels(buffer, c, n, step * (gain_of(m) * power(-5)), true, mean, x);
		c += n;
	}
}

/* Two numbers of 16 bits, the first one first in memory. */
static inline ints two(ints first, ints second)
{
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
	return (ints)((bits)first << 16 | ((bits)second & 0xffff));
#else
	return (ints)((bits)second << 16 | ((bits)first & 0xffff));
#endif
}

static void pairs(const int8_t *codes, struct kvi_points points, size_t rows, int16_t *to)
{
	for (size_t r = 0; r < rows; r += 2, codes += 2 * KVI_LANES, to += 2 * KVI_LANES)
		for (size_t i = 0; i < KVI_LANES; i += 2 * WIDE) {
			codes16 a = point16(codes + i, points), b = { 0 };
			if (r + 1 < rows)
				b = point16(codes + KVI_LANES + i, points);
			half16 x[2], y[2];
			memcpy(x, &a, sizeof a);
			memcpy(y, &b, sizeof b);
			for (size_t k = 0; k < 2; k++) {
				ints v = two(__builtin_convertvector(x[k], ints),
				             __builtin_convertvector(y[k], ints));
				memcpy(to + 2 * (i + k * WIDE), &v, sizeof v);
			}
		}
}

static inline ints nearest_of(const float *x, floats factor)
{
	bits b = (bits)(load(x) * factor);
	floats half = (floats)((b & 0x80000000u) | 0x3f000000u);
	return __builtin_convertvector((floats)b + half, ints);
}

static void lanes_to_pairs(const float *x, size_t rows, int16_t *to, float *unit)
{
	for (size_t i = 0; i < KVI_LANES; i += WIDE) {
		bits most = { 0 };
		for (size_t r = 0; r < rows; r++) {
			bits b = (bits)load(x + r * KVI_LANES + i) & 0x7fffffffu;
			most = choose((bits)(b > most), b, most);
		}
		/* Lanes that are 0, too small or not a number become zeros. */
		bits sound = (bits)(most > 0x08000000u) & (bits)(most < 0x77000000u);
		floats size = (floats)choose(sound, most, (bits)((floats){ 0 } + 1));
		floats factor = (floats)((bits)(32767.0f / size) & sound);
		store(unit + i, size * (1.0f / 32767.0f));
		for (size_t r = 0; r < rows; r += 2) {
			const float *at = x + r * KVI_LANES + i;
			ints a = nearest_of(at, factor), b = { 0 };
			if (r + 1 < rows)
				b = nearest_of(at + KVI_LANES, factor);
			ints v = two(a, b);
			memcpy(to + r * KVI_LANES + 2 * i, &v, sizeof v);
		}
	}
}

static void scale_lanes(const int32_t *z, size_t rows, const float *gain, const float *unit,
                        float *to)
{
	for (size_t r = 0; r < rows; r++)
		for (size_t i = 0; i < KVI_LANES; i += WIDE) {
			size_t at = r * KVI_LANES + i;
			floats v = __builtin_convertvector(load_ints(z + at), floats);
			store(to + at, v * gain[r] * load(unit + i));
		}
}

static void scale(const int32_t *z, size_t rows, const float *gain, const float *mean, float *x)
{
	for (size_t c = 0; c < rows; c++)
		for (size_t i = 0; i < KVI_LANES; i += WIDE) {
			size_t at = c * KVI_LANES + i;
			floats v = __builtin_convertvector(load_ints(z + at), floats);
			store(x + at, v * gain[c] + mean[c]);
		}
}

static void expect(const int32_t *sums, size_t rows, const int32_t *mean, const uint8_t *shift,
                   int16_t *to)
{
	const ints most = (ints){ 0 } + KVI_UNIT_MAX;
	for (size_t r = 0; r < rows; r++)
		for (size_t i = 0; i < KVI_LANES; i += WIDE) {
			size_t at = r * KVI_LANES + i;
			ints p = (load_ints(sums + at) >> shift[r]) + mean[r];
			p = (ints)choose((bits)(p > most), (bits)most, (bits)p);
			p = (ints)choose((bits)(p < -most), (bits)-most, (bits)p);
			half16 half = __builtin_convertvector(p, half16);
			memcpy(to + at, &half, sizeof half);
		}
}

/* Loads n numbers, at most WIDE. */
static inline floats load_shorts(const int16_t *x, size_t n)
{
	half16 v = { 0 };
	if (n >= WIDE)
		memcpy(&v, x, sizeof v);
	else
		memcpy(&v, x, n * sizeof *x);
	return __builtin_convertvector(v, floats);
}

static void add_expected(const int16_t *expected, size_t rows, const float *unit, bool minus,
                         float *x)
{
	for (size_t r = 0; r < rows; r++) {
		const float v = minus ? -unit[r] : unit[r];
		for (size_t i = 0; i < KVI_LANES; i += WIDE) {
			size_t at = r * KVI_LANES + i;
			store(x + at, load(x + at) + load_shorts(expected + at, WIDE) * v);
		}
	}
}

/* The rows of M are orthogonal: each times its gain, over its squares. */
static bool over_squares(const int16_t *turned, size_t n, float *gain)
{
	bool good = true;
	for (size_t c = 0; c < n; c += WIDE) {
		floats sum = { 0 };
		for (size_t j = 0; j < n; j++) {
			floats v = load_shorts(turned + j * n + c, n - c);
			sum = sum + v * v;
		}
		for (size_t i = 0; i < WIDE && c + i < n; i++) {
			float v = gain[c + i] / sum[i];
			good = good && sum[i] > 0 && v > 0 && v < 0x1p100f;
			gain[c + i] = v;
		}
	}
	return good;
}

/* A column of M, each number with its gain, to nearest. */
static void analysis_row(const int16_t *column, size_t n, const float *gain, float scale,
                         int16_t *to)
{
	for (size_t c = 0; c < n; c += WIDE) {
		floats v = load_shorts(column + c, n - c) * load(gain + c) * scale;
		floats half = (floats)(((bits)v & 0x80000000u) | 0x3f000000u);
		half16 q = __builtin_convertvector(__builtin_convertvector(v + half, ints), half16);
		if (n - c >= WIDE)
			memcpy(to + c, &q, sizeof q);
		else
			memcpy(to + c, &q, (n - c) * sizeof *to);
	}
}

/* The largest scale with which a row's numbers and their sum are in range; rounding adds half a
 * unit for each of n at most. */
static inline float scale_for(float sum, float most, size_t n)
{
	float scale = ((float)KVI_COEF_SUM_MAX - (float)n) / sum;
	return most * scale > INT16_MAX ? INT16_MAX / most : scale;
}

static bool invert(const int16_t *m, const int16_t *turned, size_t n, size_t stride, float *gain,
                   int16_t *to, float *unit)
{
	bool good = over_squares(turned, n, gain);
	memset(to, 0, n * stride * sizeof *to);
	for (size_t first = 0; first < n && good; first += WIDE) {
		floats sum = { 0 }, most = { 0 };
		for (size_t c = 0; c < n; c++) {
			floats v = load_shorts(m + c * stride + first, n - first) * gain[c];
			v = (floats)((bits)v & 0x7fffffffu);
			sum = sum + v;
			most = (floats)choose((bits)(v > most), (bits)v, (bits)most);
		}
		for (size_t i = 0, j = first; i < WIDE && j < n && good; i++, j++) {
			float scale = scale_for(sum[i], most[i], n);
			good = sum[i] > 0 && scale > 0x1p-100f && scale < 0x1p100f;
			if (good)
				analysis_row(turned + j * n, n, gain, scale, to + j * stride);
			unit[j] = 1 / scale;
		}
	}
	return good;
}

static void add(const float *x, size_t rows, size_t n, bool squares, float *sums)
{
	for (size_t r = 0; r < rows; r++, x += KVI_LANES, sums += KVI_LANES) {
		for (size_t i = 0; n == KVI_LANES && i < n; i += WIDE) {
			floats v = load(x + i);
			store(sums + i, load(sums + i) + (squares ? v * v : v));
		}
		for (size_t i = 0; n < KVI_LANES && i < n; i++)
			sums[i] = sums[i] + (squares ? x[i] * x[i] : x[i]);
	}
}

static void add_squares(const float *x, size_t rows, float *sums)
{
	for (size_t i = 0; i < KVI_LANES; i += WIDE) {
		floats sum = load(sums + i);
		for (size_t r = 0; r < rows; r++) {
			floats v = load(x + r * KVI_LANES + i);
			sum = sum + v * v;
		}
		store(sums + i, sum);
	}
}

#define KVI_TRANSFORM(id, name)                                                                  \
	const struct kvi_transform id = { name,        widen,      narrow,       turns,          \
		                          turn,        forward,    back,         pairs,          \
		                          scale,       expect,     add_expected, lanes_to_pairs, \
		                          scale_lanes, invert,     add,          add_squares,    \
		                          quantise,    to_symbols, to_codes }
