/* SPDX-License-Identifier: BSD-3-Clause */
/* lanes_vbmi.h - bytes that some lanes of a vector take, in AVX-512 with VBMI2 */
#ifndef KVI_LANES_VBMI_H
#define KVI_LANES_VBMI_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#define SET8(x) _mm512_set1_epi8((char)(x))
#define LANES_INLINE                                                    \
	__attribute__((target("avx512vbmi,avx512vbmi2"))) static inline \
		__attribute__((always_inline))

/* The first n of 64 lanes, all for more. */
LANES_INLINE __mmask64 first_bytes(size_t n)
{
	return n >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << n) - 1;
}

/* The bytes from *next on in the lanes of a mask, v elsewhere. */
LANES_INLINE __m512i expanded(__m512i v, __mmask64 lanes, const uint8_t **next)
{
	__m512i from = _mm512_loadu_si512(*next);
	__asm__("" : "+v"(from)); /* an expansion from memory is slow */
	*next += _mm_popcnt_u64(lanes);
	return _mm512_mask_expand_epi8(v, lanes, from);
}

#endif
