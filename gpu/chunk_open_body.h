/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * chunk_open_body.h - reads the header, the mask, the heads of streams and the tops of a payload
 * (spec 7, mask, rans 4, layers, cells), a warp a chunk
 *
 * The payload is hostile: nothing in it is used before it was compared with payload_bytes.
 */
#ifndef KVI_GPU_CHUNK_OPEN_BODY_H
#define KVI_GPU_CHUNK_OPEN_BODY_H

#include "cells_decode_body.h"
#include "hash_body.h"

enum { CODEC_RAW = 0, CODEC_CONSTANT = 2, CODEC_LAYERS = 4, CODEC_GRID = 5, CODEC_CELLS = 16 };
enum { MASK_CHANNELS = 1, MASK_ROWS = 2, ONE_TOP = 1 };

/* A payload and how far it was read. */
struct payload_in {
	span<const uint8_t> p;
	span<const uint32_t> words;
	uint32_t n, at;
	bool bad;
};

WARP_FN uint32_t element_bytes(uint32_t dtype)
{
	/* numbers that are not listed say their size (spec 4.1) */
	return dtype > 7 ? 1u << (dtype >> 6) : dtype == 1 ? 4 : dtype == 2 || dtype == 3 ? 2 : 1;
}

/* An element at any byte of a payload. */
template <int SIZE> WARP_FN u32v payload_element(span<const uint8_t> p, u32v at, boolv on)
{
	u32v v = splat(0);
	UNROLL
	for (uint32_t i = 0; i < SIZE; i++)
		v |= ldg_if(p, at + i, on) << 8 * i;
	return v;
}

WARP_FN payload_in payload_of(const kvi_gpu_chunk *c)
{
	return payload_in{ span_at<const uint8_t>(c->payload, c->payload_bytes),
		           span_at<const uint32_t>(c->payload, c->payload_bytes / 4),
		           c->payload_bytes, 0, false };
}

/* Skips n bytes; returns their offset, or 0 and marks the payload as bad. */
WARP_FN uint32_t payload_skip(payload_in *in, uint32_t n)
{
	const uint32_t at = in->at;
	if (in->bad || n > in->n - at) {
		in->bad = true;
		return 0;
	}
	in->at = at + n;
	return at;
}

WARP_FN uint32_t payload_byte(payload_in *in)
{
	const uint32_t at = payload_skip(in, 1);
	return in->bad ? 0 : ldg_one(in->p, at);
}

/* At a multiple of 4 of the payload. */
WARP_FN uint32_t payload_word(payload_in *in)
{
	const uint32_t at = payload_skip(in, 4);
	return in->bad ? 0 : ldg_one(in->words, at / 4);
}

/* The zeros to a multiple of a power of 2, 16 at most. */
WARP_FN void payload_padding(payload_in *in, uint32_t multiple)
{
	const uint32_t n = (0 - in->at) % multiple, at = payload_skip(in, n);
	if (in->bad)
		return;
	in->bad = any_of(ldg_if(in->p, lanes() + at, lanes() < n)) != 0;
}

/* The bits of 32 members of a bitmap, from `first` on; at 0: none is set. */
WARP_FN uint32_t bitmap_word(span<const uint8_t> p, uint32_t at, uint32_t first, uint32_t n)
{
	if (!at)
		return 0;
	const u32v i = lanes() + first;
	return mask_of((ldg_if(p, (i >> 3) + at, i < n) >> (i & 7) & 1) != 0);
}

/* A bitmap of n bits and a value for each that is set; how many are. */
WARP_FN uint32_t read_bitmap(payload_in *in, uint32_t n, uint32_t size, uint32_t *bits,
                             uint32_t *values)
{
	uint32_t set = 0;
	*bits = payload_skip(in, (n + 7) / 8);
	if (in->bad)
		return 0;
	for (uint32_t i = 0; i < n; i += 32)
		set += count(bitmap_word(in->p, *bits, i, n));
	if (n % 8 && ldg_one(in->p, *bits + n / 8) >> n % 8)
		in->bad = true;
	*values = payload_skip(in, set * size);
	in->bad |= set == 0;
	return set;
}

