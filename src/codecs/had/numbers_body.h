/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * numbers_body.h - vectors of a set, and conversions between elements, numbers, codes and symbols;
 * part of transform_body.h
 */
#include <float.h>
#include <string.h>

#include "codecs/had/transform.h"
#include "numeric/formats.h"

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
/* Twice as many numbers of 16 bits. */
typedef int8_t codes8 __attribute__((vector_size(2 * WIDE)));
typedef uint8_t sizes8 __attribute__((vector_size(2 * WIDE)));
typedef int16_t codes16 __attribute__((vector_size(4 * WIDE)));
typedef int16_t half16 __attribute__((vector_size(2 * WIDE)));

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

/* A float format, for widening and narrowing. */
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
static inline bits narrow_size(bits size, const struct narrow *narrow)
{
	const unsigned lost = 23u - (unsigned)narrow->mant;
	bits code = (size + ((1u << (lost - 1)) - 1) + (size >> lost & 1)) >> lost;
	if (narrow->emin == -126)
		return code; /* subnormals are those of fp32 */
	code -= (uint32_t)(126 + narrow->emin) << narrow->mant;
	/* Subnormal numbers are counted in units of the smallest one. */
	floats units = (floats)size * power(narrow->mant - narrow->emin) + 12582912.0f;
	bits least = (bits){ 0 } + ((uint32_t)(127 + narrow->emin) << 23);
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

/* kvi_code_point of 2 * WIDE codes (spec lossy 4). */
static inline codes16 point16(const int8_t *codes, struct kvi_points points)
{
	codes8 c;
	memcpy(&c, codes, sizeof c);
	codes16 q = __builtin_convertvector(c, codes16);
	codes16 sign = q >> 15, size = (q ^ sign) - sign;
	codes16 near = ((size == 1) & (int16_t)points.near1) + ((size > 1) & (int16_t)points.near2);
	size = size * KVI_POINT_UNITS - near;
	return (size ^ sign) - sign;
}

static void points_of(const int8_t *codes, struct kvi_points points, size_t rows, int32_t *to)
{
	for (size_t i = 0; i < rows * KVI_LANES; i += 2 * WIDE) {
		codes16 v = point16(codes + i, points);
		half16 half[2];
		memcpy(half, &v, sizeof v);
		store_ints(to + i, __builtin_convertvector(half[0], ints));
		store_ints(to + i + WIDE, __builtin_convertvector(half[1], ints));
	}
}

/* Codes before their range is checked. */
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
	enum { PARTS = KVI_LANES / WIDE, BUFFER = 8 * KVI_LANES };
	ints out[PARTS] = { { 0 } };
	int16_t buffer[BUFFER];
	uint32_t refused = 0;
	for (size_t left = rows * KVI_LANES, n; left; left -= n, x += n, codes += n) {
		n = left < BUFFER ? left : BUFFER;
		for (size_t i = 0; i < n; i += WIDE) {
			ints q = code_of(x + i, inverse, offset);
			ints sign = (ints)(bits)load(x + i) >> 31;
			half16 half = __builtin_convertvector((q ^ sign) - sign, half16);
			out[i / WIDE % PARTS] |= q;
			memcpy(buffer + i, &half, sizeof half);
		}
		for (size_t i = 0; i < n; i += 2 * WIDE) {
			codes16 v;
			memcpy(&v, buffer + i, sizeof v);
			codes8 c = __builtin_convertvector(v, codes8);
			memcpy(codes + i, &c, sizeof c);
		}
	}
	/* Sizes are not negative: a lane has one above KVI_CODE_MAX where the OR of all its sizes
	 * is. */
	for (unsigned l = 0; l < KVI_LANES; l++)
		refused |= (uint32_t)(out[l / WIDE][l % WIDE] > KVI_CODE_MAX) << l;
	return refused;
}

/* kvi_transform.to_symbols (spec lossy 4). */
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
