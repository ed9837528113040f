/* SPDX-License-Identifier: BSD-3-Clause */
/* escapes.h - the rare parts of a step that vector kernels do lane by lane */
#ifndef KVI_ESCAPES_H
#define KVI_ESCAPES_H

#include "scalar.h"

/* Phase 3 of a decoder's step (spec rans 2), for the lanes in mask. The words
 * come from a kvi_feed, which has enough of them. */
static inline const uint8_t *kvi_escapes_take16(uint32_t mask, uint32_t *st,
                                                uint16_t *x, const uint8_t *p,
                                                unsigned width)
{
	for (; mask; mask &= mask - 1) {
		unsigned l = (unsigned)__builtin_ctz(mask);
		x[l] = (uint16_t)(st[l] & ((1u << width) - 1));
		st[l] >>= width;
		if (st[l] < KVI_RANS_LOW) {
			st[l] = st[l] << 16 | kvi_load16(p);
			p += 2;
		}
	}
	return p;
}

static inline const uint8_t *kvi_escapes_take8(uint32_t mask, uint32_t *st,
                                               uint8_t *x, const uint8_t *p)
{
	for (; mask; mask &= mask - 1) {
		unsigned l = (unsigned)__builtin_ctz(mask);
		x[l] = (uint8_t)st[l];
		st[l] >>= 8;
		if (st[l] < KVI_RANS_LOW) {
			st[l] = st[l] << 16 | kvi_load16(p);
			p += 2;
		}
	}
	return p;
}

/* The mirror image in an encoder. */
static inline void kvi_escapes_put16(uint32_t mask, uint32_t *st,
                                     const uint16_t *x, unsigned width,
                                     uint16_t **w)
{
	while (mask) {
		unsigned l = 31 - (unsigned)__builtin_clz(mask);
		mask &= ~((uint32_t)1 << l);
		st[l] = kvi_bits_put(st[l], width, x[l], w);
	}
}

static inline void kvi_escapes_put8(uint32_t mask, uint32_t *st,
                                    const uint8_t *x, uint16_t **w)
{
	while (mask) {
		unsigned l = 31 - (unsigned)__builtin_clz(mask);
		mask &= ~((uint32_t)1 << l);
		st[l] = kvi_bits_put(st[l], 8, x[l], w);
	}
}

#endif
