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

/* bits of an element of 16 or 8 bits as binary32; NaN for what is not finite */
static inline __attribute__((always_inline)) uint32_t
widen(uint32_t x, unsigned m, unsigned e, int emin)
{
	uint32_t exp = x >> m & ((1u << e) - 1), man = x & ((1u << m) - 1);
	uint32_t sign = x >> (m + e) << 31;
	if (exp == (1u << e) - 1 && (m != 3 || man == 7))
		return 0x7fc00000;
	if (exp)
		return sign | (uint32_t)((int)exp + emin - 1 + 127) << 23 |
		       man << (23 - m);
	if (m == 7)
		return sign; /* subnormal bf16: as good as zero here */
	float f = (float)man;
	uint32_t bits, scale = (uint32_t)(emin - (int)m + 127) << 23;
	float factor;
	memcpy(&factor, &scale, 4);
	f *= factor;
	memcpy(&bits, &f, 4);
	return bits | sign;
}

void kvi_floats_widen(unsigned dtype, const uint8_t *from, size_t n, float *to)
{
	/* One loop a dtype, so that its numbers are constants. */
#define WIDEN(load, m, e, emin)                                               \
	for (size_t i = 0; i < n; i++) {                                      \
		uint32_t b = widen(load, m, e, emin);                         \
		memcpy(to + i, &b, sizeof b);                                 \
	}
	switch (dtype) {
	case KVARC_F32: WIDEN(kvi_load16(from + 4 * i + 2), 7, 8, -126) break;
	case KVARC_F16: WIDEN(kvi_load16(from + 2 * i), 10, 5, -14) break;
	case KVARC_BF16: WIDEN(kvi_load16(from + 2 * i), 7, 8, -126) break;
	case KVARC_E4M3: WIDEN(from[i], 3, 4, -6) break;
	default: WIDEN(from[i], 2, 5, -14) break;
	}
#undef WIDEN
}
