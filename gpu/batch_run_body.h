/* SPDX-License-Identifier: BSD-3-Clause */
/* batch_run_body.h - the steps of a batch of chunks, each for one warp */
#ifndef KVI_GPU_BATCH_RUN_BODY_H
#define KVI_GPU_BATCH_RUN_BODY_H

#include "exponent_decode_body.h"
#include "linear_walk_body.h"
#include "lossy_elements_body.h"
#include "model_correct_body.h"

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
	o->status = is_lossy(c) ? open_lossy(c, o) : open_chunk(c, o);
}

/* Whether step 2 of a codec, 7 stands for 8, too, and a format has work in a chunk. */
WARP_FN bool runs(const kvi_gpu_chunk *c, uint32_t codec, uint32_t dtype)
{
	const uint32_t as = is_linear(c->codec) ? (uint32_t)CODEC_LINEAR : c->codec;
	return as == codec && c->dtype == dtype && opened_of(c)->status == KVI_GPU_OPEN &&
	       opened_of(c)->n_streams;
}

/* Step 2 of codec 4: tables, then, behind a barrier, a warp a stream. */
template <int D>
WARP_FN void run_exponent_tables(const kvi_gpu_chunk *c, span<uint32_t> lut, span<uint32_t> ring,
                                 uint32_t warp, uint32_t warps)
{
	exp_tables(lut, params_of(c), warp, warps);
	exp_ring<D>(ring, params_of(c), opened_of(c),
	            span_at<const uint32_t>(c->columns, opened_of(c)->columns), warp, warps);
}
template <int D>
WARP_FN void run_exponent(const kvi_gpu_chunk *c, span<const uint32_t> lut,
                          span<const uint32_t> ring, uint32_t number)
{
	kvi_gpu_opened *o = opened_of(c);
	if (number < o->n_streams)
		o->stream[number].good = exp_decode<D>(c, o, number, lut, ring);
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

/* Whether there is work in a stage for a chunk with a model. */
WARP_FN bool runs_linear(const kvi_gpu_chunk *c, uint32_t stage)
{
	if (!c->linear || c->stage != stage || opened_of(c)->status != KVI_GPU_OPEN)
		return false;
	const kvi_gpu_linear *l = linear_of(c);
	return !l->predicts || sources_good(l);
}

/* Step 2 of codec 7, and of chunks that others are predicted from: angles and rows of the token
 * table, a warp a pair of a rope and a warp 32 tokens; then bases and sums, a warp two panels and
 * 32 tokens. */
WARP_FN void run_angles(const kvi_gpu_chunk *c, const kvi_gpu_tables *tables, uint32_t stage,
                        uint32_t warp)
{
	if (!runs_linear(c, stage))
		return;
	find_turns(c, tables, warp);
	find_rows(c, warp);
}
WARP_FN void run_sums(const kvi_gpu_chunk *c, uint32_t stage, uint32_t step, uint32_t warp)
{
	if (runs_linear(c, stage))
		find_panels(c, step, warp);
}
/* Whether streams of codec 7 are decoded in a stage; then a warp a stream. */
WARP_FN bool decodes_linear(const kvi_gpu_chunk *c, uint32_t dtype, uint32_t stage)
{
	return runs(c, CODEC_LINEAR, dtype) && runs_linear(c, stage);
}
template <int D>
WARP_FN void run_linear(const kvi_gpu_chunk *c, const kvi_gpu_tables *tables,
                        const grid_shared *codes, uint32_t number)
{
	kvi_gpu_opened *o = opened_of(c);
	if (number < o->n_streams)
		o->stream[number].good = linear_decode<D>(c, o, tables, codes, number);
}

/*
 * Step 2 of codecs 13 and 14: angles of the pairs of a rope, a warp a pair, and codes, in blocks
 * that have the tables (code_tables), a warp a body; then coefficients, a warp a head or a panel
 * and 32 tokens; then elements, a warp 32 channels and 32 tokens, or an exact token. Codec 14 has
 * its angles and bases from the kernels of models.
 */
WARP_FN void run_lossy_turns(const kvi_gpu_chunk *c, const kvi_gpu_tables *tables,
                             uint32_t stage, uint32_t warp)
{
	if (c->codec == CODEC_HAD && runs_lossy(c, opened_of(c), stage))
		find_lossy_turns(c, tables, warp);
}
WARP_FN void run_codes(const kvi_gpu_chunk *c, const code_shared *t, uint32_t stage,
                       uint32_t number)
{
	kvi_gpu_opened *o = opened_of(c);
	if (runs_lossy(c, o, stage) && number < o->n_bodies)
		o->body[number].good = decode_codes(c, o, number, t);
}
WARP_FN void run_transform(const kvi_gpu_chunk *c, uint32_t stage, uint32_t block, uint32_t warp)
{
	const kvi_gpu_opened *o = opened_of(c);
	if (!runs_lossy(c, o, stage) || block >= lossy_blocks(o) || warp >= transform_warps(c))
		return;
	if (c->codec == CODEC_HAD)
		transform_head(c, o, block, warp);
	else
		transform_panel(c, o, block, warp);
}
template <int D>
WARP_FN void run_elements(const kvi_gpu_chunk *c, uint32_t stage, uint32_t warp,
                          span<uint32_t> tile)
{
	const kvi_gpu_opened *o = opened_of(c);
	if (c->dtype == D && runs_lossy(c, o, stage) && bodies_good(o))
		store_elements<D>(c, o, warp, tile);
}

/* Step 3, a warp a stream. */
WARP_FN void run_finish(const kvi_gpu_chunk *c, uint32_t stage, uint32_t number)
{
	kvi_gpu_opened *o = opened_of(c);
	const uint32_t size = element_bytes(c->dtype);
	if (c->stage != stage || o->status != KVI_GPU_OPEN || number >= finished_streams(o))
		return;
	o->stream[number].good = size == 1   ? finish_stream<1>(c, o, number)
	                         : size == 2 ? finish_stream<2>(c, o, number)
	                                     : finish_stream<4>(c, o, number);
}

/* Then features of what codec 7 has not decoded, a warp 32 tokens. */
template <int D>
WARP_FN void run_features(const kvi_gpu_chunk *c, const kvi_gpu_tables *tables, uint32_t stage,
                          uint32_t step)
{
	const kvi_gpu_opened *o = opened_of(c);
	if (c->dtype == D && runs_linear(c, stage) && step * 32 < c->tokens &&
	    linear_of(c)->features && (!is_linear(c->codec) || !o->n_streams))
		find_features<D>(c, tables, elements_at(c, o), false, step);
}

/* Step 4, a warp a chunk. */
WARP_FN void run_answer(const kvi_gpu_chunk *c, uint32_t stage, span<uint32_t> status,
                        uint32_t number)
{
	kvi_gpu_opened *o = opened_of(c);
	if (c->stage != stage)
		return;
	o->status = finish_chunk(c, o);
	st_one(status, number, o->status);
	if (c->linear)
		keep_status(linear_of(c), o->status);
}

/*
 * What chunks have of the exact engine. Before step 2: E, a warp a token; hashes of it, a warp a
 * chunk; checks, a warp a chunk. Behind step 4: numbers for attention, a warp a token; corrections
 * of the hidden state, a warp 16 numbers of it and 32 tokens.
 */
WARP_FN void run_expect_check(const kvi_gpu_chunk *c)
{
	check_expected(c, opened_of(c));
}
/* Whether a chunk has elements, with a model. */
WARP_FN bool has_elements(const kvi_gpu_chunk *c)
{
	const uint32_t status = opened_of(c)->status;
	return c->linear && (status == KVI_GPU_OK || status == KVI_GPU_PAGE);
}
WARP_FN void run_numbers(const kvi_gpu_chunk *c, uint32_t token)
{
	if (has_elements(c))
		number_elements(c, elements_at(c, opened_of(c)), token);
}
WARP_FN void run_correct(const kvi_gpu_chunk *c, uint32_t step, uint32_t warp)
{
	if (has_elements(c) && source_good(linear_of(c)->kept))
		correct_panels(c, step, warp);
}
/* Behind all chunks of a layer: what depends on one that has no elements, a warp a chunk. */
WARP_FN void run_lose(const kvi_gpu_chunk *c)
{
	const kvi_gpu_expects x = expects_of(c);
	if (x.lost && !has_elements(c))
		lower_one(span_at<uint32_t>(x.lost, 1), 0, x.t0);
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
