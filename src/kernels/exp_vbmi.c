/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * exp_vbmi.c - two or four streams of exponents at once (spec exponent) with AVX-512 VBMI and VBMI2
 *
 * The 32 states of a step are two vectors, low and high halves, lane i in word i: renormalisation
 * is one expansion. The symbol of a slot is found without memory and without a search: a window of
 * WINDOW symbols for each 128 slots, three bounds inside it, and the symbol itself for the last 32
 * slots, where rare symbols are. What no window holds, and escapes, are taken lane by lane.
 */
#include "config.h"

#include "exp_run.h"

#include "escapes.h"
#include "halves_vbmi.h"
#include "slots.h"

#if defined(KVI_AVX512VNNI)

#define UNROLLED _Pragma("GCC unroll 8") for
/* A loop over n streams whose steps are interleaved part by part, n a constant. */
#define OF_ALL KVI_UNROLL(4) for (unsigned i = 0; i < n; i++)

enum {
	BOUNDS = 3,
	WINDOW = BOUNDS + 1,
	SPANS = 16,    /* windows a table */
	SPAN_BITS = 7, /* bits of a slot in its window */
	TAIL = 32,     /* slots whose symbols are known */
	HELD = 128,    /* symbols of all tables that have numbers; 64 of each half of the tables */
	NARROW = 4,    /* most tables of which all symbols have numbers */
	ESCAPE = KVI_EXP_SYMBOLS - 1,
	MOST = 4 /* streams at once */
};

/* Tables in registers. A symbol's number is first[table] + symbol. */
struct windows {
	vec base[2];          /* number of the window's last symbol, by table and span */
	vec bound[BOUNDS][2]; /* begins of its other symbols, in slots of the span, 0 to 128 */
	vec tail[4];          /* numbers by table and slot */
	vec from[4], freq[4]; /* begin and frequency by number; the frequency of the escape is 0 */
	vec first;            /* number of symbol 0, by table */
	vec upper;            /* the first table of the upper half */
	bool wide;            /* there are more than NARROW tables */
};

/* The windows in memory, while they are made. */
struct windows_bytes {
	uint8_t base[HELD], bound[BOUNDS][HELD], tail[2 * HELD];
	uint16_t from[HELD], freq[HELD], first[KVI_LANES];
};

/* The numbers i, i + step, ... of 32 lanes. */
INLINE vec ascending(unsigned i, unsigned step)
{
	uint16_t v[KVI_LANES];
	for (unsigned l = 0; l < KVI_LANES; l++)
		v[l] = (uint16_t)(i + step * l);
	return v_load(v);
}

/* Table t, of whose symbols `held` have numbers. The window of a span is that which holds most of
 * its slots. */
static void table_make(struct windows_bytes *w, const uint32_t *enc, unsigned t, unsigned first,
                       unsigned held)
{
	const vec a = v_load(enc), b = v_load(enc + 16);
	const vec cum = narrowed(v_shr(a, 16), v_shr(b, 16));
	const vec freq = _mm512_maskz_mov_epi16(~(1u << ESCAPE), narrowed(a, b));
	const vec begin = ascending(0, 1 << SPAN_BITS), slots = ascending(KVI_PROB_TOTAL - TAIL, 1);
	const vec end = _mm512_add_epi16(begin, SET16(1 << SPAN_BITS));
	const __mmask32 kept = held < KVI_LANES ? (1u << held) - 1 : UINT32_MAX;
	vec most = _mm512_setzero_si512(), window = most, tail = most;
	for (unsigned s = 0; s + BOUNDS < held && s + BOUNDS < ESCAPE; s++) {
		vec to = _mm512_min_epu16(end, SET16(enc[s + WINDOW] >> 16));
		vec here = _mm512_subs_epu16(to, _mm512_max_epu16(begin, SET16(enc[s] >> 16)));
		__mmask32 more = _mm512_cmpgt_epu16_mask(here, most);
		most = _mm512_max_epu16(here, most);
		window = _mm512_mask_mov_epi16(window, more, SET16(s));
	}
	for (unsigned s = 1; s < KVI_EXP_SYMBOLS; s++)
		tail = _mm512_mask_mov_epi16(
			tail, _mm512_cmpge_epu16_mask(slots, SET16(enc[s] >> 16)), SET16(s));
	/* number 0 holds none of these slots */
	tail = _mm512_maskz_mov_epi16(_mm512_cmplt_epu16_mask(tail, SET16(held)), tail);
	_mm512_mask_storeu_epi16(w->from + first, kept, _mm512_slli_epi16(cum, SCALE));
	_mm512_mask_storeu_epi16(w->freq + first, kept, _mm512_slli_epi16(freq, SCALE));
	_mm256_storeu_si256((__m256i *)(w->tail + TAIL * t),
	                    _mm512_cvtepi16_epi8(_mm512_add_epi16(tail, SET16(first))));
	vec last = _mm512_add_epi16(window, SET16(first + BOUNDS));
	_mm_storeu_si128(
		(__m128i *)(w->base + SPANS * t),
		_mm512_castsi512_si128(_mm512_castsi256_si512(_mm512_cvtepi16_epi8(last))));
	for (unsigned i = 0; i < BOUNDS; i++) {
		vec at = _mm512_permutexvar_epi16(_mm512_add_epi16(window, SET16(i + 1)), cum);
		at = _mm512_min_epu16(_mm512_subs_epu16(at, begin), SET16(1 << SPAN_BITS));
		_mm_storeu_si128((__m128i *)(w->bound[i] + SPANS * t),
		                 _mm256_castsi256_si128(_mm512_cvtepi16_epi8(at)));
	}
}

