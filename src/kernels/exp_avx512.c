/* SPDX-License-Identifier: BSD-3-Clause */
/* exp_avx512.c - exponents on 2 x 16 lanes (spec exponent) */
#include "config.h"

#include "exp_run.h"

INLINE __m256i exp_bytes_load(const uint8_t *top, bool per_step, uint32_t active)
{
	return per_step ? _mm256_set1_epi8((char)*top) : _mm256_maskz_loadu_epi8(active, top);
}

enum { EXP_STRIDE = 32 };

/*
 * A decoder's tables in registers. With gathers the look-ups were more than half
 * of a step; the symbol of a slot is found faster among the cumulative
 * frequencies: that of 8, 16 and 24, of the three in the quarter, and of the
 * odd one between two. All 32 lanes are one vector of 16 bits each, lane i in
 * the low half of word i and lane i + 16 in its high half.
 */
enum { SEARCHED = KVI_AVX512_EXP_SEARCHED };

static void search_make(struct exp_search *search, const struct kvi_tables *tables)
{
	uint16_t low[3][SEARCHED] = { 0 }, mid[3][4 * SEARCHED] = { 0 };
	uint16_t last[16 * SEARCHED] = { 0 };
	for (size_t t = 0; t < tables->n_tables; t++) {
		const uint32_t *enc = tables->enc + t * EXP_STRIDE;
		for (unsigned i = 0; i < 3; i++) {
			low[i][t] = (uint16_t)(enc[8 * i + 8] >> 16);
			for (unsigned q = 0; q < 4; q++)
				mid[i][4 * t + q] = (uint16_t)(enc[8 * q + 2 * i + 2] >> 16);
		}
		for (unsigned p = 0; p < 16; p++)
			last[16 * t + p] = (uint16_t)(enc[2 * p + 1] >> 16);
	}
	for (int i = 0; i < 3; i++) {
		search->low[i] = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)low[i]));
		search->mid[i] = _mm512_loadu_si512(mid[i]);
	}
	for (int i = 0; i < 4; i++)
		search->last[i] = _mm512_loadu_si512(last + 32 * i);
}

/* The result for a slot: its symbol, the cumulative frequency of it and of the next. */
struct search_result {
	vec symbol, from, to;
};

/* Three bounds, ascending, against the slots: two more bits of the symbol. */
INLINE void search_narrow(struct search_result *result, vec slot, const vec bound[3])
{
	const vec one = _mm512_set1_epi16(1);
	__mmask32 a = _mm512_cmpge_epu16_mask(slot, bound[0]);
	__mmask32 b = _mm512_cmpge_epu16_mask(slot, bound[1]);
	__mmask32 c = _mm512_cmpge_epu16_mask(slot, bound[2]);
	vec s = _mm512_slli_epi16(result->symbol, 2);
	s = _mm512_mask_add_epi16(s, a, s, one);
	s = _mm512_mask_add_epi16(s, b, s, one);
	result->symbol = _mm512_mask_add_epi16(s, c, s, one);
	result->from = _mm512_mask_mov_epi16(result->from, a, bound[0]);
	result->from = _mm512_mask_mov_epi16(result->from, b, bound[1]);
	result->from = _mm512_mask_mov_epi16(result->from, c, bound[2]);
	result->to = _mm512_mask_mov_epi16(bound[2], c, result->to);
	result->to = _mm512_mask_mov_epi16(bound[1], b, result->to);
	result->to = _mm512_mask_mov_epi16(bound[0], a, result->to);
}

/* Finds the symbols of slots. table: number of each lane's table, which stays above the symbol's
 * bits. */
