/* SPDX-License-Identifier: BSD-3-Clause */
/* grid_neon.c - the grid codec's element coder on 8 x 4 lanes */
#include "config.h"

#include "grid_neon.h"

/* Contexts of a step; room: for the lanes of a tail. */
INLINE struct parts contexts_load(const uint32_t *ctx, unsigned lanes,
                                 bool per_step, bool full)
{
	struct parts q;
	uint32_t room[KVI_LANES] = { 0 };
	if (per_step) {
		EACH
			q.v[h] = SET(*ctx);
		return q;
	}
	if (!full)
		memcpy(room, ctx, lanes * sizeof(*room));
	EACH
		q.v[h] = vld1q_u32((full ? ctx : room) + 4 * h);
	return q;
}

INLINE const uint8_t *decode_span(const struct kvi_grid_job *job,
                                  const struct kvi_span *span,
                                  const uint32_t *ctx, struct kvi_feed *feed,
                                  const uint8_t *p, uint32_t *state,
                                  uint16_t *x, const struct numbers *f,
                                  bool per_step, bool full)
{
	const unsigned lanes = full ? KVI_LANES : span->lanes;
	const uint32_t *c = ctx, *wrap = ctx + span->ring * span->step_size;
	const struct tokens tokens = tokens_load();
	struct parts st = states_load(state);
	for (size_t step = 0; step < span->steps; step++) {
		vec y[PARTS];
		KVI_FEED_CHECK(feed, p);
		struct parts cv = contexts_load(c, lanes, per_step, full);
		p = step_take(&st, cv.v, job->tables->lut, &tokens, f, lanes, p,
		              x, y);
		x += lanes;
		c += per_step ? 1 : lanes;
		if (c == wrap)
			c = ctx;
	}
	states_store(state, &st, lanes);
	return p;
}

#define DECODE(span, ctx, x, f, per_step, full)                             \
	decode_span(job, span, ctx, &feed, p, state, x, f, per_step, full)

bool kvi_neon_grid_decode(const struct kvi_grid_job *job,
                          const struct kvi_stream *in, uint16_t *elements)
{
	const struct kvi_span full = kvi_span_full(
		&job->steps, job->ctx_steps, job->per_step);
	const struct kvi_span tail = kvi_span_tail(&job->steps, job->per_step);
	const struct numbers f = numbers_of(job->fmt);
	const bool is_bf16 = f.emin == bf16.emin;
	struct kvi_feed feed;
	const uint8_t *p = kvi_feed_open(&feed, in);
	uint32_t state[KVI_LANES];
	memcpy(state, in->state, sizeof(state));
	if (is_bf16 && job->per_step)
		p = DECODE(&full, job->ctx, elements, &bf16, true, true);
	else if (is_bf16)
		p = DECODE(&full, job->ctx, elements, &bf16, false, true);
	else if (job->per_step)
		p = DECODE(&full, job->ctx, elements, &f, true, true);
	else
		p = DECODE(&full, job->ctx, elements, &f, false, true);
	if (p && tail.steps)
		p = DECODE(&tail, job->ctx_tail,
		           elements + full.steps * KVI_LANES, &f,
		           job->per_step, false);
	return p && kvi_feed_done(&feed, p, state);
}

/* Elements as symbol, raw bits and their number; mask: escaped ones. */
struct coded {
	vec symbol, raw, bits, escaped;
};

/* Raw bits of elements in the cell at zero. */
INLINE struct zero_cell zero_encode(vec magnitude, vec field, vec gs,
                                    const struct numbers *f)
{
	struct zero_cell c;
	vec one = SET(1), z = SET(f->z), zero = SET(0);
	vec mant = both(magnitude, SET((1 << f->m) - 1));
	vec zeros = vsubq_u32(gs, field);
	vec deepest = f->subnormals ? least(gs, z) : z;
	vec subnormal = is_zero(field);
	vec raw = blend(either(vshlq_n_u32(mant, 1), one), mant,
	                subnormal);
	c.value = shift(raw, zeros);
	/* one bit more for a normal number: the one after the zeros */
	c.bits = vaddq_u32(vaddq_u32(zeros, SET(f->m + 1)),
	                          subnormal);
	c.escaped = except(greater(deepest, zeros), SET(-1));
	if (f->subnormals) {
		vec above = greater(gs, zero), under = greater(gs, z);
		c.escaped = blend(c.escaped, under, subnormal);
		c.value = blend(magnitude, c.value, above);
		c.bits = blend(vaddq_u32(gs, SET(f->m)), c.bits, above);
		c.escaped = both(c.escaped, above);
	}
	return c;
}

/* Token pair of e, which is below 768 where it counts. */
INLINE vec token_of(vec e)
{
	vec level = log2_floor(e);
	vec by2 = vaddq_u32(vshrq_n_u32(e, 1), SET(4));
	vec by4 = vaddq_u32(vshrq_n_u32(e, 2), SET(8));
	vec far = least(vaddq_u32(level, SET(11)), SET(19));
	vec pair = blend(e, by2, greater(e, SET(7)));
	pair = blend(pair, by4, greater(e, SET(15)));
	return blend(pair, far, greater(e, SET(31)));
}

