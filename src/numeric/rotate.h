/* SPDX-License-Identifier: BSD-3-Clause */
/* rotate.h - mean and scale of a rotated pair of channels (spec grid 2) */
#ifndef KVI_ROTATE_H
#define KVI_ROTATE_H

#include <stdint.h>
#include "util/shared.h"

#include "kvarc.h"

/* round(16384 cos(2 pi i / 4096)), 4096 entries; spec/tables/cos4096.txt */
KVI_SHARED extern const int16_t kvi_cos4096[];
/* [D + 32][angle class], 65 x 64; spec/tables/rot.txt */
KVI_SHARED extern const int8_t kvi_rot_scale[];

/* Angle of frequency f at position p, in 1/4096 turns, rounded. */
static inline uint32_t kvi_rotate_angle(uint64_t f, int32_t p)
{
	uint64_t turn = (uint64_t)(int64_t)p * f;
	return (uint32_t)(((turn >> 51) + 1) >> 1) & 4095;
}

/* Channels of pair i of a head. */
static inline void kvi_rope_pair(const kvarc_rope *rope, uint32_t i, uint32_t *a, uint32_t *b)
{
	if (rope->pairing == KVARC_ROPE_HALF) {
		*a = i;
		*b = i + rope->rotary / 2;
	} else {
		*a = 2 * i;
		*b = 2 * i + 1;
	}
}

/* Channel of a head that a slot stands for (spec linear 1); rope NULL: the same. */
static inline size_t kvi_rope_channel(const kvarc_rope *rope, size_t slot)
{
	uint32_t a, b;
	if (!rope || slot >= rope->rotary)
		return slot;
	kvi_rope_pair(rope, (uint32_t)slot / 2, &a, &b);
	return slot & 1 ? b : a;
}

/* Bit pattern of mean * 2^(floor(k/4) - 4), exact. */
uint32_t kvi_fixed_mean(int mean, int k);

#endif
