/* SPDX-License-Identifier: BSD-3-Clause */
/* lattice.c - elements to codes of the nearest points of a lattice, and back (spec near 2) */
#include "codecs/near/near.h"

enum { EXPONENT_MAX = 112, F32_LOW = 9, F32_LOWEST = -140 };

/* Codes are in units of 2^F: the smallest normal number of m bits is 2^m. */
static const struct kvi_grid_format formats[] = {
	[KVARC_F32] = { 14, 14, 16, 1, true }, [KVARC_F16] = { 10, 10, 16, 5, true },
	[KVARC_BF16] = { 7, 7, 16, 7, true },  [KVARC_E4M3] = { 3, 3, 8, 11, true },
	[KVARC_E5M2] = { 2, 2, 8, 11, true },
};

/* Exponent of the smallest number of a dtype that has a code of its own. */
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
	uint32_t beyond = dtype == KVARC_E4M3
	                          ? 0x7f
	                          : ((1u << f->exp_bits) - 1) << formats[dtype].mant_bits;
	*l = (struct kvi_lattice){ .fmt = &formats[dtype],
		                   .dtype = dtype,
		                   .size = (unsigned)kvarc_dtype_bytes(dtype),
		                   .exponent = exponent,
		                   .depth = (unsigned)(exponent - least),
		                   .low_bits = wide ? F32_LOW : 0,
		                   .largest = beyond - 1 };
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

/* size is a constant. Returns the greatest point. */
static inline uint32_t to_codes(const struct kvi_lattice *l, unsigned size, const uint8_t *elements,
                                size_t n, uint16_t *codes)
{
	const unsigned sign_bit = 8 * size - 1;
	const unsigned m = (unsigned)l->fmt->mant_bits + l->low_bits;
	const unsigned depth = l->depth + l->low_bits;
	const uint32_t top = 1u << (l->fmt->elem_bits - 1);
	const uint32_t one = 1u << m, offset = (uint32_t)depth << m;
	uint32_t most = 0;
	for (size_t i = 0; i < n; i++) {
		uint32_t x = kvi_load_element(elements + i * size, size);
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

bool kvi_lattice_codes(const struct kvi_lattice *l, const uint8_t *elements, size_t n,
                       uint16_t *codes)
{
	switch (l->size) {
	case 1:
		to_codes(l, 1, elements, n, codes);
		return true;
	case 2:
		to_codes(l, 2, elements, n, codes);
		return true;
	default:
		return to_codes(l, 4, elements, n, codes) < 1u << 15;
	}
}

/* Vectors of a fixed size: the same results on every machine. */
enum { SIDE = 4 };
typedef uint32_t lanes __attribute__((vector_size(SIDE * sizeof(uint32_t))));
typedef int32_t numbers __attribute__((vector_size(SIDE * sizeof(int32_t))));
typedef float floats __attribute__((vector_size(SIDE * sizeof(float))));
typedef uint16_t halves __attribute__((vector_size(SIDE * sizeof(uint16_t))));

static inline lanes either(numbers is, lanes yes, lanes no)
{
	return ((lanes)is & yes) | (~(lanes)is & no);
}

/*
 * Elements of codes. Points below 2^m are normal or subnormal numbers of the dtype; binary32 has
 * the mantissa of the normal ones where it is wanted.
 */
static inline lanes to_elements(const struct kvi_lattice *l, lanes codes)
{
	const unsigned m = (unsigned)l->fmt->mant_bits;
	const unsigned shift = l->depth < 16 ? l->depth : 16;
	const unsigned sign = (unsigned)l->fmt->elem_bits - 1;
	const uint32_t offset = (uint32_t)l->depth << m;
	const uint32_t normal = offset - ((m + 126) << m);
	const lanes largest = (lanes){ 0 } + l->largest;
	lanes neg = codes >> sign, point = (codes & ((1u << sign) - 1)) + neg;
	lanes subnormal = point << shift;
	floats f = __builtin_convertvector((numbers)point, floats);
	lanes x = ((lanes)f >> (23 - m)) + normal;
	x = either(subnormal >> m != 0, x, subnormal);
	x = either(point >> m != 0, point + offset, x);
	x = either(x < largest, x, largest) << l->low_bits;
	return x | neg << (8 * l->size - 1);
}

/* The first n <= SIDE lanes. */
static inline void store(lanes x, unsigned size, size_t n, uint8_t *to)
{
	for (size_t i = 0; i < n; i++)
		kvi_store_element(to + i * size, size, x[i]);
}

void kvi_lattice_elements(const struct kvi_lattice *l, const uint16_t *codes, size_t n,
                          uint8_t *elements)
{
	const struct kvi_lattice here = *l;
	size_t i = 0;
	for (; i + SIDE <= n; i += SIDE) {
		halves c;
		memcpy(&c, codes + i, sizeof c);
		lanes x = to_elements(&here, __builtin_convertvector(c, lanes));
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
		if (here.size == 2) {
			c = __builtin_convertvector(x, halves);
			memcpy(elements + 2 * i, &c, sizeof c);
			continue;
		}
#endif
		store(x, here.size, SIDE, elements + i * here.size);
	}
	lanes rest = { 0 };
	for (size_t j = i; j < n; j++)
		rest[j - i] = codes[j];
	store(to_elements(&here, rest), here.size, n - i, elements + i * here.size);
}
