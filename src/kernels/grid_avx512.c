/* SPDX-License-Identifier: BSD-3-Clause */
/* grid_avx512.c - the grid codec's element coder on 2 x 16 lanes */
#include "config.h"

#include "grid_avx512.h"

INLINE vec contexts_load(const uint32_t *ctx, bool per_step, __mmask16 active)
{
	return per_step ? SET(*ctx)
	                : _mm512_maskz_loadu_epi32(active, ctx);
}

/* The steps of a span; NULL when the words do not suffice. */
INLINE const uint8_t *decode_span(const struct kvi_grid_job *job,
                                  const struct kvi_span *span,
                                  const uint32_t *ctx, struct kvi_feed *feed,
                                  const uint8_t *p, uint32_t *state,
                                  uint16_t *x, const struct numbers *f,
                                  bool per_step, bool full)
{
	const unsigned lanes = full ? KVI_LANES : span->lanes;
	const uint32_t active = lanes_mask(lanes);
	const uint32_t *lut = job->tables->lut, *c = ctx;
	const uint32_t *wrap = ctx + span->ring * span->step_size;
	struct pair st = states_load(state);
	const struct tokens tokens = tokens_load();
	for (size_t step = 0; step < span->steps; step++) {
		vec cv[2], y[2];
		KVI_FEED_CHECK(feed, p);
		HALVES
			cv[h] = contexts_load(per_step ? c : c + 16 * h,
			                      per_step,
			                      (__mmask16)(active >> 16 * h));
		p = step_take(&st, cv, lut, &tokens, f, lanes, p, x, y);
		x += lanes;
		c += per_step ? 1 : lanes;
		if (c == wrap)
			c = ctx;
	}
	states_store(state, &st, active);
	return p;
}

#define DECODE(span, ctx, x, f, per_step, full)                             \
	decode_span(job, span, ctx, &feed, p, state, x, f, per_step, full)

