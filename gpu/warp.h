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
 *   shuffle(v, from)                       v of lane from & 31
 *   bytes_of(lo, hi, sel)                  bytes of hi:lo by the four numbers of a selector
 *   dot_low, dot_high                      products of 16-bit halves and bytes, added up
 *   ld, ld_if, st, st_if                   memory that this kernel may have written
 *   ldg, ldg_if, ldg_one, ldg_quad         memory that no kernel writes meanwhile
 *   ldg_quads_if, st_quads_if              16 bytes of each lane, numbered as such
 *   ld_byte_at(s, at)                      a number of 4 bytes at a byte position
 *   span_at<T>(address, n) skip(s, n)      n elements of memory; a span without its first n
 *   HAPPENS(event, n)                      counts an event (host_events.h); nothing on a GPU
 */
#ifndef KVI_GPU_WARP_H
#define KVI_GPU_WARP_H

#include <stddef.h>
#include <stdint.h>

/* What ldg_quad loads. */
struct quad {
	uint32_t v[4];
};

#if defined(__CUDACC__)
#define HAPPENS(event, n) ((void)0)
#include "warp_device_body.h"
#else
#include "warp_host_body.h"
#endif

#endif
