/* SPDX-License-Identifier: BSD-3-Clause */
/* rans_avx512.c - symbols and exponents on 2 x 16 lanes */
#include "config.h"

#include "avx512.h"
#include "escapes.h"
#include "slots.h"

/* Table numbers of a step's lanes. */
INLINE struct pair tables_load(const uint8_t *tab, uint32_t active)
{
	struct pair t;
	HALVES
		t.v[h] = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(
			(__mmask16)(active >> 16 * h), tab + 16 * h));
	return t;
}

/* Phase 1 of a decoder's step under the tables at tab. */
INLINE struct pair step_take(struct pair *st, const struct kvi_tables *tables,
                             const uint8_t *tab, bool per_step,
                             uint32_t active, const uint8_t **p)
{
	const uint32_t *lut = tables->lut;
	if (per_step)
		return symbols_take(st, lut + ((size_t)*tab << KVI_PROB_BITS),
		                    NULL, active, p);
	struct pair table = tables_load(tab, active);
	return symbols_take(st, lut, &table, active, p);
}

INLINE const uint8_t *sym_decode_span(const struct kvi_sym_job *job,
                                      const struct kvi_span *span,
                                      const uint8_t *tab,
                                      struct kvi_feed *feed, const uint8_t *p,
                                      uint32_t *state, uint16_t *sym,
                                      uint8_t *esc, bool per_step, bool full)
{
	const unsigned lanes = full ? KVI_LANES : span->lanes;
	const uint32_t active = full ? UINT32_MAX : lanes_mask(lanes);
	const uint8_t *t = tab, *wrap = tab + span->ring * span->step_size;
	const vec escape = SET(job->escape);
	struct pair st = states_load(state);
	for (size_t step = 0; step < span->steps; step++) {
		uint32_t escaped = 0;
		KVI_FEED_CHECK(feed, p);
		struct pair s = step_take(&st, job->tables, t, per_step,
		                          active, &p);
		HALVES {
			__mmask16 act = (__mmask16)(active >> 16 * h);
			_mm512_mask_cvtepi32_storeu_epi16(sym + 16 * h, act,
			                                  s.v[h]);
			escaped |= (uint32_t)_mm512_mask_cmpeq_epi32_mask(
					   act, s.v[h], escape)
			           << 16 * h;
		}
		if (__builtin_expect(escaped != 0, 0)) {
			uint32_t a[KVI_LANES];
			states_store(a, &st, UINT32_MAX);
			p = kvi_escapes_take8(escaped, a, esc, p);
			st = states_load(a);
		}
		sym += lanes;
		esc += lanes;
		t += span->step_size;
		if (t == wrap)
			t = tab;
	}
	states_store(state, &st, active);
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
	if (job->per_step)
		p = sym_decode_span(job, &full, job->tab, &feed, p, state, sym,
		                    esc, true, true);
	else
		p = sym_decode_span(job, &full, job->tab, &feed, p, state, sym,
		                    esc, false, true);
	if (p && tail.steps)
		p = sym_decode_span(job, &tail, job->tab_tail, &feed, p, state,
		                    sym + n, esc + n, job->per_step, false);
	return p && kvi_feed_done(&feed, p, state);
}

/* Entries of the symbols for an encoder. */
INLINE struct pair entries_load(const struct kvi_tables *tables,
                                const uint8_t *tab, bool per_step,
                                uint32_t active, const struct pair *symbol)
{
	const int stride = __builtin_ctz((unsigned)tables->stride);
	const uint32_t *enc = tables->enc;
	struct pair index = *symbol, e;
	if (per_step) {
		enc += (size_t)*tab << stride;
	} else {
		struct pair t = tables_load(tab, active);
		HALVES
			index.v[h] = _mm512_add_epi32(
				index.v[h],
				_mm512_sll_epi32(t.v[h],
			                         _mm_cvtsi32_si128(stride)));
	}
	HALVES
		e.v[h] = gather(enc, index.v[h]);
	return e;
}

