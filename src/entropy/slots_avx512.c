/* SPDX-License-Identifier: BSD-3-Clause */
/* slots_avx512.c - slots of the linear codec, 2 x 16 tokens a step */
#include "config.h"

#include "context_avx512.h"
#include "grid_avx512.h"
#include "slots.h"

enum { LIMIT = 32767 };

static const struct kvi_grid_format bf16_format = { 7, -126, 16, 7 };

/* --------------------------------------------------------- dot products */

#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif

INLINE vec load32(const void *p)
{
	return _mm512_loadu_si512(p);
}

INLINE void store32(void *p, vec v)
{
	_mm512_storeu_si512(p, v);
}

/* Two coefficients of a row, for all lanes. */
INLINE vec coefficients(const int16_t *p)
{
	int32_t both;
	memcpy(&both, p, sizeof(both));
	return _mm512_set1_epi32(both);
}

INLINE vec dot_madd(vec sum, vec features, vec coef)
{
	return _mm512_add_epi32(sum, _mm512_madd_epi16(features, coef));
}

/*
 * `rows` rows, a constant, of one step: all sums stay in registers. A macro,
 * for a set of its own that has a multiply-add of pairs.
 */
#define ROWS(name, dot, target)                                               \
	target INLINE void name##_some(int32_t *sum, const int16_t *coef,     \
	                               size_t coef_row, const int16_t *f,     \
	                               size_t n_pairs, const size_t rows)     \
	{                                                                     \
		vec acc[KVI_PANEL][2];                                        \
		UNROLL for (size_t r = 0; r < rows; r++) {                    \
			acc[r][0] = load32(sum + r * KVI_LANES);              \
			acc[r][1] = load32(sum + r * KVI_LANES + 16);         \
		}                                                             \
		for (size_t p = 0; p < n_pairs; p++, coef += 2) {             \
			vec x0 = load32(f), x1 = load32(f + 32);              \
			f += KVI_PAIR_STEP;                                   \
			UNROLL for (size_t r = 0; r < rows; r++) {            \
				vec c = coefficients(coef + r * coef_row);    \
				acc[r][0] = dot(acc[r][0], x0, c);            \
				acc[r][1] = dot(acc[r][1], x1, c);            \
			}                                                     \
		}                                                             \
		UNROLL for (size_t r = 0; r < rows; r++) {                    \
			store32(sum + r * KVI_LANES, acc[r][0]);              \
			store32(sum + r * KVI_LANES + 16, acc[r][1]);         \
		}                                                             \
	}                                                                     \
	target void name(const struct kvi_rows *r)                            \
	{                                                                     \
		for (size_t step = 0; step < r->steps; step++) {              \
			int32_t *s = r->sum + step * r->sum_step;             \
			const int16_t *c = r->coef;                           \
			const int16_t *f =                                    \
				r->features + step * r->feature_step;         \
			size_t i = 0;                                         \
			for (; i + KVI_PANEL <= r->rows; i += KVI_PANEL) {    \
				name##_some(s, c, r->coef_row, f, r->n_pairs, \
				            KVI_PANEL);                       \
				s += KVI_PANEL * KVI_LANES;                   \
				c += KVI_PANEL * r->coef_row;                 \
			}                                                     \
			for (; i < r->rows; i++) {                            \
				name##_some(s, c, r->coef_row, f, r->n_pairs, \
				            1);                               \
				s += KVI_LANES;                               \
				c += r->coef_row;                             \
			}                                                     \
		}                                                             \
	}

ROWS(kvi_avx512_slot_rows, dot_madd, )
#if defined(KVI_AVX512VNNI)
ROWS(kvi_avx512vnni_slot_rows, _mm512_dpwssd_epi32,
     __attribute__((target("avx512vnni"))))
#endif

/* ----------------------------------------------------------- prediction */

INLINE vec load_i16(const int16_t *p)
{
	return _mm512_cvtepi16_epi32(_mm256_loadu_si256((const __m256i *)p));
}

INLINE vec shift_right(vec v, unsigned n)
{
	return _mm512_sra_epi32(v, _mm_cvtsi32_si128((int)n));
}

/* Places of token t in sums and feature rows. */
INLINE size_t sum_at(const struct kvi_slot *s, size_t t)
{
	return t / KVI_LANES * s->sum_step + t % KVI_LANES;
}

