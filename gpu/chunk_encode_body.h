/* SPDX-License-Identifier: BSD-3-Clause */
/* chunk_encode_body.h - the mask of a chunk on its way out, its elements, header and hash */
#ifndef KVI_GPU_CHUNK_ENCODE_BODY_H
#define KVI_GPU_CHUNK_ENCODE_BODY_H

#include "batch_run_body.h"
#include "encode_job.h"

/* ----- what the warps of a block share ------------------------------------------------ */

constexpr uint32_t ENCODING_WORDS = (sizeof(kvi_gpu_encoding) + 15) / 16 * 4;
static_assert(KVI_GPU_HASH_BLOCK == HASH_BLOCK, "sums");

WARP_FN kvi_gpu_encoding *encoding_of(void)
{
	return (kvi_gpu_encoding *)block_part<uint32_t>(0, ENCODING_WORDS).p;
}
WARP_FN span<uint32_t> histogram_of(uint32_t i)
{
	return span_at<uint32_t>((uint64_t)(uintptr_t)encoding_of()->histogram[i], 256);
}
/* Memory for a number of each row, where states come later. */
WARP_FN span<uint32_t> row_hashes(void)
{
	return span_at<uint32_t>((uint64_t)(uintptr_t)encoding_of()->state, KVI_GPU_TOKENS);
}
WARP_FN uint32_t channels_of(const kvi_gpu_chunk *c)
{
	return c->heads * c->head_channels;
}
WARP_FN uint32_t elements_bytes(const kvi_gpu_chunk *c)
{
	return c->tokens * channels_of(c) * element_bytes(c->dtype);
}
WARP_FN uint32_t padding(uint32_t n)
{
	return (0 - n) % 16;
}

/* ----- elements ------------------------------------------------ */