INLINE uint16_t *sym_encode_span(const struct kvi_sym_job *job,
                                 const struct kvi_span *span,
                                 const uint8_t *tab, const uint16_t *sym,
                                 const uint8_t *esc, uint32_t *state,
                                 uint16_t *w, bool per_step, bool full)
{
	const unsigned lanes = full ? KVI_LANES : span->lanes;
	const uint32_t active = full ? UINT32_MAX : lanes_mask(lanes);
	const uint8_t *wrap = tab + span->ring * span->step_size;
	const uint8_t *t = tab + span->steps % span->ring * span->step_size;
	const vec escape = SET(job->escape);
	struct pair st = states_load(state);
	sym += span->steps * lanes;
	esc += span->steps * lanes;
	for (size_t step = span->steps; step-- > 0;) {
		struct pair s;
		uint32_t escaped = 0;
		if (t == tab)
			t = wrap;
		t -= span->step_size;
		sym -= lanes;
		esc -= lanes;
		HALVES {
			__mmask16 act = (__mmask16)(active >> 16 * h);
			s.v[h] = _mm512_cvtepu16_epi32(
				_mm256_maskz_loadu_epi16(act, sym + 16 * h));
			escaped |= (uint32_t)_mm512_mask_cmpeq_epi32_mask(
					   act, s.v[h], escape)
			           << 16 * h;
		}
		if (__builtin_expect(escaped != 0, 0)) {
			uint32_t a[KVI_LANES];
			states_store(a, &st, UINT32_MAX);
			kvi_escapes_put8(escaped, a, esc, &w);
			st = states_load(a);
		}
		struct pair entry = entries_load(job->tables, t, per_step,
		                                 active, &s);
		symbols_put(&st, &entry, active, &w);
	}
	states_store(state, &st, active);
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
		                    esc + n, state, w, job->per_step, false);
	if (job->per_step)
		w = sym_encode_span(job, &full, job->tab, sym, esc, state, w,
		                    true, true);
	else
		w = sym_encode_span(job, &full, job->tab, sym, esc, state, w,
		                    false, true);
	return (size_t)(end - w);
}

/* --------------------------------------------------- exponent codec */

INLINE __m256i tops_load(const uint8_t *top, bool per_step, uint32_t active)
{
	return per_step ? _mm256_set1_epi8((char)*top)
	                : _mm256_maskz_loadu_epi8(active, top);
}

struct ring {
	const uint8_t *tab, *top; /* of the first step */
	size_t at, size;          /* in entries */
};

/* A stream of exponents on its way through the full steps. */
struct exp_run {
	const struct kvi_exp_job *job;
	struct ring ring;
	struct kvi_feed feed;
	const uint8_t *p;
	uint8_t *x;
	size_t steps; /* still to do */
	uint32_t bad; /* not 0: a symbol gave E < 0 */
	uint32_t state[KVI_LANES];
};

/* One step; the caller has checked the feed. */
INLINE const uint8_t *exp_step(const struct kvi_tables *tables,
                               const struct ring *ring, struct pair *st,
                               const uint8_t *p, uint8_t *x, uint32_t *bad,
                               bool per_step, uint32_t active)
{
	const __m256i escape = _mm256_set1_epi8(KVI_EXP_SYMBOLS - 1);
	__m256i top = tops_load(ring->top + ring->at, per_step, active);
	struct pair s = step_take(st, tables, ring->tab + ring->at, per_step,
	                          active, &p);
	__m256i symbol = _mm256_inserti128_si256(
		_mm256_castsi128_si256(_mm512_cvtepi32_epi8(s.v[0])),
		_mm512_cvtepi32_epi8(s.v[1]), 1);
	__m256i e = _mm256_sub_epi8(top, symbol);
	uint32_t escaped = _mm256_mask_cmpeq_epi8_mask(active, symbol, escape);
	*bad |= _mm256_mask_cmplt_epu8_mask(active, top, symbol) & ~escaped;
	_mm256_mask_storeu_epi8(x, active, e);
	if (__builtin_expect(escaped != 0, 0)) {
		uint32_t a[KVI_LANES];
		states_store(a, st, UINT32_MAX);
		p = kvi_escapes_take8(escaped, a, x, p);
		*st = states_load(a);
	}
	return p;
}

