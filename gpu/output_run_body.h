/* SPDX-License-Identifier: BSD-3-Clause */
/* output_run_body.h - encodes a batch of chunks, a chunk by a block of eight warps */
#ifndef KVI_GPU_OUTPUT_RUN_BODY_H
#define KVI_GPU_OUTPUT_RUN_BODY_H

#include "cells_encode_body.h"
#include "layers_encode_body.h"

/* Elements of a stream of codecs 4 and 16, if the chunk has as many. */
constexpr uint32_t LAYERS_ELEMENTS = 16384, CELLS_ELEMENTS = 32768;

/* Calls a step for each of some parts of the chunk, a warp after the other. */
template <typename F> WARP_FN void each_part(uint32_t n, F step)
{
	each_warp([&](uint32_t w) {
		for (uint32_t i = w; i < n; i += BLOCK_WARPS)
			step(i);
	});
}
template <typename F> WARP_FN void one_warp(F step)
{
	each_part(1, [&](uint32_t) { step(); });
}
WARP_FN bool is_open(void)
{
	return block_of()->opened.status == KVI_GPU_OPEN;
}

/* ----- elements ------------------------------------------------ */

/* Takes chunk i in hand; its tokens have to have pages. */
WARP_CALL void begin_output(const kvi_gpu_batch *batch, uint32_t i)
{
	kvi_gpu_block *b = block_of();
	uint32_t missing = 0;
	take_chunk(batch, i, sizeof(kvi_gpu_encoded));
	b->slot = KVI_GPU_NO_SLOT;
	b->direct = 0;
	b->opened.status = view_tokens(&b->job, view_tokens_of());
	warp_barrier();
	for (uint32_t t = 0; t < b->job.tokens; t += 32) {
		const u32v at = lanes() + t;
		const boolv on = at < b->job.tokens;
		missing |= mask_of(on) &
		           ~mask_of(nonzero64(token_address(select(on, at, splat(0)))));
	}
	if (missing)
		b->opened.status = KVI_GPU_PAGE;
}

/* Cuts the remaining tokens into streams of a size. */
WARP_FN void cut_streams(uint32_t size)
{
	kvi_gpu_opened *o = &block_of()->opened;
	encoding_of()->stream_size = size;
	o->stream_tokens = KVI_GPU_LANES << size;
	o->n_streams = (o->rows + o->stream_tokens - 1) / o->stream_tokens;
}

/* The size of the streams: the smallest ones that have enough elements. */
WARP_FN uint32_t size_of_elements(uint32_t elements)
{
	const kvi_gpu_opened *o = &block_of()->opened;
	uint32_t size = 0;
	while (size < 3 && (o->rows <= 32u << size || o->columns * (32 << size) < elements))
		size++;
	return size;
}

/* Cuts streams, behind the mask, and chooses where elements are read: those of codec 4 without a
 * mask from the view; others are collected in a slot. */
WARP_CALL void open_output(const kvi_gpu_batch *batch, uint32_t block)
{
	kvi_gpu_block *b = block_of();
	kvi_gpu_opened *o = &b->opened;
	const kvi_gpu_chunk *c = &b->job;
	const uint32_t row = channels_of(c) * element_bytes(c->dtype);
	if (!o->rows || !o->columns) {
		o->status = KVI_GPU_HOST;
		return;
	}
	cut_streams(c->codec == CODEC_LAYERS  ? size_of_elements(LAYERS_ELEMENTS)
	            : c->codec == CODEC_CELLS ? size_of_elements(CELLS_ELEMENTS)
	                                      : 3);
	b->direct = c->codec == CODEC_LAYERS && encoding_of()->section_bytes == 1 &&
	            row % HASH_STRIPE == 0 &&
	            shortest_stream(c, encoding_of()->stream_size) * row > HASH_SHORT;
	take_slot(batch, block, !b->direct);
	if (!b->direct)
		list_columns();
	/* without a mask they are where they are collected */
	if (!b->direct && encoding_of()->section_bytes == 1)
		b->job.packed = b->job.decoded;
}

template <int SIZE> WARP_FN void mask_output(const kvi_gpu_batch *batch, uint32_t block)
{
	const kvi_gpu_block *b = block_of();
	each_part((channels_of(&b->job) + 31) / 32, [&](uint32_t i) { find_channels<SIZE>(i); });
	one_warp([&] { count_columns(); });
	each_part(b->job.tokens, [&](uint32_t i) { find_row<SIZE>(i); });
	one_warp([&] {
		count_rows();
		warp_barrier();
		open_output(batch, block);
	});
	if (!is_open() || b->direct)
		return;
	each_part(b->job.tokens, [&](uint32_t i) { collect_token<SIZE>(&b->job, i); });
	if (encoding_of()->section_bytes > 1)
		each_part(b->opened.rows, [&](uint32_t i) { gather_row<SIZE>(i); });
}

