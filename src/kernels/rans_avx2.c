/* SPDX-License-Identifier: BSD-3-Clause */
/* rans_avx2.c - symbols and exponents on 4 x 8 lanes */
#include "config.h"

#include "avx2.h"
#include "escapes.h"
#include "slots.h"

/* Bits set in m, all bits below bit i of m. */
#define ONES(m)                                                        \
	(((m) & 1) + ((m) >> 1 & 1) + ((m) >> 2 & 1) + ((m) >> 3 & 1) + \
	 ((m) >> 4 & 1) + ((m) >> 5 & 1) + ((m) >> 6 & 1) + ((m) >> 7 & 1))
#define RANK(m, i) ONES((m) & ((1 << (i)) - 1))
#define SPREAD1(m, i) ((uint64_t)RANK(m, i) << 8 * (i))
#define SPREAD(m)                                                         \
	(SPREAD1(m, 0) | SPREAD1(m, 1) | SPREAD1(m, 2) | SPREAD1(m, 3) | \
	 SPREAD1(m, 4) | SPREAD1(m, 5) | SPREAD1(m, 6) | SPREAD1(m, 7))
/* The place of lane i, counted from the end. */
#define GATHERED1(m, i)                                                    \
	((m) >> (i) & 1 ? (uint64_t)(i) << 8 * (7 - ONES((m) >> ((i) + 1))) \
	                : 0)
#define GATHERED(m)                                                   \
	(GATHERED1(m, 0) | GATHERED1(m, 1) | GATHERED1(m, 2) |        \
	 GATHERED1(m, 3) | GATHERED1(m, 4) | GATHERED1(m, 5) |        \
	 GATHERED1(m, 6) | GATHERED1(m, 7))
#define FOUR(f, m) f(m), f((m) + 1), f((m) + 2), f((m) + 3)
#define SIXTEEN(f, m) \
	FOUR(f, m), FOUR(f, (m) + 4), FOUR(f, (m) + 8), FOUR(f, (m) + 12)
#define ALL(f)                                                               \
	SIXTEEN(f, 0), SIXTEEN(f, 16), SIXTEEN(f, 32), SIXTEEN(f, 48),       \
		SIXTEEN(f, 64), SIXTEEN(f, 80), SIXTEEN(f, 96),              \
		SIXTEEN(f, 112), SIXTEEN(f, 128), SIXTEEN(f, 144),           \
		SIXTEEN(f, 160), SIXTEEN(f, 176), SIXTEEN(f, 192),           \
		SIXTEEN(f, 208), SIXTEEN(f, 224), SIXTEEN(f, 240)

const uint64_t kvi_avx2_spread[256] = { ALL(SPREAD) };
const uint64_t kvi_avx2_gathered[256] = { ALL(GATHERED) };

/* Bytes of 32 lanes, or one for all, as numbers. */
INLINE struct quad bytes_load(const uint8_t *p, bool per_step)
{
	struct quad q;
	EACH
		q.v[h] = per_step ? SET(*p)
		                  : _mm256_cvtepu8_epi32(_mm_loadl_epi64(
					    (const __m128i *)(p + 8 * h)));
	return q;
}

/* Numbers below 256 as 32 bytes. */
INLINE vec narrow8(const struct quad *q)
{
	const vec order = _mm256_set_epi32(7, 3, 6, 2, 5, 1, 4, 0);
	vec a = _mm256_packus_epi32(q->v[0], q->v[1]);
	vec b = _mm256_packus_epi32(q->v[2], q->v[3]);
	return _mm256_permutevar8x32_epi32(_mm256_packus_epi16(a, b), order);
}

/* n <= 32 entries in memory of 32. A step of a tail must not touch what is
 * behind its lanes. */
INLINE const uint8_t *padded(const uint8_t *p, size_t n, bool full,
                             uint8_t *room)
{
	if (full)
		return p;
	memset(room, 0, KVI_LANES);
	memcpy(room, p, n);
	return room;
}

