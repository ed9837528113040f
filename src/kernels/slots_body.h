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

#include "slot_reading_body.h"

#define UNROLL KVI_UNROLL(8)
#define NOINLINE __attribute__((noinline))

enum { LIMIT = 32767 };

static const struct kvi_grid_format bf16_format = { 7, -126, 16, 7, false };

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

/* The prediction of those tokens, with the same layer. */
INLINE vec pred_of(const struct kvi_slot *s, const struct kvi_slot_job *j, size_t t, vec base)
{
	if (!s->sum)
		return base;
	vec sum = v_load(s->sum + sum_at(s->sum_step, t));
	const int16_t *f = j->near + feature_at(j, t);
	for (size_t p = 0; p < j->n_near; p++, f += KVI_PAIR_STEP)
		sum = v_add(sum, v_madd(v_load(f), coefficients(s->coef + 2 * p)));
	return clamp(v_add(base, v_sar_by(sum, s->qb)), LIMIT);
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

/*
 * Elements as integers in units of 2^step. (man + 2^(sh - 1)) >> sh is
 * ((man >> (sh - 1)) + 1) >> 1, 0 for shifts beyond the word. With bf16 even
 * the smallest normal number is 0.
 */
INLINE vec integers_of(vec x, const struct kvi_grid_format *fmt, int step)
{
	const int m = fmt->mant_bits, top = fmt->elem_bits - 1;
	vec magnitude = v_and(x, SET((1 << top) - 1));
	vec field = v_shr(magnitude, m), man = v_shl(magnitude, 23 - m);
	vec one = SET(0x800000);
	if (fmt->emin != bf16_format.emin) {
		one = v_where(field, one);
		field = v_max(field, SET(1));
	}
	man = v_or(v_and(man, SET(0x7fffff)), one);
	vec sh = v_max(v_sub(SET(23 - fmt->emin + step), field), SET(0));
	vec v = v_shr(v_add(v_shr_any(man, sh), SET(1)), 1);
	return v_negated_where(x, top, v_min(v, SET(LIMIT)));
}

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
	const vec low = SET(0xffff);
	v = v_and(clamp(v, LIMIT), low);
	if (half)
		v = v_or(v_shl(v, 16), v_and(v_load(row), low));
	v_store(row, v);
}

