/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * slots_body.h - slots of the linear codec (spec linear 2 to 4); kvi_kernels.slot
 *
 * Included after context_body.h and grid_body.h or grid_avx512_body.h. Uses SET, EACH, all of the
 * arithmetic, v_load, v_store, v_load_u8, v_load_u16, v_load_i16, v_pick, the pairs of 16-bit
 * numbers, class_row, class_row_load, class_of, token_tables and token_tables_load of ops.h;
 * step_take (contract in grid_body.h); first_active, states_load, states_store (in step_body.h);
 * contexts_of, scaled_bits, clamp (in context_body.h).
 */
#ifndef KVI_SLOTS_BODY_H
#define KVI_SLOTS_BODY_H

#include "slot_integers_body.h"
#include "slot_reading_body.h"

#define UNROLL KVI_UNROLL(8)
#define NOINLINE __attribute__((noinline))

/* ----------------------------------------------------------- prediction */

/* The index of token t in sums. */
INLINE size_t sum_at(size_t sum_step, size_t t)
{
	return t / KVI_LANES * sum_step + t % KVI_LANES;
}

/* The index of token t in feature rows. */
INLINE size_t feature_at(const struct kvi_slot_job *j, size_t t)
{
	return t / KVI_LANES * j->feature_step + 2 * (t % KVI_LANES);
}

/* Two coefficients of a row, for all lanes. */
INLINE vec coefficients(const int16_t *p)
{
	int32_t both;
	memcpy(&both, p, sizeof(both));
	return SET(both);
}

/* The base of a slot (spec linear 3): the prediction of tokens from t on without the same layer. */
INLINE vec base_of(const struct kvi_slot *s, size_t t)
{
	vec base = SET(s->mean);
	if (s->table)
		base = v_add(base, v_load_i16(s->table + t));
	if (s->below)
		base = v_add(base, v_sar_by(v_load(s->below + sum_at(s->below_step, t)), s->qa));
	return clamp(base, LIMIT);
}

/* The prediction of those tokens, with the same layer and without its limits. */
INLINE vec pred_of(const struct kvi_slot *s, const struct kvi_slot_job *j, size_t t, vec base)
{
	if (!s->sum)
		return base;
	vec sum = v_load(s->sum + sum_at(s->sum_step, t));
	const int16_t *f = j->near + feature_at(j, t);
	for (size_t p = 0; p < j->n_near; p++, f += KVI_PAIR_STEP)
		sum = v_add(sum, v_madd(v_load(f), coefficients(s->coef + 2 * p)));
	return v_add(base, v_sar_by(sum, s->qb));
}

/* o of spec linear 4; start: bits(13 n) - 2^20. */
INLINE vec token_class(const struct kvi_slot_block *b, size_t t, vec start)
{
	if (!b->w)
		return SET(0);
	vec d = v_sub(v_float_bits(v_load(b->w + t)), start);
	return v_max(v_sar(d, 21), SET(-32));
}

/* The start for token_class(), the same for all tokens of a job. */
INLINE vec token_start(const struct kvi_slot_job *j)
{
	return v_sub(v_float_bits(SET(13 * j->n)), SET(1 << 20));
}

/* more: the class of the token. */
INLINE vec context_of(vec mu, vec k, vec more, const struct kvi_grid_format *fmt)
{
	return contexts_of(mu, clamp(v_add(k, more), 400), fmt);
}

/* ---------------------------------------------------------- observation */

/* v of spec linear 4; shifts beyond 31 give 0 as 31 does. */
INLINE vec distance(vec x, vec expected, vec k, int step)
{
	vec far = v_min(v_abs(v_sub(x, expected)), SET(65535));
	vec sh = v_max(v_add(v_sar(k, 2), SET(11 - step)), SET(0));
	vec scaled = v_mul(far, v_pick(32768, 27554, 23170, 19484, k));
	return v_min(v_shr_any(scaled, sh), SET(127));
}

/* Adds distances to w from token t on, where the job wants that. */
INLINE void scale_add(const struct kvi_slot_block *b, const struct kvi_slot_job *j, size_t t, vec v)
{
	if (b->w && j->grow)
		v_store(b->w + t, v_add(v_load(b->w + t), v));
}

/* Stores one slot of a feature row; the second one must follow the first one. */
INLINE void store_half(int16_t *row, unsigned half, vec v)
{
	v = clamp(v, LIMIT);
	v_store(row, half ? v_side_by_side(v_load(row), v) : v_and(v, SET(0xffff)));
}

/* Stores both slots of a feature row. */
INLINE void store_both(int16_t *row, vec a, vec b)
{
	v_store(row, v_side_by_side_limited(a, b));
}

