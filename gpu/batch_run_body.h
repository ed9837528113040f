/* SPDX-License-Identifier: BSD-3-Clause */
/* batch_run_body.h - decodes a batch of chunks, a chunk by a block of eight warps */
#ifndef KVI_GPU_BATCH_RUN_BODY_H
#define KVI_GPU_BATCH_RUN_BODY_H

#include "chunk_finish_body.h"
#include "grid_decode_body.h"

constexpr uint32_t BLOCK_WARPS = KVI_GPU_STREAMS;

WARP_FN kvi_gpu_opened *opened_of(const kvi_gpu_chunk *c)
{
	return (kvi_gpu_opened *)(uintptr_t)c->opened;
}
WARP_FN const kvi_gpu_params *params_of(const kvi_gpu_chunk *c)
{
	return (const kvi_gpu_params *)(uintptr_t)c->params;
}

/* Whether streams of a codec and a format are decoded, or encoded. */
WARP_FN bool runs(const kvi_gpu_chunk *c, uint32_t codec, uint32_t dtype)
{
	return c->codec == codec && c->dtype == dtype && opened_of(c)->status == KVI_GPU_OPEN &&
	       opened_of(c)->n_streams;
}

/* Contexts of codec 5, as many warps as context_warps says. */
template <int D>
WARP_FN void run_contexts(const kvi_gpu_chunk *c, const kvi_gpu_tables *tables, uint32_t warp)
{
	if (params_of(c)->rotary)
		rotated_contexts<D>(c, opened_of(c), params_of(c), tables, warp);
	else
		ring_contexts<D>(c, opened_of(c), params_of(c), warp);
}

/* ----- a chunk ------------------------------------------------ */

WARP_FN span<uint64_t> view_tokens_of(void)
{
	return span_at<uint64_t>((uint64_t)(uintptr_t)block_of()->token, KVI_GPU_TOKENS);
}

/* Takes chunk i in hand, whose answer has some bytes; one warp. */
WARP_FN void take_chunk(const kvi_gpu_batch *batch, uint32_t i, uint32_t answer_bytes)
{
	constexpr uint32_t n = sizeof(kvi_gpu_chunk) / 4;
	kvi_gpu_block *b = block_of();
	const kvi_gpu_part *part = batch->part;
	for (; i >= part->n; part++)
		i -= (uint32_t)part->n;
	span<const uint32_t> from = span_at<const uint32_t>(part->chunks + (uint64_t)i * 4 * n, n);
	span<uint32_t> to = span_at<uint32_t>((uint64_t)(uintptr_t)&b->job, n);
	for (uint32_t k = 0; k < n; k += 32)
		st_if(to, lanes() + k, ldg_if(from, lanes() + k, lanes() + k < n), lanes() + k < n);
	warp_barrier();
	b->answer = part->status + (uint64_t)i * answer_bytes;
	b->job.opened = (uint64_t)(uintptr_t)&b->opened;
	if (b->job.codec == CODEC_LAYERS || b->job.codec == CODEC_CELLS)
		b->tables = 0;
}

/* Takes a slot of work memory for the chunk, if it needs one; one warp. */
WARP_FN void take_slot(const kvi_gpu_batch *batch, uint32_t block, bool needs)
{
	kvi_gpu_chunk *c = &block_of()->job;
	const uint32_t slot = needs ? take_lock(span_at<uint32_t>(batch->locks, batch->slots),
	                                        block, batch->slots)
	                            : (uint32_t)KVI_GPU_NO_SLOT;
	const uint64_t work = batch->work + slot * batch->slot_bytes;
	const uint64_t packed = c->packed, decoded = c->decoded, contexts = c->contexts,
		       columns = c->columns, words = c->words;
	warp_barrier();
	block_of()->slot = slot;
	c->packed = needs ? work + packed : 0;
	c->decoded = needs ? work + decoded : 0;
	c->contexts = needs ? work + contexts : 0;
	c->columns = needs ? work + columns : 0;
	c->words = needs ? work + words : 0;
	warp_barrier();
}

/* Gives it back. */
WARP_FN void give_slot(const kvi_gpu_batch *batch)
{
	if (block_of()->slot != KVI_GPU_NO_SLOT)
		give_lock(span_at<uint32_t>(batch->locks, batch->slots), block_of()->slot);
}