INLINE struct search_result search_find(const struct exp_search *search, vec slot, vec table)
{
	struct search_result p = { table, _mm512_setzero_si512(),
		                   _mm512_set1_epi16(KVI_PROB_TOTAL) };
	vec bytes = _mm512_add_epi16(_mm512_mullo_epi16(table, _mm512_set1_epi16(0x0202)),
	                             _mm512_set1_epi16(0x0100));
	__mmask32 upper = _mm512_movepi16_mask(_mm512_slli_epi16(table, 13));
	const vec low[3] = { _mm512_shuffle_epi8(search->low[0], bytes),
		             _mm512_shuffle_epi8(search->low[1], bytes),
		             _mm512_shuffle_epi8(search->low[2], bytes) };
	search_narrow(&p, slot, low);
	const vec mid[3] = { _mm512_permutexvar_epi16(p.symbol, search->mid[0]),
		             _mm512_permutexvar_epi16(p.symbol, search->mid[1]),
		             _mm512_permutexvar_epi16(p.symbol, search->mid[2]) };
	search_narrow(&p, slot, mid);
	vec last = _mm512_mask_mov_epi16(
		_mm512_permutex2var_epi16(search->last[0], p.symbol, search->last[1]), upper,
		_mm512_permutex2var_epi16(search->last[2], p.symbol, search->last[3]));
	__mmask32 odd = _mm512_cmpge_epu16_mask(slot, last);
	p.symbol = _mm512_add_epi16(p.symbol, p.symbol);
	p.symbol = _mm512_mask_add_epi16(p.symbol, odd, p.symbol, _mm512_set1_epi16(1));
	p.from = _mm512_mask_mov_epi16(p.from, odd, last);
	p.to = _mm512_mask_mov_epi16(last, odd, p.to);
	return p;
}

/* Bytes of lanes 0..31 from the symbols of a search, without the table's bits. */
INLINE __m256i symbols_in_order(vec symbol)
{
	const __m256i halves = _mm256_broadcastsi128_si256(
		_mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
	__m256i mixed = _mm256_shuffle_epi8(_mm512_cvtepi16_epi8(symbol), halves);
	return _mm256_and_si256(_mm256_permute4x64_epi64(mixed, 0xd8),
	                        _mm256_set1_epi8(KVI_EXP_SYMBOLS - 1));
}

/* symbols_take by search. */
INLINE __m256i search_take(struct parts *st, const struct exp_search *search, const uint8_t *tab,
                           uint32_t active, const uint8_t **p)
{
	const vec low = SET(0xffff);
	struct parts table = tab_load(tab, active);
	vec slot = _mm512_and_si512(
		_mm512_or_si512(_mm512_and_si512(st->v[0], low), _mm512_slli_epi32(st->v[1], 16)),
		_mm512_set1_epi16(KVI_PROB_TOTAL - 1));
	struct search_result at = search_find(
		search, slot, _mm512_or_si512(table.v[0], _mm512_slli_epi32(table.v[1], 16)));
	vec freq = _mm512_sub_epi16(at.to, at.from);
	vec off = _mm512_sub_epi16(slot, at.from);
	const vec f[2] = { _mm512_and_si512(freq, low), _mm512_srli_epi32(freq, 16) };
	const vec o[2] = { _mm512_and_si512(off, low), _mm512_srli_epi32(off, 16) };
	EACH
		st->v[h] = _mm512_add_epi32(
			_mm512_mullo_epi32(_mm512_srli_epi32(st->v[h], KVI_PROB_BITS), f[h]), o[h]);
	EACH
		st->v[h] = v_renorm(st->v[h], (__mmask16)(active >> 16 * h), p);
	return symbols_in_order(at.symbol);
}

INLINE void exp_put(struct exp_out *out, __m256i m256i, bool merged, unsigned lanes,
                    uint32_t active)
{
	if (!merged) {
		_mm256_mask_storeu_epi8(out->e, active, m256i);
		out->e += lanes;
		return;
	}
	vec rest = _mm512_cvtepu8_epi16(_mm256_maskz_loadu_epi8(active, out->rest));
	vec sign = _mm512_and_si512(_mm512_slli_epi16(rest, 8), _mm512_set1_epi16((short)0x8000));
	vec mantissa = _mm512_and_si512(rest, _mm512_set1_epi16(0x7f));
	vec field = _mm512_slli_epi16(_mm512_cvtepu8_epi16(m256i), 7);
	_mm512_mask_storeu_epi16(out->x, active,
	                         _mm512_or_si512(_mm512_or_si512(sign, mantissa), field));
	out->rest += lanes;
	out->x += lanes;
}

/* The symbols of a step as bytes. */
INLINE __m256i lut_take(struct parts *st, const struct kvi_tables *tables, const uint8_t *tab,
                        bool per_step, uint32_t active, const uint8_t **p)
{
	struct parts s = tab_step_take(st, tables, tab, per_step, active, p);
	return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm512_cvtepi32_epi8(s.v[0])),
	                               _mm512_cvtepi32_epi8(s.v[1]), 1);
}

