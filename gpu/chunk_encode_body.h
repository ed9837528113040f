/* SPDX-License-Identifier: BSD-3-Clause */
/* chunk_encode_body.h - the mask of a chunk on its way out, and its elements, by warps */
#ifndef KVI_GPU_CHUNK_ENCODE_BODY_H
#define KVI_GPU_CHUNK_ENCODE_BODY_H

#include "batch_run_body.h"
#include "encode_job.h"
#include "stream_encode_body.h"

WARP_FN kvi_gpu_encoding *encoding_of(const kvi_gpu_encode *e)
{
	return (kvi_gpu_encoding *)(uintptr_t)e->job.opened;
}
WARP_FN uint32_t channels_of(const kvi_gpu_encode *e)
{
	return e->job.heads * e->job.head_channels;
}
WARP_FN uint32_t padding(uint32_t n)
{
	return (0 - n) % 16;
}

/* One token of a chunk, from its view to the others; zeros where it has no page. */
template <int SIZE> WARP_FN void collect_token(const kvi_gpu_encode *e, uint32_t token)
{
	typedef typename element_of<SIZE>::type element;
	const kvi_gpu_chunk *c = &e->job;
	const kvi_gpu_view *v = &c->view;
	const uint32_t n = c->head_channels;
	u32v slot;
	if (!v->base)
		return;
	const u32v page = page_of(v, splat(v->first_token + token), &slot, lanes() < 32);
	const uint32_t number = first_lane(page);
	const bool there = !v->page_table || number < v->n_pages;
	const uint32_t readable = there ? n : 0;
	const uint64_t at = number * v->page_stride + first_lane(slot) * v->token_stride;
	const uint64_t out = c->decoded + (uint64_t)token * c->heads * n * SIZE;
	if (there && copy_wide<SIZE, false>(c, at, out))
		return;
	span<element> to = span_at<element>(out, c->heads * n);
	for (uint32_t h = 0; h < c->heads; h++) {
		const uint64_t head = there ? at + h * v->head_stride : 0;
		span<const element> in = span_at<const element>(v->base + head,
		                                                (v->bytes - head) / SIZE);
		for (uint32_t i = 0; i < n; i += 32) {
			const u32v l = lanes() + i;
			const u32v x = ldg_if(in, l * (uint32_t)(v->elem_stride / SIZE),
			                      l < readable);
			st_if(to, l + h * n, x, l < n);
		}
	}
}

/* Whether a token of a chunk has no page. */
WARP_FN bool page_missing(const kvi_gpu_chunk *c)
{
	uint32_t missing = 0;
	for (uint32_t t = 0; c->view.base && c->view.page_table && t < c->tokens; t += 32) {
		const boolv on = lanes() + t < c->tokens;
		u32v slot;
		const u32v page = page_of(&c->view, lanes() + (c->view.first_token + t), &slot, on);
		missing |= mask_of(on & (page >= c->view.n_pages));
	}
	return missing != 0;
}

/* All elements of a chunk. */
template <int SIZE>
WARP_FN span<const typename element_of<SIZE>::type> raw_of(const kvi_gpu_encode *e)
{
	typedef const typename element_of<SIZE>::type element;
	return span_at<element>(e->job.decoded, e->job.tokens * channels_of(e));
}

/* Bits of 32 channels: which have one value in all of the tokens, if there are several. */
template <int SIZE> WARP_FN void find_channels(const kvi_gpu_encode *e, uint32_t group)
{
	const uint32_t C = channels_of(e), T = e->job.tokens;
	span<uint32_t> to = span_at<uint32_t>(e->channel_bits, (C + 31) / 32);
	const u32v c = lanes() + group * 32;
	const boolv on = c < C;
	const u32v first = ldg_if(raw_of<SIZE>(e), c, on);
	u32v other = splat(0);
	for (uint32_t t = 1; t < T; t++)
		other |= ldg_if(raw_of<SIZE>(e), c + t * C, on) ^ first;
	const uint32_t set = mask_of(on & (other == 0));
	st_one(to, group, T > 1 ? set : 0);
}

/* Lists the channels that remain. */
WARP_FN void list_columns(const kvi_gpu_encode *e)
{
	const uint32_t C = channels_of(e);
	kvi_gpu_opened *o = &encoding_of(e)->o;
	span<const uint32_t> bits = span_at<const uint32_t>(e->channel_bits, (C + 31) / 32);
	span<uint32_t> columns = span_at<uint32_t>(e->job.columns, C);
	uint32_t n = 0;
	for (uint32_t i = 0; i < C; i += 32) {
		const u32v c = lanes() + i;
		const uint32_t left = ~ldg_one(bits, i / 32) & mask_of(c < C);
		st_if(columns, below(left) + n, c, lane_in(left));
		n += count(left);
	}
	o->columns = n;
}

