/* SPDX-License-Identifier: BSD-3-Clause */
/* round.c - fp32 numbers as engines of fewer bits have them */
#include "exact/round.h"

#include <string.h>

static float from_bits(uint32_t b)
{
	float x;
	memcpy(&x, &b, sizeof x);
	return x;
}

void kvi_round_floats(float *x, size_t n, const struct kvi_grid_format *format)
{
	for (size_t i = 0; i < n; i++) {
		uint32_t b;
		memcpy(&b, &x[i], sizeof b);
		int e = (int)(b >> 23 & 255) - 127;
		e = e < format->emin ? format->emin : e;
		if (e > 100) /* infinities and NaN, too */
			continue;
		/* 1.5 x 2^23 units of the last place that stays */
		int at = e - format->mant_bits + 23;
		float magic = from_bits((uint32_t)(at + 127) << 23 | 1u << 22);
		x[i] = (x[i] + magic) - magic;
	}
}
