/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lossy_open_body.h - reads the payload of a chunk of codec 13 or 14: exact tokens, rates, heads of
 * bodies (spec lossy 1, had 2), a warp a chunk
 *
 * The payload is hostile: nothing in it is used before it was compared with payload_bytes.
 */
#ifndef KVI_GPU_LOSSY_OPEN_BODY_H
#define KVI_GPU_LOSSY_OPEN_BODY_H

#include "chunk_open_body.h"

enum { LOSSY_EXACT = 1, LOSSY_RATES = 2, LOSSY_NEAR = 16 };
/* The patterns of steps: positive normal numbers below 2^100. */
constexpr uint32_t STEP_LEAST = 0x00800000, STEP_END = 0x71800000;

/* A number of n bytes, at any byte of the payload. */
WARP_FN uint32_t payload_number(payload_in *in, uint32_t n)
{
	const uint32_t at = payload_skip(in, n);
	uint32_t v = 0;
	for (uint32_t i = 0; i < n && !in->bad; i++)
		v |= ldg_one(in->p, at + i) << 8 * i;
	return v;
}

/* How many bytes a body has (spec 1.4 varint): 1 or more, and no more than are left. */
WARP_FN uint32_t payload_length(payload_in *in)
{
	uint64_t v = 0;
	for (uint32_t shift = 0; shift < 63 && !in->bad; shift += 7) {
		const uint32_t b = payload_byte(in);
		v |= (uint64_t)(b & 127) << shift;
		if (b & 128)
			continue;
		in->bad |= (b == 0 && shift) || !v || v > in->n - in->at;
		return in->bad ? 0 : (uint32_t)v;
	}
	in->bad = true;
	return 0;
}

/* The classes of coded tokens: how many there are, where they lie, bits of each. */
struct rate_map {
	uint32_t n, at, width;
};

/*
 * Appends the tokens of a class to those in o->token that are there already: class n of a map of n
 * classes has the exact tokens. exact: offset of the bitmap of exact tokens; 0: there is none.
 * Returns how many there are.
 */
WARP_FN uint32_t list_class(const payload_in *in, const kvi_gpu_chunk *c, kvi_gpu_opened *o,
                            uint32_t exact, const rate_map *map, uint32_t number, uint32_t row)
{
	span<uint16_t> token = span_at<uint16_t>((uint64_t)(uintptr_t)o->token, KVI_GPU_TOKENS);
	uint32_t coded = 0, n = 0;
	for (uint32_t i = 0; i < c->tokens; i += 32) {
		const uint32_t all = mask_of(lanes() + i < c->tokens);
		const uint32_t fixed = bitmap_word(in->p, exact, i, c->tokens);
		const uint32_t others = all & ~fixed;
		uint32_t mask = number == map->n ? fixed : others;
		if (map->width && number < map->n) {
			const u32v bit = (below(others) + coded) * map->width;
			const u32v at = (bit >> 3) + map->at;
			const u32v class_of = ldg_if(in->p, at, lane_in(others)) >> (bit & 7) &
			                      ((1u << map->width) - 1);
			mask = mask_of(lane_in(others) & (class_of == number));
		}
		st_if(token, below(mask) + (row + n), lanes() + i, lane_in(mask));
		coded += count(others);
		n += count(mask);
	}
	return n;
}

/* The head of a body of n bytes, up to its words, which end it. */
WARP_FN void read_body(payload_in *in, kvi_gpu_body *body, uint32_t n)
{
	const uint32_t end = in->at + n;
	body->step = payload_number(in, 4);
	body->shift = (int16_t)payload_number(in, 2);
	in->bad |= body->step < STEP_LEAST || body->step >= STEP_END;
	for (uint32_t i = 0; i < 2; i++) {
		const int32_t near = (int8_t)payload_number(in, 1);
		in->bad |= near < -LOSSY_NEAR || near > LOSSY_NEAR;
		body->near[i] = (uint32_t)near;
	}
	body->n_words = payload_number(in, 4);
	body->states = payload_skip(in, 4 * KVI_GPU_LANES);
	in->bad |= body->n_words > in->n / 2;
	if (in->bad)
		return;
	const u32v st = payload_element<4>(in->p, lanes() * 4 + body->states, lanes() < 32);
	in->bad = mask_of(st < STATE_LOW) != 0;
	body->words = payload_skip(in, 2 * body->n_words);
	body->good = 0;
	in->bad |= in->at != end;
}