/* ---------------------------------------------------------------- slots */

/*
 * What all steps of a slot or pair have in common: copies that no store changes,
 * and constants in the functions for usual slots, which have steps of 32 lanes of
 * bf16, either all known or all in the stream.
 */
struct slot_setting {
	struct kvi_slot_block b;
	struct kvi_slot_job j;
	struct kvi_grid_format fmt;
	struct grid_numbers f;
	bool all_known, all_read;
};

/* Known elements; stores their contexts ctx where the slot wants them. */
INLINE struct parts known_take(const struct slot_setting *e, const struct kvi_slot *s, size_t step,
                               const struct parts *ctx)
{
	const unsigned lanes = e->b.lanes;
	const size_t at = step * lanes;
	const uint16_t *given = s->x + kvi_slot_index(&e->b, step);
	uint16_t x[KVI_LANES] = { 0 };
	uint32_t c[KVI_LANES];
	const bool full = lanes == KVI_LANES;
	const uint16_t *from = full ? given : x;
	struct parts y;
	if (!full)
		memcpy(x, given, lanes * sizeof(*x));
	EACH
		y.v[h] = v_load_u16(from + WIDTH * h);
	if (!s->ctx)
		return y;
	uint32_t *to = full ? s->ctx + at : c;
	EACH
		v_store(to + WIDTH * h, ctx->v[h]);
	if (!full)
		memcpy(s->ctx + at, c, lanes * sizeof(*c));
	return y;
}

/* The elements of a step, decoded or known; 0 in lanes that are not active. False when the words
 * do not suffice. */
INLINE bool elements(const struct slot_setting *e, struct slot_reading *r, const struct kvi_slot *s,
                     size_t step, const struct parts *ctx, struct parts *y)
{
	if (e->all_known || (!e->all_read && s->known)) {
		*y = known_take(e, s, step, ctx);
		return true;
	}
	const size_t i = kvi_slot_part(&e->b, step);
	struct kvi_slot_reader *in = &e->b.reader[i];
	if (!reading_ready(r, in, i))
		return false;
	struct parts st = states_load(in->state);
	r->p[i] = step_take(&st, ctx->v, e->b.tables->lut, &r->tokens, &e->f, e->b.lanes, r->p[i],
	                    s->x + kvi_slot_index(&e->b, step), y->v);
	states_store(in->state, &st, first_active(e->b.lanes));
	return true;
}

/* The state of the tokens of a block before a slot, or a pair, is observed. */
struct slot_before {
	uint32_t ctx[2][KVI_BLOCK_TOKENS];
	int32_t x[2][KVI_BLOCK_TOKENS]; /* elements, then integers */
	int32_t k[2][KVI_BLOCK_TOKENS], expected[2][KVI_BLOCK_TOKENS];
	int32_t base[2][KVI_BLOCK_TOKENS];
};

/* The elements of slot i, all steps of it: predictions and observations are loops of their own, so
 * that a processor sees steps of different streams at once. */
INLINE bool all_elements(const struct slot_setting *e, struct slot_reading *r,
                         struct slot_before *m, unsigned i)
{
	const struct kvi_slot *s = &e->j.slot[i];
	for (struct step_order o = first_step(&e->b); more_steps(&o); next_step(&o)) {
		const size_t at = o.step * KVI_LANES;
		struct parts ctx, y;
		EACH
			ctx.v[h] = v_load(m->ctx[i] + at + WIDTH * (size_t)h);
		if (!elements(e, r, s, o.step, &ctx, &y))
			return false;
		EACH
			v_store(m->x[i] + at + WIDTH * (size_t)h, y.v[h]);
	}
	return true;
}

/* The integers of a step of slot i; adds their distances to w. */
INLINE struct parts observed(const struct slot_setting *e, struct slot_before *m, size_t step,
                             unsigned i)
{
	const int unit = e->j.slot[i].step;
	struct parts y;
	EACH
		y.v[h] = v_load(m->x[i] + step * KVI_LANES + WIDTH * (size_t)h);
	integers(&y, &e->fmt, unit);
	EACH {
		size_t t = step * KVI_LANES + WIDTH * (size_t)h;
		scale_add(&e->b, &e->j, t,
		          distance(y.v[h], v_load(m->expected[i] + t), v_load(m->k[i] + t), unit));
	}
	return y;
}

