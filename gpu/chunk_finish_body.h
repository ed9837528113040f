/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * chunk_finish_body.h - puts constant elements back, compares checks, writes the answer of a chunk,
 * and copies the elements of good chunks to their views
 */
#ifndef KVI_GPU_CHUNK_FINISH_BODY_H
#define KVI_GPU_CHUNK_FINISH_BODY_H

#include "chunk_open_body.h"
#include "wide_copy_body.h"

WARP_FN bool has_mask(const kvi_gpu_opened *o)
{
	return (o->row_bits | o->channel_bits) != 0;
}

/* Where the tokens of a chunk are, token-major. */
WARP_FN uint64_t elements_at(const kvi_gpu_chunk *c, const kvi_gpu_opened *o)
{
	if (c->codec == CODEC_RAW)
		return c->payload + KVI_GPU_HEADER;
	return c->codec == CODEC_CONSTANT || has_mask(o) ? c->decoded : c->packed;
}

/* The number of the token behind the n-th one that the mask leaves. */
WARP_FN uint32_t token_behind(const kvi_gpu_opened *o, uint32_t n)
{
	return n ? o->token[n - 1] + 1u : 0;
}

/* The tokens that a stream is checked with (spec rans 4). */
WARP_FN uint32_t stream_begin(const kvi_gpu_opened *o, uint32_t number)
{
	return token_behind(o, number * o->stream_tokens);
}

/* One token, with what the mask removed; row: its number among those that remain. */
template <int SIZE>
WARP_FN void expand_token(const kvi_gpu_chunk *c, const kvi_gpu_opened *o, uint32_t token,
                          uint32_t row, bool constant)
{
	typedef typename element_of<SIZE>::type element;
	const uint32_t C = c->heads * c->head_channels, n = o->columns;
	span<const uint8_t> p = span_at<const uint8_t>(c->payload, c->payload_bytes);
	span<element> to = span_at<element>(c->decoded + (uint64_t)token * C * SIZE, C);
	span<const element> from =
		span_at<const element>(c->packed + (uint64_t)row * n * SIZE, constant ? 0 : n);
	for (uint32_t i = 0, left = 0; i < C; i += 32) {
		const uint32_t set = bitmap_word(p, o->channel_bits, i, C);
		const u32v at = lanes() + i, rank = below(~set) + left;
		const boolv on = at < C, fixed = lane_in(set);
		u32v x = payload_element<SIZE>(p, (at - rank) * SIZE + o->channel_values,
		                               fixed & on);
		/* all lanes of a constant row read the same value */
		u32v y = constant ? payload_element<SIZE>(p, splat(o->row_values +
		                                                   (token - row) * SIZE), on)
				  : ld_if(from, rank, on & !fixed);
		st_if(to, at, select(fixed, x, y), on);
		left += count(~set);
	}
}

/* The tokens of a stream. */
template <int SIZE>
WARP_FN void expand_tokens(const kvi_gpu_chunk *c, const kvi_gpu_opened *o, uint32_t number,
                           uint32_t first, uint32_t end)
{
	span<const uint8_t> p = span_at<const uint8_t>(c->payload, c->payload_bytes);
	uint32_t row = number * o->stream_tokens;
	for (uint32_t t = first; t < end; t++) {
		const bool constant =
			o->row_bits && ldg_one(p, o->row_bits + t / 8) >> t % 8 & 1;
		expand_token<SIZE>(c, o, t, row, constant);
		row += !constant;
	}
}

/* A chunk of one value (spec constant). */
template <int SIZE> WARP_FN void fill_chunk(const kvi_gpu_chunk *c)
{
	typedef typename element_of<SIZE>::type element;
	const uint32_t n = c->tokens * c->heads * c->head_channels;
	span<const uint8_t> p = span_at<const uint8_t>(c->payload, c->payload_bytes);
	span<element> to = span_at<element>(c->decoded, n);
	const u32v v = payload_element<SIZE>(p, splat(KVI_GPU_HEADER), lanes() < 32);
	for (uint32_t i = 0; i < n; i += 32)
		st_if(to, lanes() + i, v, lanes() + i < n);
}

/* All elements of a stream's tokens, and their check: whether the stream is good. A chunk without
 * streams is treated as if it had one. */
