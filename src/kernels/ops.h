/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ops.h - the contract between a set of vector instructions and the kernel bodies
 *
 * A file of kernels includes the operations of one set (ops_avx2.h, ops_avx512.h or
 * ops_neon.h), then the bodies (*_body.h), each of which lists the operations that it uses.
 * The operations header defines `vec` and PARTS, includes this file, then defines those of the
 * following that the bodies of its set use. Everything is pure, inlined, of the thread that
 * calls it, and neither allocates nor fails.
 *
 * Vectors and masks
 *   vec                     WIDTH lanes of 32 bits
 *   PARTS, WIDTH            vectors in a step of 32 lanes; lanes in a vector
 *   EACH, EACH_BACK         loop heads: h from 0 to PARTS - 1, or back, unrolled
 *   SET(x)                  x in all lanes
 *   mask                    in AVX2 and NEON: a vec, each lane of it all ones or 0
 * Arithmetic; lanes are signed where it matters
 *   v_add, v_sub, v_mul     modulo 2^32
 *   v_madd(a, b)            the sum of the products of the signed 16-bit halves
 *   v_abs, v_min, v_max
 *   v_and, v_or, v_xor
 *   v_except(m, v)          v & ~m
 *   v_or_some(a, b, m)      a | (b & m)
 *   v_shl, v_shr, v_sar(v, n)
 *                           all lanes by the number n, 0 to 31
 *   v_sar_by(v, n)          the same by a number that is not a constant
 *   v_shl_each, v_shr_each(v, n)
 *                           each lane by its own n: 0 for 32 to 127, anything for other numbers
 *   v_shl_any, v_shr_any(v, n)
 *                           the same: 0 for all n that are 32 or more as unsigned numbers
 *   v_scaled(v, e)          the patterns of v * 2^e, 2^e and products normal numbers or 0
 *   v_sum_exponent(a, b)    exponent fields of the sums of patterns that are not negative, rounded
 *                           towards zero; SUM_EXPONENT is defined with it
 *   v_float_bits(v)         binary32 patterns of |v| <= 2^24, in any rounding mode
 *   v_log2(v)               position of the highest one of 1 to 2^24 or of a power of two up to
 *                           2^30; anything for other numbers
 *   v_quotient(n, d)        n / d in any rounding mode, at most one too small or too large;
 *                           n < d * 2^21, 0 < d < 2^11
 * Comparisons, signed, to masks
 *   v_gt(a, b), v_eq(a, b), v_is_zero(v)
 *   v_blend(a, b, m)        b where the mask is set, else a
 *   v_bits(m)               bit i is lane i of the mask
 *   v_where(c, v)           v where c is not 0, else 0
 *   v_negated_where(x, bit, v)
 *                           -v where x has that bit, else v
 * Memory, of any alignment
 *   v_load(p), v_store(p, v)
 *   v_load_u8, v_load_u16, v_load_i16(p)
 *                           WIDTH numbers, widened
 *   v_load_bytes(p)         32 numbers of 8 bits as the vectors of a step
 *   v_store_u16(p, v)       numbers below 2^16, narrowed
 *   v_gather(base, i)       base[i], 32 bits each
 *   v_lookup_u16(table, i)  table[i], 16 bits each, and anything in the high halves; reads the
 *                           entry behind it
 *   v_pick(a, b, c, d, k)   one of four numbers, by the lowest two bits of k
 *   first_lanes(n)          some_lanes: the first n lanes of a vector, or all (n >= WIDTH)
 *   LANES_DONE(n)           the lanes that loops with some_lanes take, of n; scalar C takes the
 *                           others
 *   v_load_some, v_load_i16_some(p, some), v_store_some(p, v, some)
 *                           touch only those lanes in memory; the others load as 0
 *   v_store_pairs(p, a, b, some)
 *                           a[0], b[0], a[1], b[1], ...
 * Pairs of 16-bit numbers in a lane
 *   v_side_by_side(a, b)    a in the low half, b in the high half; |a|, |b| < 2^15
 *   v_negated_low, v_negated_high(v)
 *   v_exchanged(v)
 *   v_low_high(a, b)        the low halves of a, the high halves of b
 *   v_side_by_side_limited(a, b)
 *                           a and b limited to -32767 to 32767, side by side
 * The coder (spec rans 2)
 *   v_renorm(st, active, p) a word from *p for each active lane below 2^16, in order; reads
 *                           2 * WIDTH bytes
 *   v_words_put(st, m, w)   writes the low words of the lanes in m downwards from *w and shifts
 *                           them out; overwrites WIDTH words below *w
 *   token_tables, token_tables_load(), token_info(t, pair, lo, nb)
 *                           LO and NB of token pairs (spec grid 4); NB of the escape is 0
 *   class_row, class_row_load(row), class_of(c, angle)
 *                           64 signed bytes, looked up by numbers 0 to 63
 */
#ifndef KVI_OPS_H
#define KVI_OPS_H

#include "escapes.h"
#include "feed.h"
#include "util/unroll.h"

#define INLINE static inline __attribute__((always_inline))

/* A loop over the parts of a step; gcc -O2 keeps them in memory without the pragma. */
#define EACH KVI_UNROLL(8) for (int h = 0; h < PARTS; h++)
#define EACH_BACK KVI_UNROLL(8) for (int h = PARTS - 1; h >= 0; h--)
/* A loop over two streams whose steps are interleaved part by part. */
#define BOTH KVI_UNROLL(2) for (int i = 0; i < 2; i++)

/* Lanes of a vector. */
enum { WIDTH = KVI_LANES / PARTS };

/* The lanes of a step: lane l is lane l % WIDTH of v[l / WIDTH]. */
struct parts {
	vec v[PARTS];
};

#endif
