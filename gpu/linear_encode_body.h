/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * linear_encode_body.h - what encoders of codec 7 do: features of known elements, contexts, streams
 * (spec linear 7)
 *
 * All chunks of a plan have their elements, so that sources are always there, whatever codec their
 * chunks will have.
 */
#ifndef KVI_GPU_LINEAR_ENCODE_BODY_H
#define KVI_GPU_LINEAR_ENCODE_BODY_H

#include "chunk_encode_body.h"

/* ----- features ------------------------------------------------ */

/* Whether features of a chunk are made in a stage. */
WARP_FN bool models_in(const kvi_gpu_encode *e, uint32_t stage)
{
	return e->job.linear && e->job.stage == stage;
}

/* Angles and rows of the token table, a warp a pair of a rope and a warp 32 tokens. */
WARP_FN void encode_angles(const kvi_gpu_encode *e, const kvi_gpu_tables *tables, uint32_t stage,
                           uint32_t warp)
{
	if (!models_in(e, stage))
		return;
	find_turns(&e->job, tables, warp);
	find_rows(&e->job, warp);
}

/* Bases and sums, a warp two panels and 32 tokens. */
WARP_FN void encode_sums(const kvi_gpu_encode *e, uint32_t stage, uint32_t step, uint32_t warp)
{
	if (models_in(e, stage))
		find_panels(&e->job, step, warp);
}

/* Features and, of a chunk of codec 7 or 8, contexts; a warp 32 tokens. */
template <int D>
WARP_FN void encode_walk(const kvi_gpu_encode *e, const kvi_gpu_tables *tables, uint32_t stage,
                         uint32_t step)
{
	const kvi_gpu_chunk *c = &e->job;
	if (models_in(e, stage) && c->dtype == D && step * 32 < c->tokens && linear_of(c)->features)
		find_features<D>(c, tables, is_lossy(c) ? c->packed : c->decoded,
		                 is_linear(c->codec), step);
}

/* Whether the scale that adapts to the tokens is as it is where the model fits: W / N is 13. A
 * sum of at most 256 numbers below 2^24. */
WARP_FN bool model_fits(const kvi_gpu_encode *e)
{
	const kvi_gpu_linear *l = linear_of(&e->job);
	const kvi_gpu_model *m = model_of(l);
	const uint32_t T = e->job.tokens, n = (m->n0 + m->heads * m->head_channels) * T;
	span<const uint32_t> w = span_at<const uint32_t>(l->w, padded_tokens(&e->job));
	u32v all = splat(0);
	for (uint32_t t = 0; t < T; t += 32)
		all += ld_if(w, lanes() + t, lanes() + t < T);
	for (uint32_t d = 1; d < 32; d *= 2)
		all += shuffle(all, lanes() ^ d);
	const uint32_t sum = first_lane(all);
	return m->flags & KVI_GPU_MODEL_SCALE && sum > 10 * n && sum < 16 * n;
}

/* ----- streams ------------------------------------------------ */

/* What an encoder of a stream reads: elements and contexts by slot, constant channels. */
struct linear_coded {
	span<const uint16_t> elements;
	span<const uint32_t> contexts, constant;
	uint32_t padded, heads, head_channels, rotary;
	bool interleaved;
};

WARP_FN linear_coded linear_coded_of(const kvi_gpu_encode *e)
{
	const kvi_gpu_linear *l = linear_of(&e->job);
	const kvi_gpu_model *m = model_of(l);
	const uint32_t C = channels_of(e), n = uniform(padded_tokens(&e->job));
	linear_coded x;
	x.elements = span_at<const uint16_t>(l->elements, C * n);
	x.contexts = span_at<const uint32_t>(e->job.contexts, C * n);
	x.constant = span_at<const uint32_t>(e->channel_bits, (C + 31) / 32);
	x.padded = n;
	x.heads = uniform(m->heads);
	x.head_channels = uniform(m->head_channels);
	x.rotary = m->rotary;
	x.interleaved = l->interleaved != 0;
	return x;
}

/* All slots of 32 tokens a step from `first` on; the decoder's last step is the first here. */
template <int D, bool ALL>
WARP_FN u32v linear_encode_slots(const linear_coded *x, const encode_shared *t, u32v s,
                                 uint32_t first, uint32_t steps, boolv active, words_out *w)
{
	for (uint32_t h = x->heads; h-- > 0;)
		for (uint32_t i = x->head_channels; i-- > 0;) {
			const uint32_t begin = h * x->head_channels;
			const uint32_t channel = begin + slot_channel(x->rotary, x->interleaved, i);
			const uint32_t bits = ldg_one(x->constant, channel / 32);
			if (uniform(bits >> channel % 32 & 1))
				continue;
			const uint32_t slot = (begin + i) * x->padded + first;
			for (uint32_t at = 32 * steps; at > 0;) {
				at -= 32;
				s = grid_encode_step<D, ALL>(
					w, s, t, ldg(x->contexts, lanes() + (slot + at)),
					ldg(x->elements, lanes() + (slot + at)), active);
			}
		}
	return s;
}

/* As grid_encode; the mask takes no token out. */
template <int D>
WARP_FN u32v linear_encode(const kvi_gpu_encode *e, const encode_shared *t, uint32_t first_row,
                           uint32_t rows, words_out *w)
{
	const linear_coded x = linear_coded_of(e);
	const uint32_t steps = uniform(rows / 32), tail = uniform(rows % 32);
	u32v s = splat(STATE_LOW);
	if (tail)
		s = linear_encode_slots<D, false>(&x, t, s, first_row + 32 * steps, 1,
		                                  lanes() < tail, w);
	if (steps)
		s = linear_encode_slots<D, true>(&x, t, s, first_row, steps, lanes() < 32, w);
	return s;
}

#endif