INLINE const uint8_t *sym_decode_span(const struct kvi_sym_job *job,
                                      const struct kvi_span *span,
                                      const uint8_t *tab,
                                      struct kvi_feed *feed, const uint8_t *p,
                                      uint32_t *state, uint16_t *sym,
                                      uint8_t *esc, bool full)
{
	const unsigned lanes = full ? KVI_LANES : span->lanes;
	const bool per_step = span->lane_size == 0;
	const uint8_t *t = tab, *wrap = tab + span->ring * span->step_size;
	const struct quad active = lanes_active(lanes);
	const vec escape = SET(job->escape);
	struct quad st = states_load(state);
	for (size_t step = 0; step < span->steps; step++) {
		uint32_t escaped = 0;
		uint16_t y[KVI_LANES];
		uint8_t room[KVI_LANES];
		KVI_FEED_CHECK(feed, p);
		struct quad table = bytes_load(
			padded(t, span->step_size, full || per_step, room),
			per_step);
		struct quad s = symbols_take(&st, job->tables->lut, &table,
		                             &active, &p);
		EACH {
			vec e = _mm256_cmpeq_epi32(s.v[h], escape);
			e = _mm256_and_si256(e, active.v[h]);
			escaped |= lane_bits(e) << 8 * h;
			_mm_storeu_si128(
				(__m128i *)((full ? sym : y) + 8 * h),
				narrow16(s.v[h]));
		}
		if (!full)
			memcpy(sym, y, lanes * sizeof(*sym));
		if (__builtin_expect(escaped != 0, 0)) {
			uint32_t a[KVI_LANES];
			states_store(a, &st, KVI_LANES);
			p = kvi_escapes_take8(escaped, a, esc, p);
			st = states_load(a);
		}
		sym += lanes;
		esc += lanes;
		t += span->step_size;
		if (t == wrap)
			t = tab;
	}
	states_store(state, &st, lanes);
	return p;
}

static bool sym_decode(const struct kvi_sym_job *job,
                       const struct kvi_stream *in, uint16_t *sym,
                       uint8_t *esc)
{
	const struct kvi_span full = kvi_span_full(
		&job->steps, job->tab_steps, job->per_step);
	const struct kvi_span tail = kvi_span_tail(&job->steps, job->per_step);
	const size_t n = full.steps * KVI_LANES;
	struct kvi_feed feed;
	const uint8_t *p = kvi_feed_open(&feed, in);
	uint32_t state[KVI_LANES];
	memcpy(state, in->state, sizeof(state));
	p = sym_decode_span(job, &full, job->tab, &feed, p, state, sym, esc,
	                    true);
	if (p && tail.steps)
		p = sym_decode_span(job, &tail, job->tab_tail, &feed, p, state,
		                    sym + n, esc + n, false);
	return p && kvi_feed_done(&feed, p, state);
}

INLINE uint16_t *sym_encode_span(const struct kvi_sym_job *job,
                                 const struct kvi_span *span,
                                 const uint8_t *tab, const uint16_t *sym,
                                 const uint8_t *esc, uint32_t *state,
                                 uint16_t *w, bool full)
{
	const unsigned lanes = full ? KVI_LANES : span->lanes;
	const bool per_step = span->lane_size == 0;
	const uint8_t *wrap = tab + span->ring * span->step_size;
	const uint8_t *t = tab + span->steps % span->ring * span->step_size;
	const struct quad active = lanes_active(lanes);
	const vec escape = SET(job->escape);
	struct quad st = states_load(state);
	sym += span->steps * lanes;
	esc += span->steps * lanes;
	for (size_t step = span->steps; step-- > 0;) {
		struct quad s;
		uint32_t escaped = 0;
		uint16_t x[KVI_LANES] = { 0 };
		uint8_t room[KVI_LANES];
		if (t == tab)
			t = wrap;
		t -= span->step_size;
		sym -= lanes;
		esc -= lanes;
		if (!full)
			memcpy(x, sym, lanes * sizeof(*x));
		EACH {
			s.v[h] = _mm256_cvtepu16_epi32(_mm_loadu_si128(
				(const __m128i *)((full ? sym : x) + 8 * h)));
			vec e = _mm256_cmpeq_epi32(s.v[h], escape);
			e = _mm256_and_si256(e, active.v[h]);
			escaped |= lane_bits(e) << 8 * h;
		}
		if (__builtin_expect(escaped != 0, 0)) {
			uint32_t a[KVI_LANES];
			states_store(a, &st, KVI_LANES);
			kvi_escapes_put8(escaped, a, esc, &w);
			st = states_load(a);
		}
		struct quad table = bytes_load(
			padded(t, span->step_size, full || per_step, room),
			per_step);
		struct quad entry = entries_load(job->tables, &table, &s);
		symbols_put(&st, &entry, &active, &w);
	}
	states_store(state, &st, lanes);
	return w;
}