static void windows_make(struct windows *windows, const struct kvi_tables *tables)
{
	const unsigned half = tables->n_tables < 2 ? 1 : (unsigned)(tables->n_tables + 1) / 2;
	const unsigned held = half <= 2 ? KVI_EXP_SYMBOLS : HELD / 2 / half;
	struct windows_bytes w = { .first = { 0 } };
	for (unsigned t = 0; t < tables->n_tables; t++) {
		w.first[t] = (uint16_t)(t / half * (HELD / 2) + t % half * held);
		table_make(&w, tables->enc + t * KVI_EXP_SYMBOLS, t, w.first[t], held);
	}
	for (unsigned i = 0; i < 2; i++) {
		windows->base[i] = v_load(w.base + 64 * i);
		for (unsigned k = 0; k < BOUNDS; k++)
			windows->bound[k][i] = v_load(w.bound[k] + 64 * i);
	}
	for (unsigned i = 0; i < 4; i++) {
		windows->tail[i] = v_load(w.tail + 64 * i);
		windows->from[i] = v_load(w.from + 32 * i);
		windows->freq[i] = v_load(w.freq + 32 * i);
	}
	windows->first = v_load(w.first);
	windows->upper = SET16(half);
	windows->wide = tables->n_tables > NARROW;
}

/* Constants of all steps. */
struct vbmi_masks {
	__mmask64 low; /* low bytes of words */
	vec part;      /* slot in its span */
	vec high;      /* the bits of a low half above the slot */
	vec symbol, one, field, twice;
};

INLINE struct vbmi_masks vbmi_masks_load(void)
{
	return (struct vbmi_masks){
		.low = 0x5555555555555555,
		.part = SET16((1 << SPAN_BITS) - 1),
		.high = SET16(0x10000 - KVI_PROB_TOTAL),
		.symbol = SET16(KVI_EXP_SYMBOLS - 1),
		.one = SET16(1),
		.field = SET16(0xff << 7),
		.twice = ascending(0, 0x101),
	};
}

/* 16-bit numbers of 64 each in the lower and the upper half of the tables. */
INLINE vec VBMI held_find(const vec v[4], vec number, __mmask32 upper)
{
	vec a = _mm512_permutex2var_epi16(v[0], number, v[1]);
	vec b = _mm512_permutex2var_epi16(v[2], number, v[3]);
	return _mm512_mask_mov_epi16(a, upper, b);
}

/* A step's symbols, and where they begin and how long they are, times 2^SCALE. */
struct vbmi_found {
	vec symbol, from, freq;
	uint32_t escaped;
};

