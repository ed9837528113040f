/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * escapes_body.h - escaped elements of a step (phase 3 of spec rans 2), lane by lane
 *
 * Included after step_body.h or ops_avx512.h. Uses struct parts, states_load, states_store and
 * ALL_LANES (contracts in step_body.h). escaped: bit l is lane l, not 0. x: the elements of the
 * step, of which those of these lanes are written or read. width: bits of an element.
 */
#ifndef KVI_ESCAPES_BODY_H
#define KVI_ESCAPES_BODY_H

INLINE const uint8_t *escapes_take16(struct parts *st, uint32_t escaped, uint16_t *x,
                                     unsigned width, const uint8_t *p)
{
	uint32_t all[KVI_LANES];
	states_store(all, st, ALL_LANES);
	p = kvi_escapes_take16(escaped, all, x, p, width);
	*st = states_load(all);
	return p;
}

INLINE const uint8_t *escapes_take8(struct parts *st, uint32_t escaped, uint8_t *x,
                                    const uint8_t *p)
{
	uint32_t all[KVI_LANES];
	states_store(all, st, ALL_LANES);
	p = kvi_escapes_take8(escaped, all, x, p);
	*st = states_load(all);
	return p;
}

INLINE void escapes_put16(struct parts *st, uint32_t escaped, const uint16_t *x, unsigned width,
                          uint16_t **w)
{
	uint32_t all[KVI_LANES];
	states_store(all, st, ALL_LANES);
	kvi_escapes_put16(escaped, all, x, width, w);
	*st = states_load(all);
}

INLINE void escapes_put8(struct parts *st, uint32_t escaped, const uint8_t *x, uint16_t **w)
{
	uint32_t all[KVI_LANES];
	states_store(all, st, ALL_LANES);
	kvi_escapes_put8(escaped, all, x, w);
	*st = states_load(all);
}

#endif
