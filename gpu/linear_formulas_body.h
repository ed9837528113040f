/* SPDX-License-Identifier: BSD-3-Clause */
/* linear_formulas_body.h - integers, distances and classes of elements (spec linear 1, 2, 4) */
#ifndef KVI_GPU_LINEAR_FORMULAS_BODY_H
#define KVI_GPU_LINEAR_FORMULAS_BODY_H

#include "grid_contexts_body.h"
#include "linear_products_body.h"

constexpr uint32_t CLASS_LIMIT = 400, DISTANCE_START = 13;

/* Channel of a slot of a head (spec linear 1). */
WARP_FN uint32_t slot_channel(uint32_t rotary, bool interleaved, uint32_t slot)
{
	if (slot >= rotary || interleaved)
		return slot;
	return slot / 2 + (slot & 1 ? rotary / 2 : 0);
}

/* Elements as integers in units of 2^step (spec linear 2). */
template <int D> WARP_FN u32v linear_integer(u32v x, uint32_t step)
{
	constexpr uint32_t m = grid_format<D>::m, top = grid_format<D>::bits - 1;
	const u32v magnitude = x & ((1u << top) - 1), field = magnitude >> m;
	const u32v man = (magnitude << (23 - m) & 0x7fffff) |
	                 select(field != 0, splat(0x800000), splat(0));
	const u32v exponent = max_signed(field, splat(1));
	const u32v sh = max_signed(
		min_signed((24 + grid_format<D>::least + step) - exponent, splat(31)), splat(1));
	const u32v v = min_signed((man + (splat(1) << (sh - 1))) >> sh, splat(LINEAR_LIMIT));
	return select((x >> top & 1) != 0, 0 - v, v);
}

/* How far elements are from what was predicted (spec linear 4); d: X - M. */
WARP_FN u32v linear_distance(u32v d, u32v k, uint32_t step)
{
	const u32v far = min_signed(max_signed(d, 0 - d), splat(65535));
	u32v factor = select((k & 1) != 0, splat(27554), splat(32768));
	factor = select((k & 2) != 0, select((k & 1) != 0, splat(19484), splat(23170)), factor);
	const u32v shift = max_signed(min_signed(sar(k, 2) + (11 - step), splat(31)), splat(0));
	const u32v v = far * factor >> shift;
	return select(v < 127, v, splat(127));
}

/* The class of elements: k' with what the token adds; offset: 2^20 - bits(13 * n). */
WARP_FN u32v linear_class(u32v k, u32v w, uint32_t offset, bool follows)
{
	const u32v o = sar(float_bits(w) + offset, 21);
	return limited(follows ? k + max_signed(o, splat(0u - 32)) : k, CLASS_LIMIT);
}

#endif
