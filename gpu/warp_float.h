/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * warp_float.h - fp32 numbers of a warp's lanes (warp.h), as spec/arithmetic.md 1 has them
 *
 * Every call is one IEEE operation that rounds to nearest, ties to even, with subnormals: compilers
 * fuse none of them, on either machine.
 *
 *   f_splat(x) f_bits(v) f_of_bits(u)      a number in all lanes; patterns
 *   f_int(u) f_unsigned(u)                 f(i) of an integer with, without a sign
 *   f_add f_sub f_mul f_div f_sqrt         rounded, each on its own
 *   f_fma(a, b, c)                         a * b + c with one rounding
 *   f_max(a, b)                            a > b ? a : b, of numbers; which zero does not matter
 *   f_abs f_negative                       without the sign; with the other sign
 *   f_greater(a, b) f_at_least(a, b)       a > b, a >= b
 *   f_choose(b, x, y)                      b ? x : y
 *   ld_float, ld_float_if, st_float_if     memory that this kernel may have written
 *   ldg_float_if                           memory that no kernel writes meanwhile
 *   ldg_words(s, i, further, to)           16 bytes of each lane: number i + further, of which the
 *   ldg_words_if(s, i, ok, to)             second is known when a kernel is compiled
 */
#ifndef KVI_GPU_WARP_FLOAT_H
#define KVI_GPU_WARP_FLOAT_H

#include "warp.h"

#if defined(__CUDACC__)
#include "warp_float_device_body.h"
#else
#include "warp_float_host_body.h"
#endif

/* Number i of a span of patterns. */
WARP_FN f32v ld_float(span<uint32_t> s, u32v i)
{
	return f_of_bits(ld(s, i));
}
/* Loads number i where ok holds, else 0. */
WARP_FN f32v ld_float_if(span<uint32_t> s, u32v i, boolv ok)
{
	return f_of_bits(ld_if(s, i, ok));
}
/* Loads number i where ok holds, else 0, of memory that no kernel writes meanwhile. */
WARP_FN f32v ldg_float_if(span<const uint32_t> s, u32v i, boolv ok)
{
	return f_of_bits(ldg_if(s, i, ok));
}
/* Stores v as number i where ok holds. */
WARP_FN void st_float_if(span<uint32_t> s, u32v i, f32v v, boolv ok)
{
	st_if(s, i, f_bits(v), ok);
}

#endif