/* The steps that are left of a span; false when the words do not suffice. */
INLINE bool exp_decode_span(struct exp_run *r, unsigned lanes, bool per_step,
                            bool full)
{
	if (full)
		lanes = KVI_LANES;
	const uint32_t active = full ? UINT32_MAX : lanes_mask(lanes);
	struct ring ring = r->ring;
	struct pair st = states_load(r->state);
	const uint8_t *p = r->p;
	uint8_t *x = r->x;
	uint32_t bad = r->bad;
	for (size_t step = 0; step < r->steps; step++) {
		KVI_FEED_CHECK(&r->feed, p);
		p = exp_step(r->job->tables, &ring, &st, p, x, &bad, per_step,
		             active);
		x += lanes;
		ring.at += per_step ? 1 : lanes;
		if (ring.at == ring.size)
			ring.at = 0;
	}
	states_store(r->state, &st, active);
	r->p = p;
	r->x = x;
	r->bad = bad;
	return true;
}

/* False when the stream has too few words to begin with. */
static bool exp_run_open(struct exp_run *r, const struct kvi_exp_job *job,
                         const struct kvi_stream *in, uint8_t *e)
{
	const struct kvi_span full = kvi_span_full(
		&job->steps, job->tab_steps, job->per_step);
	r->job = job;
	r->ring = (struct ring){ job->tab, job->top, 0,
		                 full.ring * full.step_size };
	r->p = kvi_feed_open(&r->feed, in);
	r->x = e;
	r->steps = full.steps;
	r->bad = 0;
	memcpy(r->state, in->state, sizeof(r->state));
	return r->p != NULL;
}

static bool exp_run_finish(struct exp_run *r)
{
	const struct kvi_exp_job *job = r->job;
	const struct kvi_span tail = kvi_span_tail(&job->steps, job->per_step);
	if (!(job->per_step ? exp_decode_span(r, KVI_LANES, true, true)
	                    : exp_decode_span(r, KVI_LANES, false, true)))
		return false;
	r->ring = (struct ring){ job->tab_tail, job->top_tail, 0,
		                 tail.ring * tail.step_size };
	r->steps = tail.steps;
	if (tail.steps &&
	    !exp_decode_span(r, tail.lanes, job->per_step, false))
		return false;
	return kvi_feed_done(&r->feed, r->p, r->state) && r->bad == 0;
}

static bool exp_decode(const struct kvi_exp_job *job,
                       const struct kvi_stream *in, uint8_t *e)
{
	struct exp_run r;
	return exp_run_open(&r, job, in, e) && exp_run_finish(&r);
}

/*
 * Steps of two streams in turns: each waits for its own table look-ups, and
 * meanwhile the other has work. Ends with the shorter one, or near the end of
 * the words of either.
 */