/* Decodes the exponent fields of a step; the caller has checked the feed. search: NULL, to use the
 * lut. */
INLINE const uint8_t *exp_step(const struct kvi_tables *tables, const struct exp_search *search,
                               const struct kvi_exp_ring *ring, struct parts *st, const uint8_t *p,
                               __m256i *fields, uint32_t *bad, bool per_step, uint32_t active)
{
	const __m256i escape = _mm256_set1_epi8(KVI_EXP_SYMBOLS - 1);
	__m256i top = exp_bytes_load(ring->top + ring->at, per_step, active);
	const uint8_t *tab = ring->tab + ring->at;
	__m256i symbol = search ? search_take(st, search, tab, active, &p)
	                        : lut_take(st, tables, tab, per_step, active, &p);
	__m256i e = _mm256_sub_epi8(top, symbol);
	uint32_t escaped = _mm256_mask_cmpeq_epi8_mask(active, symbol, escape);
	*bad |= _mm256_mask_cmplt_epu8_mask(active, top, symbol) & ~escaped;
	if (__builtin_expect(escaped != 0, 0)) {
		uint32_t a[KVI_LANES];
		uint8_t bytes[KVI_LANES];
		states_store(a, st, UINT32_MAX);
		_mm256_storeu_si256((__m256i *)bytes, e);
		p = kvi_escapes_take8(escaped, a, bytes, p);
		e = _mm256_loadu_si256((const __m256i *)bytes);
		*st = states_load(a);
	}
	*fields = e;
	return p;
}

/* The remaining steps of a span; false when the words do not suffice. */
INLINE bool exp_decode_span(struct exp_run *r, unsigned lanes, bool per_step, bool searched,
                            bool merged, bool full)
{
	if (full)
		lanes = KVI_LANES;
	const uint32_t active = first_active(lanes);
	const struct exp_search search = r->search;
	struct kvi_exp_ring ring = r->ring;
	struct parts st = states_load(r->state);
	const uint8_t *p = r->p;
	struct exp_out out = r->out;
	uint32_t bad = r->bad;
	for (size_t step = 0; step < r->steps; step++) {
		__m256i e;
		KVI_FEED_CHECK(&r->feed, p);
		p = exp_step(r->job->tables, searched ? &search : NULL, &ring, &st, p, &e, &bad,
		             per_step, active);
		exp_put(&out, e, merged, lanes, active);
		ring.at += per_step ? 1 : lanes;
		if (ring.at == ring.size)
			ring.at = 0;
	}
	states_store(r->state, &st, active);
	r->p = p;
	r->out = out;
	r->bad = bad;
	return true;
}

bool kvi_avx512_exp_open(struct exp_run *r, const struct kvi_exp_job *job,
                         const struct kvi_stream *in, void *out)
{
	const struct kvi_exp_spans s = kvi_exp_spans(job, false);
	r->job = job;
	r->ring = s.ring;
	r->p = kvi_feed_open(&r->feed, in);
	r->out = (struct exp_out){ out, job->rest, out };
	r->steps = s.full.steps;
	r->bad = 0;
	memcpy(r->state, in->state, sizeof(r->state));
	r->searched = !job->per_step && job->tables->n_tables <= SEARCHED;
	if (r->searched)
		search_make(&r->search, job->tables);
	return r->p != NULL;
}

