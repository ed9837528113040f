/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * exp_gather.c - exponents (spec exponent) in AVX-512 where gathers are fast
 *
 * Each half of a step waits for one gather and for nothing of the other half but the number of its
 * words, so that two streams are four chains of look-ups. Table, largest exponent and the bits of
 * an entry are laid out so that none of them needs an instruction of its own in a chain.
 */
#include "config.h"

#include "ops_avx512.h"

#include "escapes_body.h"

#define SET16(x) _mm512_set1_epi16((short)(x))
/* Bits of a where c has them, else those of b. */
#define CHOOSE(a, b, c) _mm512_ternarylogic_epi32(a, b, c, 0xe4)

enum { EXP_SYMBOL_BITS = 5 };
/* The exponent in a bf16 element. */
enum { FIELD_BIT = 7, FIELD_MASK = 0xff << FIELD_BIT };

/* Constants of all steps. */
struct gather_masks {
	vec slot, least, field;
	vec low;            /* numbers of low halves */
	vec eighths, twice; /* permutations: 8 of 32 bytes to each 16; each of these twice */
};

INLINE struct gather_masks gather_masks_load(void)
{
	uint16_t low[KVI_LANES];
	for (unsigned i = 0; i < KVI_LANES; i++)
		low[i] = (uint16_t)(2 * i);
	return (struct gather_masks){
		.slot = SET(KVI_PROB_TOTAL - 1),
		.least = SET(KVI_RANS_LOW),
		.field = SET16(FIELD_MASK),
		.low = v_load(low),
		.eighths = _mm512_setr_epi64(0, 0, 1, 1, 2, 2, 3, 3),
		.twice = _mm512_broadcast_i32x4(
			_mm_setr_epi8(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7)),
	};
}

/* Phase 1 of a decoder's step; the symbols in bits 11..15. lane: kvi_exp_job.lane. */
INLINE vec gather_take(struct parts *st, const uint32_t *lut, const uint16_t *lane,
                       const struct gather_masks *masks, bool per_step, active_lanes active,
                       const uint8_t **p)
{
	struct parts entry;
	EACH {
		vec at = per_step ? SET(*lane)
		                  : _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(
					    ACTIVE(active, h), lane + 16 * h));
		entry.v[h] = v_gather(lut, CHOOSE(st->v[h], at, masks->slot));
	}
	EACH
		st->v[h] = v_add(v_mul(v_shr(st->v[h], KVI_PROB_BITS), v_shr(entry.v[h], 16)),
		                 v_and(entry.v[h], masks->slot));
	EACH
		st->v[h] = renorm(st->v[h], masks->least, ACTIVE(active, h), p);
	return _mm512_permutex2var_epi16(entry.v[0], masks->low, entry.v[1]);
}

/* A stream on its way through the steps of a span. */
struct gather_run {
	const uint32_t *lut;
	const uint8_t *p;
	const uint16_t *ring, *ring_end, *lane; /* lane: of the next step */
	const uint8_t *rest;                    /* NULL: exponent fields go to e */
	uint16_t *x;
	uint8_t *e;
	struct parts st;
	vec bad; /* bit 15: a symbol gave E < 0 */
};

/* Fields of the lanes, in their bits of a bf16 element, with those that are escaped. */
static vec gather_escapes(struct parts *st, const uint8_t **p, vec field, uint32_t escaped)
{
	uint32_t all[KVI_LANES];
	uint8_t bytes[KVI_LANES];
	states_store(all, st, ALL_LANES);
	*p = kvi_escapes_take8(escaped, all, bytes, *p);
	*st = states_load(all);
	vec e = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)bytes));
	return _mm512_mask_slli_epi16(field, escaped, e, FIELD_BIT);
}