bool kvi_avx512_grid_decode(const struct kvi_grid_job *job,
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

/* An element as symbol, raw bits and their number; mask: it is escaped. */
struct coded {
	vec symbol, raw, bits;
	__mmask16 escaped;
};

/* Raw bits of an element in the cell at zero. */
INLINE struct zero_cell zero_encode(vec magnitude, vec field, vec gs,
                                    const struct numbers *f)
{
	struct zero_cell c;
	vec one = SET(1), z = SET(f->z), zero = _mm512_setzero_si512();
	vec mant = _mm512_and_si512(magnitude, SET((1 << f->m) - 1));
	vec zeros = _mm512_sub_epi32(gs, field);
	vec deepest = f->subnormals ? _mm512_min_epi32(gs, z) : z;
	__mmask16 normal = _mm512_test_epi32_mask(field, field);
	vec raw = _mm512_mask_or_epi32(mant, normal, _mm512_slli_epi32(mant, 1),
	                               one);
	c.value = _mm512_sllv_epi32(raw, zeros);
	c.bits = _mm512_add_epi32(zeros, SET(f->m));
	c.bits = _mm512_mask_add_epi32(c.bits, normal, c.bits, one);
	c.escaped = _mm512_cmpge_epi32_mask(zeros, deepest);
	if (!f->subnormals)
		return c;
	__mmask16 under = _mm512_cmpgt_epi32_mask(gs, z);
	c.escaped = (__mmask16)((c.escaped & normal) | (under & ~normal));
	__mmask16 flat = _mm512_cmple_epi32_mask(gs, zero);
	c.value = _mm512_mask_mov_epi32(c.value, flat, magnitude);
	c.bits = _mm512_mask_add_epi32(c.bits, flat, gs, SET(f->m));
	c.escaped &= (__mmask16)~flat;
	return c;
}

/* Token pairs of the distances below 64. */
static const uint16_t near_tokens[64] = {
	0,  1,  2,  3,  4,  5,  6,  7,  8,  8,  9,  9,  10, 10, 11, 11,
	12, 12, 12, 12, 13, 13, 13, 13, 14, 14, 14, 14, 15, 15, 15, 15,
	16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16,
	16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16
};

/* Token pair of e, which is below 768 where it counts. */
INLINE vec token_of(vec e, const struct tokens *near)
{
	vec pair = token_info(near, _mm512_and_si512(e, SET(63)));
	__mmask16 far = _mm512_cmpgt_epi32_mask(e, SET(63));
	if (far) {
		vec big = _mm512_add_epi32(log2_floor(e), SET(11));
		pair = _mm512_mask_min_epi32(pair, far, big, SET(19));
	}
	return pair;
}

INLINE struct coded element_code(vec x, vec ctx, const struct tokens *t,
                                 const struct tokens *near,
                                 const struct numbers *f)
{
	struct coded c;
	vec one = SET(1), zero = _mm512_setzero_si512();
	vec gs = grid_start(ctx, f);
	vec magnitude = _mm512_and_si512(x, SET((1 << (f->w - 1)) - 1));
	vec field = _mm512_srli_epi32(magnitude, (unsigned)f->m);
	vec mant = _mm512_and_si512(magnitude, SET((1 << f->m) - 1));
	__mmask16 normal = _mm512_test_epi32_mask(field, field);
	vec full = _mm512_mask_or_epi32(mant, normal, mant, SET(1 << f->m));

	/* The cell is 2^shift steps of the element wide. */
	vec shift = _mm512_sub_epi32(_mm512_add_epi32(gs, SET(f->m + 1)),
	                             _mm512_max_epi32(field, one));
	vec up = _mm512_max_epi32(_mm512_sub_epi32(zero, shift), zero);
	vec down = _mm512_max_epi32(shift, zero);
	vec j = _mm512_srlv_epi32(_mm512_sllv_epi32(full, up), down);
	c.raw = low_bits(full, down);
	c.bits = down;
	c.escaped = _mm512_cmplt_epi32_mask(shift, SET(-10));
	__mmask16 at_zero = _mm512_testn_epi32_mask(j, j);
	if (at_zero) {
		struct zero_cell z = zero_encode(magnitude, field, gs, f);
		c.raw = _mm512_mask_mov_epi32(c.raw, at_zero, z.value);
		c.bits = _mm512_mask_mov_epi32(c.bits, at_zero, z.bits);
		c.escaped |= at_zero & z.escaped;
	}

	vec sign = _mm512_srli_epi32(x, (unsigned)f->w - 1);
	vec below = _mm512_sub_epi32(
		zero, _mm512_xor_si512(sign, _mm512_srli_epi32(ctx, 31)));
	vec d = _mm512_sub_epi32(_mm512_xor_si512(j, below), grid_mean(ctx));
	vec side = _mm512_srai_epi32(d, 31), e = _mm512_xor_si512(d, side);
	c.escaped |= _mm512_cmpge_epu32_mask(e, SET(768));
	c.symbol = _mm512_sub_epi32(
		_mm512_slli_epi32(token_of(e, near), 1), side);
	vec token = token_info(t, c.symbol);
	vec nb = _mm512_and_si512(_mm512_srli_epi32(token, 11), SET(15));
	vec rest = _mm512_sub_epi32(e, _mm512_and_si512(token, SET(511)));
	c.escaped |= _mm512_mask_cmpgt_epi32_mask(at_zero, nb, one);
	c.raw = _mm512_or_si512(_mm512_sllv_epi32(c.raw, nb), rest);
	c.bits = _mm512_add_epi32(c.bits, nb);
	c.escaped |= _mm512_cmpgt_epi32_mask(c.bits, SET(16));
	__mmask16 coded = (__mmask16)~c.escaped;
	c.raw = _mm512_maskz_mov_epi32(coded, c.raw);
	c.bits = _mm512_maskz_mov_epi32(coded, c.bits);
	c.symbol = _mm512_mask_mov_epi32(SET(KVI_GRID_SYMBOLS - 1), coded,
	                                 c.symbol);
	return c;
}

/* Phase 2 of an encoder: raw bits of 16 lanes. */
INLINE vec raw_put(vec st, const struct coded *c, __mmask16 active,
                   uint16_t **w)
{
	vec over = _mm512_srlv_epi32(st, _mm512_sub_epi32(SET(32), c->bits));
	__mmask16 m = _mm512_mask_test_epi32_mask(active, over, over);
	st = words_put(st, m, w);
	return _mm512_or_si512(_mm512_sllv_epi32(st, c->bits), c->raw);
}

INLINE uint16_t *encode_span(const struct kvi_grid_job *job,
                             const struct kvi_span *span, const uint32_t *ctx,
                             const uint16_t *elements, uint32_t *state,
                             uint16_t *w, const struct numbers *f,
                             bool per_step, bool full)
{
	const unsigned lanes = full ? KVI_LANES : span->lanes;
	const uint32_t active = full ? UINT32_MAX : lanes_mask(lanes);
	const size_t size = per_step ? 1 : lanes;
	const uint32_t *enc = job->tables->enc;
	const uint32_t *wrap = ctx + span->ring * size;
	const uint32_t *c = ctx + span->steps % span->ring * size;
	const uint16_t *x = elements + span->steps * lanes;
	const struct tokens tokens = tokens_load();
	const struct tokens near = tokens_from(near_tokens);
	const __m128i stride = _mm_cvtsi32_si128(
		__builtin_ctz((unsigned)job->tables->stride));
	struct pair st = states_load(state);
	for (size_t step = span->steps; step-- > 0;) {
		struct coded code[2];
		vec entry[2];
		__mmask16 act[2];
		if (c == ctx)
			c = wrap;
		c -= size;
		x -= lanes;
		HALVES {
			act[h] = (__mmask16)(active >> 16 * h);
			vec cv = contexts_load(per_step ? c : c + 16 * h,
			                       per_step, act[h]);
			vec xv = _mm512_cvtepu16_epi32(
				_mm256_maskz_loadu_epi16(act[h], x + 16 * h));
			code[h] = element_code(xv, cv, &tokens, &near, f);
			vec row = _mm512_sll_epi32(
				_mm512_and_si512(cv, SET(255)), stride);
			entry[h] = gather(
				enc, _mm512_add_epi32(row, code[h].symbol));
		}
		uint32_t escaped = (code[0].escaped |
		                    (uint32_t)code[1].escaped << 16) & active;
		if (__builtin_expect(escaped != 0, 0)) {
			uint32_t s[KVI_LANES];
			states_store(s, &st, UINT32_MAX);
			kvi_escapes_put16(escaped, s, x, (unsigned)f->w, &w);
			st = states_load(s);
		}
		HALVES_BACK
			st.v[h] = raw_put(st.v[h], &code[h], act[h], &w);
		HALVES_BACK
			st.v[h] = symbol_put(st.v[h], entry[h], act[h], &w);
	}
	states_store(state, &st, active);
	return w;
}

#define ENCODE(span, ctx, x, f, per_step, full) \
	encode_span(job, span, ctx, x, state, w, f, per_step, full)

size_t kvi_avx512_grid_encode(const struct kvi_grid_job *job,
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