/* Whether all elements of a token are equal, in several channels that remain. */
template <int SIZE> WARP_FN void find_row(const kvi_gpu_encode *e, uint32_t token)
{
	const uint32_t C = channels_of(e), n = encoding_of(e)->o.columns;
	span<const uint32_t> columns = span_at<const uint32_t>(e->job.columns, n);
	uint32_t other = n < 2;
	u32v first = splat(0);
	for (uint32_t i = 0; i < n && !other; i += 32) {
		const boolv on = lanes() + i < n;
		const u32v c = ldg_if(columns, lanes() + i, on);
		const u32v x = ldg_if(raw_of<SIZE>(e), c + token * C, on);
		first = i ? first : shuffle(x, splat(0));
		other = mask_of(on & (x != first));
	}
	encoding_of(e)->row_same[token] = !other;
}

/* Writes 32 bits of a bitmap of n, number `at` and those behind it. */
WARP_FN void bits_put(span<uint8_t> to, uint32_t bitmap, uint32_t at, uint32_t n, uint32_t set)
{
	const u32v l = lanes();
	st_if(to, (l & 3) + (bitmap + at / 8), splat(set) >> (l & 3) * 8,
	      (l < 4) & ((l & 3) + at / 8 < (n + 7) / 8));
}

/* Writes a bitmap of n bits, 32 at a time, and the elements of those that are set. */
struct bitmap_out {
	span<uint8_t> to;
	uint32_t bits, values;
};

template <int SIZE>
WARP_FN void bitmap_put(bitmap_out *b, uint32_t at, uint32_t n, uint32_t set, u32v value)
{
	bits_put(b->to, b->bits, at, n, set);
	UNROLL
	for (uint32_t i = 0; i < SIZE; i++)
		st_if(b->to, below(set) * SIZE + (b->values + i), value >> 8 * i, lane_in(set));
	b->values += count(set) * SIZE;
}

/* The mask section; lists the tokens that remain. */
template <int SIZE> WARP_FN void write_section(const kvi_gpu_encode *e)
{
	const uint32_t C = channels_of(e), T = e->job.tokens;
	kvi_gpu_encoding *x = encoding_of(e);
	kvi_gpu_opened *o = &x->o;
	span<uint8_t> to = span_at<uint8_t>(e->job.payload, e->job.payload_bytes);
	span<const uint32_t> groups = span_at<const uint32_t>(e->channel_bits, (C + 31) / 32);
	span<const uint32_t> columns = span_at<const uint32_t>(e->job.columns, o->columns);
	span<uint16_t> token = span_at<uint16_t>((uint64_t)(uintptr_t)o->token, KVI_GPU_TOKENS);
	span<const uint8_t> same = span_at<const uint8_t>((uint64_t)(uintptr_t)x->row_same,
	                                                  KVI_GPU_TOKENS);
	bitmap_out b = { to, KVI_GPU_HEADER + 1, KVI_GPU_HEADER + 1 };
	const uint32_t has_channels = o->columns < C;
	if (has_channels) {
		b.values += (C + 7) / 8;
		for (uint32_t i = 0; i < C; i += 32) {
			const u32v c = lanes() + i;
			bitmap_put<SIZE>(&b, i, C, ldg_one(groups, i / 32),
			                 ldg_if(raw_of<SIZE>(e), c, c < C));
		}
		b.bits = b.values;
	}
	uint32_t rows = 0;
	for (uint32_t t = 0; t < T; t += 32) {
		const u32v at = lanes() + t;
		const uint32_t left = mask_of((at < T) & (ld_if(same, at, at < T) == 0));
		st_if(token, below(left) + rows, at, lane_in(left));
		rows += count(left);
	}
	const uint32_t has_rows = rows < T;
	if (has_rows) {
		const uint32_t first = ldg_one(columns, 0);
		b.values = b.bits + (T + 7) / 8;
		for (uint32_t t = 0; t < T; t += 32) {
			const u32v at = lanes() + t;
			const uint32_t set = mask_of(ld_if(same, at, at < T) != 0);
			bitmap_put<SIZE>(&b, t, T, set,
			                 ldg_if(raw_of<SIZE>(e), at * C + first, at < T));
		}
		b.bits = b.values;
	}
	st_one(to, KVI_GPU_HEADER, has_channels | has_rows << 1);
	x->section_bytes = b.bits - KVI_GPU_HEADER;
	o->rows = rows;
	o->status = rows && o->columns ? KVI_GPU_OPEN : KVI_GPU_HOST;
	if (page_missing(&e->job))
		o->status = KVI_GPU_PAGE;
	o->n_streams = 1; /* contexts are wanted */
	o->stream_tokens = KVI_GPU_TOKENS;
}

/* The elements of a remaining token, side by side. */
template <int SIZE> WARP_FN void gather_row(const kvi_gpu_encode *e, uint32_t row)
{
	typedef typename element_of<SIZE>::type element;
	const kvi_gpu_opened *o = &encoding_of(e)->o;
	const uint32_t n = o->columns, from = o->token[row] * channels_of(e);
	span<const uint32_t> columns = span_at<const uint32_t>(e->job.columns, n);
	span<element> to = span_at<element>(e->job.packed + (uint64_t)row * n * SIZE, n);
	for (uint32_t i = 0; i < n; i += 32) {
		const boolv on = lanes() + i < n;
		const u32v c = ldg_if(columns, lanes() + i, on);
		st_if(to, lanes() + i, ldg_if(raw_of<SIZE>(e), c + from, on), on);
	}
}

#endif
