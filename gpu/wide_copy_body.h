/* SPDX-License-Identifier: BSD-3-Clause */
/* wide_copy_body.h - copies a token between a view and memory of a chunk, 16 bytes a lane */
#ifndef KVI_GPU_WIDE_COPY_BODY_H
#define KVI_GPU_WIDE_COPY_BODY_H

#include "device_job.h"
#include "warp.h"

/* A token in a view, in parts of 16 bytes. */
struct wide_token {
	uint32_t parts;  /* of all heads; 0: the view is not made of such parts */
	uint32_t shift;  /* a head, or all of them, has 2^shift parts at most */
	uint32_t stride; /* from a head to the next one */
};

template <int SIZE> WARP_FN wide_token wide_of(const kvi_gpu_chunk *c)
{
	const kvi_gpu_view *v = &c->view;
	const uint32_t bytes = c->head_channels * SIZE, head = bytes / 16;
	const uint64_t stride = v->head_stride / 16;
	const bool together = c->heads == 1 || v->head_stride == bytes;
	const bool apart = !(head & (head - 1)) && v->head_stride % 16 == 0 &&
	                   stride < (uint64_t)(1u << 31) / c->heads;
	const bool aligned = v->elem_stride == SIZE && bytes % 16 == 0 &&
	                     (v->base | v->page_stride | v->token_stride) % 16 == 0;
	wide_token w;
	w.parts = aligned && (together || apart) ? c->heads * head : 0;
	w.shift = together ? 31 : count(head - 1);
	w.stride = together ? 0 : (uint32_t)stride;
	return w;
}

/*
 * Copies a token that begins at byte `at` of the view, from the view to `memory`, or (SCATTER) from
 * there to the view. False: not in such parts, nothing was copied.
 */
template <int SIZE, bool SCATTER>
WARP_FN bool copy_wide(const kvi_gpu_chunk *c, uint64_t at, uint64_t memory)
{
	const wide_token w = wide_of<SIZE>(c);
	if (!w.parts || memory % 16)
		return false;
	const uint64_t view = c->view.base + at, bytes = c->view.bytes - at;
	const uint64_t from = SCATTER ? memory : view, to = SCATTER ? view : memory;
	span<const uint32_t> in = span_at<const uint32_t>(from, SCATTER ? w.parts * 4 : bytes / 4);
	span<uint32_t> out = span_at<uint32_t>(to, SCATTER ? bytes / 4 : w.parts * 4);
	/* four times, registers of sm_100 do not suffice */
	UNROLL_TWICE
	for (uint32_t i = 0; i < w.parts; i += 32) {
		const u32v part = lanes() + i;
		const boolv on = part < w.parts;
		const u32v there = (part >> w.shift) * w.stride + (part & ((1u << w.shift) - 1));
		st_quads_if(out, SCATTER ? there : part,
		            SCATTER ? ld_quads_if(in, part, on) : ldg_quads_if(in, there, on),
		            on);
	}
	return true;
}

#endif
