/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lossy_analysis_body.h - elements to codes of codecs 13 and 14 (spec lossy 1, 3, had 3): which
 * tokens stay exact, numbers, RoPE removed, the coefficients of codec 13, codes and their points
 *
 * fp32, every operation rounded for itself, in the order of the library's encoder: a chunk has its
 * codes, and its payload is the library's.
 */
#ifndef KVI_GPU_LOSSY_ANALYSIS_BODY_H
#define KVI_GPU_LOSSY_ANALYSIS_BODY_H

#include "chunk_encode_body.h"

/* What is found of a token (kvi_gpu_encoding.row_flags): an element is not finite; one is not
 * the first one of the chunk. */
constexpr uint32_t TOKEN_INFINITE = 1, TOKEN_OTHER = 2;
/* Bytes of a payload: in front of exact tokens, of a body in front of its words; codes and points
 * (spec had 2). */
constexpr uint32_t LOSSY_HEAD = 2, BODY_HEAD = 12, BODY_STATES = 128;
constexpr uint32_t CODE_MOST = 127, POINT_UNITS = 32;

/* ----- tokens ------------------------------------------------ */

/* Whether elements are infinite or not numbers (spec 4.1). */
template <int D> WARP_FN boolv is_infinite(u32v x)
{
	constexpr uint32_t m = format<D>::m, ones = (1u << format<D>::e) - 1;
	const u32v size = x & ((1u << (m + format<D>::e)) - 1);
	return D == 4 ? size == 0x7f : size >> m == ones;
}

/* Looks at the elements of a token. */
template <int D> WARP_FN void look_at_token(const kvi_gpu_encode *e, uint32_t token)
{
	const uint32_t C = channels_of(e);
	const u32v first = ldg(raw_of<format<D>::size>(e), splat(0));
	uint32_t infinite = 0, other = 0;
	for (uint32_t i = 0; i < C; i += 32) {
		const boolv on = lanes() + i < C;
		const u32v x = ldg_if(raw_of<format<D>::size>(e), lanes() + (token * C + i), on);
		infinite |= mask_of(on & is_infinite<D>(x));
		other |= mask_of(on & (x != first));
	}
	encoding_of(e)->row_flags[token] = (uint8_t)((infinite ? TOKEN_INFINITE : 0) |
	                                                (other ? TOKEN_OTHER : 0));
}

/* The same, of a lossy chunk of any format. */
WARP_FN void look_at_lossy(const kvi_gpu_encode *e, uint32_t token)
{
	if (!is_lossy(&e->job))
		return;
	switch (e->job.dtype) {
	case 1:
		look_at_token<1>(e, token);
		break;
	case 2:
		look_at_token<2>(e, token);
		break;
	case 3:
		look_at_token<3>(e, token);
		break;
	case 4:
		look_at_token<4>(e, token);
		break;
	default:
		look_at_token<5>(e, token);
	}
}

/* Which of 32 tokens from t on stay exact; *other: something in them is not the first element. */
WARP_FN uint32_t exact_tokens(const kvi_gpu_encode *e, uint32_t t, uint32_t *other)
{
	const uint32_t T = e->job.tokens;
	const uint8_t *found = encoding_of(e)->row_flags;
	const u32v at = lanes() + t;
	const u32v flags = ld_if(span_at<const uint8_t>((uint64_t)(uintptr_t)found, KVI_GPU_TOKENS),
	                         at, at < T);
	*other |= any_of(flags & TOKEN_OTHER);
	return mask_of((at < T) & ((at < e->lossy.exact_first) | (at + e->lossy.exact_last >= T) |
	                           ((flags & TOKEN_INFINITE) != 0)));
}

