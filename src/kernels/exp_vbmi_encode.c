/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * exp_vbmi_encode.c - two streams of exponents at once (spec exponent) with AVX-512 VBMI and VBMI2
 *
 * Steps of two streams take turns, so that one has work while the other waits for its quotients.
 * All but the quotients is done with halves of states, 32 lanes at once.
 */
#include "config.h"

#include "exp_run.h"

#include "escapes.h"
#include "halves_vbmi.h"
#include "slots.h"

#if defined(KVI_AVX512VNNI)

/* PAIRS: of tables in registers; two of 32 symbols a permutation. */
enum { PAIRS = 3, ESCAPE = KVI_EXP_SYMBOLS - 1 };

/* Frequencies times 2^SCALE, and what stands in front of a symbol; a table a vector. */
struct entries {
	vec freq[2 * PAIRS], cum[2 * PAIRS];
};

static void entries_make(struct entries *entries, const struct kvi_tables *tables)
{
	for (size_t i = 0; i < 2 * PAIRS; i++) {
		size_t at = i < tables->n_tables ? i : 0;
		const uint32_t *enc = tables->enc + at * KVI_EXP_SYMBOLS;
		halves_of(enc, &entries->freq[i], &entries->cum[i]);
		entries->freq[i] = _mm512_slli_epi16(entries->freq[i], SCALE);
	}
}

/* The encoder's entries of the symbols. index: the number of the table above the bits of the
 * symbol. */
INLINE vec entry_of(const vec v[2 * PAIRS], vec index)
{
	const __mmask32 second = _mm512_test_epi16_mask(index, SET16(0x40));
	const __mmask32 third = _mm512_test_epi16_mask(index, SET16(0x80));
	vec x = _mm512_permutex2var_epi16(v[0], index, v[1]);
	x = _mm512_mask_mov_epi16(x, second, _mm512_permutex2var_epi16(v[2], index, v[3]));
	return _mm512_mask_mov_epi16(x, third, _mm512_permutex2var_epi16(v[4], index, v[5]));
}

/* Constants of all steps. */
struct encode_masks {
	vec low, high; /* order of halves of two vectors, as unpacked, in natural order */
	vec one, total;
};

INLINE struct encode_masks encode_masks_load(void)
{
	uint16_t low[KVI_LANES], high[KVI_LANES];
	for (unsigned i = 0; i < KVI_LANES; i++) {
		low[i] = (uint16_t)(i / 8 * 8 + i % 4 * 2 + (i & 4 ? KVI_LANES : 0));
		high[i] = (uint16_t)(low[i] + 1);
	}
	return (struct encode_masks){
		.low = v_load(low),
		.high = v_load(high),
		.one = SET16(1),
		.total = SET16(KVI_PROB_TOTAL),
	};
}

/* A stream on its way, from its last step to the first. */
struct encode_run {
	vec low, high;                                      /* halves of the states */
	const uint8_t *x, *tab, *top, *tab_ring, *ring_end; /* x, tab, top: behind the next step */
	uint16_t *w;
};

/* The low halves of some lanes go below *w, that of the first lane lowest. */
INLINE VBMI void words_put(vec low, __mmask32 lanes, uint16_t **w)
{
	/* behind n numbers from 0 on the words of n lanes end */
	static const uint16_t last[2 * KVI_LANES]
		__attribute__((aligned(64))) = { 0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12,
		                                 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25,
		                                 26, 27, 28, 29, 30, 31, 0,  1,  2,  3,  4,  5,  6,
		                                 7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19,
		                                 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31 };
	const unsigned n = (unsigned)_mm_popcnt_u32(lanes);
	vec packed = _mm512_permutexvar_epi16(v_load(last + n),
	                                      _mm512_maskz_compress_epi16(lanes, low));
	v_store(*w - KVI_LANES, packed);
	*w -= n;
}

/* Approximates st / freq: exact or one too small (divided_put). */
INLINE vec quotient(vec st, vec freq)
{
	__m512 ratio = _mm512_mul_round_ps(_mm512_cvt_roundepu32_ps(st, ROUND_DOWN),
	                                   reciprocal(freq), ROUND_DOWN);
	return _mm512_cvtt_roundps_epu32(ratio, _MM_FROUND_NO_EXC);
}

static void escapes_put(struct encode_run *r, uint32_t escaped)
{
	uint32_t st[KVI_LANES];
	halves_join(st, r->low, r->high);
	kvi_escapes_put8(escaped, st, r->x, &r->w);
	halves_of(st, &r->low, &r->high);
}

/* A step of a stream. */
struct encode_work {
	__m256i symbol;
	uint32_t near; /* lanes whose symbol is not the escape */
	vec scaled, freq, cum;
	vec a, b; /* quotients of lanes as halves are unpacked */
};

/* The symbols of the next step. */
INLINE VBMI void symbols_next(struct encode_work *work, struct encode_run *r)
{
	const __m256i escape = _mm256_set1_epi8(ESCAPE);
	if (r->tab == r->tab_ring) {
		r->top += r->ring_end - r->tab_ring;
		r->tab = r->ring_end;
	}
	r->x -= KVI_LANES;
	r->tab -= KVI_LANES;
	r->top -= KVI_LANES;
	const __m256i top = _mm256_loadu_si256((const __m256i *)r->top);
	const __m256i e = _mm256_loadu_si256((const __m256i *)r->x);
	const __m256i symbol = _mm256_sub_epi8(top, e);
	work->near = _mm256_cmple_epu8_mask(e, top) & _mm256_cmplt_epu8_mask(symbol, escape);
	work->symbol = _mm256_mask_mov_epi8(escape, work->near, symbol);
}

