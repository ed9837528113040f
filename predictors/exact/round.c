/* SPDX-License-Identifier: BSD-3-Clause */
/* round.c - fp32 numbers as engines of fewer bits have them */
#include "exact/round.h"

#include <string.h>

#include "kvarc.h"
#include "util/bytes.h"

static float from_bits(uint32_t b)
{
	float x;
	memcpy(&x, &b, sizeof x);
	return x;
}

void kvi_round_floats(float *x, size_t n, const struct kvi_grid_format *f)
{
	for (size_t i = 0; i < n; i++) {
		uint32_t b;
		memcpy(&b, &x[i], sizeof b);
		int e = (int)(b >> 23 & 255) - 127;
		e = e < f->emin ? f->emin : e;
		if (e > 100) /* infinities and NaN, too */
			continue;
		/* 1.5 x 2^23 units of the last place that stays */
		int at = e - f->mant_bits + 23;
		float magic = from_bits((uint32_t)(at + 127) << 23 | 1u << 22);
		x[i] = (x[i] + magic) - magic;
	}
}

static uint16_t f16_of(float x, uint32_t bits)
{
	uint32_t sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
	if (size >= 0x47800000)
		return (uint16_t)(sign | 0x7c00);
	if (size >= 0x38800000)
		return (uint16_t)(sign | (size - 0x38000000) >> 13);
	/* subnormal */
	return (uint16_t)(sign | (uint32_t)((sign ? -x : x) * 0x1p24f));
}

void kvi_floats_store(unsigned dtype, const float *x, size_t n, uint8_t *to)
{
	for (size_t i = 0; i < n; i++) {
		uint32_t bits;
		memcpy(&bits, &x[i], sizeof bits);
		if (dtype == KVARC_F32)
			kvi_store32(to + 4 * i, bits);
		else
			kvi_store16(to + 2 * i, dtype == KVARC_F16
			            ? f16_of(x[i], bits)
			            : (uint16_t)(bits >> 16));
	}
}