/* What stands in front of the body, but the planes of exact tokens. */
WARP_FN void put_front(const kvi_gpu_encode *e, uint32_t rows)
{
	const uint32_t T = e->job.tokens, bitmap = KVI_GPU_HEADER + LOSSY_HEAD;
	span<uint8_t> to = span_at<uint8_t>(e->job.payload, e->job.payload_bytes);
	uint32_t other = 0;
	st_one(to, KVI_GPU_HEADER, e->lossy.generation);
	st_one(to, KVI_GPU_HEADER + 1, rows < T ? LOSSY_EXACT : 0);
	if (rows == T)
		return;
	for (uint32_t t = 0; t < T; t += 32)
		bits_put(to, bitmap, t, T, exact_tokens(e, t, &other));
	st_one(to, bitmap + (T + 7) / 8, PLANE_STORED);
}

/* Lists the tokens of the body, then those that are exact, a warp a chunk. What the library does
 * not code so either stays the host's: nothing to code, all elements equal, too few bytes for a
 * body. */
WARP_FN void list_exact(const kvi_gpu_encode *e)
{
	const uint32_t T = e->job.tokens, C = channels_of(e), size = element_bytes(e->job.dtype);
	kvi_gpu_opened *o = &encoding_of(e)->o;
	span<uint16_t> token = span_at<uint16_t>((uint64_t)(uintptr_t)o->token, KVI_GPU_TOKENS);
	uint32_t rows = T, other = 0, row = 0;
	if (!is_lossy(&e->job) || o->status != KVI_GPU_HOST)
		return;
	for (uint32_t t = 0; t < T; t += 32)
		rows -= count(exact_tokens(e, t, &other));
	uint32_t exact = rows;
	for (uint32_t t = 0; t < T; t += 32) {
		const uint32_t kept = exact_tokens(e, t, &other);
		const uint32_t left = mask_of(lanes() + t < T) & ~kept;
		st_if(token, below(left) + row, lanes() + t, lane_in(left));
		st_if(token, below(kept) + exact, lanes() + t, lane_in(kept));
		row += count(left);
		exact += count(kept);
	}
	const uint32_t planes = LOSSY_HEAD + (rows < T ? (T + 7) / 8 + 1 : 0);
	const uint32_t body = planes + (T - rows) * C * size;
	o->rows = rows;
	o->columns = C;
	o->n_bodies = 1;
	o->exact = KVI_GPU_HEADER + planes;
	o->body[0] = {};
	o->body[0].step = e->lossy.step;
	o->body[0].shift = e->lossy.shift;
	o->body[0].rows = rows;
	o->body[0].states = KVI_GPU_HEADER + body + BODY_HEAD;
	o->body[0].words = o->body[0].states + BODY_STATES;
	encoding_of(e)->payload_bytes = 0; /* not there yet */
	if (!rows || !other || body + BODY_HEAD + BODY_STATES >= T * C * size)
		return;
	put_front(e, rows);
	o->status = KVI_GPU_OPEN;
}

/* Whether there is work for a lossy chunk in a stage: what it is predicted from is good. */
WARP_FN bool encodes_lossy(const kvi_gpu_encode *e, uint32_t stage)
{
	const kvi_gpu_chunk *c = &e->job;
	return is_lossy(c) && c->stage == stage && encoding_of(e)->o.status == KVI_GPU_OPEN &&
	       (c->codec == CODEC_HAD || sources_good(linear_of(c)));
}

/* ----- numbers ------------------------------------------------ */

/* Elements as numbers, exactly. */
template <int D> WARP_FN u32v widen(u32v x)
{
	constexpr int m = format<D>::m, emin = lossy_format<D>::emin;
	constexpr uint32_t sign = 8 * format<D>::size - 1;
	u32v v = (x & ((1u << sign) - 1)) << (23 - m);
	if (emin != -126)
		v = float_product(v, splat(power_of(emin + 126)));
	return v | x >> sign << 31;
}

/* Numbers of n channels from `first` on, of a block: rows of 32 tokens, zeros where there is no
 * token. */
