/* SPDX-License-Identifier: BSD-3-Clause */
/* quantiser.c - one step for all coefficients of a chunk (spec had 2) */
#include "codecs/lossy/quantiser.h"

bool kvi_body_get(struct kvi_in *in, struct kvi_body *body)
{
	/* Patterns of positive normal numbers below 2^100; those of negative ones are above. */
	const uint32_t least = 0x00800000, end = 0x71800000;
	uint32_t step = kvi_get32(in);
	body->shift = (int16_t)kvi_get16(in);
	body->points.near1 = (int8_t)kvi_get8(in);
	body->points.near2 = (int8_t)kvi_get8(in);
	memcpy(&body->step, &step, sizeof step);
	return !in->bad && step >= least && step < end && body->points.near1 >= -KVI_NEAR_MAX &&
	       body->points.near1 <= KVI_NEAR_MAX && body->points.near2 >= -KVI_NEAR_MAX &&
	       body->points.near2 <= KVI_NEAR_MAX;
}

void kvi_body_put(uint8_t to[KVI_BODY_HEAD], const struct kvi_body *body)
{
	uint32_t step;
	memcpy(&step, &body->step, sizeof step);
	kvi_store32(to, step);
	kvi_store16(to + 4, (uint16_t)body->shift);
	to[6] = (uint8_t)body->points.near1;
	to[7] = (uint8_t)body->points.near2;
}

int kvi_quarter_log(float v)
{
	uint32_t b;
	memcpy(&b, &v, sizeof b);
	int e = (int)(b >> 23) - 127;
	float m = v;
	b = (b & 0x7fffff) | 0x3f800000;
	memcpy(&m, &b, sizeof m);
	/* odd powers of 2^(1/8) */
	return 4 * e + (m >= 1.0905077f) + (m >= 1.2968396f) + (m >= 1.5422108f) +
	       (m >= 1.8340081f);
}

const uint8_t *kvi_classes(struct kvi_coder *coder, const int16_t *k, size_t n, int shift)
{
	uint8_t *class = kvi_scratch(coder, KVI_SCRATCH_CHANNELS, n);
	for (size_t i = 0; class && i < n; i++) {
		int v = k[i] - shift;
		class[i] = (uint8_t)(v < 0 ? 0 : v >= KVI_CODE_CLASSES ? KVI_CODE_CLASSES - 1 : v);
	}
	return class;
}

/* 2^(i/16) */
static const float sixteenths[16] = { 1.0f,       1.0442737f, 1.0905077f, 1.1387886f,
	                              1.1892071f, 1.2418578f, 1.2968396f, 1.3542556f,
	                              1.4142135f, 1.4768262f, 1.5422108f, 1.6104903f,
	                              1.6817929f, 1.7562522f, 1.8340080f, 1.9152066f };

float kvi_power_of(int e)
{
	enum { UNIT = 16 };
	int whole = e >> 4;
	return sixteenths[e & (UNIT - 1)] *
	       (whole < 0 ? 1.0f / (float)(1u << -whole) : (float)(1u << whole));
}

/* A uniform quantiser of normal data takes log2(sigma / step) + 2.047 bits at high rates. */
float kvi_step_of(const kvarc_lossy *tier, const struct kvi_chunk *chunk, float rms)
{
	enum { NORMAL = 33 };
	int rate = tier->rate + (chunk->kind == KVARC_KEY ? tier->key_rate : 0);
	float step = rms * kvi_power_of(NORMAL - rate);
	return step >= 0x1p-120f ? step : 0x1p-120f;
}

/* A dead zone wins more in size than it costs in error, below 2 bits. */
float kvi_offset_of(float rms, float step)
{
	return rms >= 2 * step ? 0.5f : rms >= step ? 0.45f : 0.41f;
}

/* v, or 0 */
static float where(bool yes, float v)
{
	uint32_t b;
	memcpy(&b, &v, sizeof b);
	b &= 0u - (uint32_t)yes;
	memcpy(&v, &b, sizeof v);
	return v;
}

void kvi_centroid_watch(struct kvi_centroid *centroid, const float *x, const int8_t *codes,
                        size_t rows, float inverse, size_t n)
{
	enum { EVERY = 4 };
	float sum1 = centroid->sum[0], sum2 = centroid->sum[1];
	uint32_t n1 = 0, n2 = 0;
	/* Conditions are arithmetic here: branches on codes cannot be predicted. */
	for (size_t c = 0; c < rows; c += EVERY)
		for (size_t i = 0; i < n; i++) {
			int q = codes[c * KVI_LANES + i];
			int size = q < 0 ? -q : q;
			float v = x[c * KVI_LANES + i] * inverse;
			float d = (float)size - (v < 0 ? -v : v);
			sum1 = sum1 + where(size == 1, d);
			sum2 = sum2 + where(size > 1, d);
			n1 += size == 1;
			n2 += size > 1;
		}
	centroid->sum[0] = sum1;
	centroid->sum[1] = sum2;
	centroid->n[0] += n1;
	centroid->n[1] += n2;
}

static int8_t near_of(const struct kvi_centroid *centroid, int i)
{
	float v = centroid->n[i] ? centroid->sum[i] / (float)centroid->n[i] * KVI_POINT_UNITS : 0;
	int r = (int)(v + (v < 0 ? -0.5f : 0.5f));
	return (int8_t)(r > KVI_NEAR_MAX ? KVI_NEAR_MAX : r < -KVI_NEAR_MAX ? -KVI_NEAR_MAX : r);
}

struct kvi_points kvi_centroid_points(const struct kvi_centroid *centroid)
{
	return (struct kvi_points){ near_of(centroid, 0), near_of(centroid, 1) };
}
