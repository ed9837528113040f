/* SPDX-License-Identifier: BSD-3-Clause */
/* lanes_neon.h - 64 bytes in four vectors of NEON, expanded and compressed by a mask */
#ifndef KVI_LANES_NEON_H
#define KVI_LANES_NEON_H

#include <arm_neon.h>
#include <stddef.h>
#include <stdint.h>

#include "layers_shuffles.h"
#include "util/unroll.h"

#define LANES_INLINE static inline __attribute__((always_inline))
#define SET8(x) vdupq_n_u8((uint8_t)(x))
/* The vectors of 64 bytes, or of 32 words. */
#define EACH KVI_UNROLL(4) for (int g = 0; g < 4; g++)
/* Bit i in byte i of each half of a vector. */
#define LANE_BITS vreinterpretq_u8_u64(vdupq_n_u64(UINT64_C(0x8040201008040201)))

typedef uint8x16_t vec;

enum { WIDTH = 16, ROUND = 4 * WIDTH }; /* bytes of a vector, and of four */

/* The lanes of masks of all ones or zeros, a bit each. */
LANES_INLINE uint64_t lanes_of(const vec mask[4])
{
	const vec bit = LANE_BITS;
	const vec a = vpaddq_u8(vandq_u8(mask[0], bit), vandq_u8(mask[1], bit));
	const vec b = vpaddq_u8(vandq_u8(mask[2], bit), vandq_u8(mask[3], bit));
	const vec all = vpaddq_u8(a, b);
	return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(all, all)), 0);
}

/* The first n of 64 lanes, all for more. */
LANES_INLINE uint64_t first_lanes(size_t n)
{
	return n >= ROUND ? UINT64_MAX : (UINT64_C(1) << n) - 1;
}

/* In byte i: the lanes in front of lane 8 i that a mask has. *all: those that it has. */
LANES_INLINE uint64_t lanes_before(uint64_t lanes, unsigned *all)
{
	const uint64_t counts = vget_lane_u64(vreinterpret_u64_u8(vcnt_u8(vcreate_u8(lanes))), 0) *
	                        UINT64_C(0x0101010101010101);
	*all = (unsigned)(counts >> 56);
	return counts << 8;
}

/* 16 bytes of `from` in the lanes 16 g and up of a mask, 0 elsewhere. before: lanes_before. */
LANES_INLINE vec expanded(uint64_t lanes, uint64_t before, const uint8_t *from, int g)
{
	const unsigned a = lanes >> 16 * g & 0xff, b = lanes >> (16 * g + 8) & 0xff;
	const uint8x8_t low = vld1_u8(from + (before >> 16 * g & 0xff));
	const uint8x8_t high = vld1_u8(from + (before >> (16 * g + 8) & 0xff));
	const uint8x8_t upper = vorr_u8(vcreate_u8(expansions[b]), vdup_n_u8(8));
	return vqtbl1q_u8(vcombine_u8(low, high), vcombine_u8(vcreate_u8(expansions[a]), upper));
}

/* Writes the bytes of v in the lanes of a mask, and others behind them. Returns their end. */
LANES_INLINE uint8_t *compressed(const vec v[4], uint64_t lanes, uint8_t *to)
{
	unsigned all;
	const uint64_t before = lanes_before(lanes, &all);
	EACH {
		const unsigned a = lanes >> 16 * g & 0xff, b = lanes >> (16 * g + 8) & 0xff;
		vst1_u8(to + (before >> 16 * g & 0xff),
		        vtbl1_u8(vget_low_u8(v[g]), vcreate_u8(compressions[a])));
		vst1_u8(to + (before >> (16 * g + 8) & 0xff),
		        vtbl1_u8(vget_high_u8(v[g]), vcreate_u8(compressions[b])));
	}
	return to + all;
}

#endif
