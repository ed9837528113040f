/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lossy_codes_body.h - decodes the streams of codecs 13 and 14 to rows of points (spec lossy 4), a
 * warp a body, a lane a token
 *
 * The tokens of a body are cut into blocks of 32, those of all bodies one behind the other. Points
 * are in rows: u32[32] of a pair of coefficients, the even one in bits 0 to 15; block after block,
 * head after head, pair after pair; a head of an odd number of channels has one half of a row that
 * is 0.
 */
#ifndef KVI_GPU_LOSSY_CODES_BODY_H
#define KVI_GPU_LOSSY_CODES_BODY_H

#include "chunk_finish_body.h"
#include "lossy_open_body.h"

constexpr uint32_t CODE_FIRSTS = 256, CODE_STARTS = 64, CODES_MOST = 2048;

/* What a block has in shared memory: the tables of kvi_gpu_tables. */
struct code_shared {
	span<uint32_t> enc, at;
	span<uint8_t> first;
};

/* Fills enc and at, by all warps of a block. */
WARP_FN void code_entries(const code_shared *s, const kvi_gpu_tables *tables, uint32_t warp,
                          uint32_t warps)
{
	span<const uint32_t> enc = span_at<const uint32_t>(tables->codes, tables->n_codes);
	span<const uint32_t> at = span_at<const uint32_t>(tables->code_at, KVI_GPU_CLASSES + 1);
	for (uint32_t i = warp * 32; i < tables->n_codes; i += warps * 32) {
		const boolv on = lanes() + i < tables->n_codes;
		st_if(s->enc, lanes() + i, ldg_if(enc, lanes() + i, on), on);
	}
	for (uint32_t i = warp * 32; i < CODE_STARTS; i += warps * 32)
		st(s->at, lanes() + i, ldg_if(at, lanes() + i, lanes() + i < KVI_GPU_CLASSES + 1u));
}
/* Fills all of it. */
WARP_FN void code_tables(const code_shared *s, const kvi_gpu_tables *tables, uint32_t warp,
                         uint32_t warps)
{
	span<const uint8_t> first = span_at<const uint8_t>(tables->code_first,
	                                                   KVI_GPU_CLASSES * CODE_FIRSTS);
	code_entries(s, tables, warp, warps);
	for (uint32_t i = warp * 32; i < KVI_GPU_CLASSES * CODE_FIRSTS; i += warps * 32)
		st(s->first, lanes() + i, ldg(first, lanes() + i));
}

/* Blocks of all bodies. */
WARP_FN uint32_t lossy_blocks(const kvi_gpu_opened *o)
{
	const kvi_gpu_body *last = &o->body[o->n_bodies - 1];
	return last->block + (last->rows + 31) / 32;
}

/* Rows of points that a block has. */
WARP_FN uint32_t lossy_pairs(const kvi_gpu_chunk *c)
{
	return c->heads * ((c->head_channels + 1) / 2);
}
WARP_FN span<uint32_t> points_at(const kvi_gpu_chunk *c, const kvi_gpu_opened *o)
{
	return span_at<uint32_t>(c->decoded, (size_t)lossy_blocks(o) * lossy_pairs(c) * 32);
}
/* The coefficients of a block, channel after channel, or slot after slot. */
template <typename T>
WARP_FN span<T> coefficients_at(const kvi_gpu_chunk *c, const kvi_gpu_opened *o, uint32_t block)
{
	const uint64_t n = o->columns * 32;
	return span_at<T>(c->contexts + block * n * sizeof(T), n);
}

/* Whether a chunk is to be decoded in a stage: what it is predicted from is good. */
WARP_FN bool runs_lossy(const kvi_gpu_chunk *c, const kvi_gpu_opened *o, uint32_t stage)
{
	return is_lossy(c) && c->stage == stage && o->status == KVI_GPU_OPEN && o->n_bodies &&
	       (c->codec == CODEC_HAD || sources_good(linear_of(c)));
}

/* A stream on its way. */
struct code_stream {
	words_at_bytes words;
	u32v state;
	const code_shared *t;
	span<const int16_t> k; /* size of each coefficient, in classes */
	uint32_t k_apart;      /* how far apart they are */
	uint32_t heads, channels, shift;
	uint32_t near[2];
};

