/* SPDX-License-Identifier: BSD-3-Clause */
/* warp_float_device_body.h - warp_float.h on a GPU: instructions that say how they round */
#ifndef KVI_GPU_WARP_FLOAT_DEVICE_BODY_H
#define KVI_GPU_WARP_FLOAT_DEVICE_BODY_H

/* In front of loops that are not worth more instructions. */
#define UNROLL_NONE _Pragma("unroll 1")

typedef float f32v;

WARP_FN f32v f_splat(float x)
{
	return x;
}
WARP_FN u32v f_bits(f32v v)
{
	return __float_as_uint(v);
}
WARP_FN f32v f_of_bits(u32v u)
{
	return __uint_as_float(u);
}
WARP_FN f32v f_int(u32v u)
{
	return __int2float_rn((int32_t)u);
}
WARP_FN f32v f_unsigned(u32v u)
{
	return __uint2float_rn(u);
}
WARP_FN f32v f_add(f32v a, f32v b)
{
	return __fadd_rn(a, b);
}
WARP_FN f32v f_sub(f32v a, f32v b)
{
	return __fsub_rn(a, b);
}
WARP_FN f32v f_mul(f32v a, f32v b)
{
	return __fmul_rn(a, b);
}
WARP_FN f32v f_div(f32v a, f32v b)
{
	return __fdiv_rn(a, b);
}
WARP_FN f32v f_sqrt(f32v a)
{
	return __fsqrt_rn(a);
}
WARP_FN f32v f_fma(f32v a, f32v b, f32v c)
{
	return __fmaf_rn(a, b, c);
}
WARP_FN f32v f_max(f32v a, f32v b)
{
	return fmaxf(a, b);
}
WARP_FN f32v f_abs(f32v a)
{
	return fabsf(a);
}
WARP_FN f32v f_negative(f32v a)
{
	return -a;
}
WARP_FN boolv f_greater(f32v a, f32v b)
{
	return a > b;
}
WARP_FN boolv f_at_least(f32v a, f32v b)
{
	return a >= b;
}
WARP_FN f32v f_choose(boolv b, f32v x, f32v y)
{
	return b ? x : y;
}
/* The constant is added last: it becomes part of the instruction. */
WARP_FN void ldg_words(span<const uint32_t> s, u32v i, uint32_t further, u32v to[4])
{
	const uint4 *at = (const uint4 *)s.p + i;
	const uint4 v = __ldg(at + further);
	to[0] = v.x;
	to[1] = v.y;
	to[2] = v.z;
	to[3] = v.w;
}
WARP_FN void ldg_words_if(span<const uint32_t> s, u32v i, boolv ok, u32v to[4])
{
	const uint4 v = ok ? __ldg((const uint4 *)s.p + i) : make_uint4(0, 0, 0, 0);
	to[0] = v.x;
	to[1] = v.y;
	to[2] = v.z;
	to[3] = v.w;
}

#endif