INLINE VBMI void entries_find(struct encode_work *work, const struct encode_run *r,
                              const struct entries *entries)
{
	const __m256i table = _mm256_loadu_si256((const __m256i *)r->tab);
	const vec index =
		_mm512_cvtepu8_epi16(_mm256_or_si256(_mm256_slli_epi16(table, 5), work->symbol));
	work->scaled = entry_of(entries->freq, index);
	work->cum = entry_of(entries->cum, index);
	work->freq = _mm512_srli_epi16(work->scaled, SCALE);
}

/* States that would be too large, which are those of at least 2^21 freq, leave their low words. */
INLINE VBMI void states_shrink(struct encode_run *r, const struct encode_work *work)
{
	const __mmask32 over = _mm512_cmpge_epu16_mask(r->high, work->scaled);
	words_put(r->low, over, &r->w);
	r->low = _mm512_mask_mov_epi16(r->low, over, r->high);
	r->high = _mm512_maskz_mov_epi16(~over, r->high);
}

/*
 * State work becomes 2^11 (work / freq) + cum + work % freq, in halves: the remainder, by the low
 * halves of work and of the quotient alone, is right as it is below 2^12.
 */
INLINE VBMI void state_put(struct encode_run *r, const struct encode_work *work,
                           const struct encode_masks *masks)
{
	const vec q = _mm512_permutex2var_epi16(work->a, masks->low, work->b);
	const vec q_high = _mm512_permutex2var_epi16(work->a, masks->high, work->b);
	vec rest = _mm512_sub_epi16(r->low, _mm512_mullo_epi16(q, work->freq));
	const __mmask32 more = _mm512_cmpge_epu16_mask(rest, work->freq);
	rest = _mm512_mask_sub_epi16(rest, more, rest, work->freq);
	const vec low = _mm512_add_epi16(_mm512_slli_epi16(q, KVI_PROB_BITS),
	                                 _mm512_add_epi16(rest, work->cum));
	r->low = _mm512_mask_add_epi16(low, more, low, masks->total);
	const __mmask32 carry = _mm512_mask_cmplt_epu16_mask(more, r->low, low);
	const vec high = _mm512_shldi_epi16(q_high, q, KVI_PROB_BITS);
	r->high = _mm512_mask_add_epi16(high, carry, high, masks->one);
}

/* A step of both streams, part by part: a processor looks for work less than a step ahead. */
INLINE VBMI void encode_step(struct encode_run r[2], const struct entries *entries,
                             const struct encode_masks *masks)
{
	const vec zero = _mm512_setzero_si512();
	struct encode_work s[2];
	BOTH
		symbols_next(&s[i], &r[i]);
	if (__builtin_expect((s[0].near & s[1].near) != UINT32_MAX, 0)) {
		BOTH {
			struct encode_run copy = r[i]; /* a copy, so that r[i] stays in registers */
			escapes_put(&copy, ~s[i].near);
			r[i].low = copy.low;
			r[i].high = copy.high;
			r[i].w = copy.w;
		}
	}
	BOTH
		entries_find(&s[i], &r[i], entries);
	BOTH
		states_shrink(&r[i], &s[i]);
	BOTH
		s[i].a = quotient(_mm512_unpacklo_epi16(r[i].low, r[i].high),
		                  _mm512_unpacklo_epi16(s[i].freq, zero));
	BOTH
		s[i].b = quotient(_mm512_unpackhi_epi16(r[i].low, r[i].high),
		                  _mm512_unpackhi_epi16(s[i].freq, zero));
	BOTH
		state_put(&r[i], &s[i], masks);
}

INLINE struct encode_run encode_begin(const struct exp_encode_run *r)
{
	struct encode_run v = {
		.x = r->x,
		.tab = r->ring.tab + r->ring.at,
		.top = r->ring.top + r->ring.at,
		.tab_ring = r->ring.tab,
		.ring_end = r->ring.tab + r->ring.size,
		.w = r->w,
	};
	halves_of(r->state, &v.low, &v.high);
	return v;
}

INLINE void encode_end(struct exp_encode_run *r, const struct encode_run *run, size_t steps)
{
	halves_join(r->state, run->low, run->high);
	r->ring.at = (size_t)(run->tab - run->tab_ring);
	r->x = run->x;
	r->w = run->w;
	r->steps -= steps;
}

/* The steps of the shorter stream, and as many of the other one. */
static VBMI void encode_both(struct exp_encode_run *first, struct exp_encode_run *second)
{
	const struct encode_masks k = encode_masks_load();
	const size_t steps = first->steps < second->steps ? first->steps : second->steps;
	struct encode_run both[2] = { encode_begin(first), encode_begin(second) };
	struct entries x;
	entries_make(&x, first->job->tables);
	for (size_t step = 0; step < steps; step++)
		encode_step(both, &x, &k);
	encode_end(first, &both[0], steps);
	encode_end(second, &both[1], steps);
}

void kvi_vbmi_exp_encode2(const struct kvi_exp_job *const job[2], const uint8_t *const e[2],
                          uint16_t *const end[2], size_t n[2], uint32_t *const state[2])
{
	struct exp_encode_run r[2];
	for (int i = 0; i < 2; i++)
		kvi_avx512_exp_encode_open(&r[i], job[i], e[i], end[i]);
	if (job[0]->tables == job[1]->tables && job[0]->tables->n_tables <= 2 * PAIRS &&
	    !job[0]->per_step && !job[1]->per_step)
		encode_both(&r[0], &r[1]);
	for (int i = 0; i < 2; i++)
		n[i] = kvi_avx512_exp_encode_finish(&r[i], state[i]);
}

#endif
