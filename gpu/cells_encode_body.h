/* SPDX-License-Identifier: BSD-3-Clause */
/* cells_encode_body.h - streams of codec 16 (spec cells 6) on their way out, a warp a stream */
#ifndef KVI_GPU_CELLS_ENCODE_BODY_H
#define KVI_GPU_CELLS_ENCODE_BODY_H

#include "payload_encode_body.h"

/* Codes are found by distance, of which a class has these: -128 to 127. Of one token in 16 the
 * classes are counted (codecs/cells/cells_codec.c). */
constexpr uint32_t CELL_DISTANCES = 256, CELL_ESCAPED = 30, CELL_MOST_BITS = 15, CELL_TOKENS = 16;
static_assert(KVI_GPU_CELL_OUT_WORDS == KVI_GPU_CELL_ENTRIES / 2 + KVI_GPU_CELL_SHARED, "memory");

/* Tables of a block, behind its encoding: kvi_gpu_tables.entries, then those of decoders. */
WARP_FN span<uint16_t> cell_entries(void)
{
	return part<uint16_t>(block_part<uint32_t>(ENCODING_WORDS, KVI_GPU_CELL_ENTRIES / 2), 0,
	                      KVI_GPU_CELL_ENTRIES);
}
WARP_FN cells_shared cells_out_tables(void)
{
	return cells_shared_of(block_part<uint32_t>(ENCODING_WORDS + KVI_GPU_CELL_ENTRIES / 2,
	                                            KVI_GPU_CELL_SHARED));
}

/* By all warps of a block: the tables, and what contexts of channels are made of. */
template <int D> WARP_CALL void cells_out_begin(const kvi_gpu_tables *tables, uint32_t w)
{
	const kvi_gpu_chunk *c = &block_of()->job;
	const kvi_gpu_opened *o = &block_of()->opened;
	const cells_shared t = cells_out_tables();
	span<const uint16_t> from = span_at<const uint16_t>(tables->entries, KVI_GPU_CELL_ENTRIES);
	for (uint32_t i = w * 32; i < KVI_GPU_CELL_ENTRIES; i += BLOCK_WARPS * 32)
		st(cell_entries(), lanes() + i, ldg(from, lanes() + i));
	cells_tables(&t, c, o, tables, params_of(c)->rotary, w, BLOCK_WARPS);
	cells_channels<D>(c, o, params_of(c), w, BLOCK_WARPS);
}

/* ----- codes ------------------------------------------------ */

/* Memory of codes: of each element of the chunk its code, a byte; then likewise second ones. */
WARP_FN span<uint8_t> cell_codes_of(uint32_t number, bool second)
{
	const kvi_gpu_opened *o = &block_of()->opened;
	const uint32_t all = o->rows * o->columns;
	const uint32_t first = number * o->stream_tokens * o->columns;
	return span_at<uint8_t>(
		block_of()->job.words +
			2 * (uint64_t)(all + KVI_GPU_STREAMS * KVI_GPU_SPARE_WORDS) +
			(second ? all : 0) + first,
		stream_elements(o, number));
}

/* An element as code and raw bits. */
struct coded_cell {
	u32v code, raw, bits;
};

template <int D> WARP_FN coded_cell coded_cell_of(u32v x, const cell_context *context)
{
	constexpr uint32_t m = grid_format<D>::m;
	const u32v magnitude = x & 0x7fff, field = magnitude >> m;
	const u32v low = magnitude & ((1u << m) - 1), full = low | 1u << m;
	/* the cell is 2^shift steps of the element wide */
	const u32v shift = context->base + 1 - field;
	boolv escaped = (field == 0) | (shift > CELL_MOST_BITS);
	const u32v n = select(escaped, splat(0), shift), j = full >> n;
	const u32v cell = j ^ sar(x << 16, 31);
	const u32v at = sar((cell - context->mean) << 16, 16) + CELL_DISTANCES / 2;
	escaped = escaped | (at >= CELL_DISTANCES);
	const u32v entry = ld(cell_entries(),
	                      context->class_ * CELL_DISTANCES + select(escaped, splat(0), at));
	const u32v nb = entry >> 5 & 7;
	coded_cell code = { entry & 31, splat(0), nb + n };
	escaped = escaped | (code.code == CELL_ESCAPED) | (code.bits > CELL_MOST_BITS);
	/* zeros and the one behind them, where the cell begins at zero */
	const u32v rest = select(j != 0, low_bits(full, n), (low << 1 | 1) << ((n - (m + 1)) & 31));
	code.code = select(escaped, splat(CELL_ESCAPED), code.code);
	code.raw = select(escaped, splat(0), rest << nb | entry >> 8);
	code.bits = select(escaped, splat(0), code.bits);
	return code;
}