template <int D>
WARP_FN void load_numbers(const kvi_gpu_encode *e, uint32_t block, uint32_t first, uint32_t n,
                          span<uint32_t> tile)
{
	const kvi_gpu_opened *o = &encoding_of(e)->o;
	span<uint32_t> z = coefficients_at<uint32_t>(&e->job, o, block);
	lossy_tile x;
	tile_open(&x, &e->job, o, block);
	for (uint32_t i = 0; i < 32; i++) {
		const uint32_t token = i < x.rows ? o->token[x.row + i] : 0;
		const boolv on = (lanes() < n) & (splat(i) < x.rows);
		const u32v v = ldg_if(raw_of<format<D>::size>(e),
		                      lanes() + (token * o->columns + first), on);
		st(tile, lanes() * TILE_ROW + i, widen<D>(v));
	}
	warp_barrier();
	for (uint32_t i = 0; i < n; i++)
		st(z, lanes() + (first + i) * 32, ld(tile, lanes() + i * TILE_ROW));
}

/* The elements of an exact token in the planes of the payload: row `number` of them. */
template <int SIZE> WARP_FN void put_exact(const kvi_gpu_encode *e, uint32_t number)
{
	const kvi_gpu_opened *o = &encoding_of(e)->o;
	const uint32_t C = o->columns, plane = (e->job.tokens - o->rows) * C;
	const uint32_t from = o->token[o->rows + number] * C;
	span<uint8_t> to = span_at<uint8_t>(e->job.payload, e->job.payload_bytes);
	for (uint32_t i = 0; i < C; i += 32) {
		const boolv on = lanes() + i < C;
		const u32v v = ldg_if(raw_of<SIZE>(e), lanes() + (from + i), on);
		UNROLL
		for (uint32_t b = 0; b < SIZE; b++)
			st_if(to, lanes() + (o->exact + b * plane + number * C + i), v >> 8 * b,
			      on);
	}
}

/* Warp `warp` of a chunk: 32 channels of a block, or an exact token. `tile`: TILE_WORDS, the
 * warp's. */
template <int D>
WARP_FN void encode_numbers(const kvi_gpu_encode *e, uint32_t stage, uint32_t warp,
                            span<uint32_t> tile)
{
	if (e->job.dtype != D || !encodes_lossy(e, stage))
		return;
	const kvi_gpu_opened *o = &encoding_of(e)->o;
	const uint32_t groups = (o->columns + 31) / 32, tiles = lossy_blocks(o) * groups;
	const uint32_t first = warp % groups * 32, left = o->columns - first;
	if (warp < tiles)
		load_numbers<D>(e, warp / groups, first, left < 32 ? left : 32, tile);
	else if (warp - tiles < e->job.tokens - o->rows)
		put_exact<format<D>::size>(e, warp - tiles);
}

/* ----- coefficients and codes ------------------------------------------------ */

/* Codes of a block: rows of 32 tokens. */
WARP_FN span<int8_t> codes_of(const kvi_gpu_encode *e, uint32_t block)
{
	const uint32_t n = channels_of(e) * 32;
	return span_at<int8_t>(e->planes + (uint64_t)block * n, n);
}
/* Which tokens of blocks are refused, by each of the warps that make codes. */
WARP_FN span<uint32_t> refused_of(const kvi_gpu_encode *e)
{
	return span_at<uint32_t>(e->channel_bits,
	                         lossy_blocks(&encoding_of(e)->o) * transform_warps(&e->job));
}

/* Angles of a rotated pair of codec 13 at all tokens. */
WARP_FN void encode_turns(const kvi_gpu_encode *e, uint32_t stage, const kvi_gpu_tables *tables,
                          uint32_t pair)
{
	if (e->job.codec == CODEC_HAD && encodes_lossy(e, stage))
		find_lossy_turns(&e->job, tables, pair);
}

