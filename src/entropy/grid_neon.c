/* SPDX-License-Identifier: BSD-3-Clause */
/* grid_neon.c - the grid codec's element coder on 8 x 4 lanes */
#include "config.h"

#include "neon.h"
#include "escapes.h"

/* Numbers of the dtype. subnormals is false for bf16: its grid is never near
 * them, because k is at least -400 (spec grid 1). */
struct numbers {
	int m, w, z, emin;
	bool subnormals;
};

INLINE struct numbers numbers_of(const struct kvi_grid_format *f)
{
	struct numbers n = { f->mant_bits, f->elem_bits, f->max_zeros, f->emin,
		             true };
	return n;
}

static const struct numbers bf16 = { 7, 16, 7, -126, false };

INLINE vec both(vec a, vec b)
{
	return vandq_u32(a, b);
}

INLINE vec either(vec a, vec b)
{
	return vorrq_u32(a, b);
}

/* a where the mask is not set */
INLINE vec except(vec mask, vec a)
{
	return vbicq_u32(a, mask);
}

/* Signed. */
INLINE vec greater(vec a, vec b)
{
	return vcgtq_s32(SIGNED(a), SIGNED(b));
}

INLINE vec greatest(vec a, vec b)
{
	return UNSIGNED(vmaxq_s32(SIGNED(a), SIGNED(b)));
}

INLINE vec least(vec a, vec b)
{
	return UNSIGNED(vminq_s32(SIGNED(a), SIGNED(b)));
}

INLINE vec is_zero(vec v)
{
	return vceqq_u32(v, SET(0));
}

/* -1 for 0 */
INLINE vec log2_floor(vec v)
{
	return vsubq_u32(SET(31), vclzq_u32(v));
}

INLINE vec low_bits(vec v, vec n)
{
	return both(v, vsubq_u32(shift(SET(1), n), SET(1)));
}

/* LO, less one for the last, and NB of token pairs (spec grid 4). */
struct tokens {
	uint8x16x2_t lo, nb;
};

INLINE struct tokens tokens_load(void)
{
	static const uint8_t lo[32] = { 0,  1,  2,  3,  4,  5,  6,
		                        7,  8,  10, 12, 14, 16, 20,
		                        24, 28, 32, 64, 128, 255 };
	static const uint8_t nb[32] = { 0, 0, 0, 0, 0, 0, 0, 0, 1, 1,
		                        1, 1, 2, 2, 2, 2, 5, 6, 7, 9 };
	struct tokens t = { { { vld1q_u8(lo), vld1q_u8(lo + 16) } },
		            { { vld1q_u8(nb), vld1q_u8(nb + 16) } } };
	return t;
}

INLINE vec lookup(uint8x16x2_t table, vec index)
{
	return vreinterpretq_u32_u8(
		vqtbl2q_u8(table, vreinterpretq_u8_u32(index)));
}

/* The upper bytes of an index look up entry 0, which is 0. */
INLINE void token_info(const struct tokens *t, vec pair, vec *lo, vec *nb)
{
	*lo = vsubq_u32(lookup(t->lo, pair), vceqq_u32(pair, SET(19)));
	*nb = lookup(t->nb, pair);
}

INLINE vec grid_start(vec ctx, const struct numbers *f) /* G - emin */
{
	vec g = both(vshrq_n_u32(ctx, 8), SET(255));
	return vsubq_u32(g, SET(127 + f->emin));
}

INLINE vec grid_mean(vec ctx)
{
	return both(vshrq_n_u32(ctx, 16), SET(0x7fff));
}

/* The cell at zero: an element's magnitude (decoder) or raw bits (encoder), how
 * many raw bits there are, and who is escaped. */
struct zero_cell {
	vec value, bits, escaped;
};

INLINE struct zero_cell zero_decode(vec st, vec gs, const struct numbers *f)
{
	struct zero_cell c;
	vec one = SET(1), z = SET(f->z), zero = SET(0);
	vec deepest = f->subnormals ? least(gs, z) : z;
	vec stop = either(st, shift(one, deepest));
	vec zeros = log2_floor(both(stop, vsubq_u32(zero, stop)));
	vec found = greater(deepest, zeros);
	vec skip = blend(deepest, vaddq_u32(zeros, one), found);
	vec mant = both(shift(st, negative(skip)), SET((1 << f->m) - 1));
	vec field = both(found, vsubq_u32(gs, zeros));
	c.value = vaddq_u32(shift(field, SET(f->m)), mant);
	c.escaped = except(found, f->subnormals ? greater(gs, z) : SET(-1));
	c.bits = blend(vaddq_u32(skip, SET(f->m)), deepest, c.escaped);
	if (f->subnormals) {
		vec above = greater(gs, zero);
		vec n = vaddq_u32(gs, SET(f->m));
		c.bits = blend(n, c.bits, above);
		c.value = blend(low_bits(st, n), c.value, above);
		c.escaped = both(c.escaped, above);
	}
	return c;
}

