/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * model_exact_body.h - whether elements are what the engine predicts, bit for bit (spec predicted
 * 1): such a chunk has another codec, whatever the level
 */
#ifndef KVI_GPU_MODEL_EXACT_BODY_H
#define KVI_GPU_MODEL_EXACT_BODY_H

#include "lossy_elements_body.h"
#include "model_expect_body.h"
#include "payload_encode_body.h"

/* 1 where predictions are other elements than those of a token from channel i on. */
template <int D>
WARP_FN u32v other_elements(const kvi_gpu_chunk *c, uint32_t token, uint32_t i)
{
	typedef typename element_of<format<D>::size>::type element;
	const kvi_gpu_expects x = expects_of(c);
	const kvi_gpu_linear *l = linear_of(c);
	const uint32_t C = c->heads * c->head_channels;
	span<const element> in = span_at<const element>(
		c->decoded + (uint64_t)token * C * sizeof(element), C);
	span<const uint32_t> p =
		span_at<const uint32_t>(x.p + (uint64_t)token * x.p_stride * sizeof(float), C);
	const u32v at = lanes() + i;
	const boolv on = at < C;
	const u32v slot = channel_slot(model_of(l), l->interleaved != 0, at);
	const u32v number = f_bits(ldg_float_if(p, slot, on));
	return select(on & (narrow<D>(number) != ldg_if(in, at, on)), splat(1), splat(0));
}

/* Whether all elements are those that are predicted. A finite one that a prediction passes by far
 * looks so: the host then finds that it is not. */
template <int D> WARP_FN bool is_exact(const kvi_gpu_chunk *c)
{
	const uint32_t C = c->heads * c->head_channels;
	for (uint32_t t = 0; t < c->tokens; t++)
		for (uint32_t i = 0; i < C; i += 32)
			if (any_of(other_elements<D>(c, t, i)))
				return false;
	return true;
}

/* Leaves a chunk to the host whose elements are those that are predicted; keys are predicted behind
 * RoPE by now. Behind its answer, a warp a chunk. */
WARP_FN void leave_exact(const kvi_gpu_encode *e, kvi_gpu_encoded *answer)
{
	const kvi_gpu_chunk *c = &e->job;
	bool exact = false;
	if (!expects_of(c).p || answer->status != KVI_GPU_OK)
		return;
	switch (c->dtype) {
	case 1: exact = is_exact<1>(c); break;
	case 2: exact = is_exact<2>(c); break;
	case 3: exact = is_exact<3>(c); break;
	case 4: exact = is_exact<4>(c); break;
	default: exact = is_exact<5>(c);
	}
	if (exact)
		answer->status = KVI_GPU_HOST;
}

#endif