/* Finds the symbols of lanes that no window holds. scaled: slots times 2^SCALE. */
static void VBMI found_repair(struct vbmi_found *found, uint32_t lanes, vec scaled,
                              const struct kvi_tables *tables, const uint8_t *tab)
{
	uint16_t slot[KVI_LANES];
	v_store(slot, _mm512_srli_epi16(scaled, SCALE));
	for (; lanes; lanes &= lanes - 1) {
		const unsigned l = (unsigned)__builtin_ctz(lanes);
		const uint32_t *enc = tables->enc + tab[l] * KVI_EXP_SYMBOLS, bit = 1u << l;
		const vec most = SET((uint32_t)slot[l] << 16 | 0xffff);
		unsigned s = (unsigned)_mm_popcnt_u32(_mm512_cmple_epu32_mask(v_load(enc), most));
		s += (unsigned)_mm_popcnt_u32(_mm512_cmple_epu32_mask(v_load(enc + 16), most));
		s--;
		found->symbol = _mm512_mask_mov_epi16(found->symbol, bit, SET16(s));
		found->from = _mm512_mask_mov_epi16(found->from, bit, SET16(enc[s] >> 16 << SCALE));
		found->freq = _mm512_mask_mov_epi16(found->freq, bit, SET16(enc[s] << SCALE));
		found->escaped |= s == ESCAPE ? bit : 0;
	}
}

/* A stream on its way. */
struct vbmi_run {
	const struct kvi_tables *tables;
	vec low, high;                                      /* halves of the states */
	const uint8_t *p, *tab, *top, *tab_ring, *ring_end; /* tab, top: of the next step */
	struct exp_out out;
	vec bad; /* bit 15: a symbol gave E < 0 */
};

/* Exponents of the lanes, with those that are escaped. */
static vec escapes_of(struct vbmi_run *r, vec e, uint32_t escaped)
{
	uint32_t st[KVI_LANES];
	uint8_t bytes[KVI_LANES];
	halves_join(st, r->low, r->high);
	r->p = kvi_escapes_take8(escaped, st, bytes, r->p);
	halves_of(st, &r->low, &r->high);
	return _mm512_mask_mov_epi16(
		e, escaped, _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)bytes)));
}

INLINE void VBMI vbmi_put(struct exp_out *out, vec e, const struct vbmi_masks *masks, bool merged)
{
	if (!merged) {
		_mm256_storeu_si256((__m256i *)out->e, _mm512_cvtepi16_epi8(e));
		out->e += KVI_LANES;
		return;
	}
	/* a byte fills both halves of its element: one gives the sign, the other the mantissa */
	vec rest = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)out->rest));
	rest = _mm512_permutexvar_epi8(masks->twice, rest);
	v_store(out->x,
	        _mm512_ternarylogic_epi32(_mm512_slli_epi16(e, 7), rest, masks->field, 0xe4));
	out->rest += KVI_LANES;
	out->x += KVI_LANES;
}

/* A step of a stream. */
struct vbmi_work {
	vec table, scaled; /* scaled: slots times 2^SCALE */
	vec number, off;   /* off: of a slot in its symbol, times 2^SCALE */
	__mmask32 missed;  /* lanes that no window holds */
	struct vbmi_found f;
};

/* Numbers of the symbols, by the windows and the tails of the tables. */
INLINE void VBMI numbers_find(struct vbmi_work *work, const struct vbmi_run *r,
                              const struct windows *windows, const struct vbmi_masks *masks,
                              bool wide)
{
	work->table = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)r->tab));
	work->scaled = _mm512_slli_epi16(r->low, SCALE);
	const vec part = v_and(r->low, masks->part);
	const vec span = _mm512_shldi_epi16(work->table, work->scaled, 4);
	const vec in_tail = _mm512_shldi_epi16(work->table, _mm512_slli_epi16(r->low, 11), 5);
	vec number = _mm512_maskz_permutex2var_epi8(masks->low, windows->base[0], span,
	                                            windows->base[1]);
	UNROLLED(unsigned i = 0; i < BOUNDS; i++)
	{
		vec at = _mm512_maskz_permutex2var_epi8(masks->low, windows->bound[i][0], span,
		                                        windows->bound[i][1]);
		number = _mm512_add_epi16(number,
		                          _mm512_srai_epi16(_mm512_sub_epi16(part, at), 15));
	}
	vec tail = _mm512_maskz_permutex2var_epi8(masks->low, windows->tail[0], in_tail,
	                                          windows->tail[1]);
	if (wide) {
		vec more = _mm512_permutex2var_epi8(windows->tail[2], in_tail, windows->tail[3]);
		__mmask64 far = _mm512_test_epi8_mask(in_tail, SET16(0x80));
		tail = _mm512_mask_mov_epi8(tail, far, more);
	}
	const vec least = SET16((KVI_PROB_TOTAL - TAIL) << SCALE);
	work->number = _mm512_mask_mov_epi16(number, _mm512_cmpge_epu16_mask(work->scaled, least),
	                                     tail);
}