INLINE size_t feature_at(const struct kvi_slot_job *j, size_t t)
{
	return t / KVI_LANES * j->feature_step + 2 * (t % KVI_LANES);
}

/* 16 tokens of a slot from t on, without and with what the same layer says. */
INLINE vec base_of(const struct kvi_slot *s, size_t t)
{
	vec base = SET(s->mean);
	if (s->table)
		base = _mm512_add_epi32(base, load_i16(s->table + t));
	if (s->below)
		base = _mm512_add_epi32(
			base, shift_right(load32(s->below + sum_at(s, t)),
			                  s->qa));
	return clamp(base, LIMIT);
}

INLINE vec pred_of(const struct kvi_slot *s, const struct kvi_slot_job *j,
                   size_t t, vec base)
{
	if (!s->sum)
		return base;
	vec sum = load32(s->sum + sum_at(s, t));
	const int16_t *f = j->near + feature_at(j, t);
	for (size_t p = 0; p < j->n_near; p++, f += KVI_PAIR_STEP)
		sum = dot_madd(sum, load32(f), coefficients(s->coef + 2 * p));
	return clamp(_mm512_add_epi32(base, shift_right(sum, s->qb)), LIMIT);
}

/* Two slots next to each other, as in a feature row; |a|, |b| < 2^15. */
INLINE vec side_by_side(vec a, vec b)
{
	return _mm512_mask_blend_epi16(0xaaaaaaaa, a, _mm512_slli_epi32(b, 16));
}

INLINE vec negated(vec v, __mmask32 which)
{
	return _mm512_mask_sub_epi16(v, which, _mm512_setzero_si512(), v);
}

/* How 16 tokens turn a pair: (cos, sin), (sin, cos). */
struct turn {
	vec cs, sc;
};

INLINE struct turn turn_of(const struct kvi_slot_job *j, size_t t)
{
	struct turn turn;
	turn.cs = load32(j->turn + 2 * t);
	turn.sc = _mm512_rol_epi32(turn.cs, 16);
	return turn;
}

/* A table of 64 entries for k' of a pair. */
struct classes {
	vec lo, hi;
};

INLINE struct classes classes_load(const int8_t *scales)
{
	struct classes c = {
		_mm512_cvtepi8_epi16(
			_mm256_loadu_si256((const __m256i *)scales)),
		_mm512_cvtepi8_epi16(
			_mm256_loadu_si256((const __m256i *)(scales + 32)))
	};
	return c;
}

INLINE vec class_of(const struct classes *c, vec angle, int k)
{
	vec v = _mm512_permutex2var_epi16(c->lo, angle, c->hi);
	return _mm512_add_epi32(
		_mm512_srai_epi32(_mm512_slli_epi32(v, 16), 16), SET(k));
}

