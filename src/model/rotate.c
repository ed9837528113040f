/* SPDX-License-Identifier: BSD-3-Clause */
/* rotate.c - expected values of rotating channels, in integers (spec grid 2) */
#include "rotate.h"

#include <string.h>

enum { K_LIMIT = 400, D_LIMIT = 32 };

static inline int clamp(int v, int lo, int hi)
{
	return v < lo ? lo : v > hi ? hi : v;
}

/*
 * v * 2^e as a binary32 pattern. |v| <= 2^24 and e keep every product a normal
 * number, so that both the conversion and the multiplication are exact.
 */
static inline uint32_t scaled_bits(int32_t v, int e)
{
	uint32_t p = (uint32_t)(e + 127) << 23, bits;
	float scale, f;
	memcpy(&scale, &p, sizeof scale);
	f = (float)v * scale;
	memcpy(&bits, &f, sizeof bits);
	return bits;
}

uint32_t kvi_fixed_mean(int mean, int k)
{
	return scaled_bits(mean, (k >> 2) - 4);
}

void kvi_rotate_head(const struct kvi_head_params *head,
                     const kvarc_rope *rope, int32_t position,
                     uint32_t *mu_bits, int16_t *k)
{
	for (uint32_t c = rope->rotary; c < head->channels; c++) {
		k[c] = head->k[c];
		mu_bits[c] = kvi_fixed_mean(head->mean[c], head->k[c]);
	}
	for (uint32_t i = 0; i < rope->rotary / 2; i++) {
		uint32_t a, b, angle, h;
		kvi_rope_pair(rope, i, &a, &b);
		angle = kvi_rotate_angle(rope->freq[i], position);
		h = angle >> 5 & 63;
		int32_t c = kvi_cos4096[angle];
		int32_t s = kvi_cos4096[(angle + 3072) & 4095];
		int ka = head->k[a], kb = head->k[b];
		int e = ((ka > kb ? ka : kb) >> 2) - 12;
		int32_t ma = head->mean[a], mb = head->mean[b];
		mu_bits[a] = scaled_bits((ma * c - mb * s) >> 6, e);
		mu_bits[b] = scaled_bits((mb * c + ma * s) >> 6, e);
		const int8_t *rot = kvi_rot_scale +
		                    (clamp(ka - kb, -D_LIMIT, D_LIMIT) +
		                     D_LIMIT) * 64;
		k[a] = (int16_t)clamp(kb + rot[h], -K_LIMIT, K_LIMIT);
		k[b] = (int16_t)clamp(kb + rot[(h + 32) & 63], -K_LIMIT,
		                      K_LIMIT);
	}
}
