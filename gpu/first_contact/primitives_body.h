/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * primitives_body.h - the calls of warp.h, warp_float.h and hash_body.h that kernels are made of,
 * on any numbers, by a warp: one source for a GPU and the host (primitives.cu, primitives_host.cc)
 */
#ifndef KVI_GPU_PRIMITIVES_BODY_H
#define KVI_GPU_PRIMITIVES_BODY_H

#include "hash_body.h"
#include "primitives.h"
#include "warp_float.h"

/* Where results go; names: of each, on the host. */
struct primitive_results {
	span<uint32_t> to;
	uint32_t n;
	const char **names;
};

WARP_FN void put(primitive_results *r, const char *name, u32v v)
{
	if (r->n == PRIMITIVE_RESULTS)
		return;
	st(r->to, lanes() + r->n * 32, v);
	if (r->names)
		r->names[r->n] = name;
	r->n++;
}
WARP_FN void put64(primitive_results *r, const char *name, u64v v)
{
	put(r, name, low_half(v));
	put(r, name, low_half(v >> (uint64_t)32));
}
WARP_FN void put_bool(primitive_results *r, const char *name, boolv b)
{
	put(r, name, select(b, splat(1), splat(0)));
}
WARP_FN void put_one64(primitive_results *r, const char *name, uint64_t v)
{
	put64(r, name, splat64(v));
}

WARP_FN void integer_primitives(primitive_results *r, const u32v *x)
{
	const uint32_t mask = mask_of((x[0] & 1) != 0);
	const u64v wide = product(x[5], x[6]);
	put(r, "mask_of", splat(mask));
	put(r, "below", below(mask));
	put(r, "count", splat(count(mask)));
	put_bool(r, "lane_in", lane_in(mask));
	put(r, "shuffle", shuffle(x[1], x[2]));
	put(r, "any_of", splat(any_of(x[3])));
	put(r, "uniform", splat(uniform(mask)));
	put(r, "lane_value", splat(lane_value(x[1], mask & 31)));
	put(r, "bytes_of", bytes_of(x[1], x[2], x[3] & 0x7777));
	put(r, "high_bit", high_bit(x[4]));
	put(r, "high_bit of 0", high_bit(x[4] & 0));
	put(r, "low_zeros", low_zeros(x[4]));
	put(r, "low_zeros of 0", low_zeros(x[4] & 0));
	put(r, "sar by one", sar(x[5], 7u));
	put(r, "sar", sar(x[5], x[6] & 31));
	put(r, "max_signed", max_signed(x[5], x[6]));
	put(r, "min_signed", min_signed(x[5], x[6]));
	put_bool(r, "less_signed", less_signed(x[5], x[6]));
	put(r, "shift_right", shift_right(x[5], x[6] & 63));
	put(r, "shift_right_modulo", shift_right_modulo(x[5], x[6]));
	put(r, "float_bits", float_bits(x[5]));
	put(r, "product_high32", product_high32(x[5], x[6]));
	put64(r, "product", wide);
	put64(r, "shuffle64", shuffle64(wide, x[2]));
	put64(r, "shuffle64_xor", shuffle64_xor(wide, 9));
	put64(r, "joined", joined(x[5], x[6]));
	put(r, "funnel", funnel(x[5], x[6], x[7]));
	put_bool(r, "nonzero64", nonzero64(wide & splat64(0x100000001)));
	put(r, "half_sums", half_sums(x[7] & 0xffff));
	put(r, "half_last", half_last(x[7]));
	put(r, "bytes_sum", bytes_sum(x[7]));
	put(r, "bytes_less", bytes_less(x[8], x[9]));
	put_one64(r, "product_high",
	          product_high(first_lane64(wide), first_lane64(shuffle64(wide, splat(1)))));
}

template <bool A, bool B> WARP_FN void put_products(primitive_results *r, const u32v *x)
{
	u32v c[4] = { x[16], x[17], x[18], x[19] };
	const u32v a[4] = { x[10], x[11], x[12], x[13] }, b[2] = { x[14], x[15] };
	add_products<A, B>(c, a, b);
	for (int i = 0; i < 4; i++)
		put(r, "add_products", c[i]);
}

WARP_FN void float_primitives(primitive_results *r, const u32v *x)
{
	const f32v f = f_of_bits(x[20]), g = f_of_bits(x[21]), h = f_of_bits(x[22]);
	put(r, "f_add", f_bits(f_add(f, g)));
	put(r, "f_sub", f_bits(f_sub(f, g)));
	put(r, "f_mul", f_bits(f_mul(f, g)));
	put(r, "f_div", f_bits(f_div(f, g)));
	put(r, "f_sqrt", f_bits(f_sqrt(f_abs(f))));
	put(r, "f_fma", f_bits(f_fma(f, g, h)));
	put(r, "f_max", f_bits(f_max(f, g)));
	put(r, "f_negative", f_bits(f_negative(f)));
	put_bool(r, "f_greater", f_greater(f, g));
	put_bool(r, "f_at_least", f_at_least(f, g));
	put(r, "f_int", f_bits(f_int(x[5])));
	put(r, "f_unsigned", f_bits(f_unsigned(x[5])));
}

/* in: PRIMITIVE_INPUTS numbers of each lane; bytes: n, more than 240, at a multiple of 8. */
WARP_FN void all_primitives(uint64_t in, uint64_t out, uint64_t bytes, uint32_t n,
                            const char **names)
{
	span<const uint32_t> from = span_at<const uint32_t>(in, PRIMITIVE_INPUTS * 32);
	primitive_results r = { span_at<uint32_t>(out, PRIMITIVE_RESULTS * 32), 0, names };
	u32v x[PRIMITIVE_INPUTS];
	for (uint32_t i = 0; i < PRIMITIVE_INPUTS; i++)
		x[i] = ld(from, lanes() + i * 32);
	integer_primitives(&r, x);
	put_products<false, false>(&r, x);
	put_products<false, true>(&r, x);
	put_products<true, false>(&r, x);
	put_products<true, true>(&r, x);
	float_primitives(&r, x);
	const uint32_t any = first_lane(x[7]);
	/* lengths of all kinds, at multiples of 8 and others */
	for (uint32_t i = 0; i < 12; i++) {
		const uint32_t length = 1 + (i < 8 ? (any + i * 37) % 300 : (any + i * 977) % n);
		const uint32_t at = (any >> 8) % (n - length + 1) & (i % 2 ? ~7u : ~0u);
		put_one64(&r, "hash_bytes", hash_bytes(bytes + at, length));
	}
	const u64v acc = hash_accumulate<true>(span_at<const uint8_t>(bytes, n), n);
	put_one64(&r, "hash_low", hash_low(acc, n));
	put_one64(&r, "hash_high", hash_high(acc, n));
	while (r.n < PRIMITIVE_RESULTS)
		put(&r, "nothing", splat(0));
}

#endif