/* Channels n and `other` of a head, pair number `pair` of its rope, without RoPE. */
struct number_pair {
	u32v n, other;
};
WARP_FN number_pair unrotated(const lossy_tile *x, span<uint32_t> z, uint32_t pair, uint32_t n,
                              uint32_t other)
{
	const u32v a = ld(z, lanes() + n * 32), b = ld(z, lanes() + other * 32);
	const turn_numbers t = turn_of(ld(x->turns, x->token + pair * x->padded));
	return { float_sum(float_product(a, t.cosine), float_product(b, t.sine)),
		 float_difference(float_product(b, t.cosine), float_product(a, t.sine)) };
}

/* Stores channel n of a head without the mean, with the sign that the transform wants. */
WARP_FN void store_centred(const lossy_tile *x, span<uint32_t> z, uint32_t head, uint32_t n, u32v v)
{
	v = float_difference(v, splat(ldg_one(x->mean, head + n)));
	if (x->hadamard && is_flipped(n))
		v ^= 0x80000000;
	st(z, lanes() + n * 32, v);
}

/* Numbers of a head, whose rows are z, to what is transformed: without RoPE and the mean. */
WARP_FN void centre_head(const lossy_tile *x, span<uint32_t> z, uint32_t head)
{
	const uint32_t half = x->rotary / 2;
	for (uint32_t p = 0; p < half; p++) {
		const uint32_t n = x->interleaved ? 2 * p : p;
		const uint32_t other = x->interleaved ? 2 * p + 1 : p + half;
		const number_pair v = unrotated(x, z, p, n, other);
		store_centred(x, z, head, n, v.n);
		store_centred(x, z, head, other, v.other);
	}
	for (uint32_t n = x->rotary; n < x->channels; n++)
		store_centred(x, z, head, n, ld(z, lanes() + n * 32));
}

/* Codes of coefficients, before their range is checked: 1000 where they are far out of it. */
WARP_FN u32v sizes_of(u32v x, const kvi_gpu_quantiser *q)
{
	const f32v far = f_splat(1000.0f);
	const f32v size = f_of_bits(
		float_sum(float_product(x & 0x7fffffff, splat(q->inverse)), splat(q->offset)));
	return f_whole(f_choose(f_greater(far, size), size, far));
}

/* Row n of coefficients, v, which is stored, and its codes. Returns their sizes. */
WARP_FN u32v codes_of_row(const kvi_gpu_quantiser *q, u32v v, uint32_t n, span<uint32_t> z,
                          span<int8_t> to)
{
	const u32v size = sizes_of(v, q), minus = sar(v, 31);
	st(z, lanes() + n * 32, v);
	st(to, lanes() + n * 32, (size ^ minus) - minus);
	return size;
}

/* Coefficients of a head, whose rows are z, to codes, in `to`. Returns the bits of all sizes. */
WARP_FN u32v quantise_head(const lossy_tile *x, const kvi_gpu_quantiser *q, span<uint32_t> z,
                           span<int8_t> to)
{
	u32v all = splat(0);
	for (uint32_t n = 0; n < x->channels; n++) {
		u32v v = ld(z, lanes() + n * 32);
		if (x->hadamard)
			v = float_product(v, splat(gain_of(part_of(x->channels, n), 0)));
		all |= codes_of_row(q, v, n, z, to);
	}
	return all;
}

/* Says which tokens of a block warp `warp` refuses. sizes: bits of all that it has made; a lane has
 * one that is out of range where they are above CODE_MOST. */
WARP_FN void put_refused(const kvi_gpu_encode *e, const lossy_tile *x, uint32_t block,
                         uint32_t warp, u32v sizes)
{
	st_one(refused_of(e), block * transform_warps(&e->job) + warp,
	       mask_of((sizes > CODE_MOST) & (lanes() < x->rows)));
}