static size_t sym_encode(const struct kvi_sym_job *job, const uint16_t *sym,
                         const uint8_t *esc, uint16_t *end,
                         uint32_t state[KVI_LANES])
{
	const struct kvi_span full = kvi_span_full(
		&job->steps, job->tab_steps, job->per_step);
	const struct kvi_span tail = kvi_span_tail(&job->steps, job->per_step);
	const size_t n = full.steps * KVI_LANES;
	uint16_t *w = end;
	kvi_states_start(state);
	if (tail.steps)
		w = sym_encode_span(job, &tail, job->tab_tail, sym + n,
		                    esc + n, state, w, false);
	w = sym_encode_span(job, &full, job->tab, sym, esc, state, w, true);
	return (size_t)(end - w);
}

/* --------------------------------------------------- exponent codec */

struct ring {
	const uint8_t *tab, *top; /* of the first step */
	size_t at, size;          /* in entries */
};

INLINE vec tops_load(const uint8_t *top, bool per_step, unsigned lanes,
                     bool full)
{
	uint8_t room[KVI_LANES];
	return per_step ? _mm256_set1_epi8((char)*top)
	                : load(padded(top, lanes, full, room));
}

INLINE const uint8_t *exp_decode_span(const struct kvi_exp_job *job,
                                      const struct kvi_span *span,
                                      struct ring ring, struct kvi_feed *feed,
                                      const uint8_t *p, uint32_t *state,
                                      uint8_t *x, bool *good, bool per_step,
                                      bool full)
{
	const unsigned lanes = full ? KVI_LANES : span->lanes;
	const struct quad active = lanes_active(lanes);
	const uint32_t mask = (uint32_t)(((uint64_t)1 << lanes) - 1);
	const vec escape = _mm256_set1_epi8(KVI_EXP_SYMBOLS - 1);
	struct quad st = states_load(state);
	uint32_t bad = 0;
	for (size_t step = 0; step < span->steps; step++) {
		uint8_t room[KVI_LANES];
		KVI_FEED_CHECK(feed, p);
		struct quad table = bytes_load(
			padded(ring.tab + ring.at, lanes, full || per_step,
		               room),
			per_step);
		vec top = tops_load(ring.top + ring.at, per_step, lanes, full);
		struct quad s = symbols_take(&st, job->tables->lut, &table,
		                             &active, &p);
		vec symbol = narrow8(&s);
		vec above = _mm256_subs_epu8(symbol, top);
		uint32_t escaped = (uint32_t)_mm256_movemask_epi8(
			_mm256_cmpeq_epi8(symbol, escape));
		uint32_t fine = (uint32_t)_mm256_movemask_epi8(
			_mm256_cmpeq_epi8(above, _mm256_setzero_si256()));
		escaped &= mask;
		bad |= ~fine & ~escaped & mask;
		vec e = _mm256_sub_epi8(top, symbol);
		store(full ? x : room, e);
		if (!full)
			memcpy(x, room, lanes);
		if (__builtin_expect(escaped != 0, 0)) {
			uint32_t a[KVI_LANES];
			states_store(a, &st, KVI_LANES);
			p = kvi_escapes_take8(escaped, a, x, p);
			st = states_load(a);
		}
		x += lanes;
		ring.at += per_step ? 1 : lanes;
		if (ring.at == ring.size)
			ring.at = 0;
	}
	states_store(state, &st, lanes);
	*good &= bad == 0;
	return p;
}

static bool exp_decode(const struct kvi_exp_job *job,
                       const struct kvi_stream *in, void *out)
{
	const struct kvi_span full = kvi_span_full(
		&job->steps, job->tab_steps, job->per_step);
	const struct kvi_span tail = kvi_span_tail(&job->steps, job->per_step);
	const struct ring ring = { job->tab, job->top, 0,
		                   full.ring * full.step_size };
	const struct ring last = { job->tab_tail, job->top_tail, 0,
		                   tail.ring * tail.step_size };
	uint8_t *e = out;
	bool good = true;
	struct kvi_feed feed;
	const uint8_t *p = kvi_feed_open(&feed, in);
	uint32_t state[KVI_LANES];
	memcpy(state, in->state, sizeof(state));
	if (job->per_step)
		p = exp_decode_span(job, &full, ring, &feed, p, state, e,
		                    &good, true, true);
	else
		p = exp_decode_span(job, &full, ring, &feed, p, state, e,
		                    &good, false, true);
	if (p && tail.steps)
		p = exp_decode_span(job, &tail, last, &feed, p, state,
		                    e + full.steps * KVI_LANES, &good,
		                    job->per_step, false);
	return p && kvi_feed_done(&feed, p, state) && good;
}

