/* SPDX-License-Identifier: BSD-3-Clause */
/* batch_run_body.h - the steps of a batch of chunks, each for one warp */
#ifndef KVI_GPU_BATCH_RUN_BODY_H
#define KVI_GPU_BATCH_RUN_BODY_H

#include "chunk_finish_body.h"
#include "grid_decode_body.h"

WARP_FN kvi_gpu_opened *opened_of(const kvi_gpu_chunk *c)
{
	return (kvi_gpu_opened *)(uintptr_t)c->opened;
}
WARP_FN const kvi_gpu_params *params_of(const kvi_gpu_chunk *c)
{
	return (const kvi_gpu_params *)(uintptr_t)c->params;
}

/* Step 1, a warp a chunk. */
WARP_FN void run_open(const kvi_gpu_chunk *c)
{
	kvi_gpu_opened *o = opened_of(c);
	o->status = open_chunk(c, o);
}

/* Whether step 2 of a codec and a format has work in a chunk. */
WARP_FN bool runs(const kvi_gpu_chunk *c, uint32_t codec, uint32_t dtype)
{
	return c->codec == codec && c->dtype == dtype && opened_of(c)->status == KVI_GPU_OPEN &&
	       opened_of(c)->n_streams;
}

/* Step 2 of codec 4, a warp a stream. */
template <int D> WARP_FN void run_layers(const kvi_gpu_chunk *c, uint32_t number)
{
	kvi_gpu_opened *o = opened_of(c);
	if (number < o->n_streams)
		o->stream[number].good = layers_decode<D>(c, o, number);
}

/* Step 2 of codec 5: contexts, as many warps as context_warps says. */
template <int D>
WARP_FN void run_contexts(const kvi_gpu_chunk *c, const kvi_gpu_tables *tables, uint32_t warp)
{
	if (params_of(c)->rotary)
		rotated_contexts<D>(c, opened_of(c), params_of(c), tables, warp);
	else
		ring_contexts<D>(c, opened_of(c), params_of(c), warp);
}
/* Then a warp a stream, in blocks that have the tables (grid_tables). */
template <int D>
WARP_FN void run_grid(const kvi_gpu_chunk *c, const grid_shared *t, uint32_t number)
{
	kvi_gpu_opened *o = opened_of(c);
	if (number < o->n_streams)
		o->stream[number].good = grid_decode<D>(c, o, number, t);
}

/* Step 2 of codec 16: phase 0, by all warps of a block, then a warp a stream. */
template <int D>
WARP_FN void run_cells_begin(const kvi_gpu_chunk *c, const cells_shared *t,
                             const kvi_gpu_tables *tables, uint32_t warp, uint32_t warps)
{
	cells_tables(t, c, opened_of(c), tables, params_of(c)->rotary, warp, warps);
	cells_channels<D>(c, opened_of(c), params_of(c), warp, warps);
}
template <int D>
WARP_FN void run_cells(const kvi_gpu_chunk *c, const cells_shared *t, uint32_t number)
{
	kvi_gpu_opened *o = opened_of(c);
	if (number < o->n_streams)
		o->stream[number].good = cells_decode<D>(c, o, params_of(c), number, t);
}

/* Step 3, a warp a stream. */
WARP_FN void run_finish(const kvi_gpu_chunk *c, uint32_t number)
{
	kvi_gpu_opened *o = opened_of(c);
	const uint32_t size = element_bytes(c->dtype);
	if (o->status != KVI_GPU_OPEN || number >= finished_streams(o))
		return;
	o->stream[number].good = size == 1   ? finish_stream<1>(c, o, number)
	                         : size == 2 ? finish_stream<2>(c, o, number)
	                                     : finish_stream<4>(c, o, number);
}

/* Step 4, a warp a chunk. */
WARP_FN void run_answer(const kvi_gpu_chunk *c, span<uint32_t> status, uint32_t number)
{
	kvi_gpu_opened *o = opened_of(c);
	o->status = finish_chunk(c, o);
	st_one(status, number, o->status);
}

/* Step 5, a warp a token. */
WARP_FN void run_scatter(const kvi_gpu_chunk *c, uint32_t token)
{
	const kvi_gpu_opened *o = opened_of(c);
	const uint32_t size = element_bytes(c->dtype);
	if (o->status != KVI_GPU_OK || !c->view.base || token < c->from || token >= c->to)
		return;
	if (size == 1)
		scatter_token<1>(c, o, token);
	else if (size == 2)
		scatter_token<2>(c, o, token);
	else
		scatter_token<4>(c, o, token);
}

#endif
