/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * slots_body.h - slots of the linear codec (spec linear 2 to 4); kvi_slot_kernels.slot
 *
 * Included after context_body.h and grid_body.h or grid_avx512_body.h. Uses SET, EACH, all of the
 * arithmetic, v_load, v_store, v_load_u8, v_load_u16, v_load_i16, v_pick, the pairs of 16-bit
 * numbers, class_row, class_row_load, class_of, token_tables and token_tables_load of ops.h;
 * step_take (contract in grid_body.h); first_active, states_load, states_store (in step_body.h);
 * contexts_of, clamp (in context_body.h). HALVES: the set has bodies of its own for bf16.
 */
#ifndef KVI_SLOTS_BODY_H
#define KVI_SLOTS_BODY_H

#include "slot_formulas_body.h"
#include "slot_reading_body.h"

#ifdef HALVES
#include "slot_contexts_body.h"
#endif

#define UNROLL KVI_UNROLL(8)
#define NOINLINE __attribute__((noinline))

/* ---------------------------------------------------------------- slots */

/*
 * Settings that all steps of a slot or pair share: copies that no store changes, and constants in
 * the functions for usual slots, which have steps of 32 lanes of bf16, either all known or all in
 * the stream.
 */
struct slot_setting {
	struct kvi_slot_block b;
	struct kvi_slot_job j;
	struct kvi_grid_format fmt;
	struct grid_numbers f;
	bool all_known, all_read;
#ifdef HALVES
	struct context_numbers context; /* used by the functions for usual slots */
#endif
};

/* Whether elements are bf16 in vectors of halves until they are integers. */
INLINE bool in_halves(const struct slot_setting *setting)
{
#ifdef HALVES
	return setting->all_known || setting->all_read;
#else
	(void)setting;
	return false;
#endif
}

/* The bias of k of a slot, and of its tokens, above the classes that they stand for. */
INLINE int class_bias(const struct slot_setting *setting)
{
#ifdef HALVES
	return in_halves(setting) ? CLASS_BIAS : 0;
#else
	return (void)setting, 0;
#endif
}

/* Contexts of predicted means. more: the class of the token. */
INLINE vec context_of(const struct slot_setting *setting, vec mu, vec k, vec more)
{
	k = v_add(k, more);
#ifdef HALVES
	if (in_halves(setting))
		return bf16_contexts(&setting->context, mu, k);
#endif
	return contexts_of(mu, clamp(k, KVI_LINEAR_K_LIMIT), &setting->fmt);
}

/* Known elements; stores their contexts ctx where the slot wants them. */
INLINE struct parts known_take(const struct slot_setting *setting, const struct kvi_slot *slot,
                               size_t step, const struct parts *ctx)
{
	const unsigned lanes = setting->b.lanes;
	const size_t at = step * lanes;
	const uint16_t *given = slot->x + kvi_slot_index(&setting->b, step);
	uint16_t x[KVI_LANES] = { 0 };
	uint32_t c[KVI_LANES];
	const bool full = lanes == KVI_LANES;
	const uint16_t *from = full ? given : x;
	struct parts y;
	if (!full)
		memcpy(x, given, lanes * sizeof(*x));
	EACH
		y.v[h] = v_load_u16(from + WIDTH * h);
	if (!slot->ctx)
		return y;
	uint32_t *to = full ? slot->ctx + at : c;
	EACH
		v_store(to + WIDTH * h, ctx->v[h]);
	if (!full)
		memcpy(slot->ctx + at, c, lanes * sizeof(*c));
	return y;
}

/* The elements of a step, decoded or known; 0 in lanes that are not active. False when the words
 * do not suffice. */
INLINE bool elements(const struct slot_setting *setting, struct slot_reading *r,
                     const struct kvi_slot *slot, size_t step, const struct parts *ctx,
                     struct parts *parts)
{
	if (setting->all_known || (!setting->all_read && slot->known)) {
		*parts = known_take(setting, slot, step, ctx);
		return true;
	}
	const size_t i = kvi_slot_part(&setting->b, step);
	struct kvi_slot_reader *in = &setting->b.reader[i];
	if (!reading_ready(r, in, i))
		return false;
	struct parts st = states_load(in->state);
	r->p[i] = step_take(&st, ctx->v, setting->b.tables->lut, &r->tokens, &setting->f,
	                    setting->b.lanes, r->p[i], slot->x + kvi_slot_index(&setting->b, step),
	                    parts->v);
	states_store(in->state, &st, first_active(setting->b.lanes));
	return true;
}