/* Words and codes of a stream; counts what decides on another codec. */
template <int D, bool ROTATES> WARP_FN void draft_cells(uint32_t number)
{
	const kvi_gpu_chunk *c = &block_of()->job;
	kvi_gpu_opened *o = &block_of()->opened;
	kvi_gpu_encoding *x = encoding_of();
	const cells_shared t = cells_out_tables();
	const uint32_t n = uniform(stream_elements(o, number)), columns = uniform(o->columns);
	const uint32_t first = number * o->stream_tokens * columns;
	const uint32_t end = first + n + (number + 1) * KVI_GPU_SPARE_WORDS;
	span<const uint16_t> in = span_at<const uint16_t>(c->packed + 2 * (uint64_t)first, n);
	const span<uint8_t> codes = cell_codes_of(number, false);
	span<const uint32_t> channels = cells_channels_of<const uint32_t>(c, o);
	words_out w = { span_at<uint16_t>(c->words, end), end };
	uint32_t at = (n + 31) / 32 * 32, second = 0, escapes = 0;
	const uint32_t step = uniform(32 % columns), step_rows = uniform(32 / columns);
	/* those of the first step behind the end */
	u32v column = (lanes() + at) % columns;
	u32v row = (lanes() + at) / columns + number * o->stream_tokens;
	u32v s = splat(STATE_LOW), coarse = splat(0);
	while (at) {
		at -= 32;
		const boolv under = column < step, on = lanes() + at < n;
		column = column - step + select(under, splat(columns), splat(0));
		row -= step_rows + select(under, splat(1), splat(0));
		const cell_context context = cell_context_at<D, ROTATES>(&t, channels, column, row);
		const u32v element = ld_if(in, lanes() + at, on);
		const coded_cell code = coded_cell_of<D>(element, &context);
		const boolv shown = ROTATES ? row % CELL_TOKENS == 0 : row == 0;
		coarse += select(on & shown & (context.class_ < CELL_FINE), splat(1), splat(0));
		second += count(mask_of(on & (code.code >= CELL_MORE)));
		escapes += count(mask_of(on & (code.code == CELL_ESCAPED)));
		st_if(codes, lanes() + at, code.code, on);
		s = bits_out(&w, s, code.bits, code.raw, on);
	}
	const u32v sums = half_sums(coarse);
	o->stream[number].words = w.at;
	o->stream[number].n_second = second;
	o->stream[number].n_escapes = escapes;
	x->n_words[number] = end - w.at;
	x->used[number] = lane_value(sums, 15) + lane_value(sums, 31);
	st(span_at<uint32_t>((uint64_t)(uintptr_t)x->state[number], 32), lanes(), s);
}

/* Whether the library would compare codec 5 (codecs/cells/cells_codec.c). */
WARP_FN bool cells_doubtful(void)
{
	const kvi_gpu_opened *o = &block_of()->opened;
	const uint32_t n = o->rows * o->columns;
	const uint32_t tokens = params_of(&block_of()->job)->rotary ? o->rows : 1;
	uint32_t second = 0, escapes = 0, coarse = 0;
	for (uint32_t i = 0; i < o->n_streams; i++) {
		second += o->stream[i].n_second;
		escapes += o->stream[i].n_escapes;
		coarse += encoding_of()->used[i];
	}
	return escapes > n / 128 || second > n / 8 ||
	       coarse > (tokens + CELL_TOKENS - 1) / CELL_TOKENS * o->columns / 64;
}

/* ----- payload ------------------------------------------------ */