/* Phase 2 of 4 lanes: the elements, the lanes that are escaped. */
INLINE vec raw_take(vec *state, vec symbol, vec ctx, const struct tokens *t,
                    const struct numbers *f, vec *escaped)
{
	vec st = *state, zero = SET(0), lo, nb;
	vec gs = grid_start(ctx, f);
	vec esc40 = vceqq_u32(symbol, SET(KVI_GRID_SYMBOLS - 1));
	token_info(t, vshrq_n_u32(symbol, 1), &lo, &nb);
	vec e = vaddq_u32(lo, low_bits(st, nb));
	st = shift(st, negative(nb));
	vec side = vsubq_u32(zero, both(symbol, SET(1)));
	vec pos = vaddq_u32(grid_mean(ctx), veorq_u32(e, side));
	vec below = UNSIGNED(vshrq_n_s32(SIGNED(pos), 31));
	vec j = veorq_u32(pos, below);

	vec level = log2_floor(j), n = vsubq_u32(SET(f->m), level);
	vec base = shift(vaddq_u32(gs, level), SET(f->m));
	if (f->subnormals) {
		vec n_max = vaddq_u32(gs, SET(f->m));
		base = except(greater(n, n_max), base);
		n = least(n, n_max);
	}
	vec up = greatest(n, zero);
	vec down = greatest(vsubq_u32(zero, n), zero);
	vec full = either(shift(j, up), low_bits(st, up));
	vec magnitude = vaddq_u32(base, shift(full, negative(down)));

	vec at_zero = is_zero(j), esc = esc40;
	if (lane_bits(at_zero)) {
		struct zero_cell c = zero_decode(st, gs, f);
		vec far = both(at_zero, greater(nb, SET(1)));
		up = except(far, blend(up, c.bits, at_zero));
		magnitude = blend(magnitude, c.value, at_zero);
		esc = either(esc, either(far, both(at_zero, c.escaped)));
	}
	/* Symbol 40 takes nothing; its NB is 0 in the tables. */
	*state = shift(st, negative(except(esc40, up)));
	*escaped = esc;
	vec sign = veorq_u32(vshrq_n_u32(below, 31),
	                            vshrq_n_u32(ctx, 31));
	vec x = either(shift(sign, SET(f->w - 1)), magnitude);
	return both(x, SET(f->w == 16 ? 0xffff : 0xff));
}

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
	const struct parts active = lanes_active(lanes);
	const uint32_t *c = ctx, *wrap = ctx + span->ring * span->step_size;
	const struct tokens tokens = tokens_load();
	struct parts st = states_load(state);
	for (size_t step = 0; step < span->steps; step++) {
		struct parts y, table;
		uint32_t escaped = 0;
		uint16_t room[KVI_LANES], *to = full ? x : room;
		KVI_FEED_CHECK(feed, p);
		struct parts cv = contexts_load(c, lanes, per_step, full);
		EACH
			table.v[h] = both(cv.v[h], SET(255));
		struct parts symbol = symbols_take(&st, job->tables->lut, &table,
		                                  &active, &p);
		EACH {
			vec esc;
			y.v[h] = raw_take(&st.v[h], symbol.v[h], cv.v[h],
			                  &tokens, f, &esc);
			esc = both(esc, active.v[h]);
			escaped |= lane_bits(esc) << 4 * h;
		}
		EACH {
			st.v[h] = renorm(st.v[h], active.v[h], &p);
			vst1_u16(to + 4 * h, vmovn_u32(y.v[h]));
		}
		if (!full)
			memcpy(x, room, lanes * sizeof(*x));
		if (__builtin_expect(escaped != 0, 0)) {
			uint32_t s[KVI_LANES];
			states_store(s, &st, KVI_LANES);
			p = kvi_escapes_take16(escaped, s, x, p,
			                       (unsigned)f->w);
			st = states_load(s);
		}
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
