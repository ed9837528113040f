/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * model_expect_body.h - what the exact engine predicts, as integers (spec model 2), their hashes
 * and checks (spec model 4); elements as the numbers that attention looks at (spec model 3)
 */
#ifndef KVI_GPU_MODEL_EXPECT_BODY_H
#define KVI_GPU_MODEL_EXPECT_BODY_H

#include "chunk_finish_body.h"
#include "warp_float.h"

/* What a chunk has of the engine; nothing where it has no model. */
WARP_FN kvi_gpu_expects expects_of(const kvi_gpu_chunk *c)
{
	const kvi_gpu_expects nothing = {};
	return c->linear ? linear_of(c)->expects : nothing;
}

/* ----- predictions ------------------------------------------------ */

/* E of predictions in units of 2^step. */
WARP_FN u32v expected_of(f32v q)
{
	const f32v most = f_splat(32767), least = f_splat(-32767);
	q = f_choose(f_greater(q, most), most, q);
	q = f_choose(f_greater(least, q), least, q);
	q = f_choose(f_at_least(q, least), q, f_splat(0)); /* not a number */
	return f_bits(f_add(q, f_splat(12582912.0f))) - 0x4b400000u;
}

/* E of a token, by a warp. */
WARP_FN void expect_token(const kvi_gpu_chunk *c, uint32_t token)
{
	const kvi_gpu_expects x = expects_of(c);
	if (!x.e || token >= c->tokens)
		return;
	const uint32_t C = c->heads * c->head_channels;
	span<const uint32_t> p =
		span_at<const uint32_t>(x.p + (uint64_t)token * x.p_stride * sizeof(float), C);
	span<const uint32_t> numbers = span_at<const uint32_t>(model_of(linear_of(c))->slots,
	                                                       C * 4);
	span<int16_t> to = span_at<int16_t>(x.e + (uint64_t)token * C * sizeof(int16_t), C);
	for (uint32_t i = 0; i < C; i += 32) {
		const u32v slot = lanes() + i;
		const boolv on = slot < C;
		const u32v units = (127 - ldg_if(numbers, slot * 4, on)) << 23; /* 2^-step */
		st_if(to, slot, expected_of(f_mul(ldg_float_if(p, slot, on), f_of_bits(units))),
		      on);
	}
}

/* ----- hashes ------------------------------------------------ */

/* The first number of a list of hashes. */
WARP_FN uint64_t expected_hash(uint64_t hashes)
{
	return first_lane64(ld64(span_at<const uint64_t>(hashes, KVI_GPU_HASHES), splat(0)));
}

/* The hash of E of a chunk, by a warp. */
WARP_FN void hash_expected(const kvi_gpu_chunk *c)
{
	const kvi_gpu_expects x = expects_of(c);
	const uint32_t n = c->tokens * c->heads * c->head_channels * (uint32_t)sizeof(int16_t);
	if (x.e)
		st_one(span_at<uint64_t>(x.hashes, KVI_GPU_HASHES), 0, hash_bytes(x.e, n));
}

/* The check of a payload: of the hashes of sources and of its own, by a warp. */
WARP_FN uint64_t expected_check(const kvi_gpu_linear *l)
{
	const uint64_t at = l->expects.hashes;
	span<uint64_t> to = span_at<uint64_t>(at, KVI_GPU_HASHES);
	uint32_t n = 0;
	for (uint32_t i = 0; i < model_of(l)->n_same; i++)
		st_one(to, ++n, expected_hash(l->same[i].hashes));
	if (l->scale_w)
		st_one(to, ++n, expected_hash(l->scale_hashes));
	st_one(to, ++n, expected_hash(at));
	warp_barrier();
	return hash_bytes(at + sizeof(uint64_t), n * (uint32_t)sizeof(uint64_t));
}

/* Whether nothing that is predicted of a chunk depends on one that was damaged. */
WARP_FN bool state_good(const kvi_gpu_expects *x)
{
	return !x->lost || ldg_one(span_at<const uint32_t>(x->lost, 1), 0) > x->t0;
}

/* Compares the check of a chunk of codec 8, whose hashes and those of its sources are there, by a
 * warp. */
WARP_FN void check_expected(const kvi_gpu_chunk *c, kvi_gpu_opened *o)
{
	if (c->codec != CODEC_MODEL || o->status != KVI_GPU_OPEN)
		return;
	if (!state_good(&linear_of(c)->expects))
		o->status = KVI_GPU_SOURCE;
	else if (expected_check(linear_of(c)) != o->expected_check)
		o->status = KVI_GPU_PREDICTOR;
}

/* ----- elements ------------------------------------------------ */

/* The bits that are all set in infinities and NaNs; e4m3 has no infinities. */
WARP_FN uint32_t special_bits(uint32_t dtype)
{
	return dtype == 1   ? 0x7f800000
	       : dtype == 2 ? 0x7c00
	       : dtype == 3 ? 0x7f80
	       : dtype == 4 ? 0x7f
	                    : 0x7c;
}

/* Elements as numbers, those that are not finite as 0. */
WARP_FN f32v element_numbers(u32v x, uint32_t dtype)
{
	const uint32_t sign = 8 * element_bytes(dtype) - 1, special = special_bits(dtype);
	const uint32_t shift = dtype == 1 ? 0 : dtype == 2 ? 13 : dtype == 3 ? 16 : 16 + dtype;
	const float factor = dtype == 4 ? 0x1p120f : dtype == 2 || dtype == 5 ? 0x1p112f : 1.0f;
	const u32v fields = (x & ((1u << sign) - 1)) << shift;
	const u32v v = f_bits(f_mul(f_of_bits(fields), f_splat(factor))) | x >> sign << 31;
	return f_of_bits(select((x & special) == special, splat(0), v));
}

/* The numbers of a token, whose elements are in a chunk at `from`, by a warp. */
template <int SIZE>
WARP_FN void number_token(const kvi_gpu_chunk *c, uint64_t from, uint32_t token)
{
	typedef typename element_of<SIZE>::type element;
	const kvi_gpu_expects x = expects_of(c);
	const kvi_gpu_linear *l = linear_of(c);
	const uint32_t C = c->heads * c->head_channels;
	span<const element> in = span_at<const element>(from + (uint64_t)token * C * SIZE, C);
	span<uint32_t> to = span_at<uint32_t>(
		x.numbers + (uint64_t)token * x.numbers_stride * sizeof(float), C);
	for (uint32_t i = 0; i < C; i += 32) {
		const u32v at = lanes() + i;
		const boolv on = at < C;
		st_float_if(to, channel_slot(model_of(l), l->interleaved != 0, at),
		            element_numbers(ldg_if(in, at, on), c->dtype), on);
	}
}

/* The same of any format, where they are wanted. */
WARP_FN void number_elements(const kvi_gpu_chunk *c, uint64_t from, uint32_t token)
{
	const uint32_t size = element_bytes(c->dtype);
	if (!expects_of(c).numbers || token >= c->tokens)
		return;
	if (size == 1)
		number_token<1>(c, from, token);
	else if (size == 2)
		number_token<2>(c, from, token);
	else
		number_token<4>(c, from, token);
}

#endif
