/* SPDX-License-Identifier: BSD-3-Clause */
/* context.c - contexts from predicted means and classes of scales (spec grid 2, 3) */
#include "scalar.h"

static inline int max_int(int a, int b)
{
	return a > b ? a : b;
}

static inline uint32_t mantissa(uint32_t bits)
{
	return (bits & 0x7fffff) | 0x800000;
}

/* The biased exponent of the sum of two positive binary32 patterns. */
static int sum_exponent(uint32_t a, uint32_t b)
{
	int xa = (int)(a >> 23), xb = (int)(b >> 23), x = max_int(xa, xb);
	uint32_t ma = 0, mb = 0;
	if (xa && x - xa < 32)
		ma = mantissa(a) >> (x - xa);
	if (xb && x - xb < 32)
		mb = mantissa(b) >> (x - xb);
	return x + (int)((ma + mb) >> 24);
}

uint32_t kvi_grid_context(uint32_t mu_bits, int k, const struct kvi_grid_format *fmt)
{
	static const uint32_t m4[4] = { 0, 0x1837f0, 0x3504f3, 0x5744fd };
	int m = fmt->mant_bits, kq = kvi_quarter(k);
	uint32_t neg = mu_bits >> 31, am = mu_bits & 0x7fffffff;
	uint32_t sigma2 = ((uint32_t)(kq + 128) << 23) | m4[k & 3];
	int g = max_int(kq + 126, sum_exponent(am, sigma2) - m);
	g = max_int(g, fmt->emin - m + 127);

	uint32_t ar = am + (fmt->whole ? 0 : (uint32_t)1 << (22 - m));
	int sh = 20 + g - (int)(ar >> 23);
	uint32_t y = sh > 31 ? 0 : mantissa(ar) >> sh;
	int class = k - 4 * (g - 127);
	class = class < -16 ? -16 : class > 7 ? 7 : class;
	uint32_t table = (uint32_t)(class + 16) * 8 + (y & 7);
	return table | (uint32_t)g << 8 | (y >> 3) << 16 | neg << 31;
}

void kvi_scalar_grid_contexts(uint32_t *ctx, const uint32_t *mu_bits, const int16_t *k, size_t n,
                              const struct kvi_grid_format *fmt)
{
	for (size_t i = 0; i < n; i++)
		ctx[i] = kvi_grid_context(mu_bits[i], k[i], fmt);
}

static void rotate_head(uint32_t *ctx, const int16_t *mean, const int16_t *k,
                        const struct kvi_rotation *r, size_t first)
{
	for (size_t i = first; i < r->pairs; i++) {
		size_t a = r->interleaved ? 2 * i : i;
		size_t b = r->interleaved ? a + 1 : a + r->pairs;
		int32_t c = (int16_t)r->turn[i], s = (int16_t)(r->turn[i] >> 16);
		int32_t ma = mean[a], mb = mean[b];
		int ka = k[a], kb = k[b];
		int e = kvi_quarter(max_int(ka, kb)) - 12;
		unsigned scales =
			r->scales[(kvi_clamp(ka - kb, -32, 32) + 32) * 64 + r->angle_class[i]];
		ctx[a] = kvi_grid_context(kvi_scaled_bits((ma * c - mb * s) >> 6, e),
		                          kb + (int8_t)scales, r->fmt);
		ctx[b] = kvi_grid_context(kvi_scaled_bits((mb * c + ma * s) >> 6, e),
		                          kb + (int8_t)(scales >> 8), r->fmt);
	}
}

void kvi_scalar_rotate_pairs(uint32_t *ctx, const struct kvi_rotation *r, size_t first)
{
	size_t heads = kvi_rotation_heads(r);
	for (size_t h = 0; h < heads; h++) {
		size_t at = h * r->head_channels;
		rotate_head(ctx + at, r->mean + at, r->k + at, r, first);
	}
}
