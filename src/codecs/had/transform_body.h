/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * transform_body.h - the text of transform.h, included once for each instruction set
 *
 * 16 numbers whatever the set: compilers cut them into what it has.
 */
#include <float.h>
#include <string.h>

#include "codecs/had/transform.h"
#include "model/formats.h"

#if defined(__FAST_MATH__)
#error "fast-math changes results: build without it"
#endif
_Static_assert(FLT_EVAL_METHOD == 0, "fp32 must not be computed in more precision");

enum { HALF = 16 };
typedef float floats __attribute__((vector_size(64)));
typedef int32_t ints __attribute__((vector_size(64)));
typedef uint32_t bits __attribute__((vector_size(64)));
typedef uint16_t shorts __attribute__((vector_size(32)));
typedef int8_t chars __attribute__((vector_size(16)));

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
	return (struct narrow){
		(int)f->mant_bits, f->grid.emin,
		/* e4m3 has no infinity */
		dtype == KVARC_E4M3 ? top - 1 : top - (1u << f->mant_bits),
		f->exp_bits + f->mant_bits
	};
}

static void widen(unsigned dtype, const uint16_t *from, size_t rows, float *to)
{
	const struct narrow f = narrow_of(dtype);
	const bits size = (bits){ 0 } + ((1u << f.sign) - 1);
	/* The fields moved to where fp32 has them, too small by a power of two. */
	const float factor = power(f.emin + 126);
	for (size_t i = 0; i < rows * KVI_LANES; i += HALF) {
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
	for (size_t i = 0; i < rows * KVI_LANES; i += HALF) {
		bits b = (bits)load(from + i), size = b & 0x7fffffffu;
		bits finite = (bits)(size < 0x7f800000u);
		bits number = (bits)(size <= 0x7f800000u);
		bits code = narrow_size(size, &f);
		code = choose(finite & (bits)(code < largest), code, largest);
		code = number & (code | b >> 31 << f.sign);
		shorts s = __builtin_convertvector(code, shorts);
		memcpy(to + i, &s, sizeof s);
	}
}

static void turn(float *x, const struct kvi_turned *t, bool back)
{
	const size_t step = t->half ? t->pairs * KVI_LANES : KVI_LANES;
	for (size_t p = 0; p < t->pairs; p++) {
		float *a = x + (t->half ? p : 2 * p) * KVI_LANES, *b = a + step;
		const float *c = t->cos + p * KVI_LANES;
		const float *s = t->sin + p * KVI_LANES;
		for (size_t i = 0; i < KVI_LANES; i += HALF) {
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

static void mix(float *x, size_t n)
{
	for (size_t w = 1; w < n; w *= 2)
		for (size_t i = 0; i < n; i++) {
			if (i & w)
				continue;
			float *a = x + i * KVI_LANES, *b = a + w * KVI_LANES;
			for (size_t k = 0; k < KVI_LANES; k += HALF) {
				floats va = load(a + k), vb = load(b + k);
				store(a + k, va + vb);
				store(b + k, va - vb);
			}
		}
}

static void forward(float *x, const float *mean, size_t channels, bool hadamard)
{
	for (size_t c = 0; c < channels; c++)
		for (size_t i = 0; i < KVI_LANES; i += HALF) {
			float *at = x + c * KVI_LANES + i;
			floats v = load(at) - mean[c];
			store(at, hadamard && flipped(c) ? -v : v);
		}
	for (size_t c = 0; hadamard && c < channels;) {
		unsigned m = log_of(channels - c);
		float *block = x + c * KVI_LANES, gain = gain_of(m);
		size_t n = (size_t)1 << m;
		mix(block, n);
		for (size_t i = 0; i < n * KVI_LANES; i += HALF)
			store(block + i, load(block + i) * gain);
		c += n;
	}
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

static void mix_ints(int32_t *x, size_t n)
{
	for (size_t w = 1; w < n; w *= 2)
		for (size_t i = 0; i < n; i++) {
			if (i & w)
				continue;
			int32_t *a = x + i * KVI_LANES, *b = a + w * KVI_LANES;
			for (size_t k = 0; k < KVI_LANES; k += HALF) {
				ints va = load_ints(a + k);
				ints vb = load_ints(b + k);
				store_ints(a + k, va + vb);
				store_ints(b + k, va - vb);
			}
		}
}

/* spec lossy 4 */
static void points_of(const int8_t *codes, struct kvi_points p, size_t rows,
                      int32_t *to)
{
	for (size_t i = 0; i < rows * KVI_LANES; i += HALF) {
		chars c;
		memcpy(&c, codes + i, sizeof c);
		ints q = __builtin_convertvector(c, ints);
		ints sign = q < 0, size = (q ^ sign) - sign;
		ints near = ((size == 1) & p.near1) + ((size > 1) & p.near2);
		size = size * KVI_POINT_UNITS - near;
		store_ints(to + i, (size ^ sign) - sign);
	}
}

static void to_channels(const int32_t *z, size_t first, size_t n, float gain,
                        bool flips, const float *mean, float *x)
{
	for (size_t c = first; c < first + n; c++)
		for (size_t i = 0; i < KVI_LANES; i += HALF) {
			size_t at = c * KVI_LANES + i;
			floats v = __builtin_convertvector(load_ints(z + at),
			                                   floats);
			v = flips && flipped(c) ? -v : v;
			store(x + at, v * gain + mean[c]);
		}
}

static void back(const int8_t *codes, struct kvi_points points, float step,
                 const float *mean, size_t channels, bool hadamard,
                 int32_t *room, float *x)
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
		to_channels(room, c, n, step * (gain_of(m) * power(-5)), true,
		            mean, x);
		c += n;
	}
}

static void pairs(const int8_t *codes, struct kvi_points points, size_t rows,
                  int16_t *to)
{
	for (size_t r = 0; r < rows; r++) {
		int32_t y[KVI_LANES];
		points_of(codes + r * KVI_LANES, points, 1, y);
		int16_t *pair = to + r / 2 * 2 * KVI_LANES + r % 2;
		for (size_t i = 0; i < KVI_LANES; i++)
			pair[2 * i] = (int16_t)y[i];
	}
	for (size_t i = 0; rows % 2 && i < KVI_LANES; i++)
		to[rows / 2 * 2 * KVI_LANES + 2 * i + 1] = 0;
}

static void scale(const int32_t *z, size_t rows, const float *gain,
                  const float *mean, float *x)
{
	for (size_t c = 0; c < rows; c++)
		for (size_t i = 0; i < KVI_LANES; i += HALF) {
			size_t at = c * KVI_LANES + i;
			floats v = __builtin_convertvector(load_ints(z + at),
			                                   floats);
			store(x + at, v * gain[c] + mean[c]);
		}
}

static void project(const float *a, size_t rows, size_t columns, const float *x,
                    float *to)
{
	for (size_t r = 0; r < rows; r++, a += columns) {
		floats lo = { 0 }, hi = { 0 };
		for (size_t c = 0; c < columns; c++) {
			const float *row = x + c * KVI_LANES;
			lo = lo + load(row) * a[c];
			hi = hi + load(row + HALF) * a[c];
		}
		store(to + r * KVI_LANES, lo);
		store(to + r * KVI_LANES + HALF, hi);
	}
}

static uint32_t quantise(const float *x, size_t rows, float inverse,
                         float offset, int8_t *codes)
{
	const bits far = (bits)((floats){ 0 } + 1000.0f);
	ints out[KVI_LANES / HALF] = { { 0 } };
	uint32_t refused = 0;
	for (size_t i = 0; i < rows * KVI_LANES; i += HALF) {
		bits b = (bits)load(x + i);
		floats size = (floats)(b & 0x7fffffffu) * inverse + offset;
		size = (floats)choose((bits)(size < 1000.0f), (bits)size, far);
		ints q = __builtin_convertvector(size, ints);
		ints sign = (ints)b >> 31;
		out[i / HALF % 2] |= q > KVI_CODE_MAX;
		q = (q ^ sign) - sign;
		chars c = __builtin_convertvector(q, chars);
		memcpy(codes + i, &c, sizeof c);
	}
	for (unsigned l = 0; l < KVI_LANES; l++)
		refused |= (uint32_t)(out[l / HALF][l % HALF] & 1) << l;
	return refused;
}

#define KVI_TRANSFORM(id, name) \
	const struct kvi_transform id = { \
		name, widen, narrow, turn, forward, back, pairs, scale, project, \
		quantise \
	}