/* Where everything is in the payload; returns its bytes. One warp. */
WARP_FN uint32_t cells_layout(void)
{
	kvi_gpu_opened *o = &block_of()->opened;
	uint32_t at = streams_at() + (o->n_streams > 1 ? 8 * o->n_streams : 0) +
	              (12 + 128) * o->n_streams;
	for (uint32_t i = 0; i < o->n_streams; i++) {
		kvi_gpu_stream *s = &o->stream[i];
		encoding_of()->end[i] = at;
		at = s->planes = (at + 3) & ~3u;
		at += plane_bytes(stream_elements(o, i), CELL_CODE_BITS) +
		      plane_bytes(s->n_second, CELL_CODE_BITS);
		at = s->escapes = (at + 1) & ~1u;
		at += 2 * s->n_escapes + 2 * encoding_of()->n_words[i];
	}
	return at;
}

/* A plane of n codes, of bytes that this kernel wrote; larger codes are 15. */
WARP_FN void put_code_plane(uint32_t at, span<uint8_t> codes, uint32_t n)
{
	for (uint32_t first = 0; first < n; first += LAYER_BLOCK, at += LAYER_BLOCK / 2) {
		const uint32_t left = n - first < LAYER_BLOCK ? n - first : LAYER_BLOCK;
		const uint32_t bytes = (left + 1) / 2;
		for (uint32_t i = 0; i < bytes; i += 32) {
			const u32v x = lanes() + i;
			const u32v low = ld_if(codes, x + first, x < bytes);
			const u32v high = ld_if(codes, x + (first + bytes),
			                        (x < bytes) & (x + bytes < left));
			st_if(payload_of_block(), x + at,
			      min_signed(low, splat(15)) | min_signed(high, splat(15)) << 4,
			      x < bytes);
		}
	}
}

/* A stream's part of the payload. */
WARP_CALL void put_cells(uint32_t number)
{
	const kvi_gpu_chunk *c = &block_of()->job;
	const kvi_gpu_opened *o = &block_of()->opened;
	const kvi_gpu_encoding *x = encoding_of();
	const kvi_gpu_stream *s = &o->stream[number];
	const span<uint32_t> to = payload_words();
	const uint32_t n = stream_elements(o, number), S = o->n_streams;
	const uint32_t counts = streams_at() + (S > 1 ? 8 * S : 0);
	const span<uint8_t> codes = cell_codes_of(number, false),
			    more = cell_codes_of(number, true);
	span<const uint16_t> in = span_at<const uint16_t>(
		c->packed + 2 * (uint64_t)number * o->stream_tokens * o->columns, n);
	const span<uint8_t> escapes = skip(payload_of_block(), s->escapes);
	uint32_t n_second = 0, n_escapes = 0;
	for (uint32_t i = 0; i < n; i += 32) {
		const boolv on = lanes() + i < n;
		const u32v code = ld_if(codes, lanes() + i, on);
		const uint32_t second = mask_of(on & (code >= CELL_MORE));
		const uint32_t escaped = mask_of(on & (code == CELL_ESCAPED));
		st_if(more, below(second) + n_second, code - CELL_MORE, lane_in(second));
		if (escaped) {
			const u32v v = ld_if(in, lanes() + i, lane_in(escaped));
			const u32v at = (below(escaped) + n_escapes) * 2;
			st_if(escapes, at, v, lane_in(escaped));
			st_if(escapes, at + 1, v >> 8, lane_in(escaped));
		}
		n_second += count(second);
		n_escapes += count(escaped);
	}
	warp_barrier();
	const uint32_t second_at = s->planes + plane_bytes(n, CELL_CODE_BITS);
	put_zeros(x->end[number], 4);
	put_zeros(second_at + plane_bytes(n_second, CELL_CODE_BITS), 2);
	put_code_plane(s->planes, codes, n);
	put_code_plane(second_at, more, n_second);
	put_copy(s->escapes + 2 * n_escapes, c->words + 2 * (uint64_t)s->words,
	         2 * x->n_words[number]);
	put_copy(counts + 12 * S + 128 * number, (uint64_t)(uintptr_t)x->state[number], 128);
	st_one(to, counts / 4 + 3 * number, n_second);
	st_one(to, counts / 4 + 3 * number + 1, n_escapes);
	st_one(to, counts / 4 + 3 * number + 2, x->n_words[number]);
}

#endif