static void exp_decode_both(struct exp_run *a, struct exp_run *b)
{
	const size_t most = a->steps < b->steps ? a->steps : b->steps;
	struct ring ring_a = a->ring, ring_b = b->ring;
	struct pair st_a = states_load(a->state), st_b = states_load(b->state);
	const uint8_t *p_a = a->p, *p_b = b->p;
	const uint8_t *safe_a = a->feed.safe, *safe_b = b->feed.safe;
	uint8_t *x_a = a->x, *x_b = b->x;
	uint32_t bad_a = 0, bad_b = 0;
	size_t step = 0;
	for (; step < most && p_a <= safe_a && p_b <= safe_b; step++) {
		p_a = exp_step(a->job->tables, &ring_a, &st_a, p_a, x_a,
		               &bad_a, false, UINT32_MAX);
		p_b = exp_step(b->job->tables, &ring_b, &st_b, p_b, x_b,
		               &bad_b, false, UINT32_MAX);
		x_a += KVI_LANES;
		x_b += KVI_LANES;
		ring_a.at += KVI_LANES;
		ring_b.at += KVI_LANES;
		if (ring_a.at == ring_a.size)
			ring_a.at = 0;
		if (ring_b.at == ring_b.size)
			ring_b.at = 0;
	}
	states_store(a->state, &st_a, UINT32_MAX);
	states_store(b->state, &st_b, UINT32_MAX);
	a->ring = ring_a;
	b->ring = ring_b;
	a->p = p_a;
	b->p = p_b;
	a->x = x_a;
	b->x = x_b;
	a->bad |= bad_a;
	b->bad |= bad_b;
	a->steps -= step;
	b->steps -= step;
}

static void exp_decode2(const struct kvi_exp_job *const job[2],
                        const struct kvi_stream *const in[2],
                        uint8_t *const e[2], bool ok[2])
{
	struct exp_run r[2];
	for (int i = 0; i < 2; i++)
		ok[i] = exp_run_open(&r[i], job[i], in[i], e[i]);
	if (ok[0] && ok[1] && !job[0]->per_step && !job[1]->per_step)
		exp_decode_both(&r[0], &r[1]);
	for (int i = 0; i < 2; i++)
		ok[i] = ok[i] && exp_run_finish(&r[i]);
}

/*
 * The encoder's entries of up to 6 tables of exponents in registers: two tables
 * a permutation, both halves of a step at once. Gathers took a third of it.
 */
enum { EXP_HELD = 6, EXP_STRIDE = 32 };

struct held {
	vec freq[EXP_HELD], cum[EXP_HELD];
};

INLINE void held_load(struct held *t, const struct kvi_tables *tables)
{
	for (size_t i = 0; i < EXP_HELD; i++) {
		size_t at = i < tables->n_tables ? i : 0;
		const uint32_t *enc = tables->enc + at * EXP_STRIDE;
		vec a = _mm512_loadu_si512(enc);
		vec b = _mm512_loadu_si512(enc + 16);
		t->freq[i] = _mm512_inserti64x4(
			_mm512_castsi256_si512(_mm512_cvtepi32_epi16(a)),
			_mm512_cvtepi32_epi16(b), 1);
		a = _mm512_srli_epi32(a, 16);
		b = _mm512_srli_epi32(b, 16);
		t->cum[i] = _mm512_inserti64x4(
			_mm512_castsi256_si512(_mm512_cvtepi32_epi16(a)),
			_mm512_cvtepi32_epi16(b), 1);
	}
}

/* 32 values of the tables v at index, the number of the table above the 5 bits
 * of the symbol. second, third: lanes of tables 2 and 3, and 4 and 5. */
INLINE vec held_find(const vec v[EXP_HELD], vec index, __mmask32 second,
                     __mmask32 third)
{
	vec x = _mm512_permutex2var_epi16(v[0], index, v[1]);
	x = _mm512_mask_mov_epi16(
		x, second, _mm512_permutex2var_epi16(v[2], index, v[3]));
	return _mm512_mask_mov_epi16(
		x, third, _mm512_permutex2var_epi16(v[4], index, v[5]));
}