/* Predicts a slot alone for the tokens from t on. start: token_start(). */
INLINE void predict_one(const struct slot_setting *e, struct slot_before *m, size_t t, vec start)
{
	const struct kvi_slot *s = &e->j.slot[0];
	vec base = base_of(s, t), k = SET(s->k);
	vec pred = clamp(pred_of(s, &e->j, t, base), LIMIT);
	if (e->b.unknown)
		k = v_add(k, v_load_i16(e->b.unknown + t));
	v_store(m->base[0] + t, base);
	v_store(m->expected[0] + t, pred);
	v_store(m->k[0] + t, k);
	v_store(m->ctx[0] + t,
	        context_of(v_scaled(pred, s->step), k, token_class(&e->b, t, start), &e->fmt));
}

/* Observes it. v: integers. */
INLINE void observe_one(const struct slot_setting *e, const struct slot_before *m, size_t t, vec v)
{
	const struct kvi_slot_job *j = &e->j;
	const size_t at = feature_at(j, t);
	store_half(j->r + at, j->half, v_sub(v, v_load(m->base[0] + t)));
	if (j->z)
		store_half(j->z + at, j->half, v_sub(v, SET(j->slot[0].mean)));
}

/* Predicts, decodes and observes a slot alone. */
INLINE bool slot_alone(const struct slot_setting *e, struct slot_reading *r)
{
	const vec start = token_start(&e->j);
	struct slot_before m;
	for (size_t t = 0; t < e->b.tokens; t += WIDTH)
		predict_one(e, &m, t, start);
	if (!all_elements(e, r, &m, 0))
		return false;
	for (size_t step = 0; step < kvi_slot_steps(&e->b); step++) {
		const struct parts y = observed(e, &m, step, 0);
		EACH
			observe_one(e, &m, step * KVI_LANES + WIDTH * (size_t)h, y.v[h]);
	}
	return true;
}

/* Predicts both slots of a rotated pair for the tokens from t on. */
INLINE void predict_pair(const struct slot_setting *e, struct slot_before *m, size_t t, vec start,
                         const class_row *classes)
{
	const struct kvi_slot_job *j = &e->j;
	const struct kvi_slot *a = &j->slot[0], *b = &j->slot[1];
	const int step = a->step - 6;
	const vec round = SET(128);
	vec cs = v_load(j->cos_sin + 2 * t);
	vec base_a = base_of(a, t), base_b = base_of(b, t);
	vec pred = v_side_by_side_limited(pred_of(a, j, t, base_a), pred_of(b, j, t, base_b));
	vec va = v_madd(pred, v_negated_high(cs));
	vec vb = v_madd(pred, v_exchanged(cs));
	va = v_sar(v_add(va, round), 8);
	vb = v_sar(v_add(vb, round), 8);
	vec angle = v_load_u8(j->angle_class + t), kb = SET(b->k);
	if (e->b.unknown)
		kb = v_add(kb, v_load_i16(e->b.unknown + t));
	vec ka = v_add(kb, class_of(classes, angle));
	kb = v_add(kb, class_of(classes, v_xor(angle, SET(32))));
	vec o = token_class(&e->b, t, start);
	v_store(m->base[0] + t, base_a);
	v_store(m->base[1] + t, base_b);
	v_store(m->k[0] + t, ka);
	v_store(m->k[1] + t, kb);
	v_store(m->expected[0] + t, v_sar(v_add(va, SET(32)), 6));
	v_store(m->expected[1] + t, v_sar(v_add(vb, SET(32)), 6));
	v_store(m->ctx[0] + t, context_of(v_scaled(va, step), ka, o, &e->fmt));
	v_store(m->ctx[1] + t, context_of(v_scaled(vb, step), kb, o, &e->fmt));
}

/* Observes it. xa, xb: integers. */
INLINE void observe_pair(const struct slot_setting *e, const struct slot_before *m, size_t t,
                         vec xa, vec xb)
{
	const struct kvi_slot_job *j = &e->j;
	const vec round = SET(8192);
	const size_t at = feature_at(j, t);
	vec cs = v_load(j->cos_sin + 2 * t);
	vec x = v_side_by_side(xa, xb);
	vec ua = v_madd(x, cs);
	vec ub = v_madd(x, v_negated_low(v_exchanged(cs)));
	ua = v_sar(v_add(ua, round), 14);
	ub = v_sar(v_add(ub, round), 14);
	store_both(j->r + at, v_sub(ua, v_load(m->base[0] + t)), v_sub(ub, v_load(m->base[1] + t)));
	if (j->z)
		store_both(j->z + at, v_sub(ua, SET(j->slot[0].mean)),
		           v_sub(ub, SET(j->slot[1].mean)));
}

