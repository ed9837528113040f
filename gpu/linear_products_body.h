/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * linear_products_body.h - sums of coefficients times features (spec linear 3), on tensor cores: 8
 * slots at 32 tokens
 *
 * Both have 16 bits, so that there are four products of their bytes, which are added up modulo
 * 2^32. The sum of all, with the slot's offset, fits in 32 bits: it is exact.
 */
#ifndef KVI_GPU_LINEAR_PRODUCTS_BODY_H
#define KVI_GPU_LINEAR_PRODUCTS_BODY_H

#include "device_job.h"
#include "linear_job.h"
#include "warp.h"

constexpr uint32_t PANEL = KVI_GPU_PANEL, LINEAR_LIMIT = 32767, NO_ROW = ~0u;
/* Panels of features of a block of a matrix; tokens of a step, quads of a block. */
constexpr uint32_t BLOCK = 4, STEP_TOKENS = 32, BLOCK_QUADS = 32;

WARP_FN const kvi_gpu_linear *linear_of(const kvi_gpu_chunk *c)
{
	return (const kvi_gpu_linear *)(uintptr_t)c->linear;
}
WARP_FN const kvi_gpu_model *model_of(const kvi_gpu_linear *l)
{
	return (const kvi_gpu_model *)(uintptr_t)l->model;
}

WARP_FN uint32_t padded_tokens(const kvi_gpu_chunk *c)
{
	return (c->tokens + 31) & ~31u;
}

/* Panels of a head. */
WARP_FN uint32_t panels_of(uint32_t head_channels)
{
	return (head_channels + PANEL - 1) / PANEL;
}

/* v limited to -n .. n. */
WARP_FN u32v limited(u32v v, uint32_t n)
{
	return max_signed(min_signed(v, splat(n)), splat(0 - n));
}

/* Slots of a head: `first` is in it, c among those of all heads. */
struct linear_panel {
	uint32_t number, head, first, c, slots;
};

WARP_FN linear_panel panel_at(uint32_t head_channels, uint32_t head, uint32_t number)
{
	linear_panel p;
	p.number = head * panels_of(head_channels) + number;
	p.head = head;
	p.first = number * PANEL;
	p.c = head * head_channels + p.first;
	p.slots = head_channels - p.first < PANEL ? head_channels - p.first : PANEL;
	return p;
}

/*
 * Sums of the slots of a panel: with low and with high bytes of coefficients. A lane has those of
 * two slots, own_slot, at four tokens, own_token: of each token [0] and [1] with low bytes of
 * features, [2] and [3] with high ones.
 */
struct panel_sums {
	u32v low[4][4], high[4][4];
};
WARP_FN u32v own_slot(uint32_t i)
{
	return (lanes() & 3) * 2 + i;
}
WARP_FN u32v own_token(uint32_t j)
{
	return (lanes() >> 2) + 8 * j;
}
WARP_FN u32v sum_of(const panel_sums *s, uint32_t i, uint32_t j)
{
	const u32v middle = s->low[j][i + 2] + s->high[j][i] + (s->high[j][i + 2] << 8);
	return s->low[j][i] + (middle << 8);
}

WARP_FN void sums_begin(panel_sums *s)
{
	UNROLL
	for (uint32_t j = 0; j < 16; j++)
		s->low[j / 4][j % 4] = s->high[j / 4][j % 4] = splat(0);
}

/* Features of a step of a tensor that has `all` panels a step. */
WARP_FN span<const uint32_t> step_features(uint64_t features, uint32_t step, uint32_t all)
{
	const size_t n = (size_t)all * STEP_TOKENS * 4;
	return span_at<const uint32_t>(features + step * (uint64_t)n * sizeof(uint32_t), n);
}

/* Adds n panels of features, from `first` on, to the sums of P panels of slots, whose coefficients
 * are `stride` words apart; n is not 0. Lanes behind the last panel take it, too: their
 * coefficients are 0. */
template <uint32_t P>
WARP_FN void add_panels(panel_sums *s, span<const uint32_t> features, uint32_t first, uint32_t n,
                        span<const uint32_t> coefficients, uint32_t stride)
{
	const u32v last = splat((first + n - 1) * STEP_TOKENS) + own_token(0);
	const boolv all = lanes() < 32;
	u32v at = ((lanes() & 3) + first) * STEP_TOKENS + own_token(0);
	for (uint32_t k = 0; k < n; k += BLOCK) {
		const u32v from = min_signed(at, last);
		quads c[P];
		UNROLL
		for (uint32_t p = 0; p < P; p++)
			c[p] = ldg_quads_if(skip(coefficients, p * stride), lanes(), all);
		UNROLL
		for (uint32_t j = 0; j < 4; j++) {
			const quads f = ld_quads_if(skip(features, 8 * 4 * j), from, all);
			UNROLL
			for (uint32_t p = 0; p < P; p++) {
				add_products<false, false>(s[p].low[j], f.v, c[p].v);
				add_products<false, true>(s[p].high[j], f.v, c[p].v + 2);
			}
		}
		at += BLOCK * STEP_TOKENS;
		coefficients = skip(coefficients, BLOCK_QUADS * 4);
	}
}

/* Blocks of a matrix for n panels of features. */
WARP_FN uint32_t blocks_of(uint32_t n)
{
	return (n + BLOCK - 1) / BLOCK;
}

/* Coefficients of a panel, which has `blocks` blocks, from a block on; of it and `more` panels. */
WARP_FN span<const uint32_t> coefficients_of(uint64_t matrix, uint32_t blocks, uint32_t panel,
                                             uint32_t block, uint32_t more)
{
	const uint64_t at = ((uint64_t)panel * blocks + block) * BLOCK_QUADS * 16;
	const size_t n = (size_t)blocks * (more + 1) - block;
	return span_at<const uint32_t>(matrix + at, n * BLOCK_QUADS * 4);
}

#endif