INLINE struct coded element_code(vec x, vec ctx, const struct tokens *t,
                                 const struct numbers *f)
{
	struct coded c;
	vec one = SET(1), zero = SET(0), lo, nb;
	vec gs = grid_start(ctx, f);
	vec magnitude = both(x, SET((1 << (f->w - 1)) - 1));
	vec field = shift(magnitude, SET(-f->m));
	vec mant = both(magnitude, SET((1 << f->m) - 1));
	vec full = either(mant, except(is_zero(field), SET(1 << f->m)));

	/* The cell is 2^size steps of the element wide. */
	vec size = vsubq_u32(vaddq_u32(gs, SET(f->m + 1)),
	                     greatest(field, one));
	vec up = least(greatest(vsubq_u32(zero, size), zero), SET(32));
	vec down = least(greatest(size, zero), SET(32));
	vec j = shift(shift(full, up), negative(down));
	c.raw = low_bits(full, down);
	c.bits = down;
	c.escaped = greater(SET(-10), size);
	vec at_zero = is_zero(j);
	if (lane_bits(at_zero)) {
		struct zero_cell z = zero_encode(magnitude, field, gs, f);
		c.raw = blend(c.raw, z.value, at_zero);
		c.bits = blend(c.bits, z.bits, at_zero);
		c.escaped = either(c.escaped, both(at_zero, z.escaped));
	}

	vec sign = shift(x, SET(1 - f->w));
	vec below = vsubq_u32(
		zero, veorq_u32(sign, vshrq_n_u32(ctx, 31)));
	vec d = vsubq_u32(veorq_u32(j, below), grid_mean(ctx));
	vec side = UNSIGNED(vshrq_n_s32(SIGNED(d), 31)), e = veorq_u32(d, side);
	c.escaped = either(c.escaped, greater(e, SET(767)));
	vec pair = token_of(e);
	token_info(t, pair, &lo, &nb);
	c.escaped = either(c.escaped, both(at_zero, greater(nb, one)));
	c.raw = either(shift(c.raw, nb), vsubq_u32(e, lo));
	c.bits = vaddq_u32(c.bits, nb);
	c.escaped = either(c.escaped, greater(c.bits, SET(16)));
	c.raw = except(c.escaped, c.raw);
	c.bits = except(c.escaped, c.bits);
	c.symbol = vsubq_u32(vshlq_n_u32(pair, 1), side);
	c.symbol = blend(c.symbol, SET(KVI_GRID_SYMBOLS - 1), c.escaped);
	return c;
}

/* Phase 2 of an encoder: raw bits of 4 lanes. */
INLINE vec raw_put(vec st, const struct coded *c, vec active, uint16_t **w)
{
	vec over = shift(st, vsubq_u32(c->bits, SET(32)));
	st = words_put(st, except(is_zero(over), active), w);
	return either(shift(st, c->bits), c->raw);
}

INLINE uint16_t *encode_span(const struct kvi_grid_job *job,
                             const struct kvi_span *span, const uint32_t *ctx,
                             const uint16_t *elements, uint32_t *state,
                             uint16_t *w, const struct numbers *f,
                             bool per_step, bool full)
{
	const unsigned lanes = full ? KVI_LANES : span->lanes;
	const size_t size = per_step ? 1 : lanes;
	const struct parts active = lanes_active(lanes);
	const uint32_t *wrap = ctx + span->ring * size;
	const uint32_t *c = ctx + span->steps % span->ring * size;
	const uint16_t *x = elements + span->steps * lanes;
	const struct tokens tokens = tokens_load();
	struct parts st = states_load(state);
	for (size_t step = span->steps; step-- > 0;) {
		struct coded code[PARTS];
		struct parts table, symbol;
		uint32_t escaped = 0;
		uint16_t room[KVI_LANES] = { 0 };
		if (c == ctx)
			c = wrap;
		c -= size;
		x -= lanes;
		if (!full)
			memcpy(room, x, lanes * sizeof(*x));
		struct parts cv = contexts_load(c, lanes, per_step, full);
		EACH {
			vec xv = vmovl_u16(vld1_u16((full ? x : room) + 4 * h));
			code[h] = element_code(xv, cv.v[h], &tokens, f);
			table.v[h] = both(cv.v[h], SET(255));
			symbol.v[h] = code[h].symbol;
			escaped |= lane_bits(both(code[h].escaped,
			                          active.v[h])) << 4 * h;
		}
		struct parts entry = entries_load(job->tables, &table, &symbol);
		if (__builtin_expect(escaped != 0, 0)) {
			uint32_t s[KVI_LANES];
			states_store(s, &st, KVI_LANES);
			kvi_escapes_put16(escaped, s, x, (unsigned)f->w, &w);
			st = states_load(s);
		}
		EACH_BACK
			st.v[h] = raw_put(st.v[h], &code[h], active.v[h], &w);
		symbols_put(&st, &entry, &active, &w);
	}
	states_store(state, &st, lanes);
	return w;
}

#define ENCODE(span, ctx, x, f, per_step, full) \
	encode_span(job, span, ctx, x, state, w, f, per_step, full)

size_t kvi_neon_grid_encode(const struct kvi_grid_job *job,
                            const uint16_t *elements, uint16_t *end,
                            uint32_t state[KVI_LANES])
{
	const struct kvi_span full = kvi_span_full(
		&job->steps, job->ctx_steps, job->per_step);
	const struct kvi_span tail = kvi_span_tail(&job->steps, job->per_step);
	const struct numbers f = numbers_of(job->fmt);
	const bool is_bf16 = f.emin == bf16.emin;
	uint16_t *w = end;
	kvi_states_start(state);
	if (tail.steps)
		w = ENCODE(&tail, job->ctx_tail,
		           elements + full.steps * KVI_LANES, &f,
		           job->per_step, false);
	if (is_bf16 && job->per_step)
		w = ENCODE(&full, job->ctx, elements, &bf16, true, true);
	else if (is_bf16)
		w = ENCODE(&full, job->ctx, elements, &bf16, false, true);
	else if (job->per_step)
		w = ENCODE(&full, job->ctx, elements, &f, true, true);
	else
		w = ENCODE(&full, job->ctx, elements, &f, false, true);
	return (size_t)(end - w);
}