/* The mask section, which ends at `end`; lists rows and columns that remain. */
WARP_FN void read_mask(payload_in *in, const kvi_gpu_chunk *c, kvi_gpu_opened *o, uint32_t end)
{
	const uint32_t C = c->heads * c->head_channels, T = c->tokens;
	const uint32_t size = element_bytes(c->dtype), flags = payload_byte(in);
	uint32_t channels = 0, rows = 0, bits = 0, values = 0;
	in->bad |= flags > (MASK_CHANNELS | MASK_ROWS);
	o->row_bits = o->row_values = o->channel_bits = o->channel_values = 0;
	if (flags & MASK_CHANNELS) {
		channels = read_bitmap(in, C, size, &bits, &values);
		o->channel_bits = bits;
		o->channel_values = values;
	}
	if (flags & MASK_ROWS) {
		rows = read_bitmap(in, T, size, &bits, &values);
		o->row_bits = bits;
		o->row_values = values;
	}
	in->bad |= in->at != end;
	o->rows = T - rows;
	o->columns = C - channels;
	if (in->bad)
		return;
	span<uint32_t> columns = span_at<uint32_t>(c->columns, C);
	/* without a slot there is no mask, and nobody wants the list */
	for (uint32_t i = 0, n = 0; i < C && c->columns; i += 32) {
		const uint32_t m = ~bitmap_word(in->p, o->channel_bits, i, C);
		const u32v at = lanes() + i;
		const uint32_t left = m & mask_of(at < C);
		st_if(columns, below(left) + n, at, lane_in(left));
		n += count(left);
	}
	span<uint16_t> token = span_at<uint16_t>((uint64_t)(uintptr_t)o->token, KVI_GPU_TOKENS);
	for (uint32_t i = 0, n = 0; i < T; i += 32) {
		const uint32_t m = ~bitmap_word(in->p, o->row_bits, i, T);
		const u32v at = lanes() + i;
		const uint32_t left = m & mask_of(at < T);
		st_if(token, below(left) + n, at, lane_in(left));
		n += count(left);
	}
}

WARP_FN uint64_t payload_word64(payload_in *in)
{
	const uint32_t low = payload_word(in), high = payload_word(in);
	return (uint64_t)high << 32 | low;
}

/* The states of all streams. */
WARP_FN void read_states(payload_in *in, kvi_gpu_opened *o)
{
	for (uint32_t i = 0; i < o->n_streams && !in->bad; i++) {
		o->stream[i].states = payload_skip(in, 4 * KVI_GPU_LANES);
		if (!in->bad)
			in->bad = mask_of(ldg(in->words, lanes() + o->stream[i].states / 4) <
			                  STATE_LOW) != 0;
	}
}

/* The checks of codecs 4 and 16. */
WARP_FN void read_checks(payload_in *in, kvi_gpu_opened *o)
{
	for (uint32_t i = 0; i < o->n_streams && o->n_streams > 1; i++)
		o->check[i] = payload_word64(in);
}

/* The table of the streams of codec 5 (spec rans 4). */
WARP_FN void read_table(payload_in *in, kvi_gpu_opened *o)
{
	for (uint32_t i = 0; i < o->n_streams; i++) {
		o->stream[i].n_words = payload_word(in);
		in->bad |= payload_word(in) != 0;
		o->check[i] = payload_word64(in);
	}
	in->bad |= o->n_streams == 1 && o->check[0];
}

/* The words of a stream of codecs 5 and 16. */
WARP_FN void skip_words(payload_in *in, kvi_gpu_stream *s)
{
	in->bad |= s->n_words > in->n / 2;
	s->words = payload_skip(in, 2 * s->n_words);
}

/* The parts of n values in layers, whose counts are at `counts`: they may not grow. */
WARP_FN void skip_layers(payload_in *in, uint32_t n, uint32_t counts)
{
	for (uint32_t i = 0; i < LAYERS && !in->bad; i++) {
		const uint32_t next = ldg_one(in->words, counts / 4 + i);
		payload_skip(in, plane_bytes(n, LAYER_BITS));
		in->bad |= next > n;
		n = next;
	}
	payload_skip(in, n);
}

