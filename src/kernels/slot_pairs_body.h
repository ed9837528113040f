/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * slot_pairs_body.h - elements of a slot from two streams at once, for bf16 in AVX-512
 *
 * Included by slots_body.h in sets with vectors of halves. A step waits longer for its own table
 * look-ups and words than its instructions take: a step of another stream, part by part beside it,
 * fills these gaps, as in grid_pairs_body.h.
 */
#ifndef KVI_SLOT_PAIRS_BODY_H
#define KVI_SLOT_PAIRS_BODY_H

/* A step of both streams; x: where the elements go, which are also returned in y, in halves. */
INLINE void two_streams_take(struct parts st[2], struct parts ctx[2], const uint32_t *lut,
                             const struct words_tables *tables, const uint8_t *p[2],
                             uint16_t *const x[2], vec y[2])
{
	struct parts entry[2];
	struct words_cells a[2];
	BOTH
		entry[i] = words_symbols_take(&st[i], ctx[i].v, lut, tables, BY_GATHERS);
	BOTH
		p[i] = words_renorm(&st[i], NULL, tables, ALL_LANES, p[i]);
	BOTH
		a[i] = words_cells_find(halves_low(st[i].v[0], st[i].v[1]),
		                        halves_low(entry[i].v[0], entry[i].v[1]), ctx[i].v, tables);
	BOTH
		words_bits_find(&a[i], tables);
	const uint32_t escaped = a[0].escaped | a[1].escaped;
	if (__builtin_expect(escaped != 0, 0)) {
		BOTH
			words_escapes_repair(&a[i]);
	}
	BOTH
		p[i] = words_renorm(&st[i], &a[i].bits, tables, ALL_LANES, p[i]);
	BOTH {
		y[i] = words_elements(&a[i], tables);
		v_store(x[i], _mm512_permutexvar_epi16(tables->order, y[i]));
	}
	if (__builtin_expect(escaped != 0, 0)) {
		BOTH {
			p[i] = escapes_take16(&st[i], halves_lanes(a[i].escaped), x[i], 16, p[i]);
			const struct parts all = words16_load(x[i], ALL_LANES);
			y[i] = halves_low(all.v[0], all.v[1]);
		}
	}
}

/* The elements of a slot in parts `part` and `part` + 1 of a block. */
INLINE bool two_parts(const struct slot_setting *setting, struct slot_reading *r,
                      struct slot_before *before, unsigned slot, size_t part)
{
	struct kvi_slot_reader *in = &setting->b.reader[part];
	const size_t steps = (size_t)1 << setting->b.part_shift;
	struct parts st[2];
	BOTH
		st[i] = states_load(in[i].state);
	for (size_t step = 0; step < steps; step++) {
		struct parts ctx[2];
		vec y[2];
		uint16_t *x[2];
		size_t at[2];
		if (!reading_ready(r, &in[0], part) || !reading_ready(r, &in[1], part + 1))
			return false;
		BOTH {
			const size_t of = ((part + (size_t)i) << setting->b.part_shift) + step;
			at[i] = of * KVI_LANES;
			x[i] = setting->j.slot[slot].x + kvi_slot_index(&setting->b, of);
			ctx[i] = states_load(before->ctx[slot] + at[i]);
		}
		two_streams_take(st, ctx, setting->b.tables->lut, &r->tokens.words, &r->p[part], x,
		                 y);
		BOTH
			v_store(before->x[slot] + at[i] / 2, y[i]);
	}
	BOTH
		states_store(in[i].state, &st[i], ALL_LANES);
	return true;
}

#endif