/* The checks of the streams of codecs 4 and 16; one warp. */
WARP_FN void put_checks(void)
{
	const kvi_gpu_opened *o = &block_of()->opened;
	const uint32_t at = streams_at() / 4;
	for (uint32_t i = 0; i < o->n_streams && o->n_streams > 1; i++) {
		st_one(payload_words(), at + 2 * i, (uint32_t)o->check[i]);
		st_one(payload_words(), at + 2 * i + 1, (uint32_t)(o->check[i] >> 32));
	}
}

/* ----- codec 4 ------------------------------------------------ */

template <int D> WARP_CALL void layers_top_group(uint32_t group)
{
	find_tops<D>(group);
}
template <int D> WARP_CALL void layers_base(void)
{
	choose_base<D>();
	if (!encoding_of()->one_top)
		count_tops<D>();
}
template <int D> WARP_CALL bool layers_head(uint32_t warp)
{
	put_layers_head();
	put_zeros(encoding_of()->end[0], 4);
	return encoding_of()->one_top || put_tops<D>(warp);
}

template <int D> WARP_FN void encode_layers_chunk(void)
{
	kvi_gpu_opened *o = &block_of()->opened;
	each_part(3, [&](uint32_t h) {
		for (uint32_t i = 0; i < 256; i += 32)
			st(histogram_of(h), lanes() + i, splat(0));
	});
	each_part((o->columns + 31) / 32, [&](uint32_t i) { layers_top_group<D>(i); });
	one_warp([&] { layers_base<D>(); });
	each_part(o->n_streams, [&](uint32_t i) { count_stream<D>(i); });
	one_warp([&] {
		if (!take_space(layers_layout<D>()))
			o->status = KVI_GPU_HOST;
	});
	if (!is_open())
		return;
	each_warp([&](uint32_t w) {
		bool good = w || layers_head<D>(w);
		if (w < o->n_streams)
			good = encode_layers<D>(w) && good;
		o->stream[w].good = good;
		if (w < o->n_streams && !block_of()->direct)
			check_stream(w);
	});
	one_warp([&] {
		for (uint32_t i = 0; i < BLOCK_WARPS; i++)
			if (!o->stream[i].good)
				o->status = KVI_GPU_HOST;
		put_checks();
	});
}

/* ----- codecs 5 and 16 ------------------------------------------------ */

template <int D> WARP_CALL void grid_out_begin(const kvi_gpu_tables *tables, uint32_t w)
{
	const kvi_gpu_block *b = block_of();
	const encode_shared t = encode_tables_of();
	const uint32_t n = context_warps(&b->opened, params_of(&b->job));
	if (b->tables != CODEC_GRID)
		grid_codes(&t.grid, tables, w, BLOCK_WARPS);
	for (uint32_t i = w; i < n; i += BLOCK_WARPS)
		run_contexts<D>(&b->job, tables, i);
}

/* Hash of a row of those that remain. */
WARP_CALL void hash_row(uint32_t row)
{
	const uint32_t n = block_of()->opened.columns * element_bytes(block_of()->job.dtype);
	st_one(row_hashes(), row, hash_bytes(block_of()->job.packed + (uint64_t)row * n, n));
}

/* Whether an eighth of the rows repeats earlier ones: the library tries Zstandard then
 * (codecs/chunk_encode.c). */
WARP_CALL bool rows_repeat(void)
{
	const uint32_t rows = block_of()->opened.rows;
	uint32_t repeats = 0;
	for (uint32_t i = 1; i < rows; i++) {
		const uint32_t hash = ld_one(row_hashes(), i);
		uint32_t same = 0;
		for (uint32_t k = 0; k < i && !same; k += 32) {
			const boolv on = lanes() + k < i;
			same = mask_of(on & (ld_if(row_hashes(), lanes() + k, on) == hash));
		}
		repeats += same != 0;
	}
	return repeats && repeats >= rows / 8;
}

