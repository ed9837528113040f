/* SPDX-License-Identifier: BSD-3-Clause */
/* model_correct_body.h - the hidden state, corrected by what a layer's keys and values have shown
 * (spec model 3) */
#ifndef KVI_GPU_MODEL_CORRECT_BODY_H
#define KVI_GPU_MODEL_CORRECT_BODY_H

#include "model_expect_body.h"

/*
 * Warps of a block are next to each other, as many as CORRECT_PAIRS side by side: they find what
 * another one has loaded in the first cache, coefficients of the same two panels and features of
 * the same 32 tokens.
 */
constexpr uint32_t CORRECT_PAIRS = 4;
struct correct_part {
	uint32_t pair, step; /* of panels; 32 tokens */
};
/* What warp `warp` of `warps`, a multiple of CORRECT_PAIRS or fewer, of block x, z has. */
WARP_FN correct_part correct_part_of(uint32_t x, uint32_t z, uint32_t warp, uint32_t warps)
{
	const uint32_t pairs = warps < CORRECT_PAIRS ? warps : CORRECT_PAIRS;
	return correct_part{ x * pairs + warp % pairs, z * (warps / pairs) + warp / pairs };
}

/* Adds the sums of a panel of the hidden state to 32 tokens. */
WARP_FN void correct_panel(const kvi_gpu_chunk *c, uint32_t number, uint32_t step,
                           const panel_sums *s)
{
	const kvi_gpu_expects x = expects_of(c);
	const kvi_gpu_model *m = model_of(linear_of(c));
	span<const uint32_t> rows = span_at<const uint32_t>(m->d_rows, m->width * 2);
	span<const uint32_t> roots = span_at<const uint32_t>(x.root, c->tokens);
	span<uint32_t> h = span_at<uint32_t>(
		x.h, (size_t)(c->tokens - 1) * x.h_stride + m->width);
	UNROLL
	for (uint32_t i = 0; i < 2; i++) {
		const u32v row = own_slot(i) + number * PANEL;
		const boolv on = row < m->width;
		const u32v offset = ldg_if(rows, row * 2, on);
		const f32v units = ldg_float_if(rows, row * 2 + 1, on); /* 2^-e */
		UNROLL
		for (uint32_t j = 0; j < 4; j++) {
			const u32v t = own_token(j) + step * STEP_TOKENS;
			const boolv ok = on & (t < c->tokens);
			const f32v sum = f_mul(f_int(sum_of(s, i, j) + offset), units);
			const f32v more = f_mul(ldg_float_if(roots, t, ok), sum);
			const u32v at = t * x.h_stride + row;
			st_float_if(h, at, f_add(ld_float_if(h, at, ok), more), ok);
		}
	}
}

/* Corrects two panels of the hidden state at 32 tokens of a chunk whose features, and those of its
 * sources, are there; where there are none, nothing. */
WARP_FN void correct_panels(const kvi_gpu_chunk *c, uint32_t step, uint32_t number)
{
	if (!expects_of(c).h || step * STEP_TOKENS >= c->tokens)
		return;
	const kvi_gpu_linear *l = linear_of(c);
	const kvi_gpu_model *m = model_of(l);
	const uint32_t panels = panels_of(m->width), first = number * 2;
	if (first >= panels)
		return;
	const uint32_t more = first + 1 < panels, stride = more * m->d_blocks * BLOCK_QUADS * 4;
	span<const uint32_t> coefficients = coefficients_of(m->d, m->d_blocks, first, 0, more);
	panel_sums s[2];
	sums_begin_both(s);
	for (uint32_t i = 0; i < m->n_same; i++) {
		const kvi_gpu_source *x = &l->same[i];
		const uint32_t all = x->heads * x->panels;
		coefficients = add_source(s, x->features, all, 0, all, step, coefficients, stride);
	}
	const uint32_t own = m->heads * panels_of(m->head_channels);
	add_source(s, l->r, own, 0, own, step, coefficients, stride);
	correct_panel(c, first, step, &s[0]);
	if (more)
		correct_panel(c, first + 1, step, &s[1]);
}

#endif