/* The parts of stream i of codec 4. */
template <int D> WARP_FN void skip_stream(payload_in *in, kvi_gpu_opened *o, uint32_t i)
{
	const uint32_t n = stream_elements(o, i);
	payload_padding(in, 4);
	o->stream[i].planes = in->at;
	UNROLL
	for (int p = 0; p < format<D>::planes; p++)
		if (!(o->absent >> p & 1)) {
			payload_skip(in, plane_bytes(n, plane_bits<D>(p)));
			payload_padding(in, 4);
		}
	skip_layers(in, n, o->stream[i].counts);
}

/* The streams of codec 4, and their tops (spec layers 4). */
template <int D> WARP_FN void read_layers(payload_in *in, kvi_gpu_opened *o)
{
	read_checks(in, o);
	const uint32_t head = payload_word(in), flags = head >> 8 & 255;
	o->base = head & 255;
	o->absent = head >> 16 & 255;
	in->bad |= o->base >> format<D>::e != 0 || flags > ONE_TOP ||
	           o->absent >> format<D>::planes != 0 || head >> 24 != 0;
	o->tops_counts = flags & ONE_TOP ? 0 : payload_skip(in, 4 * LAYERS);
	for (uint32_t i = 0; i < o->n_streams; i++)
		o->stream[i].counts = payload_skip(in, 4 * LAYERS);
	o->tops = flags & ONE_TOP ? 0 : in->at;
	if (o->tops)
		skip_layers(in, o->columns, o->tops_counts);
	for (uint32_t i = 0; i < o->n_streams && !in->bad; i++)
		skip_stream<D>(in, o, i);
	in->bad = in->bad || in->at != in->n || !layers_tops(format<D>::e);
}

/* The counts of the streams of codec 16, behind their checks (spec cells 4). */
WARP_FN void read_counts(payload_in *in, kvi_gpu_opened *o)
{
	read_checks(in, o);
	for (uint32_t i = 0; i < o->n_streams; i++) {
		o->stream[i].n_second = payload_word(in);
		o->stream[i].n_escapes = payload_word(in);
		o->stream[i].n_words = payload_word(in);
	}
}

/* The parts of a stream of codec 16 in front of its words. */
WARP_FN void skip_cells(payload_in *in, kvi_gpu_stream *s, uint32_t n)
{
	payload_padding(in, 4);
	s->planes = in->at;
	in->bad |= s->n_second > n || s->n_escapes > s->n_second;
	payload_skip(in, plane_bytes(n, CELL_CODE_BITS));
	payload_skip(in, plane_bytes(s->n_second, CELL_CODE_BITS));
	payload_padding(in, 2);
	s->escapes = payload_skip(in, 2 * s->n_escapes);
}

/* The streams of codecs 5 and 16. */
WARP_FN void read_streams(payload_in *in, kvi_gpu_opened *o, bool cells)
{
	if (cells)
		read_counts(in, o);
	else
		read_table(in, o);
	read_states(in, o);
	for (uint32_t i = 0; i < o->n_streams && !in->bad; i++) {
		if (cells)
			skip_cells(in, &o->stream[i], stream_elements(o, i));
		skip_words(in, &o->stream[i]);
		if (!cells)
			payload_padding(in, 16);
	}
}

/* The payload of codecs 4, 5 and 16 behind the header. */
WARP_FN uint32_t open_streams(payload_in *in, const kvi_gpu_chunk *c, kvi_gpu_opened *o, uint32_t b,
                              uint32_t section)
{
	if (section > in->n - in->at)
		return KVI_GPU_DATA;
	const uint32_t end = in->at + section;
	read_mask(in, c, o, end);
	if (in->bad)
		return KVI_GPU_DATA;
	o->stream_tokens = KVI_GPU_LANES << b;
	o->n_streams = o->columns ? (o->rows + o->stream_tokens - 1) / o->stream_tokens : 0;
	if (o->n_streams < 2 && b != 3)
		return KVI_GPU_DATA;
	for (uint32_t i = 0; i < o->n_streams; i++)
		o->stream[i].good = 0;
	if (o->n_streams) {
		payload_padding(in, 16);
		if (c->codec != CODEC_LAYERS)
			read_streams(in, o, c->codec == CODEC_CELLS);
		else if (c->dtype == 2)
			read_layers<2>(in, o);
		else if (c->dtype == 3)
			read_layers<3>(in, o);
		else
			read_layers<4>(in, o);
	}
	if (in->bad || in->at != in->n)
		return KVI_GPU_DATA;
	return o->n_streams > 1 && hash_bytes((uint64_t)(uintptr_t)o->check, 8 * o->n_streams) !=
	                                   o->raw_check
	               ? KVI_GPU_DATA
	               : KVI_GPU_OPEN;
}