/* Takes chunk i in hand, opens it, and takes a slot where it needs one; one warp. */
WARP_CALL void begin_chunk(const kvi_gpu_batch *batch, uint32_t block, uint32_t i)
{
	kvi_gpu_block *b = block_of();
	const kvi_gpu_chunk *c = &b->job;
	take_chunk(batch, i, sizeof(uint32_t));
	const bool direct = goes_direct(c);
	take_slot(batch, block, !direct && c->codec != CODEC_RAW);
	b->direct = direct;
	warp_barrier();
	const uint32_t status = open_chunk();
	b->opened.status = status == KVI_GPU_OPEN ? view_tokens(c, view_tokens_of()) : status;
}

/* Writes the answer for the chunk, and gives its slot back; one warp. */
WARP_FN void end_chunk(const kvi_gpu_batch *batch)
{
	give_slot(batch);
	st_one(span_at<uint32_t>(block_of()->answer, 1), 0, block_of()->opened.status);
}

/* ----- streams ------------------------------------------------ */

template <int D> WARP_FN void run_layers(void)
{
	kvi_gpu_opened *o = &block_of()->opened;
	each_warp([&](uint32_t w) {
		if (w < o->n_streams)
			o->stream[w].good = layers_decode<D>(w);
	});
}

static_assert(KVI_GPU_GRID_CODES == GRID_TABLES * GRID_SYMBOLS, "tables of codec 5");
WARP_FN grid_shared grid_tables_of(void)
{
	return grid_shared{ block_part<uint32_t>(0, KVI_GPU_GRID_CODES),
		            block_part<uint32_t>(KVI_GPU_GRID_CODES, 64),
		            part<uint8_t>(block_part<uint32_t>(KVI_GPU_GRID_CODES + 64,
		                                               GRID_TABLES * GRID_FIRSTS / 4),
		                          0, GRID_TABLES * GRID_FIRSTS) };
}
template <int D> WARP_CALL void grid_begin(const kvi_gpu_tables *tables, uint32_t w)
{
	const kvi_gpu_block *b = block_of();
	const uint32_t n = context_warps(&b->opened, params_of(&b->job));
	const grid_shared t = grid_tables_of();
	if (b->tables != CODEC_GRID)
		grid_tables(&t, tables, w, BLOCK_WARPS);
	for (uint32_t i = w; i < n; i += BLOCK_WARPS)
		run_contexts<D>(&b->job, tables, i);
}
template <int D> WARP_FN bool grid_stream(uint32_t number)
{
	const grid_shared t = grid_tables_of();
	return grid_decode<D>(&block_of()->job, &block_of()->opened, number, &t);
}
template <int D> WARP_FN void run_grid(const kvi_gpu_tables *tables)
{
	kvi_gpu_block *b = block_of();
	each_warp([&](uint32_t w) { grid_begin<D>(tables, w); });
	each_warp([&](uint32_t w) {
		b->tables = CODEC_GRID;
		if (w < b->opened.n_streams)
			b->opened.stream[w].good = grid_stream<D>(w);
	});
}

template <int D> WARP_CALL void cells_begin(const kvi_gpu_tables *tables, uint32_t w)
{
	const kvi_gpu_chunk *c = &block_of()->job;
	const kvi_gpu_opened *o = &block_of()->opened;
	const cells_shared t = cells_shared_of(block_part<uint32_t>(0, KVI_GPU_CELL_SHARED));
	cells_tables(&t, c, o, tables, params_of(c)->rotary, w, BLOCK_WARPS);
	cells_channels<D>(c, o, params_of(c), w, BLOCK_WARPS);
}
template <int D> WARP_FN void run_cells(const kvi_gpu_tables *tables)
{
	kvi_gpu_block *b = block_of();
	each_warp([&](uint32_t w) { cells_begin<D>(tables, w); });
	each_warp([&](uint32_t w) {
		if (w < b->opened.n_streams)
			b->opened.stream[w].good = params_of(&b->job)->rotary
			                                   ? cells_decode<D, true>(w)
			                                   : cells_decode<D, false>(w);
	});
}