/* Coefficients and codes of a head of a block of codec 13. */
WARP_FN void analyse_head(const kvi_gpu_encode *e, uint32_t block, uint32_t head)
{
	const kvi_gpu_opened *o = &encoding_of(e)->o;
	lossy_tile x;
	tile_open(&x, &e->job, o, block);
	tile_parameters(&x, &e->job);
	const uint32_t hc = x.channels, first = head * hc;
	span<uint32_t> z = skip(coefficients_at<uint32_t>(&e->job, o, block), first * 32);
	centre_head(&x, z, first);
	for (uint32_t n = 0; x.hadamard && n < hc;) {
		const uint32_t m = part_of(hc, n);
		mix_part<true>(skip(z, n * 32), span<const uint32_t>{}, 0, m);
		n += 1u << m;
	}
	const u32v sizes = quantise_head(&x, &e->lossy, z, skip(codes_of(e, block), first * 32));
	put_refused(e, &x, block, head, sizes);
}

/* ----- points ------------------------------------------------ */

/* Where the numbers are that became codes of size 1, and larger ones (spec had 2). */
struct code_means {
	f32v sum[2];
	uint32_t n[2];
};

/* Adds numbers of lanes to a sum, one after the other. */
WARP_FN f32v add_in_order(f32v sum, f32v v)
{
	UNROLL
	for (uint32_t i = 0; i < 32; i++)
		sum = f_add(sum, f_of_bits(shuffle(f_bits(v), splat(i))));
	return sum;
}

/* Every fourth coefficient of a head of the first block. */
WARP_FN void watch_head(const kvi_gpu_encode *e, code_means *m, uint32_t head)
{
	const uint32_t hc = e->job.head_channels, first = head * hc;
	const kvi_gpu_opened *o = &encoding_of(e)->o;
	span<const uint32_t> z = coefficients_at<const uint32_t>(&e->job, o, 0);
	span<int8_t> codes = codes_of(e, 0);
	for (uint32_t n = 0; n < hc; n += 4) {
		const u32v at = lanes() + (first + n) * 32;
		const u32v q = ld(codes, at), minus = sar(q, 31);
		const u32v size = select(lanes() < o->rows, (q ^ minus) - minus, splat(0));
		const u32v v = float_product(ld(z, at), splat(e->lossy.inverse));
		const f32v d = f_sub(f_unsigned(size), f_of_bits(v & 0x7fffffff));
		const boolv one = size == 1, more = size > 1;
		m->sum[0] = add_in_order(m->sum[0], f_choose(one, d, f_splat(0)));
		m->sum[1] = add_in_order(m->sum[1], f_choose(more, d, f_splat(0)));
		m->n[0] += count(mask_of(one));
		m->n[1] += count(mask_of(more));
	}
}

/* By how much points are nearer to 0, -16 to 16. */
WARP_FN uint32_t near_of(const code_means *m, uint32_t i)
{
	if (!m->n[i])
		return 0;
	const f32v v = f_mul(f_div(m->sum[i], f_unsigned(splat(m->n[i]))), f_splat(POINT_UNITS));
	const f32v half = f_choose(f_greater(f_splat(0), v), f_splat(-0.5f), f_splat(0.5f));
	const u32v r = f_whole(f_add(v, half)), most = splat(LOSSY_NEAR);
	return first_lane(max_signed(min_signed(r, most), 0 - most));
}

/* The points of a chunk, a warp a chunk: the host's where a token is refused. */
WARP_FN void choose_points(const kvi_gpu_encode *e, uint32_t stage)
{
	if (!encodes_lossy(e, stage))
		return;
	kvi_gpu_opened *o = &encoding_of(e)->o;
	span<uint32_t> refused = refused_of(e);
	const uint32_t n = lossy_blocks(o) * transform_warps(&e->job);
	uint32_t some = 0;
	for (uint32_t i = 0; i < n; i += 32)
		some |= any_of(ld_if(refused, lanes() + i, lanes() + i < n));
	if (some) {
		o->status = KVI_GPU_HOST;
		return;
	}
	code_means m = { { f_splat(0), f_splat(0) }, { 0, 0 } };
	for (uint32_t h = 0; h < e->job.heads; h++)
		watch_head(e, &m, h);
	for (uint32_t i = 0; i < 2; i++)
		o->body[0].near[i] = near_of(&m, i);
}

#endif