/* The state of the tokens of a block before a slot, or a pair, is observed. */
struct slot_before {
	uint32_t ctx[2][KVI_BLOCK_TOKENS];
	/* Elements. In halves: 32 of 16 bits a step, in the first half of these numbers, and only
	 * those that were read. */
	int32_t x[2][KVI_BLOCK_TOKENS];
	int32_t k[2][KVI_BLOCK_TOKENS], expected[2][KVI_BLOCK_TOKENS];
	int32_t base[2][KVI_BLOCK_TOKENS];
};

#ifdef HALVES
#include "slot_pairs_body.h"
#endif

/* The first steps of slot i, in pairs of parts, where that is faster: *n of them. */
INLINE bool paired_elements(const struct slot_setting *setting, struct slot_reading *r,
                            struct slot_before *before, unsigned i, size_t *n)
{
	*n = 0;
#ifdef HALVES
	const size_t two = (size_t)2 << setting->b.part_shift;
	for (; setting->all_read && *n + two <= kvi_slot_steps(&setting->b); *n += two)
		if (!two_parts(setting, r, before, i, *n >> setting->b.part_shift))
			return false;
#else
	(void)setting, (void)r, (void)before, (void)i;
#endif
	return true;
}

/* The elements of slot i, all steps of it: predictions and observations are loops of their own, so
 * that a processor sees steps of different streams at once. */
INLINE bool all_elements(const struct slot_setting *setting, struct slot_reading *r,
                         struct slot_before *before, unsigned i)
{
	const struct kvi_slot *s = &setting->j.slot[i];
	size_t n;
	if (in_halves(setting) && setting->all_known)
		return true;
	if (!paired_elements(setting, r, before, i, &n))
		return false;
	for (struct step_order o = steps_from(&setting->b, n); more_steps(&o); next_step(&o)) {
		const size_t at = o.step * KVI_LANES;
		struct parts ctx, y;
		EACH
			ctx.v[h] = v_load(before->ctx[i] + at + WIDTH * (size_t)h);
		if (!elements(setting, r, s, o.step, &ctx, &y))
			return false;
#ifdef HALVES
		if (in_halves(setting)) {
			v_store(before->x[i] + at / 2, halves_low(y.v[0], y.v[1]));
			continue;
		}
#endif
		EACH
			v_store(before->x[i] + at + WIDTH * (size_t)h, y.v[h]);
	}
	return true;
}

/* The integers of a step of slot i. */
INLINE struct parts integers_at(const struct slot_setting *setting,
                                const struct slot_before *before, size_t step, unsigned i)
{
	const struct kvi_slot *s = &setting->j.slot[i];
	struct parts y;
#ifdef HALVES
	if (in_halves(setting)) {
		vec x = setting->all_known
		                ? _mm512_permutexvar_epi16(
					  halves_order(false),
					  v_load(s->x + kvi_slot_index(&setting->b, step)))
		                : v_load(before->x[i] + step * (KVI_LANES / 2));
		return integers_bf16(x, s->step);
	}
#endif
	EACH
		y.v[h] = v_load(before->x[i] + step * KVI_LANES + WIDTH * (size_t)h);
	integers(&y, &setting->fmt, s->step);
	return y;
}

/* integers_at, which also adds the distances of the elements from their predicted means to w. */
INLINE struct parts observed(const struct slot_setting *setting, const struct slot_before *before,
                             size_t step, unsigned i)
{
	const int unit = setting->j.slot[i].step;
	const struct parts y = integers_at(setting, before, step, i);
	EACH {
		size_t t = step * KVI_LANES + WIDTH * (size_t)h;
		scale_add(&setting->b, &setting->j, t,
		          distance(y.v[h], v_load(before->expected[i] + t),
		                   v_load(before->k[i] + t), class_bias(setting), unit));
	}
	return y;
}

/* The buffer for the contexts of slot i: in the order of the block where known elements want them
 * so. */
INLINE uint32_t *contexts_to(const struct slot_setting *setting, struct slot_before *before,
                             unsigned i)
{
	return in_halves(setting) && setting->all_known && setting->j.slot[i].ctx
	               ? setting->j.slot[i].ctx
	               : before->ctx[i];
}