/* Stores both slots of a feature row. */
INLINE void store_both(int16_t *row, vec a, vec b)
{
	v_store(row, v_side_by_side(clamp(a, LIMIT), clamp(b, LIMIT)));
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

/* The prediction of a slot alone. */
struct slot_expected {
	struct parts base, pred, k, ctx;
};

/* Predicts a step of a slot alone. start: token_start(). */
INLINE void predict_one(const struct slot_setting *e, size_t step, vec start,
                        struct slot_expected *x)
{
	const struct kvi_slot *s = &e->j.slot[0];
	EACH {
		size_t t = step * KVI_LANES + WIDTH * (size_t)h;
		x->base.v[h] = base_of(s, t);
		x->pred.v[h] = pred_of(s, &e->j, t, x->base.v[h]);
		x->k.v[h] = SET(s->k);
		if (e->b.unknown)
			x->k.v[h] = v_add(x->k.v[h], v_load_i16(e->b.unknown + t));
		x->ctx.v[h] = context_of(scaled_bits(x->pred.v[h], SET(s->step)), x->k.v[h],
		                         token_class(&e->b, t, start), &e->fmt);
	}
}

/* Predicts, decodes and observes a slot alone. */
INLINE bool slot_alone(const struct slot_setting *e, struct slot_reading *r)
{
	const struct kvi_slot_job *j = &e->j;
	const struct kvi_slot *s = &j->slot[0];
	const vec start = token_start(j);
	for (struct step_order o = first_step(&e->b); more_steps(&o); next_step(&o)) {
		const size_t step = o.step;
		struct slot_expected x;
		struct parts y;
		predict_one(e, step, start, &x);
		if (!elements(e, r, s, step, &x.ctx, &y))
			return false;
		EACH {
			size_t t = step * KVI_LANES + WIDTH * (size_t)h;
			size_t at = feature_at(j, t);
			vec v = integers_of(y.v[h], &e->fmt, s->step);
			scale_add(&e->b, j, t, distance(v, x.pred.v[h], x.k.v[h], s->step));
			store_half(j->r + at, j->half, v_sub(v, x.base.v[h]));
			if (j->z)
				store_half(j->z + at, j->half, v_sub(v, SET(s->mean)));
		}
	}
	return true;
}

/* What the second slot of a pair needs of the state before the first one was observed. */
struct pair_between {
	uint32_t ctx[KVI_BLOCK_TOKENS];
	int32_t x[KVI_BLOCK_TOKENS], k[KVI_BLOCK_TOKENS], expected[KVI_BLOCK_TOKENS];
	int32_t base[2][KVI_BLOCK_TOKENS];
};

/* Predicts both slots of the tokens from t on: the contexts of the first one, with its predicted
 * mean in *expected and class in *k; those of the second one in *m. */
INLINE vec predict_pair(const struct slot_setting *e, struct pair_between *m, size_t t, vec start,
                        const class_row *classes, vec *expected, vec *k)
{
	const struct kvi_slot_job *j = &e->j;
	const struct kvi_slot *a = &j->slot[0], *b = &j->slot[1];
	const vec step = SET(a->step - 6), round = SET(128);
	vec cs = v_load(j->cos_sin + 2 * t);
	vec base_a = base_of(a, t), base_b = base_of(b, t);
	vec pred = v_side_by_side(pred_of(a, j, t, base_a), pred_of(b, j, t, base_b));
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
	v_store(m->k + t, kb);
	v_store(m->expected + t, v_sar(v_add(vb, SET(32)), 6));
	v_store(m->ctx + t, context_of(scaled_bits(vb, step), kb, o, &e->fmt));
	*expected = v_sar(v_add(va, SET(32)), 6);
	*k = ka;
	return context_of(scaled_bits(va, step), ka, o, &e->fmt);
}

/* Observes both slots of the tokens from t on. xb: the integers of the second one. */
INLINE void observe_pair(const struct slot_setting *e, const struct pair_between *m, size_t t,
                         vec xb)
{
	const struct kvi_slot_job *j = &e->j;
	const vec round = SET(8192);
	const size_t at = feature_at(j, t);
	vec cs = v_load(j->cos_sin + 2 * t);
	scale_add(&e->b, j, t,
	          distance(xb, v_load(m->expected + t), v_load(m->k + t), j->slot[1].step));
	vec x = v_side_by_side(v_load(m->x + t), xb);
	vec ua = v_madd(x, cs);
	vec ub = v_madd(x, v_negated_low(v_exchanged(cs)));
	ua = v_sar(v_add(ua, round), 14);
	ub = v_sar(v_add(ub, round), 14);
	store_both(j->r + at, v_sub(ua, v_load(m->base[0] + t)), v_sub(ub, v_load(m->base[1] + t)));
	if (j->z)
		store_both(j->z + at, v_sub(ua, SET(j->slot[0].mean)),
		           v_sub(ub, SET(j->slot[1].mean)));
}

/* Predicts, decodes and observes a rotated pair: first all steps of one slot, then of the other. */
INLINE bool slot_pair(const struct slot_setting *e, struct slot_reading *r)
{
	const struct kvi_slot_job *j = &e->j;
	const struct kvi_slot *a = &j->slot[0], *b = &j->slot[1];
	const class_row classes = class_row_load(j->scales);
	const vec start = token_start(j);
	struct pair_between m;
	struct parts ctx, y;
	for (struct step_order o = first_step(&e->b); more_steps(&o); next_step(&o)) {
		const size_t step = o.step;
		struct parts expected, k;
		EACH
			ctx.v[h] = predict_pair(e, &m, step * KVI_LANES + WIDTH * (size_t)h, start,
			                        &classes, &expected.v[h], &k.v[h]);
		if (!elements(e, r, a, step, &ctx, &y))
			return false;
		EACH {
			size_t t = step * KVI_LANES + WIDTH * (size_t)h;
			vec x = integers_of(y.v[h], &e->fmt, a->step);
			v_store(m.x + t, x);
			scale_add(&e->b, j, t, distance(x, expected.v[h], k.v[h], a->step));
		}
	}
	for (struct step_order o = first_step(&e->b); more_steps(&o); next_step(&o)) {
		const size_t step = o.step;
		EACH
			ctx.v[h] = v_load(m.ctx + step * KVI_LANES + WIDTH * (size_t)h);
		if (!elements(e, r, b, step, &ctx, &y))
			return false;
		EACH
			observe_pair(e, &m, step * KVI_LANES + WIDTH * (size_t)h,
			             integers_of(y.v[h], &e->fmt, b->step));
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
		EACH {
			size_t t = step * KVI_LANES + WIDTH * (size_t)h;
			int16_t *to = j->z + feature_at(j, t);
			vec va = integers_of(xa.v[h], &e->fmt, a->step);
			if (!j->pair) {
				store_half(to, j->half, v_sub(va, mean_a));
				continue;
			}
			vec cs = v_load(j->cos_sin + 2 * t);
			vec x = v_side_by_side(va, integers_of(xb.v[h], &e->fmt, b->step));
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
