/* SPDX-License-Identifier: BSD-3-Clause */
/* formats.c - the floating-point dtypes in numbers (spec 4.1, grid) */
#include "formats.h"

#include <string.h>

#include "util/bytes.h"

const struct kvi_float_format *kvi_float_format(unsigned dtype)
{
	static const struct kvi_float_format formats[] = {
		[KVARC_F32] = { 8, 23, { 7, -126, 16, 7, false } },
		[KVARC_F16] = { 5, 10, { 10, -14, 16, 5, false } },
		[KVARC_BF16] = { 8, 7, { 7, -126, 16, 7, false } },
		[KVARC_E4M3] = { 4, 3, { 3, -6, 8, 11, false } },
		[KVARC_E5M2] = { 5, 2, { 2, -14, 8, 11, false } },
	};
	if (dtype < KVARC_F32 || dtype > KVARC_E5M2)
		return NULL;
	return &formats[dtype];
}

/*
 * The fields of a small format moved to where binary32 has them make a number
 * that is too small by a power of two, subnormal ones included.
 */
struct widening {
	unsigned shift, sign_bit;
	float factor;
};

typedef uint32_t four_words __attribute__((vector_size(16)));
typedef float four_floats __attribute__((vector_size(16)));

static inline void widen_one(struct widening by, uint32_t x, float *to)
{
	uint32_t b = x << (31 - by.sign_bit) & 0x80000000u;
	uint32_t v = (x & ((1u << by.sign_bit) - 1)) << by.shift;
	float f;
	memcpy(&f, &v, sizeof f);
	f *= by.factor;
	memcpy(&v, &f, sizeof v);
	v |= b;
	memcpy(to, &v, sizeof v);
}

/* Widens four elements likewise. */
static inline void widen_four(struct widening by, four_words x, float *to)
{
	const four_words b = x << (31 - by.sign_bit) & 0x80000000u;
	const four_floats f = (four_floats)((x & ((1u << by.sign_bit) - 1)) << by.shift) *
	                      by.factor;
	const four_words v = (four_words)f | b;
	memcpy(to, &v, sizeof v);
}

static inline void widen_bytes(struct widening by, const uint8_t *from, size_t n, float *to)
{
	size_t i = 0;
	for (; i + 4 <= n; i += 4)
		widen_four(by, (four_words){ from[i], from[i + 1], from[i + 2], from[i + 3] },
		           to + i);
	for (; i < n; i++)
		widen_one(by, from[i], to + i);
}

static inline void widen_halves(struct widening by, const uint8_t *from, size_t n, float *to)
{
	size_t i = 0;
	for (; i + 4 <= n; i += 4) {
		const uint64_t x = kvi_load64(from + 2 * i);
		const four_words four = { (uint16_t)x, (uint16_t)(x >> 16), (uint16_t)(x >> 32),
			                  (uint16_t)(x >> 48) };
		widen_four(by, four, to + i);
	}
	for (; i < n; i++)
		widen_one(by, kvi_load16(from + 2 * i), to + i);
}

void kvi_floats_widen(unsigned dtype, const uint8_t *from, size_t n, float *to)
{
	switch (dtype) {
	case KVARC_F32:
		for (size_t i = 0; i < n; i++)
			widen_one((struct widening){ 16, 15, 1 }, kvi_load16(from + 4 * i + 2),
			          to + i);
		break;
	case KVARC_BF16:
		widen_halves((struct widening){ 16, 15, 1 }, from, n, to);
		break;
	case KVARC_F16:
		widen_halves((struct widening){ 13, 15, 0x1p112f }, from, n, to);
		break;
	case KVARC_E4M3:
		widen_bytes((struct widening){ 20, 7, 0x1p120f }, from, n, to);
		break;
	default:
		widen_bytes((struct widening){ 21, 7, 0x1p112f }, from, n, to);
	}
}

/* The bits of one element that are all set in infinities and NaNs; e4m3 has no infinities. */
static uint32_t special(unsigned dtype)
{
	switch (dtype) {
	case KVARC_F32:
		return 0x7f800000;
	case KVARC_BF16:
		return 0x7f80;
	case KVARC_F16:
		return 0x7c00;
	case KVARC_E4M3:
		return 0x7f;
	default:
		return 0x7c;
	}
}

