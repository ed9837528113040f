/* SPDX-License-Identifier: BSD-3-Clause */
/* warp_float_host_body.h - warp_float.h on a host: vectors of 32 numbers */
#ifndef KVI_GPU_WARP_FLOAT_HOST_BODY_H
#define KVI_GPU_WARP_FLOAT_HOST_BODY_H

#include "exact/fma.h"

#if defined(__FAST_MATH__)
#error "fast-math changes results: build without it"
#endif

#define UNROLL_NONE

typedef float f32v __attribute__((vector_size(128)));

WARP_OP f32v f_splat(float x)
{
	f32v r;
	EACH_LANE
	r[l] = x;
	return r;
}
WARP_OP u32v f_bits(f32v v)
{
	return (u32v)v;
}
WARP_OP f32v f_of_bits(u32v u)
{
	return (f32v)u;
}
WARP_OP f32v f_int(u32v u)
{
	return __builtin_convertvector((boolv)u, f32v);
}
WARP_OP f32v f_unsigned(u32v u)
{
	return __builtin_convertvector(u, f32v);
}
WARP_OP f32v f_add(f32v a, f32v b)
{
	return a + b;
}
WARP_OP f32v f_sub(f32v a, f32v b)
{
	return a - b;
}
WARP_OP f32v f_mul(f32v a, f32v b)
{
	return a * b;
}
WARP_OP f32v f_div(f32v a, f32v b)
{
	return a / b;
}
WARP_OP f32v f_sqrt(f32v a)
{
	f32v r;
	EACH_LANE
	r[l] = __builtin_sqrtf(a[l]);
	return r;
}
WARP_OP f32v f_fma(f32v a, f32v b, f32v c)
{
	f32v r;
	EACH_LANE
	r[l] = kvi_fma(a[l], b[l], c[l]);
	return r;
}
WARP_OP f32v f_choose(boolv b, f32v x, f32v y)
{
	return (f32v)select(b, (u32v)x, (u32v)y);
}
WARP_OP boolv f_greater(f32v a, f32v b)
{
	return (boolv)(a > b);
}
WARP_OP boolv f_at_least(f32v a, f32v b)
{
	return (boolv)(a >= b);
}
WARP_OP f32v f_max(f32v a, f32v b)
{
	return f_choose(f_greater(a, b), a, b);
}
WARP_OP f32v f_abs(f32v a)
{
	return (f32v)((u32v)a & 0x7fffffffu);
}
WARP_OP f32v f_negative(f32v a)
{
	return (f32v)((u32v)a ^ 0x80000000u);
}
WARP_OP void ldg_words_if(span<const uint32_t> s, u32v i, boolv ok, u32v to[4])
{
	const quads q = ldg_quads_if(s, i, ok);
	for (int k = 0; k < 4; k++)
		to[k] = q.v[k];
}
WARP_OP void ldg_words(span<const uint32_t> s, u32v i, uint32_t further, u32v to[4])
{
	ldg_words_if(s, i + further, boolv{} - 1, to);
}

#endif