/* Predicts a slot alone for the tokens from t on. ctx: contexts_to(); start: token_start(). */
INLINE void predict_one(const struct slot_setting *setting, struct slot_before *before,
                        uint32_t *const ctx[2], size_t t, vec start)
{
	const struct kvi_slot *s = &setting->j.slot[0];
	vec base = base_of(s, t), k = SET(s->k + class_bias(setting));
	vec pred = clamp(pred_of(s, &setting->j, t, base), LIMIT);
	if (setting->b.unknown)
		k = v_add(k, v_load_i16(setting->b.unknown + t));
	v_store(before->base[0] + t, base);
	v_store(before->expected[0] + t, pred);
	v_store(before->k[0] + t, k);
	v_store(ctx[0] + t, context_of(setting, v_scaled(pred, s->step), k,
	                               token_class(&setting->b, t, start)));
}

/* Observes a slot alone. v: its integers. */
INLINE void observe_one(const struct slot_setting *setting, const struct slot_before *before,
                        size_t t, vec v)
{
	const struct kvi_slot_job *j = &setting->j;
	const size_t at = feature_at(j, t);
	store_half(j->r + at, j->half, v_sub(v, v_load(before->base[0] + t)));
	if (j->z)
		store_half(j->z + at, j->half, v_sub(v, SET(j->slot[0].mean)));
}

/* Predicts, decodes and observes a slot alone. */
INLINE bool slot_alone(const struct slot_setting *setting, struct slot_reading *r)
{
	const vec start = token_start(&setting->j);
	struct slot_before m;
	uint32_t *const ctx[2] = { contexts_to(setting, &m, 0), NULL };
	for (size_t t = 0; t < setting->b.tokens; t += WIDTH)
		predict_one(setting, &m, ctx, t, start);
	if (!all_elements(setting, r, &m, 0))
		return false;
	for (size_t step = 0; step < kvi_slot_steps(&setting->b); step++) {
		const struct parts y = observed(setting, &m, step, 0);
		EACH
			observe_one(setting, &m, step * KVI_LANES + WIDTH * (size_t)h, y.v[h]);
	}
	return true;
}

/* Predicts both slots of a rotated pair for the tokens from t on. */
INLINE void predict_pair(const struct slot_setting *setting, struct slot_before *before,
                         uint32_t *const ctx[2], size_t t, vec start, const class_row *classes)
{
	const struct kvi_slot_job *j = &setting->j;
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
	vec angle = v_load_u8(j->angle_class + t), kb = SET(b->k + class_bias(setting));
	if (setting->b.unknown)
		kb = v_add(kb, v_load_i16(setting->b.unknown + t));
	vec ka = v_add(kb, class_of(classes, angle));
	kb = v_add(kb, class_of(classes, v_xor(angle, SET(32))));
	vec o = token_class(&setting->b, t, start);
	v_store(before->base[0] + t, base_a);
	v_store(before->base[1] + t, base_b);
	v_store(before->k[0] + t, ka);
	v_store(before->k[1] + t, kb);
	v_store(before->expected[0] + t, v_sar(v_add(va, SET(32)), 6));
	v_store(before->expected[1] + t, v_sar(v_add(vb, SET(32)), 6));
	v_store(ctx[0] + t, context_of(setting, v_scaled(va, step), ka, o));
	v_store(ctx[1] + t, context_of(setting, v_scaled(vb, step), kb, o));
}

/* Observes a pair. xa, xb: its integers. */
INLINE void observe_pair(const struct slot_setting *setting, const struct slot_before *before,
                         size_t t, vec xa, vec xb)
{
	const struct kvi_slot_job *j = &setting->j;
	const vec round = SET(8192);
	const size_t at = feature_at(j, t);
	vec cs = v_load(j->cos_sin + 2 * t);
	vec x = v_side_by_side(xa, xb);
	vec ua = v_madd(x, cs);
	vec ub = v_madd(x, v_negated_low(v_exchanged(cs)));
	ua = v_sar(v_add(ua, round), 14);
	ub = v_sar(v_add(ub, round), 14);
	store_both(j->r + at, v_sub(ua, v_load(before->base[0] + t)),
	           v_sub(ub, v_load(before->base[1] + t)));
	if (j->z)
		store_both(j->z + at, v_sub(ua, SET(j->slot[0].mean)),
		           v_sub(ub, SET(j->slot[1].mean)));
}

