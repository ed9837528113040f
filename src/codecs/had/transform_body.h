/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * transform_body.h - the text of transform.h, included once for each instruction set
 *
 * As many numbers at once as the set has room for: wider vectors are cut up through memory.
 */
#include <float.h>
#include <string.h>

#include "codecs/had/transform.h"
#include "numeric/formats.h"
#include "profile/profile_tensors.h"

#if defined(__FAST_MATH__)
#error "fast-math changes results: build without it"
#endif
_Static_assert(FLT_EVAL_METHOD == 0, "fp32 must not be computed in more precision");

#if defined(__AVX512F__)
enum { WIDE = 16 };
#elif defined(__AVX2__)
enum { WIDE = 8 };
#else
enum { WIDE = 4 };
#endif
typedef float floats __attribute__((vector_size(4 * WIDE)));
typedef int32_t ints __attribute__((vector_size(4 * WIDE)));
typedef uint32_t bits __attribute__((vector_size(4 * WIDE)));
typedef uint16_t shorts __attribute__((vector_size(2 * WIDE)));

static inline floats load(const float *x)
{
	floats v;
	memcpy(&v, x, sizeof v);
	return v;
}

static inline void store(float *x, floats v)
{
	memcpy(x, &v, sizeof v);
}

static inline bits choose(bits mask, bits yes, bits no)
{
	return (mask & yes) | (~mask & no);
}

/* 2^e, -126..127 */
static inline float power(int e)
{
	uint32_t b = (uint32_t)(127 + e) << 23;
	float f;
	memcpy(&f, &b, sizeof f);
	return f;
}

/* What widening and narrowing need of a format. */
struct narrow {
	int mant, emin;
	uint32_t largest;
	unsigned sign; /* bit */
};

static struct narrow narrow_of(unsigned dtype)
{
	const struct kvi_float_format *f = kvi_float_format(dtype);
	uint32_t top = (1u << (f->exp_bits + f->mant_bits)) - 1;
	return (struct narrow){ (int)f->mant_bits, f->grid.emin,
		                /* e4m3 has no infinity */
		                dtype == KVARC_E4M3 ? top - 1 : top - (1u << f->mant_bits),
		                f->exp_bits + f->mant_bits };
}

static void widen(unsigned dtype, const uint16_t *from, size_t rows, float *to)
{
	const struct narrow f = narrow_of(dtype);
	const bits size = (bits){ 0 } + ((1u << f.sign) - 1);
	/* The fields moved to where fp32 has them, too small by a power of two. */
	const float factor = power(f.emin + 126);
	for (size_t i = 0; i < rows * KVI_LANES; i += WIDE) {
		shorts s;
		memcpy(&s, from + i, sizeof s);
		bits x = __builtin_convertvector(s, bits);
		bits sign = (x >> f.sign) << 31;
		floats v = (floats)((x & size) << (unsigned)(23 - f.mant));
		store(to + i, (floats)((bits)(v * factor) | sign));
	}
}

/* The pattern of sizes. */
static inline bits narrow_size(bits size, const struct narrow *f)
{
	const unsigned lost = 23u - (unsigned)f->mant;
	bits code = (size + ((1u << (lost - 1)) - 1) + (size >> lost & 1)) >> lost;
	if (f->emin == -126)
		return code; /* subnormals are those of fp32 */
	code -= (uint32_t)(126 + f->emin) << f->mant;
	/* Below the smallest normal number: units of the smallest of all. */
	floats units = (floats)size * power(f->mant - f->emin) + 12582912.0f;
	bits least = (bits){ 0 } + ((uint32_t)(127 + f->emin) << 23);
	return choose((bits)(size < least), (bits)units - 0x4b400000u, code);
}

