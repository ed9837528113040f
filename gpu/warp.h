/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * warp.h - one kernel source, two machines
 *
 * A kernel is written for a warp: values that differ between lanes are u32v, u64v and boolv, values
 * that do not are plain integers. With nvcc a u32v is the lane's register. On a host it is a vector
 * of 32 numbers, so that the same source runs, lane for lane, without a GPU.
 *
 * Rules: branches on uniform values alone; barriers only between phases, which are functions that a
 * host calls for all warps of a block, one after the other; memory through the calls below alone,
 * of which a host checks bounds and alignment.
 *
 *   lanes() splat(x) select(b, x, y)       0 .. 31; a number in all lanes; b ? x : y
 *   mask_of(b) lane_in(m) below(m)         bits of b; lanes of a mask; how many bits below a lane's
 *   count(m) uniform(x) any_of(v)          bits; x, which is the same in all lanes; or of all lanes
 *   lane_value(v, i)                       v of lane i
 *   joined(low, high) funnel(low, high, n) 64 bits; their low half, shifted right by n modulo 32
 *   bytes_less(x, y)                       x - y of each byte
 *   shuffle(v, from)                       v of lane from & 31
 *   bytes_of(lo, hi, sel)                  bytes of hi:lo by the four numbers of a selector
 *   add_products<A, B>(c, a, b)            a product of matrices of bytes, added to c; see below
 *   ld, ld_if, st, st_if                   memory that this kernel may have written
 *   ldg, ldg_if, ldg_one                   memory that no kernel writes meanwhile
 *   ldg_quads_if, ld_quads, st_quads_if    16 bytes of each lane, numbered as such
 *   ld_byte_at(s, at)                      a number of 4 bytes at a byte position
 *   span_at<T>(address, n) skip(s, n)      n elements of memory; a span without its first n
 *   block_memory()                         what the warps of a block share
 *   each_warp(f)                           a phase: f(w) of each of the 8 warps of a block
 *   st_element, st_group, ld_element,      elements of each lane to addresses of 64 bits, and from
 *   ld_group                               there
 *   add_if(s, i, v, ok) add_shared(s, v)   atomic sums: of a block; of all blocks
 *   least_of(v)                            the least of all lanes
 *   take_lock(s, first, n) give_lock(s, i) one of n locks, by a warp; who takes it sees what the
 *                                          block that gave it wrote before its last barrier
 *   part<T>(s, first, n)                   n elements of T in a span of words, from one on
 */
#ifndef KVI_GPU_WARP_H
#define KVI_GPU_WARP_H

#include <stddef.h>
#include <stdint.h>

/*
 * add_products: a has 16 rows of 32 bytes, b 8 columns of 32 bytes, c 16 rows of 8 numbers of 32
 * bits. A, B: whether bytes of a, of b have signs. Sums are exact modulo 2^32. Words of lane
 * 4 * g + i, i below 4; byte 0 is in the low bits:
 *
 *   a[0] a[2]   row g, bytes 4 * i to 4 * i + 3, and those 16 bytes further; a[1] a[3]: row g + 8
 *   b[0] b[1]   column g, bytes 4 * i to 4 * i + 3, and those 16 bytes further
 *   c[0] c[1]   row g, columns 2 * i and 2 * i + 1; c[2] c[3]: row g + 8
 */
#if defined(__CUDACC__)
#include "warp_device_body.h"
#else
#include "warp_host_body.h"
#endif

#endif