/* The bitmap of exact tokens and their planes; *bitmap: its offset. */
WARP_FN uint32_t read_exact(payload_in *in, const kvi_gpu_chunk *c, kvi_gpu_opened *o,
                            uint32_t *bitmap)
{
	const uint32_t T = c->tokens, bits = payload_skip(in, (T + 7) / 8);
	uint32_t n = 0;
	for (uint32_t i = 0; i < T && !in->bad; i += 32)
		n += count(bitmap_word(in->p, bits, i, T));
	if (in->bad || !n || n == T || (T % 8 && ldg_one(in->p, bits + T / 8) >> T % 8))
		return KVI_GPU_DATA;
	const uint32_t method = payload_byte(in);
	if (in->bad)
		return KVI_GPU_DATA;
	if (method != PLANE_STORED)
		return KVI_GPU_HOST;
	o->exact = payload_skip(in, n * c->heads * c->head_channels * element_bytes(c->dtype));
	*bitmap = bits;
	return in->bad ? KVI_GPU_DATA : KVI_GPU_OPEN;
}

/* The number of rate classes, the class of each of the coded tokens. */
WARP_FN void read_rates(payload_in *in, rate_map *map, uint32_t coded)
{
	map->n = payload_byte(in);
	in->bad |= map->n < 2 || map->n > KVI_GPU_BODIES;
	map->width = map->n > 2 ? 2 : 1;
	const uint32_t bits = coded * map->width;
	map->at = payload_skip(in, (bits + 7) / 8);
	if (!in->bad && bits % 8 && ldg_one(in->p, map->at + bits / 8) >> bits % 8)
		in->bad = true;
}

/* Lists the tokens of all bodies, then the exact ones. False: a class has none, or a token has a
 * class that there is not. */
WARP_FN bool list_tokens(const payload_in *in, const kvi_gpu_chunk *c, kvi_gpu_opened *o,
                         uint32_t bitmap, const rate_map *map)
{
	uint32_t row = 0, block = 0;
	bool good = true;
	for (uint32_t i = 0; i < map->n; i++) {
		kvi_gpu_body *body = &o->body[i];
		body->row = row;
		body->block = block;
		body->rows = list_class(in, c, o, bitmap, map, i, row);
		good &= body->rows != 0;
		row += body->rows;
		block += (body->rows + 31) / 32;
	}
	o->n_bodies = map->n;
	o->rows = row;
	return good && row + list_class(in, c, o, bitmap, map, map->n, row) == c->tokens;
}

WARP_FN uint32_t open_bodies(payload_in *in, const kvi_gpu_chunk *c, kvi_gpu_opened *o)
{
	const uint32_t generation = payload_byte(in), flags = payload_byte(in);
	rate_map map = { 1, 0, 0 };
	uint32_t bitmap = 0, exact = 0;
	if (in->bad || !generation || flags > (LOSSY_EXACT | LOSSY_RATES))
		return KVI_GPU_DATA;
	if (flags & LOSSY_EXACT) {
		const uint32_t status = read_exact(in, c, o, &bitmap);
		if (status != KVI_GPU_OPEN)
			return status;
		for (uint32_t i = 0; i < c->tokens; i += 32)
			exact += count(bitmap_word(in->p, bitmap, i, c->tokens));
	}
	if (flags & LOSSY_RATES)
		read_rates(in, &map, c->tokens - exact);
	if (in->bad || !list_tokens(in, c, o, bitmap, &map))
		return KVI_GPU_DATA;
	for (uint32_t i = 0; i + 1 < map.n; i++)
		o->body[i].n_words = payload_length(in);
	for (uint32_t i = 0; i < map.n && !in->bad; i++)
		read_body(in, &o->body[i], i + 1 < map.n ? o->body[i].n_words : in->n - in->at);
	return in->bad || in->at != in->n ? KVI_GPU_DATA : KVI_GPU_OPEN;
}

/* Everything that is known before a stream is decoded. */
WARP_FN uint32_t open_lossy(const kvi_gpu_chunk *c, kvi_gpu_opened *o)
{
	const uint32_t C = c->heads * c->head_channels;
	payload_in in = payload_of(c);
	uint32_t b = 0, section = 0;
	open_whole(c, o);
	if (!read_header(&in, c, o, &b, &section) || b != 3 || section)
		return KVI_GPU_DATA;
	if (C > KVI_GPU_CHANNELS || !(c->codec == CODEC_KLT ? c->linear : c->params))
		return KVI_GPU_HOST;
	return open_bodies(&in, c, o);
}

#endif
