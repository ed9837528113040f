/* SPDX-License-Identifier: BSD-3-Clause */
/* formats.c - the floating-point dtypes in numbers (spec 4.1, grid) */
#include "formats.h"

#include <string.h>

#include "util/bytes.h"

const struct kvi_float_format *kvi_float_format(unsigned dtype)
{
	static const struct kvi_float_format formats[] = {
		[KVARC_F32] = { 8, 23, { 7, -126, 16, 7 } },
		[KVARC_F16] = { 5, 10, { 10, -14, 16, 5 } },
		[KVARC_BF16] = { 8, 7, { 7, -126, 16, 7 } },
		[KVARC_E4M3] = { 4, 3, { 3, -6, 8, 11 } },
		[KVARC_E5M2] = { 5, 2, { 2, -14, 8, 11 } },
	};
	if (dtype < KVARC_F32 || dtype > KVARC_E5M2)
		return NULL;
	return &formats[dtype];
}

/*
 * The fields of a small format moved to where binary32 has them make a number
 * that is too small by a power of two, subnormal ones included.
 */
#define WIDEN(size, load, shift, sign_bit, factor)                            \
	for (size_t i = 0; i < n; i++) {                                      \
		uint32_t x = load(from + i * size);                           \
		uint32_t b = x << (31 - sign_bit) & 0x80000000u;              \
		uint32_t v = (x & ((1u << sign_bit) - 1)) << shift;           \
		float f;                                                      \
		memcpy(&f, &v, sizeof f);                                     \
		f *= factor;                                                  \
		memcpy(&v, &f, sizeof v);                                     \
		v |= b;                                                       \
		memcpy(to + i, &v, sizeof v);                                 \
	}

static inline uint32_t load8(const uint8_t *p)
{
	return *p;
}

static inline uint32_t load_high(const uint8_t *p)
{
	return kvi_load16(p + 2);
}

void kvi_floats_widen(unsigned dtype, const uint8_t *from, size_t n, float *to)
{
	switch (dtype) {
	case KVARC_F32: WIDEN(4, load_high, 16, 15, 1.0f) break;
	case KVARC_BF16: WIDEN(2, kvi_load16, 16, 15, 1.0f) break;
	case KVARC_F16: WIDEN(2, kvi_load16, 13, 15, 0x1p112f) break;
	case KVARC_E4M3: WIDEN(1, load8, 20, 7, 0x1p120f) break;
	default: WIDEN(1, load8, 21, 7, 0x1p112f) break;
	}
}

/* Without a way out of the loop, so that compilers make vectors of it. */
#define FINITE(size, load, mask)                                              \
	for (size_t i = 0; i < n; i++)                                        \
		bad |= (load(from + i * size) & (mask)) == (mask);

bool kvi_floats_finite(unsigned dtype, const uint8_t *from, size_t n)
{
	unsigned bad = 0;
	switch (dtype) {
	case KVARC_F32: FINITE(4, kvi_load32, 0x7f800000u) break;
	case KVARC_BF16: FINITE(2, kvi_load16, 0x7f80u) break;
	case KVARC_F16: FINITE(2, kvi_load16, 0x7c00u) break;
	case KVARC_E4M3: FINITE(1, load8, 0x7fu) break; /* it has no infinities */
	default: FINITE(1, load8, 0x7cu) break;
	}
	return !bad;
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