/* Looks up begin, frequency and symbol of the numbers, and finds the lanes that no window holds. */
INLINE void VBMI windows_find(struct vbmi_work *work, const struct windows *windows,
                              const struct vbmi_masks *masks, bool wide)
{
	const __mmask32 upper = _mm512_cmpge_epu16_mask(work->table, windows->upper);
	work->f.from = held_find(windows->from, work->number, upper);
	work->f.freq = held_find(windows->freq, work->number, upper);
	work->f.symbol = wide ? _mm512_sub_epi16(work->number, _mm512_permutexvar_epi16(
								       work->table, windows->first))
	                      : v_and(work->number, masks->symbol);
	work->f.escaped = 0;
	work->off = _mm512_sub_epi16(work->scaled, work->f.from);
	work->missed = _mm512_cmpge_epu16_mask(work->off, work->f.freq);
}

/*
 * State work = 2^16 high + low becomes freq * (work >> 11) + slot - cum. With f = 2^5 freq that is
 * f * high, of 32 bits, + (f * (low without its slot) >> 16) + slot - cum, below 2^16.
 */
INLINE void VBMI state_take(struct vbmi_run *r, const struct vbmi_work *work,
                            const struct vbmi_masks *masks)
{
	vec add = _mm512_add_epi16(_mm512_mulhi_epu16(work->f.freq, v_and(r->low, masks->high)),
	                           _mm512_srli_epi16(work->off, SCALE));
	vec high = _mm512_mulhi_epu16(work->f.freq, r->high);
	vec low = _mm512_add_epi16(_mm512_mullo_epi16(work->f.freq, r->high), add);
	__mmask32 carry = _mm512_cmplt_epu16_mask(low, add);
	__mmask32 short_of = _kandn_mask32(carry, _mm512_testn_epi16_mask(high, high));
	high = _mm512_mask_add_epi16(high, carry, high, masks->one);
	r->high = _mm512_mask_mov_epi16(high, short_of, low);
	vec words = v_load(r->p);
	__asm__("" : "+v"(words)); /* expansion from memory is microcode */
	r->low = _mm512_mask_expand_epi16(low, short_of, words);
	r->p += 2 * (unsigned)_mm_popcnt_u32(short_of);
}

INLINE void vbmi_advance(struct vbmi_run *r)
{
	r->tab += KVI_LANES;
	r->top += KVI_LANES;
	if (r->tab == r->ring_end) {
		r->top -= r->ring_end - r->tab_ring;
		r->tab = r->tab_ring;
	}
}

/* A step of n streams, part by part: a processor looks for work less than a step ahead. Copies of
 * what rare calls change keep the rest in registers. */
INLINE void VBMI vbmi_step(struct vbmi_run *r, const unsigned n, const struct windows *windows,
                           const struct vbmi_masks *masks, bool merged, bool wide)
{
	struct vbmi_work s[MOST];
	vec e[MOST];
	__mmask32 missed = 0;
	uint32_t escaped = 0;
	OF_ALL
	numbers_find(&s[i], &r[i], windows, masks, wide);
	OF_ALL
	{
		windows_find(&s[i], windows, masks, wide);
		missed |= s[i].missed;
	}
	if (__builtin_expect(missed != 0, 0)) {
		OF_ALL
		{
			struct vbmi_found repaired = s[i].f;
			found_repair(&repaired, s[i].missed, s[i].scaled, r[i].tables, r[i].tab);
			s[i].f = repaired;
			s[i].off = _mm512_sub_epi16(s[i].scaled, repaired.from);
			escaped |= repaired.escaped;
		}
	}
	OF_ALL
	state_take(&r[i], &s[i], masks);
	OF_ALL
	{
		e[i] = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)r[i].top));
		e[i] = _mm512_sub_epi16(e[i], s[i].f.symbol);
	}
	if (__builtin_expect(escaped != 0, 0)) {
		OF_ALL
		{
			struct vbmi_run copy = r[i];
			e[i] = escapes_of(&copy, e[i], s[i].f.escaped);
			r[i].low = copy.low;
			r[i].high = copy.high;
			r[i].p = copy.p;
		}
	}
	OF_ALL
	{
		r[i].bad = v_or(r[i].bad, e[i]);
		vbmi_put(&r[i].out, e[i], masks, merged);
		vbmi_advance(&r[i]);
	}
}

