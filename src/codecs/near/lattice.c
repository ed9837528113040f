/* SPDX-License-Identifier: BSD-3-Clause */
/* lattice.c - elements to codes of the nearest points of a lattice, and back (spec near 2) */
#include "codecs/near/near.h"

enum { EXPONENT_MAX = 112, F32_LOW = 9, F32_LOWEST = -140 };

/* Codes are in units of 2^F: the smallest normal number of m bits is 2^m. */
static const struct kvi_grid_format formats[] = {
	[KVARC_F32] = { 14, 14, 16, 1, true },
	[KVARC_F16] = { 10, 10, 16, 5, true },
	[KVARC_BF16] = { 7, 7, 16, 7, true },
	[KVARC_E4M3] = { 3, 3, 8, 11, true },
	[KVARC_E5M2] = { 2, 2, 8, 11, true },
};

/* Exponent of the smallest number of a dtype that codes can tell. */
static int lowest(unsigned dtype)
{
	const struct kvi_grid_format *f = &kvi_float_format(dtype)->grid;
	return dtype == KVARC_F32 ? F32_LOWEST : f->emin - f->mant_bits;
}

bool kvi_lattice_make(struct kvi_lattice *l, unsigned dtype, int exponent)
{
	const struct kvi_float_format *f = kvi_float_format(dtype);
	const int least = lowest(dtype);
	const bool wide = dtype == KVARC_F32;
	if (exponent < least || exponent > EXPONENT_MAX)
		return false;
	/* All ones are infinite or not a number; e4m3 has just the one of those. */
	uint32_t beyond = dtype == KVARC_E4M3 ? 0x7f
		: ((1u << f->exp_bits) - 1) << formats[dtype].mant_bits;
	*l = (struct kvi_lattice){
		.fmt = &formats[dtype], .dtype = dtype,
		.size = (unsigned)kvarc_dtype_bytes(dtype),
		.exponent = exponent, .depth = (unsigned)(exponent - least),
		.low_bits = wide ? F32_LOW : 0, .largest = beyond - 1
	};
	return true;
}

int kvi_lattice_exponent(unsigned dtype, double most)
{
	uint64_t b;
	memcpy(&b, &most, sizeof b);
	int e = (int)(b >> 52) - 1023 + 1; /* a point serves half a step to each side */
	int least = lowest(dtype);
	return e < least ? least : e > EXPONENT_MAX ? EXPONENT_MAX : e;
}

/* v / 2^bits, 1 to 30 of them, to nearest, ties to even. */
static inline uint32_t rounded(uint32_t v, unsigned bits)
{
	return (v + ((uint32_t)1 << (bits - 1)) - 1 + (v >> bits & 1)) >> bits;
}

static inline uint32_t load(const uint8_t *p, unsigned size)
{
	return size == 1 ? *p : size == 2 ? kvi_load16(p) : kvi_load32(p);
}

static inline void store(uint8_t *p, unsigned size, uint32_t x)
{
	if (size == 4)
		kvi_store32(p, x);
	else if (size == 2)
		kvi_store16(p, (uint16_t)x);
	else
		*p = (uint8_t)x;
}

/* size: that of an element, a constant. Returns the greatest point. */
static inline uint32_t to_codes(const struct kvi_lattice *l, unsigned size,
                                const uint8_t *elements, size_t n,
                                uint16_t *codes)
{
	const unsigned sign_bit = 8 * size - 1;
	const unsigned m = (unsigned)l->fmt->mant_bits + l->low_bits;
	const unsigned depth = l->depth + l->low_bits;
	const uint32_t top = 1u << (l->fmt->elem_bits - 1);
	const uint32_t one = 1u << m, offset = (uint32_t)depth << m;
	uint32_t most = 0;
	for (size_t i = 0; i < n; i++) {
		uint32_t x = load(elements + i * size, size);
		uint32_t neg = x >> sign_bit, abs = x & ((1u << sign_bit) - 1);
		uint32_t field = abs >> m;
		uint32_t full = field ? (abs & (one - 1)) | one : abs;
		unsigned step = field ? field - 1 : 0;
		unsigned bits = step < depth ? depth - step : 1;
		uint32_t point = rounded(full, bits < 30 ? bits : 30);
		point = step < depth ? point : abs - offset;
		most = point > most ? point : most;
		/* There is one zero: below it, codes count from -1. */
		neg = point ? neg : 0;
		codes[i] = (uint16_t)((point - neg) | (neg ? top : 0));
	}
	return most;
}

bool kvi_lattice_codes(const struct kvi_lattice *l, const uint8_t *elements,
                       size_t n, uint16_t *codes)
{
	switch (l->size) {
	case 1: to_codes(l, 1, elements, n, codes); return true;
	case 2: to_codes(l, 2, elements, n, codes); return true;
	default: return to_codes(l, 4, elements, n, codes) < 1u << 15;
	}
}

/*
 * Points below 2^m are normal or subnormal numbers of the dtype; binary32 has the mantissa of the
 * normal ones where it is wanted.
 */
static inline void to_elements(const struct kvi_lattice *l, unsigned size,
                               const uint16_t *codes, size_t n,
                               uint8_t *elements)
{
	const unsigned sign_bit = 8 * size - 1;
	const unsigned m = (unsigned)l->fmt->mant_bits;
	const unsigned shift = l->depth < 16 ? l->depth : 16;
	const unsigned sign = (unsigned)l->fmt->elem_bits - 1;
	const uint32_t top = 1u << sign, offset = (uint32_t)l->depth << m;
	const uint32_t normal = offset - ((m + 126) << m);
	for (size_t i = 0; i < n; i++) {
		uint32_t neg = codes[i] >> sign, x;
		uint32_t point = (codes[i] & (top - 1)) + neg;
		uint32_t subnormal = point << shift;
		float f = (float)(int32_t)point;
		memcpy(&x, &f, sizeof x);
		x = (x >> (23 - m)) + normal;
		x = subnormal >> m ? x : subnormal;
		x = point >> m ? point + offset : x;
		x = (x < l->largest ? x : l->largest) << l->low_bits;
		store(elements + i * size, size, x | neg << sign_bit);
	}
}

void kvi_lattice_elements(const struct kvi_lattice *l, const uint16_t *codes,
                          size_t n, uint8_t *elements)
{
	switch (l->size) {
	case 1: to_elements(l, 1, codes, n, elements); break;
	case 2: to_elements(l, 2, codes, n, elements); break;
	default: to_elements(l, 4, codes, n, elements); break;
	}
}
