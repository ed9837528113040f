/* SPDX-License-Identifier: BSD-3-Clause */
/* quantise.h - integers of floats, one by one (spec/arithmetic.md 1, 2) */
#ifndef KVI_QUANTISE_H
#define KVI_QUANTISE_H

#include <stddef.h>
#include <stdint.h>

#include "matmul.h"

#define KVI_RINT_MAGIC 12582912.0f
#define KVI_SCALE_MIN 0x1p-60f

/* The largest magnitude of n numbers. */
static inline float kvi_amax(const float *x, size_t n)
{
	float most = 0;

	for (size_t i = 0; i < n; i++) {
		float v = x[i] < 0 ? -x[i] : x[i];
		most = v > most ? v : most;
	}
	return most;
}

/* The scale of a group whose largest magnitude becomes `largest` (spec/arithmetic.md 4). */
static inline float kvi_group_scale(float amax, int largest)
{
	float s = amax / (float)largest;
	return s > KVI_SCALE_MIN ? s : KVI_SCALE_MIN;
}

/* The integer of x, clamped before the conversion: x and inverse may be any floats. */
static inline int32_t kvi_quantised(float x, float inverse, int largest)
{
	float t = x * inverse;

	t = (t + KVI_RINT_MAGIC) - KVI_RINT_MAGIC;
	t = t < (float)largest ? t : (float)largest;
	t = t > (float)-largest ? t : (float)-largest;
	return (int32_t)t;
}

/* w0 of a W15 integer, (v + 64) >> 7, of a positive number. */
static inline int32_t kvi_high_plane(int32_t v)
{
	return (v + 64 + 128 * 128) / 128 - 128;
}

/* Integers of a group, W15 in two planes (high before low) or W8 in one; returns the scale. */
static inline float kvi_quantise_weights(const float *x, size_t n, unsigned planes,
                                         int8_t *const q[2])
{
	int largest = planes == 2 ? KVI_W15_MAX : KVI_W8_MAX;
	float s = kvi_group_scale(kvi_amax(x, n), largest), inverse = 1 / s;

	for (size_t i = 0; i < n; i++) {
		int32_t v = kvi_quantised(x[i], inverse, largest);
		int32_t high = planes == 2 ? kvi_high_plane(v) : v;

		q[0][i] = (int8_t)high;
		if (planes == 2)
			q[1][i] = (int8_t)(v - 128 * high);
	}
	return s;
}

#endif