/* Every kind of span has its own loop. */
static bool exp_run_span(struct exp_run *r, unsigned lanes, bool full)
{
	if (r->searched && r->job->rest)
		return full ? exp_decode_span(r, lanes, false, true, true, true)
		            : exp_decode_span(r, lanes, false, true, true, false);
	if (r->searched)
		return full ? exp_decode_span(r, lanes, false, true, false, true)
		            : exp_decode_span(r, lanes, false, true, false, false);
	if (!full)
		return exp_decode_span(r, lanes, r->job->per_step, false, false, false);
	return r->job->per_step ? exp_decode_span(r, lanes, true, false, false, true)
	                        : exp_decode_span(r, lanes, false, false, false, true);
}

bool kvi_avx512_exp_finish(struct exp_run *r)
{
	const struct kvi_exp_job *job = r->job;
	const struct kvi_exp_spans s = kvi_exp_spans(job, false);
	if (!exp_run_span(r, KVI_LANES, true))
		return false;
	r->ring = s.tail_ring;
	r->steps = s.tail.steps;
	if (s.tail.steps && !exp_run_span(r, s.tail.lanes, false))
		return false;
	return kvi_feed_done(&r->feed, r->p, r->state) && r->bad == 0;
}

bool kvi_avx512_exp_decode(const struct kvi_exp_job *job, const struct kvi_stream *in, void *out)
{
	struct exp_run r;
	return kvi_avx512_exp_open(&r, job, in, out) && kvi_avx512_exp_finish(&r);
}

/*
 * Steps of two streams alternately: each waits for its own table look-ups, and
 * meanwhile the other has work. Ends with the shorter one, or near the end of
 * the words of either.
 */
INLINE void exp_decode_both(struct exp_run *run, struct exp_run *exp_run, bool searched,
                            bool merged)
{
	const size_t most = run->steps < exp_run->steps ? run->steps : exp_run->steps;
	const struct exp_search search_a = run->search, search_b = exp_run->search;
	struct kvi_exp_ring ring_a = run->ring, ring_b = exp_run->ring;
	struct parts st_a = states_load(run->state), st_b = states_load(exp_run->state);
	const uint8_t *p_a = run->p, *p_b = exp_run->p;
	const uint8_t *safe_a = run->feed.safe, *safe_b = exp_run->feed.safe;
	struct exp_out out_a = run->out, out_b = exp_run->out;
	uint32_t bad_a = 0, bad_b = 0;
	size_t step = 0;
	for (; step < most && p_a <= safe_a && p_b <= safe_b; step++) {
		__m256i e_a, e_b;
		p_a = exp_step(run->job->tables, searched ? &search_a : NULL, &ring_a, &st_a, p_a,
		               &e_a, &bad_a, false, UINT32_MAX);
		p_b = exp_step(exp_run->job->tables, searched ? &search_b : NULL, &ring_b, &st_b,
		               p_b, &e_b, &bad_b, false, UINT32_MAX);
		exp_put(&out_a, e_a, merged, KVI_LANES, UINT32_MAX);
		exp_put(&out_b, e_b, merged, KVI_LANES, UINT32_MAX);
		ring_a.at += KVI_LANES;
		ring_b.at += KVI_LANES;
		if (ring_a.at == ring_a.size)
			ring_a.at = 0;
		if (ring_b.at == ring_b.size)
			ring_b.at = 0;
	}
	states_store(run->state, &st_a, UINT32_MAX);
	states_store(exp_run->state, &st_b, UINT32_MAX);
	run->ring = ring_a;
	exp_run->ring = ring_b;
	run->p = p_a;
	exp_run->p = p_b;
	run->out = out_a;
	exp_run->out = out_b;
	run->bad |= bad_a;
	exp_run->bad |= bad_b;
	run->steps -= step;
	exp_run->steps -= step;
}

