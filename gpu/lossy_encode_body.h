/* SPDX-License-Identifier: BSD-3-Clause */
/* lossy_encode_body.h - codes of codecs 13 and 14 to the stream of a body (spec lossy 4), and to
 * the elements that a decoder makes */
#ifndef KVI_GPU_LOSSY_ENCODE_BODY_H
#define KVI_GPU_LOSSY_ENCODE_BODY_H

#include "lossy_basis_body.h"

/* Bytes that exact tokens take more at most once they are packed (writer_coded.c). */
constexpr uint32_t PACKED_MORE = 4;

/* ----- streams ------------------------------------------------ */

/* A stream on its way out: rows of tables as decoders have them. */
struct code_encoder {
	code_stream rows;
	const encode_shared *t;
	words_out words;
	u32v state;
};

/* The inverse of a decoder's step; row as code_step takes it. */
template <bool ALL> WARP_FN void code_put(code_encoder *x, u32v row, u32v code, boolv active)
{
	const u32v z = (code << 1 ^ sar(code, 31)) & 255, escape = row >> 17;
	boolv escaped = z >= escape;
	if (!ALL)
		escaped = escaped & active;
	HAPPENS(step, 1);
	if (mask_of(escaped)) { /* rare */
		HAPPENS(escape, 1);
		x->state = bits_out(&x->words, x->state, splat(8), z, escaped);
	}
	x->state = symbol_out<ALL>(&x->words, x->state, x->t,
	                           (row & 2047) + select(z < escape, z, escape), active);
}

/* The codes of 32 tokens, or of the last ones, from the last coefficient to the first. */
template <bool ALL> WARP_FN void codes_put(code_encoder *x, span<int8_t> codes, boolv active)
{
	for (uint32_t h = x->rows.heads; h-- > 0;)
		for (uint32_t end = x->rows.channels; end > 0;) {
			const uint32_t first = (end - 1) / 32 * 32,
				       at = h * x->rows.channels + first;
			const u32v rows = code_rows(&x->rows, at, end - first);
			for (uint32_t i = end - first; i-- > 0;) {
				const u32v code = ld(codes, lanes() + (at + i) * 32);
				code_put<ALL>(x, shuffle(rows, splat(i)), code, active);
			}
			end = first;
		}
}

/* n bytes of a number, at any byte. */
WARP_FN void put_number(span<uint8_t> to, uint32_t at, uint32_t v, uint32_t n)
{
	st_if(to, lanes() + at, splat(v) >> (lanes() & 3) * 8, lanes() < n);
}

/* The body, which ends the payload; its words are n. */
WARP_FN void put_body(const kvi_gpu_encode *e, const code_encoder *x, uint32_t n)
{
	const kvi_gpu_body *body = &encoding_of(e)->o.body[0];
	const uint32_t begin = body->states - BODY_HEAD;
	span<uint8_t> to = span_at<uint8_t>(e->job.payload, e->job.payload_bytes);
	span<const uint16_t> words = span_at<const uint16_t>(e->words + 2 * (uint64_t)x->words.at,
	                                                     n);
	put_number(to, begin, body->step, 4);
	put_number(to, begin + 4, (uint32_t)body->shift, 2);
	put_number(to, begin + 6, body->near[0], 1);
	put_number(to, begin + 7, body->near[1], 1);
	put_number(to, begin + 8, n, 4);
	UNROLL
	for (uint32_t b = 0; b < 4; b++)
		st(to, lanes() * 4 + (body->states + b), x->state >> 8 * b);
	for (uint32_t i = 0; i < n; i += 32) {
		const u32v at = lanes() + i;
		const u32v word = ld_if(words, at, at < n);
		st_if(to, at * 2 + body->words, word, at < n);
		st_if(to, at * 2 + (body->words + 1), word >> 8, at < n);
	}
}

/* The stream and the body of a chunk, a warp a chunk. The payload has to be smaller than the
 * elements, also if exact tokens take more bytes once they are packed, else it is the host's. */