template <int D> WARP_FN void encode_grid_chunk(const kvi_gpu_tables *tables)
{
	kvi_gpu_block *b = block_of();
	each_warp([&](uint32_t w) { grid_out_begin<D>(tables, w); });
	each_warp([&](uint32_t w) {
		const encode_shared t = encode_tables_of();
		if (b->tables != CODEC_GRID)
			inverse_tables(&t, KVI_GPU_GRID_CODES, w, BLOCK_WARPS);
	});
	ROLLED
	for (uint32_t pass = 0; pass < 2; pass++) {
		const uint32_t n = pass ? b->opened.n_streams : b->opened.rows > 32;
		each_part(n, [&](uint32_t i) { encode_grid<D>(i, !pass); });
		one_warp([&] {
			b->tables = CODEC_GRID;
			if (!pass)
				cut_streams(choose_size());
		});
	}
	each_part(b->opened.n_streams, [&](uint32_t i) { check_stream(i); });
	one_warp([&] {
		if (!take_space(words_at(b->opened.n_streams)))
			b->opened.status = KVI_GPU_HOST;
	});
	if (is_open())
		each_part(b->opened.n_streams, [&](uint32_t i) { put_stream(i); });
}

template <int D> WARP_FN void encode_cells_chunk(const kvi_gpu_tables *tables)
{
	kvi_gpu_opened *o = &block_of()->opened;
	each_warp([&](uint32_t w) { cells_out_begin<D>(tables, w); });
	each_part(o->n_streams, [&](uint32_t i) {
		if (params_of(&block_of()->job)->rotary)
			draft_cells<D, true>(i);
		else
			draft_cells<D, false>(i);
	});
	one_warp([&] {
		if (cells_doubtful() || !take_space(cells_layout()))
			o->status = KVI_GPU_HOST;
	});
	if (!is_open())
		return;
	each_part(o->n_streams, [&](uint32_t i) {
		put_cells(i);
		check_stream(i);
	});
	one_warp([&] { put_checks(); });
}

/* Whether a chunk of level 1 is one for kernels: few rows repeat others. */
WARP_FN bool rows_differ(void)
{
	each_part(block_of()->opened.rows, [&](uint32_t i) { hash_row(i); });
	one_warp([&] {
		if (rows_repeat())
			block_of()->opened.status = KVI_GPU_HOST;
	});
	return is_open();
}

/* ----- chunks ------------------------------------------------ */

WARP_FN void encode_chunk_by(const kvi_gpu_tables *tables)
{
	const kvi_gpu_chunk *c = &block_of()->job;
	if (c->codec != CODEC_LAYERS && !rows_differ())
		return;
	switch (c->codec << 8 | c->dtype) {
	case CODEC_LAYERS << 8 | 2:
		return encode_layers_chunk<2>();
	case CODEC_LAYERS << 8 | 3:
		return encode_layers_chunk<3>();
	case CODEC_LAYERS << 8 | 4:
		return encode_layers_chunk<4>();
	case CODEC_GRID << 8 | 4:
		return encode_grid_chunk<4>(tables);
	case CODEC_CELLS << 8 | 2:
		return encode_cells_chunk<2>(tables);
	case CODEC_CELLS << 8 | 3:
		return encode_cells_chunk<3>(tables);
	default:
		one_warp([&] { block_of()->opened.status = KVI_GPU_HOST; });
	}
}

/* Writes the mask section, the header and the answer, and gives the slot back; one warp. */
WARP_CALL void end_output(const kvi_gpu_batch *batch)
{
	if (is_open()) {
		if (element_bytes(block_of()->job.dtype) == 1)
			put_section<1>();
		else
			put_section<2>();
		put_header();
	}
	put_answer();
	give_slot(batch);
}

WARP_FN void encode_chunk(const kvi_gpu_batch *batch, uint32_t block, uint32_t i)
{
	one_warp([&] { begin_output(batch, i); });
	if (is_open()) {
		if (element_bytes(block_of()->job.dtype) == 1)
			mask_output<1>(batch, block);
		else
			mask_output<2>(batch, block);
	}
	if (is_open())
		encode_chunk_by((const kvi_gpu_tables *)(uintptr_t)batch->tables);
	one_warp([&] { end_output(batch); });
}

/* The chunks that one block of several takes. */
WARP_FN void encode_block(const kvi_gpu_batch *batch, uint32_t block, uint32_t blocks)
{
	each_warp([&](uint32_t) { block_of()->tables = 0; });
	for (uint32_t i = block; i < batch->n; i += blocks)
		encode_chunk(batch, block, i);
}

#if !defined(__CUDACC__)
/* All blocks of a launch, as host_decode. */
static inline void host_encode(const kvi_gpu_batch *batch, uint32_t blocks, span<uint32_t> shared)
{
	host_blocks(batch, blocks, shared, [&](uint32_t i) { encode_block(batch, i, blocks); });
}
#endif

#endif
