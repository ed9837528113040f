/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * escapes.h - escaped elements of a step, which vector kernels take lane by lane
 *
 * mask: bit l is set when lane l is escaped. st: the states of 32 lanes. x: the elements of the
 * step, of which those of the lanes in mask are written (take) or read (put).
 */
#ifndef KVI_ESCAPES_H
#define KVI_ESCAPES_H

#include "scalar.h"

/* Phase 3 of a decoder's step (spec rans 2): elements of `width` bits. Returns the position
 * behind the consumed words; a kvi_feed provides that there are enough. */
static inline const uint8_t *kvi_escapes_take16(uint32_t mask, uint32_t *st, uint16_t *x,
                                                const uint8_t *p, unsigned width)
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

/* kvi_escapes_take16 for elements of a byte. */
static inline const uint8_t *kvi_escapes_take8(uint32_t mask, uint32_t *st, uint8_t *x,
                                               const uint8_t *p)
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

/* The encoder's inverse, from the last lane to the first; writes words downwards from *w. */
static inline void kvi_escapes_put16(uint32_t mask, uint32_t *st, const uint16_t *x, unsigned width,
                                     uint16_t **w)
{
	while (mask) {
		unsigned l = 31 - (unsigned)__builtin_clz(mask);
		mask &= ~((uint32_t)1 << l);
		st[l] = kvi_bits_put(st[l], width, x[l], w);
	}
}

/* kvi_escapes_put16 for elements of a byte. */
static inline void kvi_escapes_put8(uint32_t mask, uint32_t *st, const uint8_t *x, uint16_t **w)
{
	while (mask) {
		unsigned l = 31 - (unsigned)__builtin_clz(mask);
		mask &= ~((uint32_t)1 << l);
		st[l] = kvi_bits_put(st[l], 8, x[l], w);
	}
}

#endif