INLINE void gather_step(struct gather_run *r, const struct gather_masks *masks, bool merged,
                        bool per_step, unsigned lanes)
{
	const active_lanes active = first_active(lanes);
	vec lane = per_step ? SET16(*r->lane) : _mm512_maskz_loadu_epi16(active, r->lane);
	vec symbol = gather_take(&r->st, r->lut, r->lane, masks, per_step, active, &r->p);
	vec distance = v_and(_mm512_srli_epi16(symbol, KVI_PROB_BITS - FIELD_BIT),
	                     SET16((KVI_EXP_SYMBOLS - 1) << FIELD_BIT));
	vec field = _mm512_sub_epi16(_mm512_slli_epi16(lane, FIELD_BIT), distance);
	uint32_t escaped = _mm512_mask_cmpge_epu16_mask(
		active, symbol, SET16((KVI_EXP_SYMBOLS - 1) << KVI_PROB_BITS));
	if (__builtin_expect(escaped != 0, 0)) {
		/* copies, so that the states stay in registers elsewhere */
		struct parts st = r->st;
		const uint8_t *p = r->p;
		field = gather_escapes(&st, &p, field, escaped);
		r->st = st;
		r->p = p;
	}
	r->bad = v_or(r->bad, _mm512_maskz_mov_epi16(active, field));
	if (merged) {
		/* a byte fills both halves of its element: one gives the sign, the other the
		 * mantissa */
		vec rest = _mm512_castsi256_si512(_mm256_maskz_loadu_epi8(active, r->rest));
		rest = _mm512_shuffle_epi8(_mm512_permutexvar_epi64(masks->eighths, rest),
		                           masks->twice);
		_mm512_mask_storeu_epi16(r->x, active, CHOOSE(field, rest, masks->field));
		r->rest += lanes;
		r->x += lanes;
	} else {
		field = _mm512_srli_epi16(field, FIELD_BIT);
		_mm256_mask_storeu_epi8(r->e, active, _mm512_cvtepi16_epi8(field));
		r->e += lanes;
	}
	r->lane += per_step ? 1 : lanes;
	if (r->lane == r->ring_end)
		r->lane = r->ring;
}

/* A stream's run, and what remains to be done. */
struct gather_stream {
	const struct kvi_exp_job *job;
	struct kvi_feed feed;
	struct gather_run run;
	size_t steps; /* full ones */
};

static void gather_open(struct gather_stream *stream, const struct kvi_exp_job *job,
                        const struct kvi_stream *in, void *out)
{
	stream->job = job;
	stream->steps = job->steps.full_steps;
	stream->run = (struct gather_run){
		.lut = job->tables->lut,
		.p = kvi_feed_open(&stream->feed, in),
		.ring = job->lane,
		.ring_end = job->lane + job->tab_steps * (job->per_step ? 1 : (size_t)KVI_LANES),
		.lane = job->lane,
		.rest = job->rest,
		.x = out,
		.e = out,
		.st = states_load(in->state),
		.bad = _mm512_setzero_si512(),
	};
}

/* Decodes the steps of a span; false: the words do not suffice. */
INLINE bool gather_span(struct gather_stream *stream, size_t steps, bool merged, bool per_step,
                        unsigned lanes)
{
	const struct gather_masks k = gather_masks_load();
	struct gather_run r = stream->run;
	for (size_t step = 0; step < steps; step++) {
		KVI_FEED_CHECK(&stream->feed, r.p);
		gather_step(&r, &k, merged, per_step, lanes);
	}
	stream->run = r;
	return true;
}

/* Every kind of span has its own loop. */
INLINE bool gather_span_of(struct gather_stream *stream, size_t steps, unsigned lanes)
{
	if (stream->job->per_step)
		return gather_span(stream, steps, false, true, lanes);
	return stream->run.rest ? gather_span(stream, steps, true, false, lanes)
	                        : gather_span(stream, steps, false, false, lanes);
}

static bool gather_finish(struct gather_stream *stream)
{
	const struct kvi_steps *steps = &stream->job->steps;
	struct gather_run *r = &stream->run;
	uint32_t state[KVI_LANES];
	if (!gather_span_of(stream, stream->steps, KVI_LANES))
		return false;
	states_store(state, &r->st, ALL_LANES);
	if (steps->tail_lanes) {
		r->lane = stream->job->lane_tail;
		r->ring_end = NULL;
		if (!gather_span_of(stream, steps->tail_steps, steps->tail_lanes))
			return false;
		states_store(state, &r->st, first_active(steps->tail_lanes));
	}
	return kvi_feed_done(&stream->feed, r->p, state) && !_mm512_movepi16_mask(r->bad);
}

bool kvi_gather_exp_decode(const struct kvi_exp_job *job, const struct kvi_stream *in, void *out)
{
	struct gather_stream s;
	gather_open(&s, job, in, out);
	return gather_finish(&s);
}

/* Steps of two streams alternately, so that neither waits for its look-ups, up to the end of the
 * shorter one, or near the end of the words of either. */