INLINE vec float_bits(vec v)
{
	return _mm512_castps_si512(_mm512_cvt_roundepi32_ps(
		v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/* o of spec linear 4; start: bits(13 n) - 2^20. */
INLINE vec token_class(const struct kvi_slot_block *b, size_t t, vec start)
{
	if (!b->w)
		return _mm512_setzero_si512();
	vec d = _mm512_sub_epi32(float_bits(load32(b->w + t)), start);
	return clamp(_mm512_srai_epi32(d, 21), 32);
}

INLINE vec token_start(const struct kvi_slot_job *j)
{
	vec n = SET(13 * j->n);
	return _mm512_sub_epi32(float_bits(n), SET(1 << 20));
}

INLINE vec context_of(vec mu, vec k, vec more,
                      const struct kvi_grid_format *fmt)
{
	return contexts_of(mu, clamp(_mm512_add_epi32(k, more), 400), fmt);
}

/* ---------------------------------------------------------- observation */

/* Elements as integers in units of 2^step. */
INLINE vec integers_of(vec x, const struct kvi_grid_format *fmt, int step)
{
	const vec one = SET(1);
	const int m = fmt->mant_bits, top = fmt->elem_bits - 1;
	vec magnitude = _mm512_and_si512(x, SET((1 << top) - 1));
	vec field = _mm512_srli_epi32(magnitude, (unsigned)m);
	vec man = _mm512_and_si512(
		_mm512_slli_epi32(magnitude, (unsigned)(23 - m)),
		SET(0x7fffff));
	__mmask16 some = _mm512_test_epi32_mask(field, field);
	man = _mm512_mask_or_epi32(man, some, man, SET(0x800000));
	vec sh = _mm512_sub_epi32(SET(24 - fmt->emin + step),
	                          _mm512_max_epi32(field, one));
	sh = _mm512_max_epi32(_mm512_min_epi32(sh, SET(31)), one);
	vec half = _mm512_sllv_epi32(one, _mm512_sub_epi32(sh, one));
	vec v = _mm512_srlv_epi32(_mm512_add_epi32(man, half), sh);
	v = _mm512_min_epi32(v, SET(LIMIT));
	__mmask16 minus = _mm512_test_epi32_mask(x, SET(1 << top));
	return _mm512_mask_sub_epi32(v, minus, _mm512_setzero_si512(), v);
}

/* v of spec linear 4. */
INLINE vec distance(vec x, vec expected, vec k, int step)
{
	const vec reciprocal = _mm512_set4_epi32(19484, 23170, 27554, 32768);
	vec far = _mm512_abs_epi32(_mm512_sub_epi32(x, expected));
	far = _mm512_min_epi32(far, SET(65535));
	vec sh = _mm512_add_epi32(_mm512_srai_epi32(k, 2), SET(11 - step));
	sh = _mm512_max_epi32(_mm512_min_epi32(sh, SET(31)),
	                      _mm512_setzero_si512());
	vec scaled = _mm512_mullo_epi32(
		far, _mm512_permutexvar_epi32(_mm512_and_si512(k, SET(3)),
		                              reciprocal));
	return _mm512_min_epu32(_mm512_srlv_epi32(scaled, sh), SET(127));
}

INLINE void scale_add(const struct kvi_slot_block *b,
                      const struct kvi_slot_job *j, size_t t, vec v)
{
	if (b->w && j->grow)
		store32(b->w + t,
		                    _mm512_add_epi32(load32(b->w + t), v));
}

/* Feature rows of a slot alone: its half of them. */
INLINE void store_half(int16_t *row, unsigned half, vec v)
{
	const vec low = SET(0xffff);
	v = _mm512_and_si512(clamp(v, LIMIT), low);
	if (half)
		v = _mm512_or_si512(
			_mm512_slli_epi32(v, 16),
			_mm512_and_si512(load32(row), low));
	store32(row, v);
}

INLINE void store_both(int16_t *row, vec a, vec b)
{
	store32(row, side_by_side(clamp(a, LIMIT), clamp(b, LIMIT)));
}

/* ---------------------------------------------------------------- slots */

/* A stream while a slot is taken from it. */
struct reading {
	struct kvi_feed feed;
	const uint8_t *p; /* NULL: the words did not suffice */
	struct pair st;
	struct tokens tokens;
};

INLINE void reading_begin(struct reading *r, const struct kvi_slot_reader *in)
{
	size_t n = (size_t)(in->words.end - in->words.p) / 2;
	const struct kvi_stream s = { .words = in->words.p, .n_words = n };
	r->p = kvi_feed_open(&r->feed, &s);
	r->st = states_load(in->state);
	r->tokens = tokens_load(kvi_grid_tokens);
}

INLINE bool reading_end(const struct reading *r, struct kvi_slot_reader *in,
                        uint32_t active)
{
	states_store(in->state, &r->st, active);
	if (!r->feed.last)
		in->words.p = r->p;
	else if (r->p <= r->feed.end)
		in->words.p = in->words.end - (r->feed.end - r->p);
	else
		in->words.missing = true;
	return !in->words.missing;
}

INLINE bool reading_ready(struct reading *r, struct kvi_slot_reader *in)
{
	if (__builtin_expect(r->p > r->feed.safe, 0)) {
		const uint8_t *p = kvi_feed_move(&r->feed, r->p);
		in->words.missing = !p;
		if (p)
			r->p = p;
		return p;
	}
	return true;
}

/* What all steps of a slot or pair see. */
struct setting {
	const struct kvi_slot_block *b;
	const struct kvi_slot_job *j;
	const struct kvi_grid_format *fmt;
	const struct numbers *f;
	uint32_t active;
};

INLINE void known_take(const struct setting *e, const struct kvi_slot *s,
                       size_t at, const vec *ctx, vec *y)
{
	HALVES {
		__mmask16 act = (__mmask16)(e->active >> 16 * h);
		y[h] = _mm512_cvtepu16_epi32(
			_mm256_maskz_loadu_epi16(act, s->x + at + 16 * h));
		if (s->ctx)
			_mm512_mask_storeu_epi32(s->ctx + at + 16 * h, act,
			                         ctx[h]);
	}
}

/* The elements of a step, decoded or as they are. */
INLINE bool elements(const struct setting *e, struct reading *r,
                     const struct kvi_slot *s, size_t step, const vec *ctx,
                     vec *y)
{
	size_t at = step * e->b->lanes;
	if (s->known) {
		known_take(e, s, at, ctx, y);
		return true;
	}
	if (!reading_ready(r, e->b->reader))
		return false;
	r->p = step_take(&r->st, ctx, e->b->tables->lut, &r->tokens, e->f,
	                 e->active, r->p, s->x + at, y);
	HALVES
		y[h] = _mm512_maskz_mov_epi32(
			(__mmask16)(e->active >> 16 * h), y[h]);
	return true;
}

INLINE bool single(const struct setting *e, struct reading *r)
{
	const struct kvi_slot_job *j = e->j;
	const struct kvi_slot *s = &j->slot[0];
	const vec start = token_start(j);
	for (size_t step = 0; step < kvi_slot_steps(e->b); step++) {
		vec base[2], pred[2], k[2], ctx[2], y[2];
		HALVES {
			size_t t = step * KVI_LANES + 16 * (size_t)h;
			base[h] = base_of(s, t);
			pred[h] = pred_of(s, j, t, base[h]);
			k[h] = SET(s->k);
			if (e->b->unknown)
				k[h] = _mm512_add_epi32(
					k[h], load_i16(e->b->unknown + t));
			ctx[h] = context_of(scaled_bits(pred[h], SET(s->step)),
			                    k[h], token_class(e->b, t, start),
			                    e->fmt);
		}
		if (!elements(e, r, s, step, ctx, y))
			return false;
		HALVES {
			size_t t = step * KVI_LANES + 16 * (size_t)h;
			vec x = integers_of(y[h], e->fmt, s->step);
			scale_add(e->b, j, t,
			          distance(x, pred[h], k[h], s->step));
			size_t at = feature_at(j, t);
			store_half(j->r + at, j->half,
			           _mm512_sub_epi32(x, base[h]));
			if (j->z)
				store_half(j->z + at, j->half,
				           _mm512_sub_epi32(x, SET(s->mean)));
		}
	}
	return true;
}

/* What the second slot of a pair needs of the time before the first. */
struct between {
	uint32_t ctx[KVI_BLOCK_TOKENS];
	int32_t x[KVI_BLOCK_TOKENS], k[KVI_BLOCK_TOKENS],
		expected[KVI_BLOCK_TOKENS];
	int32_t base[2][KVI_BLOCK_TOKENS];
};

/* Contexts of both slots of 16 tokens; *expected and *k are the first one's. */
INLINE vec predict_pair(const struct setting *e, struct between *m, size_t t,
                        vec start, const struct classes *classes,
                        vec *expected, vec *k)
{
	const struct kvi_slot_job *j = e->j;
	const struct kvi_slot *a = &j->slot[0], *b = &j->slot[1];
	const vec step = SET(a->step - 6), round = SET(128);
	struct turn turn = turn_of(j, t);
	vec base_a = base_of(a, t), base_b = base_of(b, t);
	vec pred = side_by_side(pred_of(a, j, t, base_a),
	                        pred_of(b, j, t, base_b));
	vec va = _mm512_madd_epi16(pred, negated(turn.cs, 0xaaaaaaaa));
	vec vb = _mm512_madd_epi16(pred, turn.sc);
	va = _mm512_srai_epi32(_mm512_add_epi32(va, round), 8);
	vb = _mm512_srai_epi32(_mm512_add_epi32(vb, round), 8);
	vec angle = _mm512_cvtepu8_epi32(
		_mm_loadu_si128((const __m128i *)(j->angle_class + t)));
	vec ka = class_of(classes, angle, b->k);
	vec kb = class_of(classes, _mm512_xor_si512(angle, SET(32)), b->k);
	if (e->b->unknown) {
		vec more = load_i16(e->b->unknown + t);
		ka = _mm512_add_epi32(ka, more);
		kb = _mm512_add_epi32(kb, more);
	}
	vec o = token_class(e->b, t, start);
	store32(m->base[0] + t, base_a);
	store32(m->base[1] + t, base_b);
	store32(m->k + t, kb);
	store32(m->expected + t, _mm512_srai_epi32(
		_mm512_add_epi32(vb, SET(32)), 6));
	store32(m->ctx + t, context_of(scaled_bits(vb, step), kb,
	                                           o, e->fmt));
	*expected = _mm512_srai_epi32(_mm512_add_epi32(va, SET(32)), 6);
	*k = ka;
	return context_of(scaled_bits(va, step), ka, o, e->fmt);
}

INLINE void observe_pair(const struct setting *e, const struct between *m,
                         size_t t, vec xb)
{
	const struct kvi_slot_job *j = e->j;
	const vec round = SET(8192);
	const size_t at = feature_at(j, t);
	struct turn turn = turn_of(j, t);
	scale_add(e->b, j, t, distance(xb, load32(m->expected + t),
	                               load32(m->k + t), j->slot[1].step));
	vec x = side_by_side(load32(m->x + t), xb);
	vec ua = _mm512_madd_epi16(x, turn.cs);
	vec ub = _mm512_madd_epi16(x, negated(turn.sc, 0x55555555));
	ua = _mm512_srai_epi32(_mm512_add_epi32(ua, round), 14);
	ub = _mm512_srai_epi32(_mm512_add_epi32(ub, round), 14);
	store_both(j->r + at, _mm512_sub_epi32(ua, load32(m->base[0] + t)),
	           _mm512_sub_epi32(ub, load32(m->base[1] + t)));
	if (j->z)
		store_both(j->z + at,
		           _mm512_sub_epi32(ua, SET(j->slot[0].mean)),
		           _mm512_sub_epi32(ub, SET(j->slot[1].mean)));
}

INLINE bool pair_of(const struct setting *e, struct reading *r)
{
	const struct kvi_slot_job *j = e->j;
	const struct kvi_slot *a = &j->slot[0], *b = &j->slot[1];
	const struct classes classes = classes_load(j->scales);
	const vec start = token_start(j);
	const size_t steps = kvi_slot_steps(e->b);
	struct between m;
	for (size_t step = 0; step < steps; step++) {
		vec expected[2], k[2], ctx[2], y[2];
		HALVES
			ctx[h] = predict_pair(
				e, &m, step * KVI_LANES + 16 * (size_t)h,
				start, &classes, &expected[h], &k[h]);
		if (!elements(e, r, a, step, ctx, y))
			return false;
		HALVES {
			size_t t = step * KVI_LANES + 16 * (size_t)h;
			vec x = integers_of(y[h], e->fmt, a->step);
			store32(m.x + t, x);
			scale_add(e->b, j, t,
			          distance(x, expected[h], k[h], a->step));
		}
	}
	for (size_t step = 0; step < steps; step++) {
		const uint32_t *c = m.ctx + step * KVI_LANES;
		const vec ctx[2] = { load32(c), load32(c + 16) };
		vec y[2];
		if (!elements(e, r, b, step, ctx, y))
			return false;
		HALVES {
			size_t t = step * KVI_LANES + 16 * (size_t)h;
			observe_pair(e, &m, t,
			             integers_of(y[h], e->fmt, b->step));
		}
	}
	return true;
}

static bool slot_bf16(struct setting *e, struct reading *r)
{
	e->fmt = &bf16_format;
	e->f = &bf16;
	return e->j->pair ? pair_of(e, r) : single(e, r);
}

static bool slot_other(struct setting *e, struct reading *r)
{
	const struct numbers f = numbers_of(e->b->fmt);
	e->fmt = e->b->fmt;
	e->f = &f;
	return e->j->pair ? pair_of(e, r) : single(e, r);
}

bool kvi_avx512_slot(const struct kvi_slot_block *b,
                     const struct kvi_slot_job *j)
{
	struct setting e = { .b = b, .j = j, .active = lanes_mask(b->lanes) };
	struct reading r;
	if (b->reader)
		reading_begin(&r, b->reader);
	bool ok = b->fmt->emin == bf16_format.emin ? slot_bf16(&e, &r)
	                                           : slot_other(&e, &r);
	if (!ok || !b->reader)
		return ok;
	return reading_end(&r, b->reader, e.active);
}