/* One token of a chunk, from its view to the others; zeros where it has no page. */
template <int SIZE> WARP_FN void collect_token(const kvi_gpu_chunk *c, uint32_t token)
{
	typedef typename element_of<SIZE>::type element;
	const kvi_gpu_view *v = &c->view;
	const uint32_t n = c->head_channels;
	u32v slot;
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

/* An element of each lane of a token, in the view. */
template <int SIZE> WARP_FN u32v token_element(u32v token, u32v channel, boolv on)
{
	const view_shape shape = view_shape_of<SIZE>(&block_of()->job);
	const u64v at = token_address(select(on, token, splat(0)));
	return ld_element<SIZE>(view_memory(), view_element(&shape, at, channel), on);
}

/* An element of each lane of a row of those that remain. */
template <int SIZE> WARP_FN u32v remaining_element(uint32_t row, u32v column, boolv on)
{
	const kvi_gpu_block *b = block_of();
	const uint32_t n = b->opened.columns;
	if (b->direct)
		return token_element<SIZE>(splat(row), column, on);
	return ld_element<SIZE>(
		span_at<uint8_t>(b->job.packed + (uint64_t)row * n * SIZE, n * SIZE),
		wide(column * SIZE) + (b->job.packed + (uint64_t)row * n * SIZE), on);
}

/* The elements of a remaining token, side by side. */
template <int SIZE> WARP_FN void gather_row(uint32_t row)
{
	typedef typename element_of<SIZE>::type element;
	const kvi_gpu_chunk *c = &block_of()->job;
	const uint32_t n = block_of()->opened.columns, C = channels_of(c);
	const uint64_t token = block_of()->opened.token[row];
	span<const uint32_t> columns = span_at<const uint32_t>(c->columns, n);
	span<const element> from = span_at<const element>(c->decoded + token * C * SIZE, C);
	span<element> to = span_at<element>(c->packed + (uint64_t)row * n * SIZE, n);
	for (uint32_t i = 0; i < n; i += 32) {
		const boolv on = lanes() + i < n;
		st_if(to, lanes() + i, ld_if(from, ld_if(columns, lanes() + i, on), on), on);
	}
}

/* ----- mask ------------------------------------------------ */

/* Bits of 32 channels: which have one value in all of the tokens, if there are several. */
template <int SIZE> WARP_FN void find_channels(uint32_t group)
{
	const kvi_gpu_chunk *c = &block_of()->job;
	const u32v channel = lanes() + group * 32;
	const boolv on = channel < channels_of(c);
	const u32v first = token_element<SIZE>(splat(0), channel, on);
	uint32_t same = c->tokens > 1 ? mask_of(on) : 0;
	for (uint32_t t = 1; t < c->tokens && same; t++)
		same &= mask_of(token_element<SIZE>(splat(t), channel, on) == first);
	encoding_of()->channel_bits[group] = same;
}

/* The channels of a group that remain. */
WARP_FN uint32_t channels_left(uint32_t group)
{
	return ~encoding_of()->channel_bits[group] &
	       mask_of(lanes() + group * 32 < channels_of(&block_of()->job));
}

/* Counts the channels that remain; one warp. */
WARP_FN void count_columns(void)
{
	uint32_t n = 0;
	for (uint32_t i = channels_of(&block_of()->job); i > 0; i = (i - 1) / 32 * 32) {
		const uint32_t group = (i - 1) / 32, left = channels_left(group);
		n += count(left);
		if (left)
			encoding_of()->first_column = group * 32 +
			                              first_lane(low_zeros(splat(left)));
	}
	block_of()->opened.columns = n;
}

/* Whether all elements of a token are equal, in several channels that remain. */
template <int SIZE> WARP_FN void find_row(uint32_t token)
{
	const u32v t = splat(token);
	uint32_t other = block_of()->opened.columns < 2;
	if (!other) {
		const u32v first = token_element<SIZE>(t, splat(encoding_of()->first_column),
		                                       lanes() < 32);
		for (uint32_t i = 0; i < channels_of(&block_of()->job) && !other; i += 32) {
			const boolv on = lane_in(channels_left(i / 32));
			other = mask_of(on & (token_element<SIZE>(t, lanes() + i, on) != first));
		}
	}
	encoding_of()->row_same[token] = !other;
}

/* Which of 32 tokens are constant. */
WARP_FN uint32_t rows_same(uint32_t first)
{
	const uint32_t n = block_of()->job.tokens;
	const span<const uint8_t> same = span_at<const uint8_t>(
		(uint64_t)(uintptr_t)encoding_of()->row_same, KVI_GPU_TOKENS);
	return mask_of(ld_if(same, lanes() + first, lanes() + first < n) != 0);
}

/* Lists the tokens that remain, and computes what the mask takes; one warp. */
WARP_FN void count_rows(void)
{
	const kvi_gpu_chunk *c = &block_of()->job;
	kvi_gpu_opened *o = &block_of()->opened;
	const uint32_t C = channels_of(c), T = c->tokens, size = element_bytes(c->dtype);
	span<uint16_t> token = span_at<uint16_t>((uint64_t)(uintptr_t)o->token, KVI_GPU_TOKENS);
	uint32_t rows = 0;
	for (uint32_t t = 0; t < T; t += 32) {
		const uint32_t left = ~rows_same(t) & mask_of(lanes() + t < T);
		st_if(token, below(left) + rows, lanes() + t, lane_in(left));
		rows += count(left);
	}
	o->rows = rows;
	encoding_of()->section_bytes =
		1 + (o->columns < C ? (C + 7) / 8 + (C - o->columns) * size : 0) +
		(rows < T ? (T + 7) / 8 + (T - rows) * size : 0);
}

/* Lists the channels that remain; one warp. */
WARP_FN void list_columns(void)
{
	const kvi_gpu_chunk *c = &block_of()->job;
	span<uint32_t> columns = span_at<uint32_t>(c->columns, block_of()->opened.columns);
	for (uint32_t i = 0, n = 0; i < channels_of(c); i += 32) {
		const uint32_t left = channels_left(i / 32);
		st_if(columns, below(left) + n, lanes() + i, lane_in(left));
		n += count(left);
	}
}

/* ----- payload ------------------------------------------------ */

WARP_FN span<uint8_t> payload_of_block(void)
{
	return span_at<uint8_t>(block_of()->job.payload, block_of()->job.payload_bytes);
}
WARP_FN span<uint32_t> payload_words(void)
{
	return span_at<uint32_t>(block_of()->job.payload, block_of()->job.payload_bytes / 4);
}

/* Writes zeros from an offset on to a multiple of a power of 2, 16 at most. */
WARP_FN void put_zeros(uint32_t at, uint32_t multiple)
{
	st_if(payload_of_block(), lanes() + at, splat(0), lanes() < (0 - at) % multiple);
}

/* The offset of what is behind the mask section. */
WARP_FN uint32_t streams_at(void)
{
	const uint32_t section = KVI_GPU_HEADER + encoding_of()->section_bytes;
	return section + padding(section);
}

/* Takes space for a payload of some bytes, if it is wanted and there is space; one warp. */
WARP_FN bool take_space(uint32_t bytes)
{
	kvi_gpu_chunk *c = &block_of()->job;
	kvi_gpu_encoding *x = encoding_of();
	const uint32_t raw = elements_bytes(c);
	kvi_gpu_output *output = (kvi_gpu_output *)(uintptr_t)c->output;
	if (bytes - KVI_GPU_HEADER > raw - raw / 16)
		return false;
	x->payload_bytes = bytes;
	x->offset = add_shared(span_at<uint64_t>((uint64_t)(uintptr_t)&output->taken, 1),
	                       bytes + padding(bytes));
	c->payload = c->output + sizeof(kvi_gpu_output) + x->offset;
	c->payload_bytes = bytes;
	return x->offset + bytes <= output->bytes;
}

/* Writes a bitmap of n bits, 32 at a time, and the elements of those that are set. */
struct bitmap_out {
	uint32_t bits, values;
};

template <int SIZE>
WARP_FN void bitmap_put(bitmap_out *b, uint32_t at, uint32_t n, uint32_t set, u32v value)
{
	const span<uint8_t> to = payload_of_block();
	const u32v l = lanes();
	st_if(to, (l & 3) + (b->bits + at / 8), splat(set) >> (l & 3) * 8,
	      (l < 4) & ((l & 3) + at / 8 < (n + 7) / 8));
	UNROLL
	for (uint32_t i = 0; i < SIZE; i++)
		st_if(to, below(set) * SIZE + (b->values + i), value >> 8 * i, lane_in(set));
	b->values += count(set) * SIZE;
}

/* The mask section, and the zeros behind it; one warp. */
template <int SIZE> WARP_FN void put_section(void)
{
	const kvi_gpu_chunk *c = &block_of()->job;
	const kvi_gpu_opened *o = &block_of()->opened;
	const uint32_t C = channels_of(c), T = c->tokens;
	const uint32_t masked = o->columns < C, same = o->rows < T;
	bitmap_out b = { KVI_GPU_HEADER + 1, KVI_GPU_HEADER + 1 + (masked ? (C + 7) / 8 : 0) };
	for (uint32_t i = 0; i < C && masked; i += 32) {
		const uint32_t set = encoding_of()->channel_bits[i / 32];
		bitmap_put<SIZE>(&b, i, C, set,
		                 token_element<SIZE>(splat(0), lanes() + i, lane_in(set)));
	}
	b.bits = b.values;
	b.values += (T + 7) / 8;
	for (uint32_t t = 0; t < T && same; t += 32) {
		const uint32_t set = rows_same(t);
		bitmap_put<SIZE>(&b, t, T, set,
		                 token_element<SIZE>(lanes() + t,
		                                     splat(encoding_of()->first_column),
		                                     lane_in(set)));
	}
	st_one(payload_of_block(), KVI_GPU_HEADER, masked | same << 1);
	put_zeros(KVI_GPU_HEADER + encoding_of()->section_bytes, 16);
}

/* The header of a chunk (spec 7), behind the checks of all streams; one warp. */
WARP_FN void put_header(void)
{
	const kvi_gpu_opened *o = &block_of()->opened;
	const kvi_gpu_chunk *c = &block_of()->job;
	const kvi_gpu_encoding *x = encoding_of();
	const span<uint32_t> to = payload_words();
	const uint64_t check = o->n_streams > 1
	                               ? hash_bytes((uint64_t)(uintptr_t)o->check, 8 * o->n_streams)
	                               : o->check[0];
	for (uint32_t i = 0; i < 8; i++)
		st_one(to, i, i == 6 ? c->head[i] | x->stream_size << 8 : c->head[i]);
	st_one(to, 8, (uint32_t)check);
	st_one(to, 9, (uint32_t)(check >> 32));
	st_one(to, 10, x->section_bytes);
	st_one(to, 11, 0);
}

/* ----- checks ------------------------------------------------ */

/* The check of a stream whose tokens are in `decoded`. */
WARP_CALL void check_stream(uint32_t number)
{
	const kvi_gpu_chunk *c = &block_of()->job;
	kvi_gpu_opened *o = &block_of()->opened;
	const uint32_t row = channels_of(c) * element_bytes(c->dtype);
	const uint32_t from = stream_begin(o, number);
	const uint32_t to = number + 1 < o->n_streams ? stream_begin(o, number + 1) : c->tokens;
	o->check[number] = hash_bytes(c->decoded + (uint64_t)from * row, (to - from) * row);
}

/* Sums that blocks of 1024 bytes of a direct chunk add to the accumulators of its hash: as to those
 * of a stream's check, but for the last stripe of a stream. */
template <int SIZE> struct chunk_sums {
	uint64_t to; /* of the block */
	u64v sum;
	bool wanted, last; /* last: stream of the chunk */
};

template <int SIZE> WARP_FN chunk_sums<SIZE> sums_open(uint32_t number)
{
	const kvi_gpu_block *b = block_of();
	const uint64_t first = number * b->opened.stream_tokens * b->opened.columns * SIZE;
	return chunk_sums<SIZE>{ b->job.sums + first / HASH_BLOCK * 64, splat64(0),
		                 uniform(b->direct && b->job.hashed) != 0,
		                 uniform(number + 1 == b->opened.n_streams) != 0 };
}

/* Adds a row, which is the last one that was checked. */
template <int SIZE>
WARP_FN void sums_add(chunk_sums<SIZE> *sums, const row_check<SIZE> *check, u64v row)
{
	const bool ended = check->stripe > check->last;
	if (!sums->wanted)
		return;
	sums->sum += row;
	if (ended && !sums->last)
		sums->sum += row_total<SIZE>(check->differs);
	if (SIZE == 1 && check->stripe % 16 && !ended)
		return;
	st64_if(span_at<uint64_t>(sums->to, 8), row_accumulator<SIZE>(), sums->sum,
	        SIZE == 2 ? lanes() < 8 : ((lanes() & 1) == 0) & (lanes() < 16));
	sums->sum = splat64(0);
	sums->to += 64;
}

/* The answer for the chunk; one warp. */
WARP_FN void put_answer(void)
{
	const kvi_gpu_block *b = block_of();
	const kvi_gpu_chunk *c = &b->job;
	const uint32_t n = elements_bytes(c);
	kvi_gpu_encoded a = {};
	a.status = b->opened.status == KVI_GPU_OPEN ? (uint32_t)KVI_GPU_OK : b->opened.status;
	if (a.status == KVI_GPU_OK) {
		a.payload_bytes = encoding_of()->payload_bytes;
		a.offset = encoding_of()->offset;
		a.elements = b->opened.rows * b->opened.columns;
	}
	if (a.status == KVI_GPU_OK && c->hashed) {
		const u64v acc =
			b->direct ? hash_blocks(c->sums, n)
				  : hash_accumulate<true>(span_at<const uint8_t>(c->decoded, n), n);
		a.hash[0] = hash_low(acc, n);
		a.hash[1] = hash_high(acc, n);
	}
	*(kvi_gpu_encoded *)(uintptr_t)b->answer = a;
}

#endif