/* Predicts, decodes and observes a rotated pair. */
INLINE bool slot_pair(const struct slot_setting *e, struct slot_reading *r)
{
	const class_row classes = class_row_load(e->j.scales);
	const vec start = token_start(&e->j);
	struct slot_before m;
	for (size_t t = 0; t < e->b.tokens; t += WIDTH)
		predict_pair(e, &m, t, start, &classes);
	if (!all_elements(e, r, &m, 0) || !all_elements(e, r, &m, 1))
		return false;
	for (size_t step = 0; step < kvi_slot_steps(&e->b); step++) {
		const struct parts a = observed(e, &m, step, 0), b = observed(e, &m, step, 1);
		EACH
			observe_pair(e, &m, step * KVI_LANES + WIDTH * (size_t)h, a.v[h], b.v[h]);
	}
	return true;
}

/* z of known elements, which needs no predictions. */
INLINE void slot_z(const struct slot_setting *e)
{
	const struct kvi_slot_job *j = &e->j;
	const struct kvi_slot *a = &j->slot[0], *b = &j->slot[1];
	const vec mean_a = SET(a->mean), mean_b = SET(b->mean), round = SET(8192);
	for (size_t step = 0; step < kvi_slot_steps(&e->b); step++) {
		struct parts xa = known_take(e, a, step, NULL), xb = { 0 };
		if (j->pair)
			xb = known_take(e, b, step, NULL);
		integers(&xa, &e->fmt, a->step);
		if (j->pair)
			integers(&xb, &e->fmt, b->step);
		EACH {
			size_t t = step * KVI_LANES + WIDTH * (size_t)h;
			int16_t *to = j->z + feature_at(j, t);
			vec va = xa.v[h];
			if (!j->pair) {
				store_half(to, j->half, v_sub(va, mean_a));
				continue;
			}
			vec cs = v_load(j->cos_sin + 2 * t);
			vec x = v_side_by_side(va, xb.v[h]);
			vec ua = v_madd(x, cs);
			vec ub = v_madd(x, v_negated_low(v_exchanged(cs)));
			ua = v_sar(v_add(ua, round), 14);
			ub = v_sar(v_add(ub, round), 14);
			store_both(to, v_sub(ua, mean_a), v_sub(ub, mean_b));
		}
	}
}

/* usual: as struct slot_setting says; known: then, whether all are. */
INLINE bool slot_with(const struct kvi_slot_block *b, const struct kvi_slot_job *j,
                      const struct kvi_grid_format *fmt, const struct grid_numbers *f, bool usual,
                      bool known)
{
	struct slot_setting e = { .b = *b,
		                  .j = *j,
		                  .fmt = *fmt,
		                  .f = *f,
		                  .all_known = usual && known,
		                  .all_read = usual && !known };
	struct slot_reading r;
	const bool reads = usual ? !known : b->reader != NULL;
	if (usual)
		e.b.lanes = KVI_LANES;
	if (!reads && !j->r) {
		slot_z(&e);
		return true;
	}
	r.opened = 0;
	if (reads)
		r.tokens = token_tables_load();
	bool ok = j->pair ? slot_pair(&e, &r) : slot_alone(&e, &r);
	return reads ? reading_end(&r, b->reader) && ok : ok;
}

NOINLINE static bool bf16_known(const struct kvi_slot_block *b, const struct kvi_slot_job *j)
{
	return slot_with(b, j, &bf16_format, &bf16_numbers, true, true);
}

NOINLINE static bool bf16_read(const struct kvi_slot_block *b, const struct kvi_slot_job *j)
{
	return slot_with(b, j, &bf16_format, &bf16_numbers, true, false);
}

NOINLINE static bool any_other(const struct kvi_slot_block *b, const struct kvi_slot_job *j)
{
	const struct grid_numbers f = numbers_of(b->fmt);
	return slot_with(b, j, b->fmt, &f, false, false);
}

static bool slot(const struct kvi_slot_block *b, const struct kvi_slot_job *j)
{
	const bool known = j->slot[0].known;
	if (b->fmt->emin == bf16_format.emin && b->lanes == KVI_LANES &&
	    (!j->pair || j->slot[1].known == known))
		return known ? bf16_known(b, j) : bf16_read(b, j);
	return any_other(b, j);
}

/* The members of struct kvi_kernels that the bodies define. */
#define BODY_KERNELS                                                                        \
	.grid_encode = grid_encode, .grid_decode = grid_decode, .sym_encode = sym_encode,   \
	.sym_decode = sym_decode, .grid_contexts = grid_contexts, .grid_price = grid_price, \
	.rotated_contexts = rotated_contexts, .slot = slot

#endif
