/* SPDX-License-Identifier: BSD-3-Clause */
/* rotate.c - expected values of channels that do not turn (spec grid 2) */
#include "rotate.h"

#include <string.h>

#include "tables/rotate_tables.inc"

uint32_t kvi_fixed_mean(int mean, int k)
{
	/* 16 bits times a power of two in the normal range: exact. */
	uint32_t p = (uint32_t)((k >> 2) - 4 + 127) << 23, bits;
	float scale, f;
	memcpy(&scale, &p, sizeof scale);
	f = (float)mean * scale;
	memcpy(&bits, &f, sizeof bits);
	return bits;
}