typedef uint64_t words __attribute__((vector_size(32)));

/* Elements of one word at once: a field is 0 where all bits of `mask` are set, and
 * (field - 1) & ~field has a highest bit where a field is 0, or one below it in the word was. */
bool kvi_floats_finite(unsigned dtype, const uint8_t *from, size_t n)
{
	const unsigned width = 8 * (unsigned)kvarc_dtype_bytes(dtype);
	const uint64_t ones = UINT64_MAX / ((UINT64_C(1) << width) - 1);
	const uint64_t mask = ones * special(dtype);
	const size_t bytes = n * width / 8;
	const bool little = __BYTE_ORDER__ != __ORDER_BIG_ENDIAN__;
	words wide = { 0 };
	size_t i = 0;
	for (; little && i + sizeof wide <= bytes; i += sizeof wide) {
		words field;
		memcpy(&field, from + i, sizeof field);
		field = ~field & mask;
		wide |= (field - ones) & ~field;
	}
	uint64_t bad = wide[0] | wide[1] | wide[2] | wide[3];
	for (; i + 8 <= bytes; i += 8) {
		uint64_t field = ~kvi_load64(from + i) & mask;
		bad |= (field - ones) & ~field;
	}
	if (i < bytes) {
		uint8_t last[8] = { 0 };
		memcpy(last, from + i, bytes - i);
		uint64_t field = ~kvi_load64(last) & mask;
		bad |= (field - ones) & ~field;
	}
	return !(bad & ones << (width - 1));
}

void kvi_floats_exact(unsigned dtype, const uint8_t *from, size_t n, float *to)
{
	size_t size = kvarc_dtype_bytes(dtype);
	if (dtype == KVARC_F32) {
		for (size_t i = 0; i < n; i++) {
			uint32_t v = kvi_load32(from + 4 * i);
			memcpy(to + i, &v, sizeof v);
		}
	} else {
		kvi_floats_widen(dtype, from, n, to);
	}
	if (kvi_floats_finite(dtype, from, n))
		return;
	for (size_t i = 0; i < n; i++)
		if (!kvi_floats_finite(dtype, from + i * size, 1))
			to[i] = 0;
}

/* size without its lowest bits, to nearest, ties to even. */
static uint32_t without(uint32_t size, unsigned bits)
{
	return (size + (1u << (bits - 1)) - 1 + (size >> bits & 1)) >> bits;
}

/* The pattern of |x| in a format of at most 16 bits. */
static uint32_t narrow(uint32_t size, const struct kvi_float_format *format, uint32_t largest)
{
	uint32_t lost = 23 - format->mant_bits, e = size >> 23, code;
	uint32_t least = (uint32_t)(127 + format->grid.emin);
	if (e >= least) {
		code = without(size, lost) - ((least - 1) << format->mant_bits);
		return code < largest ? code : largest;
	}
	/* a subnormal number counts units of the smallest one */
	lost += least - (e ? e : 1);
	return without((size & 0x7fffff) | (e ? 0x800000 : 0), lost < 25 ? lost : 25);
}

void kvi_floats_store(unsigned dtype, const float *from, size_t n, uint8_t *to)
{
	const struct kvi_float_format *f = kvi_float_format(dtype);
	unsigned size = (unsigned)kvarc_dtype_bytes(dtype);
	/* e4m3 has no infinity */
	uint32_t largest = dtype == KVARC_E4M3 ? 0x7e : ((1u << f->exp_bits) - 1) << f->mant_bits;
	for (size_t i = 0; i < n; i++, to += size) {
		uint32_t b;
		memcpy(&b, from + i, sizeof b);
		uint32_t sign = b >> 31, x = b & 0x7fffffff;
		if (dtype == KVARC_F32) {
			kvi_store32(to, x > 0x7f800000 ? 0 : b);
			continue;
		}
		x = x > 0x7f800000 ? 0 : narrow(x, f, largest) | sign << (8 * size - 1);
		if (size == 2)
			kvi_store16(to, (uint16_t)x);
		else
			*to = (uint8_t)x;
	}
}