/* Whether the header is the one that the index promises; gives byte 25 and section_bytes. */
WARP_FN bool read_header(payload_in *in, const kvi_gpu_chunk *c, kvi_gpu_opened *o, uint32_t *b,
                         uint32_t *section)
{
	bool good = true;
	if (in->n < KVI_GPU_HEADER)
		return false;
	for (uint32_t i = 0; i < 8; i++) {
		const uint32_t v = payload_word(in);
		good &= (i == 6 ? v & 0xffff00ff : v) == c->head[i];
		*b = i == 6 ? v >> 8 & 255 : *b;
	}
	const uint32_t low = payload_word(in), high = payload_word(in);
	o->raw_check = (uint64_t)high << 32 | low;
	*section = payload_word(in);
	payload_word(in); /* extension_bytes, which payload_bytes leaves out */
	return good && *b <= 3;
}

/* A chunk of which nothing is known: without a mask and streams. */
WARP_FN void open_whole(const kvi_gpu_chunk *c, kvi_gpu_opened *o)
{
	o->n_streams = 0;
	o->row_bits = o->channel_bits = 0;
	o->rows = c->tokens;
	o->columns = c->heads * c->head_channels;
}

/* Tokens of the last stream of a chunk without a mask. */
WARP_FN uint32_t shortest_stream(const kvi_gpu_chunk *c, uint32_t b)
{
	return (c->tokens - 1) % (KVI_GPU_LANES << b) + 1;
}

/* Whether streams of a chunk are decoded: f16 and bf16, of codecs 4 and 5 also e4m3. */
WARP_FN bool has_streams(const kvi_gpu_chunk *c)
{
	return c->dtype >= 2 && c->dtype <= (c->codec == CODEC_CELLS ? 3 : 4) &&
	       (c->codec == CODEC_LAYERS || c->params);
}

/* Whether elements of a chunk may go from registers to the view, by its shape and what is in front
 * of its streams: no mask, which is a section of a zero. */
WARP_FN bool goes_direct(const kvi_gpu_chunk *c)
{
	const uint32_t C = c->heads * c->head_channels, row = C * element_bytes(c->dtype);
	span<const uint32_t> words = span_at<const uint32_t>(c->payload, c->payload_bytes / 4);
	return (c->codec == CODEC_LAYERS ||
	        (c->codec == CODEC_CELLS && C <= KVI_GPU_CELL_CHANNELS)) &&
	       row % HASH_STRIPE == 0 && c->payload_bytes > KVI_GPU_HEADER + 3 &&
	       ldg_one(words, 10) == 1 && (ldg_one(words, KVI_GPU_HEADER / 4) & 255) == 0 &&
	       shortest_stream(c, ldg_one(words, 6) >> 8 & 3) * row > HASH_SHORT;
}

/* Everything that is known before a stream is decoded. */
WARP_CALL uint32_t open_chunk(void)
{
	const kvi_gpu_chunk *c = &block_of()->job;
	kvi_gpu_opened *o = &block_of()->opened;
	const uint32_t C = c->heads * c->head_channels, size = element_bytes(c->dtype);
	payload_in in = payload_of(c);
	uint32_t b = 0, section = 0;
	open_whole(c, o);
	if (!read_header(&in, c, o, &b, &section))
		return KVI_GPU_DATA;
	if (c->codec == CODEC_RAW || c->codec == CODEC_CONSTANT) {
		const uint32_t bytes = c->codec == CODEC_RAW ? c->tokens * C * size : size;
		return b == 3 && !section && in.n - in.at == bytes ? KVI_GPU_OPEN : KVI_GPU_DATA;
	}
	if (C > KVI_GPU_CHANNELS || !has_streams(c))
		return KVI_GPU_HOST;
	return open_streams(&in, c, o, b, section);
}

#endif