WARP_FN void encode_body(const kvi_gpu_encode *e, const code_shared *codes, const encode_shared *t)
{
	kvi_gpu_encoding *c = encoding_of(e);
	kvi_gpu_body *body = &c->o.body[0];
	const uint32_t C = channels_of(e), rows = uniform(body->rows);
	const uint32_t end = 2 * rows * C + KVI_GPU_SPARE_WORDS;
	code_encoder x;
	x.words = { span_at<uint16_t>(e->words, end), end };
	x.state = splat(STATE_LOW);
	x.t = t;
	x.rows.t = codes;
	find_sizes(&x.rows, &e->job);
	x.rows.heads = uniform(e->job.heads);
	x.rows.channels = uniform(e->job.head_channels);
	x.rows.shift = (uint32_t)body->shift;
	if (rows % 32)
		codes_put<false>(&x, codes_of(e, rows / 32), lanes() < rows % 32);
	for (uint32_t block = rows / 32; block-- > 0;)
		codes_put<true>(&x, codes_of(e, block), lanes() < 32);
	const uint32_t n = end - x.words.at, bytes = body->words + 2 * n;
	if (bytes - KVI_GPU_HEADER + PACKED_MORE >=
	    e->job.tokens * C * element_bytes(e->job.dtype)) {
		c->o.status = KVI_GPU_HOST;
		return;
	}
	body->n_words = n;
	c->payload_bytes = bytes;
	put_body(e, &x, n);
}

/* Streams, a warp a chunk; then what is predicted from the chunk may know whether it is good. */
WARP_FN void encode_codes(const kvi_gpu_encode *e, uint32_t stage, const code_shared *codes,
                          const encode_shared *t)
{
	if (encodes_lossy(e, stage))
		encode_body(e, codes, t);
	if (e->job.linear && e->job.stage == stage)
		keep_status(linear_of(&e->job), is_lossy(&e->job) && !encodes_lossy(e, stage)
		                                        ? KVI_GPU_HOST
		                                        : KVI_GPU_OK);
}

/* ----- elements ------------------------------------------------ */

/* The points of a head of a block, as decoders have them. */
WARP_FN void put_points(const kvi_gpu_encode *e, uint32_t block, uint32_t head)
{
	const kvi_gpu_opened *o = &encoding_of(e)->o;
	const uint32_t hc = e->job.head_channels, pairs = (hc + 1) / 2;
	span<int8_t> codes = skip(codes_of(e, block), head * hc * 32);
	span<uint32_t> to = skip(points_at(&e->job, o),
	                         (block * lossy_pairs(&e->job) + head * pairs) * 32);
	code_stream near;
	near.near[0] = o->body[0].near[0];
	near.near[1] = o->body[0].near[1];
	for (uint32_t n = 0; n < hc; n += 2) {
		u32v pair = splat(0);
		for (uint32_t i = 0; i < 2 && n + i < hc; i++) {
			const u32v code = ld(codes, lanes() + (n + i) * 32);
			pair |= (point_of(&near, code << 1 ^ sar(code, 31)) & 0xffff) << 16 * i;
		}
		st(to, lanes() + n / 2 * 32, pair);
	}
}

/* The points of a chunk, a warp a head of a block. */
WARP_FN void encode_points(const kvi_gpu_encode *e, uint32_t stage, uint32_t block, uint32_t head)
{
	if (encodes_lossy(e, stage) && block < lossy_blocks(&encoding_of(e)->o) &&
	    head < e->job.heads)
		put_points(e, block, head);
}

/* Points to coefficients of channels, as decoders make them: a warp a head or a panel, of a
 * block. */
WARP_FN void encode_synthesis(const kvi_gpu_encode *e, uint32_t stage, uint32_t block,
                              uint32_t warp)
{
	if (encodes_lossy(e, stage))
		run_transform(&e->job, stage, block, warp);
}

/* What a decoder makes of them, and of exact tokens; as store_elements. */
template <int D>
WARP_FN void encode_elements(const kvi_gpu_encode *e, uint32_t stage, uint32_t warp,
                             span<uint32_t> tile)
{
	if (e->job.dtype == D && encodes_lossy(e, stage))
		store_elements<D>(&e->job, &encoding_of(e)->o, warp, tile);
}

#endif
