/* SPDX-License-Identifier: BSD-3-Clause */
/* quantise.h - integers of floats, one by one (spec/arithmetic.md 1, 2) */
#ifndef KVI_QUANTISE_H
#define KVI_QUANTISE_H

#include <stddef.h>
#include <stdint.h>

#define KVI_RINT_MAGIC 12582912.0f
#define KVI_SCALE_MIN 0x1p-60f

static inline float kvi_amax(const float *x, size_t n)
{
	float most = 0;

	for (size_t i = 0; i < n; i++) {
		float v = x[i] < 0 ? -x[i] : x[i];
		most = v > most ? v : most;
	}
	return most;
}

static inline float kvi_group_scale(float amax, int largest)
{
	float s = amax / (float)largest;
	return s > KVI_SCALE_MIN ? s : KVI_SCALE_MIN;
}

/* Clamped before it becomes an integer: x may be anything, and so may inverse. */
static inline int32_t kvi_quantised(float x, float inverse, int largest)
{
	float t = x * inverse;

	t = (t + KVI_RINT_MAGIC) - KVI_RINT_MAGIC;
	t = t < (float)largest ? t : (float)largest;
	t = t > (float)-largest ? t : (float)-largest;
	return (int32_t)t;
}

#endif
