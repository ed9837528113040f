/* SPDX-License-Identifier: BSD-3-Clause */
/* cells_rotation_neon.c - contexts of rotating channels for codec cells (spec cells 2) in NEON */
#include "config.h"

#include <arm_neon.h>

#include "cells.h"

#define INLINE static inline __attribute__((always_inline))
#define SET16(x) vdupq_n_s16((int16_t)(x))

enum { LANES = 8 }; /* of 16 bits in a vector */

/* 8 pairs of numbers. */
typedef int16x8x2_t channel_pairs;

/* Pairs of channels of a head from pair i on. */
INLINE channel_pairs channels_load(const struct kvi_rotation *r, const int16_t *head, size_t i)
{
	if (r->interleaved)
		return vld2q_s16(head + 2 * i);
	return (channel_pairs){ { vld1q_s16(head + i), vld1q_s16(head + r->pairs + i) } };
}

INLINE void channels_store(const struct kvi_rotation *r, channel_pairs pairs, size_t i,
                           int16_t *head)
{
	if (r->interleaved) {
		vst2q_s16(head + 2 * i, pairs);
	} else {
		vst1q_s16(head + i, pairs.val[0]);
		vst1q_s16(head + r->pairs + i, pairs.val[1]);
	}
}

/* Twice a cosine or sine, limited as the definition has it. */
INLINE int16x8_t factor_of(int16x8_t value)
{
	return vmaxq_s16(vqaddq_s16(value, value), SET16(-INT16_MAX));
}

/* Contexts of channels whose means are in 1/16 of 2^top, of classes k, as make_context in
 * cells_scalar.c has them: the grid's; *mean becomes M. */
INLINE int16x8_t make_contexts(const struct kvi_grid_format *format, int16x8_t *mean, int16x8_t top,
                               int16x8_t k)
{
	const int m = format->mant_bits, least = format->emin + 127 + 15 - m;
	const int16x8_t q = vshrq_n_s16(k, 2), quarter = vandq_s16(k, SET16(3));
	const int16x8_t zero = SET16(0), fine = SET16(KVI_CELLS_FINE);
	const int16x8_t sum = vqaddq_s16(*mean, vshlq_s16(*mean, SET16(-m - 1)));
	const uint16x8_t doubled = vreinterpretq_u16_s16(vshlq_s16(sum, vsubq_s16(top, q)));
	const int16x8_t cell = vshrq_n_s16(vreinterpretq_s16_u16(doubled + vdupq_n_u16(1)), 1);
	const int16x8_t size = vaddq_s16(vabsq_s16(cell), SET16(64));
	/* log2 of the size less m, then what g lacks; rounding shifts by 16 or more give 0 */
	const int16x8_t wider = vmaxq_s16(vsubq_s16(SET16(15 - m), vclzq_s16(size)), zero);
	int16x8_t g = vaddq_s16(vaddq_s16(q, SET16(124)), wider);
	const int16x8_t missing = vmaxq_s16(vsubq_s16(SET16(least), g), zero);
	*mean = vrshlq_s16(vrshlq_s16(cell, vnegq_s16(wider)),
	                   vnegq_s16(vminq_s16(missing, SET16(16))));
	g = vminq_s16(vaddq_s16(vaddq_s16(g, missing), SET16(m - 127 - format->emin)),
	              SET16((1 << (15 - m)) - 1));
	const int16x8_t lower = vshlq_n_s16(vaddq_s16(wider, missing), 2);
	const int16x8_t class = vmaxq_s16(vsubq_s16(vaddq_s16(quarter, fine), lower), zero);
	return vorrq_s16(vshlq_s16(g, SET16(m)),
	                 vbslq_s16(vcltq_s16(class, fine),
	                           vorrq_s16(class, SET16(KVI_CELLS_COARSE)),
	                           vshlq_n_s16(vsubq_s16(class, fine), 5)));
}

/* The entries of a table whose numbers are in `at`. */
INLINE int16x8_t looked_up(const uint16_t *table, uint16x8_t at)
{
	uint16x8_t entries = vdupq_n_u16(0);
#define ENTRY(i) entries = vld1q_lane_u16(table + vgetq_lane_u16(at, i), entries, i)
	ENTRY(0);
	ENTRY(1);
	ENTRY(2);
	ENTRY(3);
	ENTRY(4);
	ENTRY(5);
	ENTRY(6);
	ENTRY(7);
#undef ENTRY
	return vreinterpretq_s16_u16(entries);
}

/* Contexts of pairs i to i + 7 of a head, whose first channel is `first`, of n tokens. */
INLINE void rotate_pairs(const struct kvi_rotation *r, size_t n, size_t row, size_t first, size_t i,
                         int16_t *mean, uint16_t *grid)
{
	const channel_pairs from = channels_load(r, r->mean + first, i);
	const channel_pairs k = channels_load(r, r->k + first, i);
	const int16x8_t larger = vmaxq_s16(k.val[0], k.val[1]), top = vshrq_n_s16(larger, 2);
	const int16x8_t least = vsubq_s16(larger, SET16(16));
	const int16x8_t apart = vmaxq_s16(vminq_s16(vsubq_s16(k.val[0], k.val[1]), SET16(32)),
	                                  SET16(-32));
	const uint16x8_t scale_row =
		vreinterpretq_u16_s16(vshlq_n_s16(vaddq_s16(apart, SET16(32)), 6));
	for (size_t t = 0; t < n; t++) {
		const size_t angle = t * r->pairs + i;
		const channel_pairs turn =
			vld2q_s16((const int16_t *)(const void *)(r->turn + angle));
		const int16x8_t cosine = factor_of(turn.val[0]), sine = factor_of(turn.val[1]);
		const int16x8_t scales = looked_up(r->scales,
		                                   scale_row + vld1q_u16(r->angle_class + angle));
		const int16x8_t x = vaddq_s16(k.val[1], vshrq_n_s16(vshlq_n_s16(scales, 8), 8));
		const int16x8_t y = vsraq_n_s16(k.val[1], scales, 8);
		channel_pairs means = { { vqsubq_s16(vqrdmulhq_s16(from.val[0], cosine),
			                             vqrdmulhq_s16(from.val[1], sine)),
			                  vqaddq_s16(vqrdmulhq_s16(from.val[1], cosine),
			                             vqrdmulhq_s16(from.val[0], sine)) } };
		channel_pairs grids;
		grids.val[0] = make_contexts(r->fmt, &means.val[0], top, vmaxq_s16(x, least));
		grids.val[1] = make_contexts(r->fmt, &means.val[1], top, vmaxq_s16(y, least));
		channels_store(r, means, i, mean + t * row + first);
		channels_store(r, grids, i, (int16_t *)(grid + t * row + first));
	}
}

void kvi_neon_cells_rotate(const struct kvi_rotation *rotation, size_t n, size_t row, int16_t *mean,
                           uint16_t *grid)
{
	const size_t pairs = rotation->pairs;
	if (pairs < LANES) {
		kvi_scalar_cells_rotate(rotation, n, row, mean, grid);
		return;
	}
	/* The last vector begins where it ends with the last pair. */
	for (size_t h = 0; h < rotation->heads; h++)
		for (size_t i = 0; i < pairs; i += LANES)
			rotate_pairs(rotation, n, row, h * rotation->head_channels,
			             i + LANES <= pairs ? i : pairs - LANES, mean, grid);
}