static void narrow(unsigned dtype, const float *from, size_t rows, uint16_t *to)
{
	const struct narrow f = narrow_of(dtype);
	const bits largest = (bits){ 0 } + f.largest;
	for (size_t i = 0; i < rows * KVI_LANES; i += WIDE) {
		bits b = (bits)load(from + i), size = b & 0x7fffffffu;
		bits number = (bits)(size <= 0x7f800000u);
		bits code = narrow_size(size, &f);
		code = choose((bits)(code < largest), code, largest);
		code = number & (code | b >> 31 << f.sign);
		shorts s = __builtin_convertvector(code, shorts);
		memcpy(to + i, &s, sizeof s);
	}
}

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

static void turn(float *x, const struct kvi_turned *t, bool back)
{
	const size_t step = t->half ? t->pairs * KVI_LANES : KVI_LANES;
	for (size_t p = 0; p < t->pairs; p++) {
		float *a = x + (t->half ? p : 2 * p) * KVI_LANES, *b = a + step;
		const float *c = t->cos + p * KVI_LANES;
		const float *s = t->sin + p * KVI_LANES;
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

/* The largest power of two that is not above n. */
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

static inline ints load_ints(const int32_t *x)
{
	ints v;
	memcpy(&v, x, sizeof v);
	return v;
}

static inline void store_ints(int32_t *x, ints v)
{
	memcpy(x, &v, sizeof v);
}

/* A step of a butterfly over w and one over 2 w, in one go: half the way through memory. */
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

/* Twice as many numbers of 16 bits. */
typedef int8_t codes8 __attribute__((vector_size(2 * WIDE)));
typedef uint8_t sizes8 __attribute__((vector_size(2 * WIDE)));
typedef int16_t codes16 __attribute__((vector_size(4 * WIDE)));
typedef int16_t half16 __attribute__((vector_size(2 * WIDE)));

/* spec lossy 4 */
static inline codes16 point16(const int8_t *codes, struct kvi_points p)
{
	codes8 c;
	memcpy(&c, codes, sizeof c);
	codes16 q = __builtin_convertvector(c, codes16);
	codes16 sign = q >> 15, size = (q ^ sign) - sign;
	codes16 near = ((size == 1) & (int16_t)p.near1) + ((size > 1) & (int16_t)p.near2);
	size = size * KVI_POINT_UNITS - near;
	return (size ^ sign) - sign;
}

static void points_of(const int8_t *codes, struct kvi_points p, size_t rows, int32_t *to)
{
	for (size_t i = 0; i < rows * KVI_LANES; i += 2 * WIDE) {
		codes16 v = point16(codes + i, p);
		half16 half[2];
		memcpy(half, &v, sizeof v);
		store_ints(to + i, __builtin_convertvector(half[0], ints));
		store_ints(to + i + WIDE, __builtin_convertvector(half[1], ints));
	}
}

static void to_channels(const int32_t *z, size_t first, size_t n, float gain, bool flips,
                        const float *mean, float *x)
{
	for (size_t c = first; c < first + n; c++)
		for (size_t i = 0; i < KVI_LANES; i += WIDE) {
			size_t at = c * KVI_LANES + i;
			ints whole = load_ints(z + at);
			/* before it is a float: there is no -0 */
			if (flips && flipped(c))
				whole = -whole;
			floats v = __builtin_convertvector(whole, floats);
			store(x + at, v * gain + mean[c]);
		}
}

static void back(const int8_t *codes, struct kvi_points points, float step, const float *mean,
                 size_t channels, bool hadamard, int32_t *room, float *x)
{
	points_of(codes, points, channels, room);
	if (!hadamard) {
		to_channels(room, 0, channels, step * power(-5), false, mean, x);
		return;
	}
	for (size_t c = 0; c < channels;) {
		unsigned m = log_of(channels - c);
		size_t n = (size_t)1 << m;
		mix_ints(room + c * KVI_LANES, n);
		to_channels(room, c, n, step * (gain_of(m) * power(-5)), true, mean, x);
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
		/* What is 0, too small or no number becomes zeros. */
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

/* At most WIDE numbers. */
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

/* Codes before their range is looked at. */
static inline ints code_of(const float *x, float inverse, float offset)
{
	const bits far = (bits)((floats){ 0 } + 1000.0f);
	bits b = (bits)load(x);
	floats size = (floats)(b & 0x7fffffffu) * inverse + offset;
	size = (floats)choose((bits)(size < 1000.0f), (bits)size, far);
	return __builtin_convertvector(size, ints);
}

static uint32_t quantise(const float *x, size_t rows, float inverse, float offset, int8_t *codes)
{
	/* Some rows before they are read again: two stores are not forwarded to one load. */
	enum { PARTS = KVI_LANES / WIDE, ROOM = 8 * KVI_LANES };
	ints out[PARTS] = { { 0 } };
	int16_t room[ROOM];
	uint32_t refused = 0;
	for (size_t left = rows * KVI_LANES, n; left; left -= n, x += n, codes += n) {
		n = left < ROOM ? left : ROOM;
		for (size_t i = 0; i < n; i += WIDE) {
			ints q = code_of(x + i, inverse, offset);
			ints sign = (ints)(bits)load(x + i) >> 31;
			half16 half = __builtin_convertvector((q ^ sign) - sign, half16);
			out[i / WIDE % PARTS] |= q;
			memcpy(room + i, &half, sizeof half);
		}
		for (size_t i = 0; i < n; i += 2 * WIDE) {
			codes16 v;
			memcpy(&v, room + i, sizeof v);
			codes8 c = __builtin_convertvector(v, codes8);
			memcpy(codes + i, &c, sizeof c);
		}
	}
	/* None is negative: one is too large where a bit above is set in some. */
	for (unsigned l = 0; l < KVI_LANES; l++)
		refused |= (uint32_t)(out[l / WIDE][l % WIDE] > KVI_CODE_MAX) << l;
	return refused;
}

/* spec lossy 4 */
static void to_symbols(const int8_t *codes, unsigned count, uint16_t *sym, uint8_t *esc)
{
	for (size_t i = 0; i < KVI_LANES; i += 2 * WIDE) {
		codes8 code;
		memcpy(&code, codes + i, sizeof code);
		sizes8 q = (sizes8)code, sign = (sizes8)(code < 0);
		sizes8 z = (q + q) ^ sign, size = (q ^ sign) - sign;
		memcpy(esc + i, &z, sizeof z);
		codes16 in = __builtin_convertvector(size, codes16) < (int16_t)count;
		codes16 v = __builtin_convertvector(z, codes16);
		v = (in & v) | (~in & KVI_CODE_ESCAPE);
		memcpy(sym + i, &v, sizeof v);
	}
}

static void to_codes(const uint16_t *sym, const uint8_t *esc, size_t n, int8_t *codes)
{
	size_t i = 0;
	for (; i + 2 * WIDE <= n; i += 2 * WIDE) {
		codes16 s;
		sizes8 e;
		memcpy(&s, sym + i, sizeof s);
		memcpy(&e, esc + i, sizeof e);
		codes16 known = s != KVI_CODE_ESCAPE;
		s = (known & s) | (~known & __builtin_convertvector(e, codes16));
		e = __builtin_convertvector((s >> 1) ^ -(s & 1), sizes8);
		memcpy(codes + i, &e, sizeof e);
	}
	for (; i < n; i++) {
		unsigned z = sym[i] == KVI_CODE_ESCAPE ? esc[i] : sym[i];
		codes[i] = (int8_t)((z >> 1) ^ (0u - (z & 1)));
	}
}

#define KVI_TRANSFORM(id, name)                                                                  \
	const struct kvi_transform id = { name,        widen,      narrow,       turns,          \
		                          turn,        forward,    back,         pairs,          \
		                          scale,       expect,     add_expected, lanes_to_pairs, \
		                          scale_lanes, invert,     add,          add_squares,    \
		                          quantise,    to_symbols, to_codes }
