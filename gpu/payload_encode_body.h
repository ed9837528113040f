/* SPDX-License-Identifier: BSD-3-Clause */
/* payload_encode_body.h - streams of a chunk: how many, their words and checks, the payload */
#ifndef KVI_GPU_PAYLOAD_ENCODE_BODY_H
#define KVI_GPU_PAYLOAD_ENCODE_BODY_H

#include "chunk_encode_body.h"

/* Most words of an element. */
constexpr uint32_t WORDS_EACH = 3;

/* Words of rows from first_row on, in memory from word `from` on; how many, and the states. */
template <int D>
WARP_FN u32v encode_rows(const kvi_gpu_encode *e, const encode_shared *t, uint32_t first_row,
                         uint32_t rows, uint32_t from, uint32_t *begin, uint32_t *n)
{
	const kvi_gpu_opened *o = &encoding_of(e)->o;
	const uint32_t end = from + rows * o->columns * WORDS_EACH + KVI_GPU_SPARE_WORDS;
	words_out w = { span_at<uint16_t>(e->words, end), end };
	const u32v s = grid_encode<D>(&e->job, o, t, first_row, rows, &w);
	*begin = w.at;
	*n = end - w.at;
	return s;
}

/* Tokens from whose words all are estimated (spec rans 6). */
WARP_FN uint32_t trial_tokens(uint32_t columns)
{
	const uint32_t common = columns & (0 - columns);
	const uint32_t tokens = common < 32 ? 32 / common : 1;
	uint32_t n = tokens;
	while (n < 32 && n * columns < 1024)
		n += tokens;
	return n;
}

/* The stream size, a warp a chunk. */
template <int D> WARP_FN void choose_streams(const kvi_gpu_encode *e, const encode_shared *t)
{
	kvi_gpu_encoding *x = encoding_of(e);
	kvi_gpu_opened *o = &x->o;
	uint32_t size = 3;
	if (o->rows > 32) {
		const uint32_t trial = trial_tokens(o->columns);
		uint32_t begin, words;
		const uint32_t first = (o->rows - trial) / 2 / 32 * 32;
		encode_rows<D>(e, t, first, trial, 0, &begin, &words);
		const uint64_t bytes = 2 * (uint64_t)words * o->rows / trial;
		for (uint32_t b = 0; b < 3 && size == 3; b++) {
			const uint32_t n = (o->rows + (32u << b) - 1) / (32u << b);
			if (n > 1 && (uint64_t)(n - 1) * 120 * 1000 <= bytes * 3)
				size = b;
		}
	}
	x->stream_size = size;
	o->stream_tokens = 32u << size;
	o->n_streams = (o->rows + o->stream_tokens - 1) / o->stream_tokens;
}

/* Words and states of a stream. */
template <int D>
WARP_FN void encode_stream(const kvi_gpu_encode *e, const encode_shared *t, uint32_t number)
{
	kvi_gpu_encoding *x = encoding_of(e);
	kvi_gpu_opened *o = &x->o;
	const uint32_t first = number * o->stream_tokens, left = o->rows - first;
	uint32_t begin, n;
	const u32v s = encode_rows<D>(
		e, t, first, left < o->stream_tokens ? left : o->stream_tokens,
		first * o->columns * WORDS_EACH + number * KVI_GPU_SPARE_WORDS, &begin, &n);
	o->stream[number].words = begin;
	x->n_words[number] = n;
	st(span_at<uint32_t>((uint64_t)(uintptr_t)x->state[number], 32), lanes(), s);
}

/* The check of a stream. */
WARP_FN void check_stream(const kvi_gpu_encode *e, uint32_t number)
{
	kvi_gpu_opened *o = &encoding_of(e)->o;
	const uint32_t row = channels_of(e) * element_bytes(e->job.dtype);
	const uint32_t from = stream_begin(o, number);
	const uint32_t to = number + 1 < o->n_streams ? stream_begin(o, number + 1) : e->job.tokens;
	o->check[number] = hash_bytes(e->job.decoded + (uint64_t)from * row, (to - from) * row);
}

/* Copies n bytes, and zeros to a multiple of 16. */
WARP_FN uint32_t put_bytes(span<uint8_t> to, uint32_t at, uint64_t from, uint32_t n)
{
	span<const uint8_t> in = span_at<const uint8_t>(from, n);
	const uint32_t end = n + padding(n);
	for (uint32_t i = 0; i < end; i += 32) {
		const u32v l = lanes() + i;
		st_if(to, l + at, ldg_if(in, l, l < n), l < end);
	}
	return at + end;
}