void kvi_avx512_exp_decode2(const struct kvi_exp_job *const job[2],
                            const struct kvi_stream *const in[2], void *const out[2], bool ok[2])
{
	struct exp_run r[2];
	for (int i = 0; i < 2; i++)
		ok[i] = kvi_avx512_exp_open(&r[i], job[i], in[i], out[i]);
	bool both = ok[0] && ok[1] && r[0].searched == r[1].searched &&
	            !job[0]->rest == !job[1]->rest;
	if (both && r[0].searched && job[0]->rest)
		exp_decode_both(&r[0], &r[1], true, true);
	else if (both && r[0].searched)
		exp_decode_both(&r[0], &r[1], true, false);
	else if (both && !job[0]->per_step && !job[1]->per_step)
		exp_decode_both(&r[0], &r[1], false, false);
	for (int i = 0; i < 2; i++)
		ok[i] = ok[i] && kvi_avx512_exp_finish(&r[i]);
}

/*
 * The encoder's entries of up to 6 tables of exponents in registers: two tables
 * a permutation, both halves of a step at once. Gathers took a third of it.
 */
enum { EXP_HELD = 6 };

struct held_tables {
	vec freq[EXP_HELD], cum[EXP_HELD], order;
};

INLINE void held_load(struct held_tables *held_tables, const struct kvi_tables *tables)
{
	held_tables->order = halves_order(false);
	for (size_t i = 0; i < EXP_HELD; i++) {
		size_t at = i < tables->n_tables ? i : 0;
		const uint32_t *enc = tables->enc + at * EXP_STRIDE;
		vec a = _mm512_loadu_si512(enc);
		vec b = _mm512_loadu_si512(enc + 16);
		held_tables->freq[i] =
			_mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi32_epi16(a)),
		                           _mm512_cvtepi32_epi16(b), 1);
		a = _mm512_srli_epi32(a, 16);
		b = _mm512_srli_epi32(b, 16);
		held_tables->cum[i] =
			_mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi32_epi16(a)),
		                           _mm512_cvtepi32_epi16(b), 1);
	}
}

/* 32 values of the tables v at index, the number of the table above the 5 bits
 * of the symbol. second, third: lanes of tables 2 and 3, and 4 and 5. */
INLINE vec held_find(const vec v[EXP_HELD], vec index, __mmask32 second, __mmask32 third)
{
	vec x = _mm512_permutex2var_epi16(v[0], index, v[1]);
	x = _mm512_mask_mov_epi16(x, second, _mm512_permutex2var_epi16(v[2], index, v[3]));
	return _mm512_mask_mov_epi16(x, third, _mm512_permutex2var_epi16(v[4], index, v[5]));
}

/* The mirror image of phase 1. */
INLINE void held_put(struct parts *st, const struct held_tables *tables, __m256i table,
                     __m256i symbol, uint16_t **w)
{
	vec index = _mm512_cvtepu8_epi16(_mm256_or_si256(_mm256_slli_epi16(table, 5), symbol));
	index = _mm512_permutexvar_epi16(tables->order, index);
	__mmask32 second = _mm512_test_epi16_mask(index, _mm512_set1_epi16(0x40));
	__mmask32 third = _mm512_test_epi16_mask(index, _mm512_set1_epi16(0x80));
	struct parts freq = halves_widen(held_find(tables->freq, index, second, third));
	struct parts cum = halves_widen(held_find(tables->cum, index, second, third));
	EACH_BACK
	st->v[h] = symbol_put(st->v[h], freq.v[h], cum.v[h], ACTIVE(ALL_LANES, h), w);
}