/* Predicts, decodes and observes a rotated pair. */
INLINE bool slot_pair(const struct slot_setting *setting, struct slot_reading *r)
{
	const class_row classes = class_row_load(setting->j.scales);
	const vec start = token_start(&setting->j);
	struct slot_before m;
	uint32_t *const ctx[2] = { contexts_to(setting, &m, 0), contexts_to(setting, &m, 1) };
	for (size_t t = 0; t < setting->b.tokens; t += WIDTH)
		predict_pair(setting, &m, ctx, t, start, &classes);
	if (!all_elements(setting, r, &m, 0) || !all_elements(setting, r, &m, 1))
		return false;
	for (size_t step = 0; step < kvi_slot_steps(&setting->b); step++) {
		const struct parts a = observed(setting, &m, step, 0),
				   b = observed(setting, &m, step, 1);
		EACH
			observe_pair(setting, &m, step * KVI_LANES + WIDTH * (size_t)h, a.v[h],
			             b.v[h]);
	}
	return true;
}

/* z of known elements, which needs no predictions. */
INLINE void slot_z(const struct slot_setting *setting)
{
	const struct kvi_slot_job *j = &setting->j;
	const struct kvi_slot *a = &j->slot[0], *b = &j->slot[1];
	const vec mean_a = SET(a->mean), mean_b = SET(b->mean), round = SET(8192);
	for (size_t step = 0; step < kvi_slot_steps(&setting->b); step++) {
		struct parts xa = known_take(setting, a, step, NULL), xb = { 0 };
		if (j->pair)
			xb = known_take(setting, b, step, NULL);
		integers(&xa, &setting->fmt, a->step);
		if (j->pair)
			integers(&xb, &setting->fmt, b->step);
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

/* Runs a slot or pair. usual: steps as in a usual slot (struct slot_setting); known: all elements
 * of a usual slot are known. */
INLINE bool slot_with(const struct kvi_slot_block *block, const struct kvi_slot_job *job,
                      const struct kvi_grid_format *fmt, const struct grid_numbers *numbers,
                      bool usual, bool known)
{
	struct slot_setting e = { .b = *block,
		                  .j = *job,
		                  .fmt = *fmt,
		                  .f = *numbers,
		                  .all_known = usual && known,
		                  .all_read = usual && !known };
#ifdef HALVES
	if (usual)
		e.context = context_numbers_load();
#endif
	struct slot_reading r;
	const bool reads = usual ? !known : block->reader != NULL;
	if (usual)
		e.b.lanes = KVI_LANES;
	if (!reads && !job->r) {
		slot_z(&e);
		return true;
	}
	r.opened = 0;
	if (reads)
		r.tokens = token_tables_load();
	bool ok = job->pair ? slot_pair(&e, &r) : slot_alone(&e, &r);
	return reads ? reading_end(&r, block->reader) && ok : ok;
}

NOINLINE static bool bf16_known(const struct kvi_slot_block *block, const struct kvi_slot_job *job)
{
	return slot_with(block, job, &bf16_format, &bf16_numbers, true, true);
}

NOINLINE static bool bf16_read(const struct kvi_slot_block *block, const struct kvi_slot_job *job)
{
	return slot_with(block, job, &bf16_format, &bf16_numbers, true, false);
}

NOINLINE static bool any_other(const struct kvi_slot_block *block, const struct kvi_slot_job *job)
{
	const struct grid_numbers f = numbers_of(block->fmt);
	return slot_with(block, job, block->fmt, &f, false, false);
}

static bool slot(const struct kvi_slot_block *block, const struct kvi_slot_job *job)
{
	const bool known = job->slot[0].known;
	if (block->fmt->emin == bf16_format.emin && block->lanes == KVI_LANES &&
	    (!job->pair || job->slot[1].known == known))
		return known ? bf16_known(block, job) : bf16_read(block, job);
	return any_other(block, job);
}

/* The members of struct kvi_kernels that the bodies define. */
#define BODY_KERNELS                                                          \
	.coding.grid_encode = grid_encode, .coding.grid_decode = grid_decode, \
	.coding.sym_encode = sym_encode, .coding.sym_decode = sym_decode,     \
	.coding.grid_contexts = grid_contexts, .fits.grid_price = grid_price, \
	.coding.rotated_contexts = rotated_contexts, .slots.slot = slot

#endif