template <int SIZE>
WARP_FN bool finish_stream(const kvi_gpu_chunk *c, const kvi_gpu_opened *o, uint32_t number)
{
	const uint32_t row = c->heads * c->head_channels * SIZE, S = o->n_streams;
	const uint32_t first = S ? stream_begin(o, number) : 0;
	const uint32_t end = number + 1 < S ? stream_begin(o, number + 1) : c->tokens;
	if (S && !o->stream[number].good)
		return false;
	if (c->codec == CODEC_CONSTANT)
		fill_chunk<SIZE>(c);
	else if (has_mask(o))
		expand_tokens<SIZE>(c, o, number, first, end);
	warp_barrier();
	const uint64_t h = hash_bytes(elements_at(c, o) + (uint64_t)first * row,
	                              (end - first) * row);
	return h == (S > 1 ? o->check[number] : o->raw_check);
}

/* Streams that a chunk is finished in. */
WARP_FN uint32_t finished_streams(const kvi_gpu_opened *o)
{
	return o->n_streams ? o->n_streams : 1;
}

/* The page of a token's number, below 0 where it is not written; *slot: its number in the page. */
WARP_FN u32v page_of(const kvi_gpu_view *v, u32v n, u32v *slot, boolv on)
{
	if (!v->page_table) {
		*slot = n;
		return splat(0);
	}
	span<const int32_t> table = span_at<const int32_t>(v->page_table, v->n_table);
	const u32v at = n / v->page_tokens;
	*slot = n - at * v->page_tokens;
	return select(at < v->n_table, ldg_if(table, at, on & (at < v->n_table)),
	              splat(0x7fffffff));
}

/* The answer for a chunk by its streams. */
WARP_FN uint32_t streams_answer(const kvi_gpu_opened *o)
{
	for (uint32_t i = 0; i < finished_streams(o); i++)
		if (!o->stream[i].good)
			return KVI_GPU_DATA;
	return KVI_GPU_OK;
}

/* Where the tokens of a chunk are in its view. Whether the chunk is open still: all pages are
 * there. */
WARP_FN uint32_t view_tokens(const kvi_gpu_chunk *c, span<uint64_t> to)
{
	const kvi_gpu_view *v = &c->view;
	uint32_t wrong = 0;
	for (uint32_t t = 0; t < c->tokens; t += 32) {
		const u32v i = lanes() + t;
		const boolv on = (i >= c->from) & (i < c->to) & (splat(v->base != 0) != 0);
		u32v slot;
		const u32v page = page_of(v, i + v->first_token, &slot, on);
		const boolv there = on & !(page >> 31 != 0);
		wrong |= v->page_table ? mask_of(there & (page >= v->n_pages)) : 0;
		const u64v at = wide(page) * v->page_stride + wide(slot) * v->token_stride +
		                v->base;
		st64_if(to, i, select64(there, at, splat64(0)), i < (uint32_t)KVI_GPU_TOKENS);
	}
	return wrong ? KVI_GPU_PAGE : KVI_GPU_OPEN;
}

/* Copies a token of a good chunk to its address in the view; 0: it is not wanted. */
template <int SIZE>
WARP_FN void scatter_token(const kvi_gpu_chunk *c, const kvi_gpu_opened *o, uint32_t token,
                           uint64_t address)
{
	typedef typename element_of<SIZE>::type element;
	const kvi_gpu_view *v = &c->view;
	const uint32_t n = c->head_channels;
	if (!address)
		return;
	const uint64_t at = address - v->base;
	const uint64_t from = elements_at(c, o) + (uint64_t)token * c->heads * n * SIZE;
	if (copy_wide<SIZE, true>(c, at, from))
		return;
	span<const element> in = span_at<const element>(from, c->heads * n);
	for (uint32_t h = 0; h < c->heads; h++) {
		const uint64_t head = at + h * v->head_stride;
		span<element> to = span_at<element>(v->base + head, (v->bytes - head) / SIZE);
		for (uint32_t i = 0; i < n; i += 32) {
			const u32v l = lanes() + i;
			const boolv on = l < n;
			st_if(to, l * (uint32_t)(v->elem_stride / SIZE),
			      ld_if(in, l + h * n, on), on);
		}
	}
}

#endif