/* The codes of a step; row: where the table begins, its class << 11, its escape << 17. */
template <bool ALL> WARP_FN u32v code_step(code_stream *x, u32v row, boolv active)
{
	const u32v slot = x->state & 2047, base = row & 2047;
	HAPPENS(step, 1);
	u32v at = base + ld(x->t->first, (slot >> 3) + (row >> 11 & 63) * CODE_FIRSTS);
	u32v e = ld(x->t->enc, at), rest = slot - (e >> 16);
	boolv on = rest >= (e & 0xffff);
	while (mask_of(on)) {
		HAPPENS(search, 1);
		at += select(on, splat(1), splat(0));
		e = ld(x->t->enc, at);
		rest = slot - (e >> 16);
		on = rest >= (e & 0xffff);
	}
	const u32v next = (e & 0xffff) * (x->state >> 11) + rest;
	u32v s = ALL ? next : select(active, next, x->state);
	s = renorm(&x->words, s, s < STATE_LOW);
	u32v z = at - base;
	boolv escaped = z == row >> 17;
	if (!ALL)
		escaped = escaped & active;
	const uint32_t mask = mask_of(escaped);
	if (mask) { /* rare */
		HAPPENS(escape, 1);
		words_refill(&x->words);
		z = select(escaped, s & 255, z);
		s = select(escaped, s >> 8, s);
		s = renorm(&x->words, s, lane_in(mask & mask_of(s < STATE_LOW)));
	}
	words_refill(&x->words);
	x->state = s;
	return z;
}

/* The points of symbols, in 1/32 of a step. */
WARP_FN u32v point_of(const code_stream *x, u32v z)
{
	const u32v minus = 0 - (z & 1), size = ((z + 1) >> 1) * 32;
	const u32v near = select(size > 32, splat(x->near[1]),
	                         select(size != 0, splat(x->near[0]), splat(0)));
	return ((size - near) ^ minus) - minus;
}

/* Tables of up to 32 coefficients from c on, a lane a coefficient, as code_step takes them. */
WARP_FN u32v code_rows(const code_stream *x, uint32_t c, uint32_t n)
{
	const u32v l = lanes();
	const u32v v = ldg_if(x->k, (l + c) * x->k_apart, l < n) - x->shift;
	const u32v number = min_signed(max_signed(v, splat(0)), splat(KVI_GPU_CLASSES - 1));
	const u32v at = ld(x->t->at, number), end = ld(x->t->at, number + 1);
	return at | number << 11 | (end - at - 1) << 17;
}

/* A block of 32 tokens, or of the remaining ones; `to`: its rows. */
template <bool ALL> WARP_FN void code_block(code_stream *x, span<uint32_t> to, boolv active)
{
	for (uint32_t h = 0; h < x->heads; h++)
		for (uint32_t first = 0; first < x->channels; first += 32) {
			const uint32_t left = x->channels - first, n = left < 32 ? left : 32;
			const u32v rows = code_rows(x, h * x->channels + first, n);
			for (uint32_t i = 0; i < n; i += 2) {
				u32v z = code_step<ALL>(x, shuffle(rows, splat(i)), active);
				u32v pair = point_of(x, z) & 0xffff;
				if (i + 1 < n) {
					z = code_step<ALL>(x, shuffle(rows, splat(i + 1)), active);
					pair |= point_of(x, z) << 16;
				}
				st_once(to, lanes(), pair);
				to = skip(to, 32);
			}
		}
}

/* Finds k: in the parameters, or in the second words of a model's slots. */
WARP_FN void find_sizes(code_stream *x, const kvi_gpu_chunk *c)
{
	const uint32_t C = c->heads * c->head_channels;
	if (c->codec == CODEC_KLT) {
		x->k = skip(span_at<const int16_t>(model_of(linear_of(c))->slots, C * 8), 2);
		x->k_apart = 8;
		return;
	}
	x->k = span_at<const int16_t>(((const kvi_gpu_params *)(uintptr_t)c->params)->k, C);
	x->k_apart = 1;
}

/* Decodes the stream of a body. Whether it was good. */
WARP_FN bool decode_codes(const kvi_gpu_chunk *c, const kvi_gpu_opened *o, uint32_t number,
                          const code_shared *t)
{
	const kvi_gpu_body *body = &o->body[number];
	const uint32_t block = lossy_pairs(c) * 32, rows = uniform(body->rows);
	span<uint32_t> to = skip(points_at(c, o), body->block * block);
	code_stream x;
	words_open(&x.words, c->payload + body->words, uniform(body->n_words));
	x.state = payload_element<4>(span_at<const uint8_t>(c->payload, c->payload_bytes),
	                             lanes() * 4 + body->states, lanes() < 32);
	x.t = t;
	find_sizes(&x, c);
	x.heads = uniform(c->heads);
	x.channels = uniform(c->head_channels);
	x.shift = (uint32_t)body->shift;
	x.near[0] = body->near[0];
	x.near[1] = body->near[1];
	for (uint32_t i = 0; i < rows / 32; i++) {
		code_block<true>(&x, to, lanes() < 32);
		to = skip(to, block);
	}
	if (rows % 32)
		code_block<false>(&x, to, lanes() < rows % 32);
	return stream_ended(&x.words, x.state);
}

#endif