INLINE void gather_both(struct gather_stream *first, struct gather_stream *second, bool merged)
{
	const struct gather_masks k = gather_masks_load();
	struct gather_run a = first->run, b = second->run;
	const uint8_t *const safe_a = first->feed.safe, *const safe_b = second->feed.safe;
	const size_t most = first->steps < second->steps ? first->steps : second->steps;
	size_t step = 0;
	for (; step < most && a.p <= safe_a && b.p <= safe_b; step++) {
		gather_step(&a, &k, merged, false, KVI_LANES);
		gather_step(&b, &k, merged, false, KVI_LANES);
	}
	first->steps -= step;
	second->steps -= step;
	first->run = a;
	second->run = b;
}

void kvi_gather_exp_decode2(const struct kvi_exp_job *const job[2],
                            const struct kvi_stream *const in[2], void *const out[2], bool ok[2])
{
	struct gather_stream s[2];
	for (int i = 0; i < 2; i++)
		gather_open(&s[i], job[i], in[i], out[i]);
	if (job[0]->per_step || job[1]->per_step)
		;
	else if (job[0]->rest && job[1]->rest)
		gather_both(&s[0], &s[1], true);
	else if (!job[0]->rest && !job[1]->rest)
		gather_both(&s[0], &s[1], false);
	for (int i = 0; i < 2; i++)
		ok[i] = gather_finish(&s[i]);
}

INLINE uint16_t *gather_encode_span(const struct kvi_exp_job *job, const uint16_t *ring,
                                    size_t ring_steps, const uint8_t *x, size_t steps,
                                    uint32_t *state, uint16_t *w, bool per_step, unsigned lanes)
{
	const active_lanes active = first_active(lanes);
	const size_t size = per_step ? 1 : lanes;
	const vec escape = SET16(KVI_EXP_SYMBOLS - 1);
	const uint16_t *lane = ring + steps % ring_steps * size;
	struct parts st = states_load(state);
	x += steps * lanes;
	for (; steps; steps--) {
		if (lane == ring)
			lane += ring_steps * size;
		lane -= size;
		x -= lanes;
		vec at = per_step ? SET16(*lane) : _mm512_maskz_loadu_epi16(active, lane);
		vec e = _mm512_cvtepu8_epi16(_mm256_maskz_loadu_epi8(active, x));
		vec symbol = _mm512_sub_epi16(v_and(at, SET16(255)), e);
		symbol = _mm512_min_epu16(symbol, escape);
		uint32_t escaped = _mm512_mask_cmpeq_epi16_mask(active, symbol, escape);
		if (__builtin_expect(escaped != 0, 0)) {
			struct parts s = st;
			uint16_t *v = w;
			escapes_put8(&s, escaped, x, &v);
			st = s;
			w = v;
		}
		/* table << 5 | symbol */
		vec index = CHOOSE(symbol, _mm512_srli_epi16(at, KVI_PROB_BITS - EXP_SYMBOL_BITS),
		                   escape);
		struct parts entry = { { _mm512_cvtepu16_epi32(_mm512_castsi512_si256(index)),
			                 _mm512_cvtepu16_epi32(
						 _mm512_extracti64x4_epi64(index, 1)) } };
		EACH
			entry.v[h] = v_gather(job->tables->enc, entry.v[h]);
		symbols_put(&st, &entry, active, &w);
	}
	states_store(state, &st, active);
	return w;
}

size_t kvi_gather_exp_encode(const struct kvi_exp_job *job, const uint8_t *e, uint16_t *end,
                             uint32_t state[KVI_LANES])
{
	const struct kvi_steps *s = &job->steps;
	uint16_t *w = end;
	kvi_states_start(state);
	if (s->tail_lanes && s->tail_steps)
		w = gather_encode_span(job, job->lane_tail, s->tail_steps,
		                       e + s->full_steps * KVI_LANES, s->tail_steps, state, w,
		                       job->per_step, s->tail_lanes);
	if (job->per_step)
		w = gather_encode_span(job, job->lane, job->tab_steps, e, s->full_steps, state, w,
		                       true, KVI_LANES);
	else
		w = gather_encode_span(job, job->lane, job->tab_steps, e, s->full_steps, state, w,
		                       false, KVI_LANES);
	return (size_t)(end - w);
}
