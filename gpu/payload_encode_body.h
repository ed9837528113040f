/* SPDX-License-Identifier: BSD-3-Clause */
/* payload_encode_body.h - streams of codec 5 on their way out: number, words, payload */
#ifndef KVI_GPU_PAYLOAD_ENCODE_BODY_H
#define KVI_GPU_PAYLOAD_ENCODE_BODY_H

#include "chunk_encode_body.h"
#include "stream_encode_body.h"

/* The tables of a block, behind its encoding. */
WARP_FN encode_shared encode_tables_of(void)
{
	const span<uint32_t> enc = block_part<uint32_t>(ENCODING_WORDS, KVI_GPU_GRID_CODES);
	return encode_shared{
		enc,
		block_part<uint32_t>(ENCODING_WORDS + KVI_GPU_GRID_CODES, KVI_GPU_GRID_CODES),
		{ enc, block_part<uint32_t>(ENCODING_WORDS + 2 * KVI_GPU_GRID_CODES, 64), {} }
	};
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

/* The stream size, by the words of these tokens, which stream 0 has; one warp. */
WARP_FN uint32_t choose_size(void)
{
	const kvi_gpu_opened *o = &block_of()->opened;
	uint32_t size = 3;
	if (o->rows <= 32)
		return size;
	const uint64_t bytes = 2 * (uint64_t)encoding_of()->n_words[0] * o->rows /
	                       trial_tokens(o->columns);
	for (uint32_t b = 0; b < 3 && size == 3; b++) {
		const uint32_t n = (o->rows + (32u << b) - 1) / (32u << b);
		if (n > 1 && (uint64_t)(n - 1) * 120 * 1000 <= bytes * 3)
			size = b;
	}
	return size;
}

/* Words and states of a stream, or (trial) of the tokens that are encoded first, as stream 0. */
template <int D> WARP_FN void encode_grid(uint32_t number, bool trial)
{
	const kvi_gpu_chunk *c = &block_of()->job;
	kvi_gpu_encoding *x = encoding_of();
	kvi_gpu_opened *o = &block_of()->opened;
	const encode_shared t = encode_tables_of();
	uint32_t first = number * o->stream_tokens, rows = o->rows - first;
	uint32_t end = first * o->columns * KVI_GPU_WORDS_EACH + number * KVI_GPU_SPARE_WORDS;
	rows = rows < o->stream_tokens ? rows : o->stream_tokens;
	if (trial) {
		rows = trial_tokens(o->columns);
		first = (o->rows - rows) / 2 / 32 * 32;
	}
	end += rows * o->columns * KVI_GPU_WORDS_EACH + KVI_GPU_SPARE_WORDS;
	words_out w = { span_at<uint16_t>(c->words, end), end };
	const u32v s = grid_encode<D>(c, o, &t, first, rows, &w);
	o->stream[number].words = w.at;
	x->n_words[number] = end - w.at;
	st(span_at<uint32_t>((uint64_t)(uintptr_t)x->state[number], 32), lanes(), s);
}

/* Copies n bytes that this kernel wrote. */
WARP_FN void put_copy(uint32_t at, uint64_t from, uint32_t n)
{
	span<const uint8_t> in = span_at<const uint8_t>(from, n);
	for (uint32_t i = 0; i < n; i += 32) {
		const u32v l = lanes() + i;
		st_if(payload_of_block(), l + at, ld_if(in, l, l < n), l < n);
	}
}
/* The offset of the words of a stream; that of the one behind the last: bytes of the payload. */
WARP_FN uint32_t words_at(uint32_t number)
{
	const kvi_gpu_encoding *x = encoding_of();
	uint32_t at = streams_at() + block_of()->opened.n_streams * KVI_GPU_ENTRY;
	for (uint32_t i = 0; i < number; i++)
		at += 2 * x->n_words[i] + padding(2 * x->n_words[i]);
	return at;
}

/* A stream's part of the payload. */
WARP_CALL void put_stream(uint32_t number)
{
	const kvi_gpu_encoding *x = encoding_of();
	const kvi_gpu_opened *o = &block_of()->opened;
	const uint32_t S = o->n_streams, table = streams_at(), entry = table / 4 + 4 * number;
	const span<uint32_t> to = payload_words();
	st_one(to, entry, x->n_words[number]);
	st_one(to, entry + 1, 0);
	st_one(to, entry + 2, S > 1 ? (uint32_t)o->check[number] : 0);
	st_one(to, entry + 3, S > 1 ? (uint32_t)(o->check[number] >> 32) : 0);
	put_copy(table + 16 * S + 128 * number, (uint64_t)(uintptr_t)x->state[number], 128);
	put_zeros(words_at(number) + 2 * x->n_words[number], 16);
	put_copy(words_at(number), block_of()->job.words + 2 * (uint64_t)o->stream[number].words,
	         2 * x->n_words[number]);
}

#endif