INLINE struct vbmi_run vbmi_begin(const struct exp_run *r)
{
	const struct kvi_exp_ring *ring = &r->ring;
	struct vbmi_run v = {
		.tables = r->job->tables,
		.p = r->p,
		.tab = ring->tab + ring->at,
		.top = ring->top + ring->at,
		.tab_ring = ring->tab,
		.ring_end = ring->tab + ring->size,
		.out = r->out,
		.bad = _mm512_setzero_si512(),
	};
	halves_of(r->state, &v.low, &v.high);
	return v;
}

INLINE void vbmi_end(struct exp_run *r, const struct vbmi_run *run, size_t steps)
{
	halves_join(r->state, run->low, run->high);
	r->ring.at = (size_t)(run->tab - run->tab_ring);
	r->p = run->p;
	r->out = run->out;
	r->bad |= _mm512_movepi16_mask(run->bad);
	r->steps -= steps;
}

/* KVI_FEED_CHECK; false when the words do not suffice, which the last test of a stream finds. */
INLINE bool words_suffice(struct vbmi_run *run, struct kvi_feed *feed)
{
	if (__builtin_expect(run->p <= feed->safe, 1))
		return true;
	const uint8_t *p = kvi_feed_move(feed, run->p);
	if (p)
		run->p = p;
	return p;
}

/* Ends with the shortest stream, or where the words of one do not suffice. */
INLINE void VBMI vbmi_all(struct exp_run *run, const unsigned n, bool merged, bool wide)
{
	const struct vbmi_masks k = vbmi_masks_load();
	struct windows x;
	struct vbmi_run r[MOST];
	size_t most = SIZE_MAX, step = 0;
	OF_ALL
	{
		r[i] = vbmi_begin(&run[i]);
		most = run[i].steps < most ? run[i].steps : most;
	}
	windows_make(&x, run->job->tables);
	for (; step < most; step++) {
		bool suffice = true;
		OF_ALL
		suffice = suffice && words_suffice(&r[i], &run[i].feed);
		if (!suffice)
			break;
		vbmi_step(r, n, &x, &k, merged, wide);
	}
	OF_ALL
	vbmi_end(&run[i], &r[i], step);
}

#define LOOP(name, n, merged, wide)                \
	static void VBMI name(struct exp_run *run) \
	{                                          \
		vbmi_all(run, n, merged, wide);    \
	}
LOOP(merged_narrow2, 2, true, false)
LOOP(merged_wide2, 2, true, true)
LOOP(fields_narrow2, 2, false, false)
LOOP(fields_wide2, 2, false, true)
LOOP(merged_narrow4, 4, true, false)
LOOP(merged_wide4, 4, true, true)
LOOP(fields_narrow4, 4, false, false)
LOOP(fields_wide4, 4, false, true)

static void decode_all(const struct kvi_exp_job *const *job, const struct kvi_stream *const *in,
                       void *const *out, bool *ok, const unsigned n)
{
	static void (*const loop[2][2][2])(struct exp_run *) = {
		{ { fields_narrow2, fields_wide2 }, { merged_narrow2, merged_wide2 } },
		{ { fields_narrow4, fields_wide4 }, { merged_narrow4, merged_wide4 } }
	};
	struct exp_run r[MOST];
	bool alike = true;
	for (unsigned i = 0; i < n; i++) {
		ok[i] = kvi_avx512_exp_open(&r[i], job[i], in[i], out[i]);
		alike = alike && ok[i] && r[i].searched && job[i]->tables == job[0]->tables &&
		        !job[i]->rest == !job[0]->rest;
	}
	if (alike)
		loop[n > 2][job[0]->rest != NULL][job[0]->tables->n_tables > NARROW](r);
	for (unsigned i = 0; i < n; i++)
		ok[i] = ok[i] && kvi_avx512_exp_finish(&r[i]);
}

void kvi_vbmi_exp_decode2(const struct kvi_exp_job *const job[2],
                          const struct kvi_stream *const in[2], void *const out[2], bool ok[2])
{
	decode_all(job, in, out, ok, 2);
}

void kvi_vbmi_exp_decode4(const struct kvi_exp_job *const job[4],
                          const struct kvi_stream *const in[4], void *const out[4], bool ok[4])
{
	decode_all(job, in, out, ok, 4);
}

#endif