INLINE uint16_t *exp_encode_span(const struct kvi_exp_job *job, const struct kvi_span *span,
                                 struct kvi_exp_ring ring, const uint8_t *x, uint32_t *state,
                                 uint16_t *w, bool per_step, bool full, bool held)
{
	const unsigned lanes = full ? KVI_LANES : span->lanes;
	const uint32_t active = first_active(lanes);
	const __m256i escape = _mm256_set1_epi8(KVI_EXP_SYMBOLS - 1);
	struct parts st = states_load(state);
	struct held_tables tables;
	if (held)
		held_load(&tables, job->tables);
	x += span->steps * lanes;
	for (size_t step = span->steps; step-- > 0;) {
		if (ring.at == 0)
			ring.at = ring.size;
		ring.at -= per_step ? 1 : lanes;
		x -= lanes;
		__m256i top = exp_bytes_load(ring.top + ring.at, per_step, active);
		__m256i e = _mm256_maskz_loadu_epi8(active, x);
		__m256i symbol = _mm256_sub_epi8(top, e);
		uint32_t near = _mm256_cmple_epu8_mask(e, top) &
		                _mm256_cmplt_epu8_mask(symbol, escape);
		uint32_t escaped = active & ~near;
		symbol = _mm256_mask_mov_epi8(escape, near, symbol);
		if (__builtin_expect(escaped != 0, 0)) {
			uint32_t a[KVI_LANES];
			states_store(a, &st, UINT32_MAX);
			kvi_escapes_put8(escaped, a, x, &w);
			st = states_load(a);
		}
		if (held) {
			held_put(&st, &tables, exp_bytes_load(ring.tab + ring.at, false, active),
			         symbol, &w);
			continue;
		}
		struct parts s = { { _mm512_cvtepu8_epi32(_mm256_castsi256_si128(symbol)),
			             _mm512_cvtepu8_epi32(_mm256_extracti128_si256(symbol, 1)) } };
		struct parts entry = tab_entries(job->tables, ring.tab + ring.at, per_step, active,
		                                 &s);
		symbols_put(&st, &entry, active, &w);
	}
	states_store(state, &st, active);
	return w;
}

void kvi_avx512_exp_encode_open(struct exp_encode_run *r, const struct kvi_exp_job *job,
                                const uint8_t *e, uint16_t *end)
{
	const struct kvi_exp_spans s = kvi_exp_spans(job, true);
	*r = (struct exp_encode_run){
		.job = job,
		.ring = s.ring,
		.x = e + s.full.steps * KVI_LANES,
		.w = end,
		.end = end,
		.steps = s.full.steps,
	};
	kvi_states_start(r->state);
	if (s.tail.steps)
		r->w = exp_encode_span(job, &s.tail, s.tail_ring, r->x, r->state, r->w,
		                       job->per_step, false, false);
}

size_t kvi_avx512_exp_encode_finish(struct exp_encode_run *r, uint32_t state[KVI_LANES])
{
	const struct kvi_exp_job *job = r->job;
	const struct kvi_span span = { .steps = r->steps, .lanes = KVI_LANES };
	const uint8_t *e = r->x - r->steps * KVI_LANES;
	const bool held = job->tables->n_tables <= EXP_HELD;
	uint16_t *w = r->w;
	if (job->per_step)
		w = exp_encode_span(job, &span, r->ring, e, r->state, w, true, true, false);
	else if (held)
		w = exp_encode_span(job, &span, r->ring, e, r->state, w, false, true, true);
	else
		w = exp_encode_span(job, &span, r->ring, e, r->state, w, false, true, false);
	memcpy(state, r->state, sizeof(r->state));
	return (size_t)(r->end - w);
}

size_t kvi_avx512_exp_encode(const struct kvi_exp_job *job, const uint8_t *e, uint16_t *end,
                             uint32_t state[KVI_LANES])
{
	struct exp_encode_run r;
	kvi_avx512_exp_encode_open(&r, job, e, end);
	return kvi_avx512_exp_encode_finish(&r, state);
}