/* A number of 4 bytes. */
WARP_FN void put_word(span<uint32_t> to, uint32_t at, uint32_t v)
{
	st_one(to, at / 4, v);
}

/* The header of a chunk (spec 7). */
WARP_FN void put_header(const kvi_gpu_encode *e)
{
	span<uint32_t> to = span_at<uint32_t>(e->job.payload, e->job.payload_bytes / 4);
	const kvi_gpu_encoding *x = encoding_of(e);
	const kvi_gpu_opened *o = &x->o;
	const uint64_t check = o->n_streams > 1
	                               ? hash_bytes((uint64_t)(uintptr_t)o->check, 8 * o->n_streams)
	                               : o->check[0];
	for (uint32_t i = 0; i < 8; i++)
		put_word(to, 4 * i, i == 6 ? e->job.head[i] | x->stream_size << 8 : e->job.head[i]);
	put_word(to, 32, (uint32_t)check);
	put_word(to, 36, (uint32_t)(check >> 32));
	put_word(to, 40, x->section_bytes);
	put_word(to, 44, 0);
}

/* Bytes of the whole payload. */
WARP_FN uint32_t payload_size(const kvi_gpu_encode *e)
{
	const kvi_gpu_encoding *x = encoding_of(e);
	const uint32_t section = KVI_GPU_HEADER + x->section_bytes;
	uint32_t n = section + padding(section) + x->o.n_streams * KVI_GPU_ENTRY;
	for (uint32_t i = 0; i < x->o.n_streams; i++)
		n += 2 * x->n_words[i] + padding(2 * x->n_words[i]);
	return n;
}

/* A stream's part of the payload. */
WARP_FN void put_stream(const kvi_gpu_encode *e, uint32_t number)
{
	kvi_gpu_encoding *x = encoding_of(e);
	const bool fits = payload_size(e) <= e->job.payload_bytes;
	if (!fits && number == 0)
		x->payload_bytes = 0;
	if (!fits)
		return;
	const kvi_gpu_opened *o = &x->o;
	const uint32_t S = o->n_streams, capacity = e->job.payload_bytes;
	span<uint8_t> to = span_at<uint8_t>(e->job.payload, capacity);
	span<uint32_t> words = span_at<uint32_t>(e->job.payload, capacity / 4);
	uint32_t at = KVI_GPU_HEADER + x->section_bytes;
	const uint32_t table = at + padding(at), states = table + 16 * S;
	at = states + 128 * S;
	for (uint32_t i = 0; i < number; i++)
		at += 2 * x->n_words[i] + padding(2 * x->n_words[i]);
	put_word(words, table + 16 * number, x->n_words[number]);
	put_word(words, table + 16 * number + 4, 0);
	put_word(words, table + 16 * number + 8, S > 1 ? (uint32_t)o->check[number] : 0);
	put_word(words, table + 16 * number + 12, S > 1 ? (uint32_t)(o->check[number] >> 32) : 0);
	put_bytes(to, states + 128 * number, (uint64_t)(uintptr_t)x->state[number], 128);
	at = put_bytes(to, at, e->words + 2 * o->stream[number].words, 2 * x->n_words[number]);
	if (number == 0) {
		const u32v zeros = lanes() + (KVI_GPU_HEADER + x->section_bytes);
		st_if(to, zeros, splat(0), zeros < table);
	}
	if (number + 1 == S)
		x->payload_bytes = at;
}

/* The header and the answer, a warp a chunk. */
WARP_FN void answer_encoded(const kvi_gpu_encode *e, kvi_gpu_encoded *answer)
{
	const kvi_gpu_encoding *x = encoding_of(e);
	const uint32_t raw = e->job.tokens * channels_of(e) * element_bytes(e->job.dtype);
	kvi_gpu_encoded a = {};
	a.status = x->o.status;
	if (a.status == KVI_GPU_OPEN)
		a.status = x->payload_bytes ? KVI_GPU_OK : KVI_GPU_HOST;
	if (a.status == KVI_GPU_OK) {
		put_header(e);
		a.payload_bytes = x->payload_bytes;
		a.elements = x->o.rows * x->o.columns;
		if (e->hashed)
			a.hash[0] = hash_both(e->job.decoded, raw, &a.hash[1]);
	}
	*answer = a;
}

#endif