WARP_FN void run_streams(const kvi_gpu_tables *tables)
{
	const kvi_gpu_block *b = block_of();
	switch (b->opened.n_streams ? b->job.codec << 8 | b->job.dtype : 0) {
	case CODEC_LAYERS << 8 | 2:
		return run_layers<2>();
	case CODEC_LAYERS << 8 | 3:
		return run_layers<3>();
	case CODEC_LAYERS << 8 | 4:
		return run_layers<4>();
	case CODEC_GRID << 8 | 2:
		return run_grid<2>(tables);
	case CODEC_GRID << 8 | 3:
		return run_grid<3>(tables);
	case CODEC_GRID << 8 | 4:
		return run_grid<4>(tables);
	case CODEC_CELLS << 8 | 2:
		return run_cells<2>(tables);
	case CODEC_CELLS << 8 | 3:
		return run_cells<3>(tables);
	default:
		return;
	}
}

/* ----- elements ------------------------------------------------ */

template <int SIZE> WARP_CALL bool stream_finished(uint32_t number)
{
	return finish_stream<SIZE>(&block_of()->job, &block_of()->opened, number);
}
template <int SIZE> WARP_CALL void token_scattered(uint32_t token)
{
	const kvi_gpu_block *b = block_of();
	scatter_token<SIZE>(&b->job, &b->opened, token, b->token[token]);
}

/* The answer, when all streams are finished. */
WARP_FN void answer_chunk(void)
{
	kvi_gpu_opened *o = &block_of()->opened;
	each_warp([&](uint32_t w) {
		if (w == 0)
			o->status = streams_answer(o);
	});
}

/* Finishes elements that are in memory: what the mask removed, checks, the answer, the view. */
template <int SIZE> WARP_FN void finish_elements(void)
{
	kvi_gpu_block *b = block_of();
	each_warp([&](uint32_t w) {
		if (w < finished_streams(&b->opened))
			b->opened.stream[w].good = stream_finished<SIZE>(w);
	});
	answer_chunk();
	each_warp([&](uint32_t w) {
		for (uint32_t i = b->job.from + w; i < b->job.to; i += BLOCK_WARPS)
			if (b->opened.status == KVI_GPU_OK)
				token_scattered<SIZE>(i);
	});
}

WARP_FN void decode_chunk(const kvi_gpu_batch *batch, uint32_t block, uint32_t i)
{
	const kvi_gpu_block *b = block_of();
	each_warp([&](uint32_t w) {
		if (w == 0)
			begin_chunk(batch, block, i);
	});
	if (b->opened.status == KVI_GPU_OPEN) {
		run_streams((const kvi_gpu_tables *)(uintptr_t)batch->tables);
		const uint32_t size = element_bytes(b->job.dtype);
		if (b->direct)
			answer_chunk();
		else if (size == 1)
			finish_elements<1>();
		else if (size == 2)
			finish_elements<2>();
		else
			finish_elements<4>();
	}
	each_warp([&](uint32_t w) {
		if (w == 0)
			end_chunk(batch);
	});
}

/* The chunks that one block of several takes. */
WARP_FN void decode_block(const kvi_gpu_batch *batch, uint32_t block, uint32_t blocks)
{
	each_warp([&](uint32_t) { block_of()->tables = 0; });
	for (uint32_t i = block; i < batch->n; i += blocks)
		decode_chunk(batch, block, i);
}

#if !defined(__CUDACC__)
/* All blocks of a launch, one after the other; what they write, they do not load as constant. */
template <typename F>
static inline void host_blocks(const kvi_gpu_batch *batch, uint32_t blocks, span<uint32_t> shared,
                               F block)
{
	written[0] = host_range{ batch->work, batch->slots * batch->slot_bytes };
	written[1] = host_range{ (uint64_t)(uintptr_t)shared.p, 4 * shared.n };
	shared_by_block = shared;
	race_launch(__builtin_frame_address(0));
	for (uint32_t i = 0; i < blocks; i++) {
		/* nobody knows what a device has there */
		memset(shared.p, 0xff, 4 * shared.n);
		race_block(i, shared.p, 4 * shared.n);
		block(i);
	}
	race_ended();
	written[0] = written[1] = host_range{ 0, 0 };
}
static inline void host_decode(const kvi_gpu_batch *batch, uint32_t blocks, span<uint32_t> shared)
{
	host_blocks(batch, blocks, shared, [&](uint32_t i) { decode_block(batch, i, blocks); });
}
#endif

#endif
