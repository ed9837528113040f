/* SPDX-License-Identifier: BSD-3-Clause */
/* quantiser_scales.c - scales of blocks as planes, elements from numbers (spec tsc 2, lossy 2) */
#include "quantiser_scales.h"

#include "codecs/planes.h"

enum { SCALE_MIN = 0x0080, SCALE_END = 0x7f80 };

uint16_t kvi_scale_of(float v)
{
	uint32_t b;
	memcpy(&b, &v, sizeof b);
	if (b >= (uint32_t)SCALE_END << 16)
		return 0; /* infinite or not a number */
	b = (b + 0xffff) >> 16;
	return b >= SCALE_END ? 0 : (uint16_t)(b > SCALE_MIN ? b : SCALE_MIN);
}

float kvi_scale_value(uint16_t scale)
{
	uint32_t b = (uint32_t)scale << 16;
	float f;
	memcpy(&f, &b, sizeof f);
	return f;
}

kvarc_ret kvi_scales_put(struct kvi_coder *coder, const uint16_t *scales, size_t n,
                         struct kvi_out *out)
{
	uint8_t *planes = kvi_scratch(coder, KVI_SCRATCH_PLANE, 2 * n);
	if (!planes)
		return kvi_alloc_error(coder->alloc);
	for (size_t i = 0; i < n; i++) {
		planes[i] = (uint8_t)scales[i];
		planes[n + i] = (uint8_t)(scales[i] >> 8);
	}
	return kvi_packed_put(coder, planes, 2 * n, out);
}

kvarc_ret kvi_scales_get(struct kvi_coder *coder, struct kvi_in *in, size_t n, uint16_t *to)
{
	const uint8_t *from;
	kvarc_ret ret = kvi_packed_get(coder, in, 2 * n, &from);
	if (ret)
		return ret;
	bool good = true;
	for (size_t i = 0; i < n; i++) {
		to[i] = (uint16_t)(from[i] | from[n + i] << 8);
		good = good && to[i] >= SCALE_MIN && to[i] < SCALE_END;
	}
	return good ? KVARC_OK : KVARC_DATA;
}

void kvi_lossy_store(unsigned dtype, float *x, size_t n, uint8_t *to)
{
	static const float largest[] = { [KVARC_F32] = 0x1.fffffep127f,
		                         [KVARC_F16] = 65504.0f,
		                         [KVARC_BF16] = 0x1.fep127f,
		                         [KVARC_E4M3] = 448.0f,
		                         [KVARC_E5M2] = 57344.0f };
	const float most = largest[dtype];
	for (size_t i = 0; i < n; i++) {
		float v = x[i];
		v = v > most ? most : v;
		x[i] = v < -most ? -most : v;
	}
	kvi_floats_store(dtype, x, n, to);
}

double kvi_lossy_squares(unsigned dtype, const uint8_t *elements, size_t n)
{
	enum { BLOCK = 256 };
	const size_t size = kvarc_dtype_bytes(dtype);
	double sum = 0;
	float x[BLOCK];
	for (size_t at = 0; at < n; at += BLOCK) {
		size_t some = n - at < BLOCK ? n - at : BLOCK;
		kvi_floats_exact(dtype, elements + at * size, some, x);
		for (size_t i = 0; i < some; i++)
			sum += (double)x[i] * (double)x[i];
	}
	return sum;
}
