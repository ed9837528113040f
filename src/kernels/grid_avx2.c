/* SPDX-License-Identifier: BSD-3-Clause */
/* grid_avx2.c - the grid codec's element coder on 4 x 8 lanes */
#include "config.h"

#include "grid_avx2.h"

/* Contexts of a step; room: for the lanes of a tail. */
INLINE struct quad contexts_load(const uint32_t *ctx, unsigned lanes,
                                 bool per_step, bool full)
{
	struct quad q;
	uint32_t room[KVI_LANES] = { 0 };
	if (per_step) {
		EACH
			q.v[h] = SET(*ctx);
		return q;
	}
	if (!full)
		memcpy(room, ctx, lanes * sizeof(*room));
	EACH
		q.v[h] = load((full ? ctx : room) + 8 * h);
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
	struct quad st = states_load(state);
	for (size_t step = 0; step < span->steps; step++) {
		vec y[PARTS];
		KVI_FEED_CHECK(feed, p);
		struct quad cv = contexts_load(c, lanes, per_step, full);
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

bool kvi_avx2_grid_decode(const struct kvi_grid_job *job,
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
	vec one = SET(1), z = SET(f->z), zero = _mm256_setzero_si256();
	vec mant = both(magnitude, SET((1 << f->m) - 1));
	vec zeros = _mm256_sub_epi32(gs, field);
	vec deepest = f->subnormals ? _mm256_min_epi32(gs, z) : z;
	vec subnormal = is_zero(field);
	vec raw = blend(either(_mm256_slli_epi32(mant, 1), one), mant,
	                subnormal);
	c.value = _mm256_sllv_epi32(raw, zeros);
	/* one bit more for a normal number: the one after the zeros */
	c.bits = _mm256_add_epi32(_mm256_add_epi32(zeros, SET(f->m + 1)),
	                          subnormal);
	c.escaped = except(greater(deepest, zeros), SET(-1));
	if (f->subnormals) {
		vec above = greater(gs, zero), under = greater(gs, z);
		c.escaped = blend(c.escaped, under, subnormal);
		c.value = blend(magnitude, c.value, above);
		c.bits = blend(_mm256_add_epi32(gs, SET(f->m)), c.bits, above);
		c.escaped = both(c.escaped, above);
	}
	return c;
}

/* Token pair of e, which is below 768 where it counts. */
INLINE vec token_of(vec e)
{
	vec level = log2_floor(e);
	vec by2 = _mm256_add_epi32(_mm256_srli_epi32(e, 1), SET(4));
	vec by4 = _mm256_add_epi32(_mm256_srli_epi32(e, 2), SET(8));
	vec far = _mm256_min_epi32(_mm256_add_epi32(level, SET(11)), SET(19));
	vec pair = blend(e, by2, greater(e, SET(7)));
	pair = blend(pair, by4, greater(e, SET(15)));
	return blend(pair, far, greater(e, SET(31)));
}

INLINE struct coded element_code(vec x, vec ctx, const struct tokens *t,
                                 const struct numbers *f)
{
	struct coded c;
	vec one = SET(1), zero = _mm256_setzero_si256(), lo, nb;
	vec gs = grid_start(ctx, f);
	vec magnitude = both(x, SET((1 << (f->w - 1)) - 1));
	vec field = _mm256_srli_epi32(magnitude, f->m);
	vec mant = both(magnitude, SET((1 << f->m) - 1));
	vec full = either(mant, except(is_zero(field), SET(1 << f->m)));

	/* The cell is 2^shift steps of the element wide. */
	vec shift = _mm256_sub_epi32(_mm256_add_epi32(gs, SET(f->m + 1)),
	                             _mm256_max_epi32(field, one));
	vec up = _mm256_max_epi32(_mm256_sub_epi32(zero, shift), zero);
	vec down = _mm256_max_epi32(shift, zero);
	vec j = _mm256_srlv_epi32(_mm256_sllv_epi32(full, up), down);
	c.raw = low_bits(full, down);
	c.bits = down;
	c.escaped = greater(SET(-10), shift);
	vec at_zero = is_zero(j);
	if (lane_bits(at_zero)) {
		struct zero_cell z = zero_encode(magnitude, field, gs, f);
		c.raw = blend(c.raw, z.value, at_zero);
		c.bits = blend(c.bits, z.bits, at_zero);
		c.escaped = either(c.escaped, both(at_zero, z.escaped));
	}

	vec sign = _mm256_srli_epi32(x, f->w - 1);
	vec below = _mm256_sub_epi32(
		zero, _mm256_xor_si256(sign, _mm256_srli_epi32(ctx, 31)));
	vec d = _mm256_sub_epi32(_mm256_xor_si256(j, below), grid_mean(ctx));
	vec side = _mm256_srai_epi32(d, 31), e = _mm256_xor_si256(d, side);
	c.escaped = either(c.escaped, greater(e, SET(767)));
	vec pair = token_of(e);
	token_info(t, pair, &lo, &nb);
	c.escaped = either(c.escaped, both(at_zero, greater(nb, one)));
	c.raw = either(_mm256_sllv_epi32(c.raw, nb), _mm256_sub_epi32(e, lo));
	c.bits = _mm256_add_epi32(c.bits, nb);
	c.escaped = either(c.escaped, greater(c.bits, SET(16)));
	c.raw = except(c.escaped, c.raw);
	c.bits = except(c.escaped, c.bits);
	c.symbol = _mm256_sub_epi32(_mm256_slli_epi32(pair, 1), side);
	c.symbol = blend(c.symbol, SET(KVI_GRID_SYMBOLS - 1), c.escaped);
	return c;
}

/* Phase 2 of an encoder: raw bits of 8 lanes. */
INLINE vec raw_put(vec st, const struct coded *c, vec active, uint16_t **w)
{
	vec over = _mm256_srlv_epi32(st, _mm256_sub_epi32(SET(32), c->bits));
	st = words_put(st, except(is_zero(over), active), w);
	return either(_mm256_sllv_epi32(st, c->bits), c->raw);
}

INLINE uint16_t *encode_span(const struct kvi_grid_job *job,
                             const struct kvi_span *span, const uint32_t *ctx,
                             const uint16_t *elements, uint32_t *state,
                             uint16_t *w, const struct numbers *f,
                             bool per_step, bool full)
{
	const unsigned lanes = full ? KVI_LANES : span->lanes;
	const size_t size = per_step ? 1 : lanes;
	const struct quad active = lanes_active(lanes);
	const uint32_t *wrap = ctx + span->ring * size;
	const uint32_t *c = ctx + span->steps % span->ring * size;
	const uint16_t *x = elements + span->steps * lanes;
	const struct tokens tokens = tokens_load();
	struct quad st = states_load(state);
	for (size_t step = span->steps; step-- > 0;) {
		struct coded code[PARTS];
		struct quad table, symbol;
		uint32_t escaped = 0;
		uint16_t room[KVI_LANES] = { 0 };
		if (c == ctx)
			c = wrap;
		c -= size;
		x -= lanes;
		if (!full)
			memcpy(room, x, lanes * sizeof(*x));
		struct quad cv = contexts_load(c, lanes, per_step, full);
		EACH {
			vec xv = _mm256_cvtepu16_epi32(_mm_loadu_si128(
				(const __m128i *)((full ? x : room) + 8 * h)));
			code[h] = element_code(xv, cv.v[h], &tokens, f);
			table.v[h] = both(cv.v[h], SET(255));
			symbol.v[h] = code[h].symbol;
			escaped |= lane_bits(both(code[h].escaped,
			                          active.v[h])) << 8 * h;
		}
		struct quad entry = entries_load(job->tables, &table, &symbol);
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

size_t kvi_avx2_grid_encode(const struct kvi_grid_job *job,
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