INLINE uint16_t *exp_encode_span(const struct kvi_exp_job *job,
                                 const struct kvi_span *span,
                                 struct ring ring, const uint8_t *x,
                                 uint32_t *state, uint16_t *w, bool per_step,
                                 bool full)
{
	const unsigned lanes = full ? KVI_LANES : span->lanes;
	const struct quad active = lanes_active(lanes);
	const uint32_t mask = (uint32_t)(((uint64_t)1 << lanes) - 1);
	const vec escape = _mm256_set1_epi8(KVI_EXP_SYMBOLS - 1);
	struct quad st = states_load(state);
	x += span->steps * lanes;
	for (size_t step = span->steps; step-- > 0;) {
		uint8_t room[KVI_LANES], symbols[KVI_LANES];
		if (ring.at == 0)
			ring.at = ring.size;
		ring.at -= per_step ? 1 : lanes;
		x -= lanes;
		vec top = tops_load(ring.top + ring.at, per_step, lanes, full);
		vec e = load(padded(x, lanes, full, room));
		/* top - e, or more than any distance where e > top */
		vec symbol = _mm256_or_si256(
			_mm256_sub_epi8(top, e),
			_mm256_xor_si256(
				_mm256_cmpeq_epi8(_mm256_max_epu8(top, e), top),
				_mm256_set1_epi8(-1)));
		symbol = _mm256_min_epu8(symbol, escape);
		uint32_t escaped = (uint32_t)_mm256_movemask_epi8(
			_mm256_cmpeq_epi8(symbol, escape)) & mask;
		if (__builtin_expect(escaped != 0, 0)) {
			uint32_t a[KVI_LANES];
			states_store(a, &st, KVI_LANES);
			kvi_escapes_put8(escaped, a, x, &w);
			st = states_load(a);
		}
		store(symbols, symbol);
		struct quad table = bytes_load(
			padded(ring.tab + ring.at, lanes, full || per_step,
		               room),
			per_step);
		struct quad s = bytes_load(symbols, false);
		struct quad entry = entries_load(job->tables, &table, &s);
		symbols_put(&st, &entry, &active, &w);
	}
	states_store(state, &st, lanes);
	return w;
}

static size_t exp_encode(const struct kvi_exp_job *job, const uint8_t *e,
                         uint16_t *end, uint32_t state[KVI_LANES])
{
	const struct kvi_span full = kvi_span_full(
		&job->steps, job->tab_steps, job->per_step);
	const struct kvi_span tail = kvi_span_tail(&job->steps, job->per_step);
	const struct ring ring = { job->tab, job->top,
		                   full.steps % full.ring * full.step_size,
		                   full.ring * full.step_size };
	const struct ring last = { job->tab_tail, job->top_tail, 0,
		                   tail.ring * tail.step_size };
	uint16_t *w = end;
	kvi_states_start(state);
	if (tail.steps)
		w = exp_encode_span(job, &tail, last,
		                    e + full.steps * KVI_LANES, state, w,
		                    job->per_step, false);
	if (job->per_step)
		w = exp_encode_span(job, &full, ring, e, state, w, true, true);
	else
		w = exp_encode_span(job, &full, ring, e, state, w, false,
		                    true);
	return (size_t)(end - w);
}

const struct kvi_kernels kvi_kernels_avx2 = {
	.name = "avx2",
	.isa = KVARC_ISA_AVX2,
	.grid_encode = kvi_avx2_grid_encode,
	.grid_decode = kvi_avx2_grid_decode,
	.sym_encode = sym_encode,
	.sym_decode = sym_decode,
	.exp_encode = exp_encode,
	.exp_decode = exp_decode,
	.grid_contexts = kvi_avx2_grid_contexts,
	.rotated_contexts = kvi_avx2_rotated_contexts,
	.bf16_split = kvi_avx2_bf16_split,
	.bf16_merge = kvi_avx2_bf16_merge,
	.f16_split = kvi_avx2_f16_split,
	.f16_merge = kvi_avx2_f16_merge,
	.transpose8 = kvi_avx2_transpose8,
	.transpose16 = kvi_avx2_transpose16,
	.slot_rows = kvi_avx2_slot_rows,
	.slot = kvi_avx2_slot,
};