INLINE struct pair held_entries(const struct held *t, __m256i table,
                                __m256i symbol)
{
	vec index = _mm512_cvtepu8_epi16(_mm256_or_si256(
		_mm256_slli_epi16(table, 5), symbol));
	__mmask32 third = _mm256_cmpgt_epu8_mask(table, _mm256_set1_epi8(3));
	__mmask32 second = _mm256_cmpgt_epu8_mask(table, _mm256_set1_epi8(1));
	vec freq = held_find(t->freq, index, second, third);
	vec cum = held_find(t->cum, index, second, third);
	struct pair e;
	e.v[0] = _mm512_or_si512(
		_mm512_cvtepu16_epi32(_mm512_castsi512_si256(freq)),
		_mm512_slli_epi32(_mm512_cvtepu16_epi32(
			_mm512_castsi512_si256(cum)), 16));
	e.v[1] = _mm512_or_si512(
		_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(freq, 1)),
		_mm512_slli_epi32(_mm512_cvtepu16_epi32(
			_mm512_extracti64x4_epi64(cum, 1)), 16));
	return e;
}

INLINE uint16_t *exp_encode_span(const struct kvi_exp_job *job,
                                 const struct kvi_span *span,
                                 struct ring ring, const uint8_t *x,
                                 uint32_t *state, uint16_t *w, bool per_step,
                                 bool full, bool held)
{
	const unsigned lanes = full ? KVI_LANES : span->lanes;
	const uint32_t active = full ? UINT32_MAX : lanes_mask(lanes);
	const __m256i escape = _mm256_set1_epi8(KVI_EXP_SYMBOLS - 1);
	struct pair st = states_load(state);
	struct held tables;
	if (held)
		held_load(&tables, job->tables);
	x += span->steps * lanes;
	for (size_t step = span->steps; step-- > 0;) {
		if (ring.at == 0)
			ring.at = ring.size;
		ring.at -= per_step ? 1 : lanes;
		x -= lanes;
		__m256i top = tops_load(ring.top + ring.at, per_step, active);
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
		struct pair entry;
		if (held) {
			entry = held_entries(
				&tables, tops_load(ring.tab + ring.at,
			                           per_step, active),
				symbol);
		} else {
			struct pair s = { {
				_mm512_cvtepu8_epi32(
					_mm256_castsi256_si128(symbol)),
				_mm512_cvtepu8_epi32(
					_mm256_extracti128_si256(symbol, 1))
			} };
			entry = entries_load(job->tables, ring.tab + ring.at,
			                     per_step, active, &s);
		}
		symbols_put(&st, &entry, active, &w);
	}
	states_store(state, &st, active);
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
		                    job->per_step, false, false);
	bool held = job->tables->n_tables <= EXP_HELD;
	if (job->per_step)
		w = exp_encode_span(job, &full, ring, e, state, w, true, true,
		                    false);
	else if (held)
		w = exp_encode_span(job, &full, ring, e, state, w, false,
		                    true, true);
	else
		w = exp_encode_span(job, &full, ring, e, state, w, false,
		                    true, false);
	return (size_t)(end - w);
}

#define KERNELS \
	.name = "avx512", \
	.isa = KVARC_ISA_AVX512, \
	.grid_encode = kvi_avx512_grid_encode, \
	.grid_decode = kvi_avx512_grid_decode, \
	.sym_encode = sym_encode, \
	.sym_decode = sym_decode, \
	.exp_encode = exp_encode, \
	.exp_decode = exp_decode, \
	.exp_decode2 = exp_decode2, \
	.grid_contexts = kvi_avx512_grid_contexts, \
	.rotated_contexts = kvi_avx512_rotated_contexts, \
	.bf16_split = kvi_avx2_bf16_split, \
	.bf16_merge = kvi_avx2_bf16_merge, \
	.transpose8 = kvi_avx2_transpose8, \
	.transpose16 = kvi_avx2_transpose16, \
	.slot = kvi_avx512_slot

const struct kvi_kernels kvi_kernels_avx512 = {
	KERNELS, .slot_rows = kvi_avx512_slot_rows
};
#if defined(KVI_AVX512VNNI)
const struct kvi_kernels kvi_kernels_avx512vnni = {
	KERNELS, .slot_rows = kvi_avx512vnni_slot_rows
};
#endif
