/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * linear_walk_body.h - the slots of a tensor, one after the other: predicted, decoded or known, and
 * observed (spec linear 2 to 4)
 *
 * A lane is a token. All memory but the words of a stream is a lane's own: what a lane reads here
 * it has written itself, or an earlier kernel has.
 */
#ifndef KVI_GPU_LINEAR_WALK_BODY_H
#define KVI_GPU_LINEAR_WALK_BODY_H

#include "chunk_finish_body.h"

constexpr uint32_t CLASS_LIMIT = 400, DISTANCE_START = 13;

/* Tokens on their way through the slots. */
struct linear_walk {
	const kvi_gpu_chunk *c;
	const kvi_gpu_linear *l;
	const kvi_gpu_model *m;
	uint32_t channels, padded, rows; /* rows: feature rows of a step */
	uint32_t first, steps;           /* tokens from first on, 32 a step */
	boolv active;                    /* lanes of a step; where not all: of the only one */
	bool predicts;                   /* else z alone is wanted */
	bool keeps;                      /* known elements and their contexts, by slot */
	span<const int16_t> step, k, mean, bases;
	span<const uint8_t> qb;
	span<uint32_t> sums, r, z, w, slots, contexts;
	span<uint16_t> elements;
	span<const uint32_t> columns;
	uint64_t known; /* the elements, token after token; 0: in the stream */
	const kvi_gpu_tables *tables;
	const grid_shared *codes;
	words_in words;
	u32v state;
};

WARP_FN void walk_open(linear_walk *x, const kvi_gpu_chunk *c, const kvi_gpu_tables *tables)
{
	const kvi_gpu_linear *l = linear_of(c);
	const kvi_gpu_model *m = model_of(l);
	const uint32_t C = m->heads * m->head_channels, n = padded_tokens(c);
	const uint32_t rows = m->heads * head_pairs(m);
	x->c = c;
	x->l = l;
	x->m = m;
	x->channels = C;
	x->padded = n;
	x->rows = rows;
	x->tables = tables;
	x->predicts = l->features == KVI_GPU_FEATURES_ALL;
	x->step = span_at<const int16_t>(m->step, C);
	x->k = span_at<const int16_t>(m->k, C);
	x->mean = span_at<const int16_t>(m->mean, C);
	x->qb = span_at<const uint8_t>(m->qb, m->b ? C : 0);
	x->bases = span_at<const int16_t>(l->bases, C * n);
	x->sums = span_at<uint32_t>(l->sums, m->b ? C * n : 0);
	x->r = span_at<uint32_t>(l->r, rows * n);
	x->z = span_at<uint32_t>(l->z, l->z ? rows * n : 0);
	x->w = span_at<uint32_t>(l->w, n);
	x->slots = span_at<uint32_t>(l->slots, 2 * 3 * n);
	x->elements = span_at<uint16_t>(l->elements, C * n);
	x->columns = span_at<const uint32_t>(c->columns, C);
	x->known = 0;
	x->keeps = false;
}

/* Channel of a slot of a head (spec linear 1). */
WARP_FN uint32_t slot_channel(const kvi_gpu_model *m, bool interleaved, uint32_t slot)
{
	if (slot >= m->rotary || interleaved)
		return slot;
	return slot / 2 + (slot & 1 ? m->rotary / 2 : 0);
}

/* ----- formulas ------------------------------------------------ */

/* Elements as integers in units of 2^step (spec linear 2). */
template <int D> WARP_FN u32v linear_integer(u32v x, uint32_t step)
{
	constexpr uint32_t m = grid_format<D>::m, top = grid_format<D>::bits - 1;
	const u32v magnitude = x & ((1u << top) - 1), field = magnitude >> m;
	const u32v man = (magnitude << (23 - m) & 0x7fffff) |
	                 select(field != 0, splat(0x800000), splat(0));
	const u32v exponent = max_signed(field, splat(1));
	const u32v sh = max_signed(
		min_signed((24 + grid_format<D>::least + step) - exponent, splat(31)), splat(1));
	const u32v v = min_signed((man + (splat(1) << (sh - 1))) >> sh, splat(LINEAR_LIMIT));
	return select((x >> top & 1) != 0, 0 - v, v);
}

/* How far elements are from what was predicted (spec linear 4); d: X - M. */
WARP_FN u32v linear_distance(u32v d, u32v k, uint32_t step)
{
	const u32v far = min_signed(max_signed(d, 0 - d), splat(65535));
	u32v factor = select((k & 1) != 0, splat(27554), splat(32768));
	factor = select((k & 2) != 0, select((k & 1) != 0, splat(19484), splat(23170)), factor);
	const u32v shift = max_signed(min_signed(sar(k, 2) + (11 - step), splat(31)), splat(0));
	const u32v v = far * factor >> shift;
	return select(v < 127, v, splat(127));
}

/* The class of elements: k' with what the token adds; start: bits(13 * n). */
WARP_FN u32v linear_class(u32v k, u32v w, uint32_t start, bool follows)
{
	const u32v o = sar(float_bits(w) - start + (1u << 20), 21);
	return limited(follows ? k + max_signed(o, splat(0u - 32)) : k, CLASS_LIMIT);
}

/* The halves of a feature row. */
WARP_FN u32v row_of(u32v even, u32v odd)
{
	return (even & 0xffff) | odd << 16;
}

/* ----- predictions ------------------------------------------------ */

/* A slot, or the two of a rotated pair. */
struct linear_slot {
	linear_panel panel;
	uint32_t at;           /* in the panel */
	uint32_t c;            /* of all slots */
	uint32_t n;            /* 2: a pair */
	uint32_t row;          /* its feature row in a step */
	uint32_t near, n_near; /* the first row of its panel; rows of it before this one */
};

/* What is known of a slot at 32 tokens before it is decoded. */
struct linear_before {
	u32v context, expected, k;
};

/* In x->slots. */
WARP_FN u32v before_index(const linear_walk *x, uint32_t i, uint32_t member, uint32_t t)
{
	return lanes() + ((i * 3 + member) * x->padded + t);
}
WARP_FN void before_store(linear_walk *x, uint32_t i, uint32_t t, const linear_before *b)
{
	st(x->slots, before_index(x, i, 0, t), b->context);
	st(x->slots, before_index(x, i, 1, t), b->expected);
	st(x->slots, before_index(x, i, 2, t), b->k);
}

/* The rows of the tensor itself that all slots of a panel see; *first: the first one of a step. */
WARP_FN uint32_t rows_before(const kvi_gpu_model *m, const linear_panel *p, uint32_t *first)
{
	const bool own = (m->flags & KVI_GPU_MODEL_SELF_HEAD) != 0;
	*first = own ? p->head * head_pairs(m) : 0;
	return (own ? 0 : p->head * head_pairs(m)) + p->first / 2;
}

/* The coefficients of a panel for the rows of the tensor itself. */
WARP_FN span<const uint32_t> own_coefficients(const linear_walk *x, const linear_panel *p)
{
	const kvi_gpu_model *m = x->m;
	const uint32_t all = m->flags & KVI_GPU_MODEL_SELF_HEAD ? head_pairs(m) : x->rows;
	return skip(coefficients_of(m->b, m->b_pairs, p->number), (m->b_pairs - all) * PANEL);
}

/* Adds the rows of earlier panels to the sums of a panel. */
WARP_FN void add_before(linear_walk *x, const linear_panel *p)
{
	uint32_t first;
	const uint32_t n = rows_before(x->m, p, &first);
	if (!n)
		return;
	for (uint32_t t = x->first; t < x->first + 32 * x->steps; t += 32) {
		panel_sums s;
		sums_begin(&s);
		add_rows(&s, rows_at(x->l->r, t / 32, x->rows, first, n), own_coefficients(x, p),
		         n);
		UNROLL
		for (uint32_t i = 0; i < PANEL; i++) {
			const boolv on = splat(i) < p->slots;
			const u32v at = lanes() + (t + (p->c + i) * x->padded);
			st_if(x->sums, at, ld_if(x->sums, at, on) + sum_of(&s, i), on);
		}
	}
}

/* The prediction of slot i of *s at the tokens from t on. */
WARP_FN u32v slot_predicted(const linear_walk *x, const linear_slot *s, uint32_t i, uint32_t t)
{
	const uint32_t c = s->c + i;
	const u32v at = lanes() + (t + c * x->padded), base = ld(x->bases, at);
	if (!x->m->b)
		return base;
	u32v low = ld(x->sums, at), high = splat(0);
	if (s->n_near) {
		uint32_t first;
		const uint32_t before = rows_before(x->m, &s->panel, &first);
		span<const uint32_t> b = skip(own_coefficients(x, &s->panel),
		                              before * PANEL + s->at + i);
		span<const uint32_t> f = rows_at(x->l->r, t / 32, x->rows, s->near, s->n_near);
		HAPPENS(near, s->n_near);
		for (uint32_t p = 0; p < s->n_near; p++) {
			const u32v row = ld(skip(f, 32 * p), lanes());
			const uint32_t pair = ldg_one(skip(b, PANEL * p), 0);
			low = dot_low(row, pair, low);
			high = dot_high(row, pair, high);
		}
	}
	return limited(base + sar(low + (high << 8), ldg_one(x->qb, c)), LINEAR_LIMIT);
}

/* What unknown tokens add to k'. */
WARP_FN u32v unknown_of(const linear_walk *x, uint32_t t)
{
	if (!(x->m->flags & KVI_GPU_MODEL_TABLE) || !x->m->unknown)
		return splat(0);
	const u32v row = ld(span_at<const uint32_t>(x->l->rows, x->padded), lanes() + t);
	return select(row == NO_ROW, splat(x->m->unknown), splat(0));
}

/* The bits of 13 * n before a slot; n grows by 1 a slot, as a chunk has fewer than 65536. */
WARP_FN uint32_t scale_start(const linear_walk *x, uint32_t c)
{
	return first_lane(float_bits(splat(DISTANCE_START * (x->m->n0 + c))));
}

template <int D> WARP_FN void predict_one(linear_walk *x, const linear_slot *s, uint32_t t)
{
	linear_before b;
	b.expected = slot_predicted(x, s, 0, t);
	b.k = ldg_one(x->k, s->c) + unknown_of(x, t);
	b.context = grid_context<D>(scaled_bits(b.expected, splat(ldg_one(x->step, s->c))),
	                            linear_class(b.k, ld(x->w, lanes() + t), scale_start(x, s->c),
	                                         x->m->flags & KVI_GPU_MODEL_SCALE));
	before_store(x, 0, t, &b);
}

/* Cosine and sine of a pair. */
struct linear_turn {
	u32v cosine, sine;
	u32v at; /* in the arrays of turns and classes */
};
WARP_FN linear_turn turn_of(const linear_walk *x, const linear_slot *s, uint32_t t)
{
	const uint32_t pair = (s->panel.first + s->at) / 2, n = x->m->rotary / 2 * x->padded;
	linear_turn r;
	r.at = lanes() + (pair * x->padded + t);
	const u32v both = ld(span_at<const uint32_t>(x->l->turns, n), r.at);
	r.cosine = sar(both << 16, 16);
	r.sine = sar(both, 16);
	return r;
}

template <int D> WARP_FN void predict_pair(linear_walk *x, const linear_slot *s, uint32_t t)
{
	const uint32_t e = ldg_one(x->step, s->c) - 6, start = scale_start(x, s->c);
	const bool follows = (x->m->flags & KVI_GPU_MODEL_SCALE) != 0;
	const linear_turn r = turn_of(x, s, t);
	const u32v a = slot_predicted(x, s, 0, t), b = slot_predicted(x, s, 1, t);
	const u32v va = sar(a * r.cosine - b * r.sine + 128, 8);
	const u32v vb = sar(b * r.cosine + a * r.sine + 128, 8);
	const uint32_t ka = ldg_one(x->k, s->c), kb = ldg_one(x->k, s->c + 1);
	const int32_t d = (int32_t)(ka - kb);
	const uint32_t scales = (uint32_t)((d < -32 ? -32 : d > 32 ? 32 : d) + 32) * 64;
	span<const int8_t> scale = span_at<const int8_t>(x->tables->scale, 65 * 64);
	const uint32_t n = x->m->rotary / 2 * x->padded;
	const u32v h = ld(span_at<const uint8_t>(x->l->classes, n), r.at);
	const u32v least = unknown_of(x, t) + kb, w = ld(x->w, lanes() + t);
	linear_before one, two;
	one.k = least + ldg(scale, h + scales);
	two.k = least + ldg(scale, (h ^ 32) + scales);
	one.expected = sar(va + 32, 6);
	two.expected = sar(vb + 32, 6);
	one.context = grid_context<D>(scaled_bits(va, splat(e)),
	                              linear_class(one.k, w, start, follows));
	two.context = grid_context<D>(scaled_bits(vb, splat(e)),
	                              linear_class(two.k, w, start, follows));
	before_store(x, 0, t, &one);
	before_store(x, 1, t, &two);
}

/* ----- elements ------------------------------------------------ */

/* The elements of slot i of *s at the tokens from t on, which are there. */
template <int D>
WARP_FN u32v known_elements(const linear_walk *x, const linear_slot *s, uint32_t i, uint32_t t)
{
	typedef typename element_of<format<D>::size>::type element;
	const uint32_t slot = s->panel.first + s->at + i;
	const uint32_t channel = s->c + i - slot + slot_channel(x->m, x->l->interleaved != 0, slot);
	span<const element> from = span_at<const element>(x->known,
	                                                  (size_t)x->c->tokens * x->channels);
	const u32v v = ldg_if(from, (lanes() + t) * x->channels + channel, x->active);
	return D == 1 ? v >> 16 : v;
}

/* Decodes slot i of *s at all tokens, unless its channel is constant. */
template <int D, bool ALL>
WARP_FN void decode_slot(linear_walk *x, const linear_slot *s, uint32_t i)
{
	constexpr uint32_t size = format<D>::size;
	const uint32_t slot = s->panel.first + s->at + i;
	const uint32_t channel = s->c + i - slot + slot_channel(x->m, x->l->interleaved != 0, slot);
	const uint32_t value = ldg_one(x->columns, channel), c = s->c + i;
	const uint32_t end = x->first + 32 * x->steps;
	if (value) {
		const u32v v = payload_element<size>(
			span_at<const uint8_t>(x->c->payload, x->c->payload_bytes), splat(value),
			lanes() < 32);
		for (uint32_t t = x->first; t < end; t += 32)
			st(x->elements, lanes() + (t + c * x->padded), D == 1 ? v >> 16 : v);
		return;
	}
	for (uint32_t t = x->first; t < end; t += 32) {
		const u32v context = ld(x->slots, before_index(x, i, 0, t));
		const u32v v = grid_step<D, ALL>(&x->words, &x->state, x->codes, context,
		                                 x->active);
		st(x->elements, lanes() + (t + c * x->padded),
		   v & ((1u << grid_format<D>::bits) - 1));
	}
}

/* Stores what an encoder needs of slot i of *s, which is predicted: its elements and contexts. */
template <int D> WARP_FN void keep_slot(linear_walk *x, const linear_slot *s, uint32_t i)
{
	for (uint32_t t = x->first; t < x->first + 32 * x->steps; t += 32) {
		const u32v at = lanes() + (t + (s->c + i) * x->padded);
		st(x->elements, at, known_elements<D>(x, s, i, t));
		st(x->contexts, at, ld(x->slots, before_index(x, i, 0, t)));
	}
}

/* Slot i of *s as integers. */
template <int D>
WARP_FN u32v slot_integers(const linear_walk *x, const linear_slot *s, uint32_t i, uint32_t t)
{
	const uint32_t c = s->c + i;
	const u32v v = x->known ? known_elements<D>(x, s, i, t)
	                        : ld(x->elements, lanes() + (t + c * x->padded));
	return linear_integer<D>(v, ldg_one(x->step, c));
}

/* ----- observations ------------------------------------------------ */

/* The distances of the slots of *s, in integers v, are added to w. */
WARP_FN void observe_scale(linear_walk *x, const linear_slot *s, uint32_t t, const u32v *v)
{
	u32v w = ld(x->w, lanes() + t);
	for (uint32_t i = 0; i < s->n; i++) {
		const u32v m = ld(x->slots, before_index(x, i, 1, t));
		const u32v k = ld(x->slots, before_index(x, i, 2, t));
		w += linear_distance(v[i] - m, k, ldg_one(x->step, s->c + i));
	}
	st(x->w, lanes() + t, w);
}

/* Stores what a slot, or a pair, gives to others: u less the base, u less the mean. */
WARP_FN void observe_rows(linear_walk *x, const linear_slot *s, uint32_t t, const u32v *u)
{
	const bool odd = s->n == 1 && (s->panel.first + s->at) % 2;
	const u32v at = lanes() + (t / 32 * x->rows + s->row) * 32;
	u32v r[2] = { splat(0), splat(0) }, z[2] = { splat(0), splat(0) };
	for (uint32_t i = 0; i < s->n; i++) {
		const uint32_t c = s->c + i;
		z[i] = limited(u[i] - ldg_one(x->mean, c), LINEAR_LIMIT);
		if (x->predicts)
			r[i] = limited(u[i] - ld(x->bases, lanes() + (t + c * x->padded)),
			               LINEAR_LIMIT);
	}
	if (x->predicts)
		st(x->r, at, odd ? row_of(ld(x->r, at), r[0]) : row_of(r[0], r[1]));
	if (x->l->z)
		st(x->z, at, odd ? row_of(ld(x->z, at), z[0]) : row_of(z[0], z[1]));
}

template <int D> WARP_FN void observe(linear_walk *x, const linear_slot *s, uint32_t t)
{
	u32v v[2] = { slot_integers<D>(x, s, 0, t), splat(0) };
	if (s->n == 2)
		v[1] = slot_integers<D>(x, s, 1, t);
	if (x->predicts && x->m->flags & KVI_GPU_MODEL_SCALE)
		observe_scale(x, s, t, v);
	if (s->n == 2) {
		const linear_turn r = turn_of(x, s, t);
		const u32v a = v[0] * r.cosine + v[1] * r.sine + 8192;
		const u32v b = v[1] * r.cosine - v[0] * r.sine + 8192;
		v[0] = sar(a, 14);
		v[1] = sar(b, 14);
	}
	observe_rows(x, s, t, v);
}

/* ----- all slots ------------------------------------------------ */

/* A slot, or a pair, of which elements may be known. */
template <int D, bool ALL> WARP_FN void walk_slot(linear_walk *x, const linear_slot *s)
{
	const uint32_t end = x->first + 32 * x->steps;
	for (uint32_t t = x->first; t < end && x->predicts; t += 32)
		if (s->n == 2)
			predict_pair<D>(x, s, t);
		else
			predict_one<D>(x, s, t);
	for (uint32_t i = 0; i < s->n && !x->known; i++)
		decode_slot<D, ALL>(x, s, i);
	for (uint32_t i = 0; i < s->n && x->keeps; i++)
		keep_slot<D>(x, s, i);
	for (uint32_t t = x->first; t < end; t += 32)
		observe<D>(x, s, t);
}

/* w of all tokens before the first slot (spec linear 4). */
WARP_FN void scale_begin(linear_walk *x)
{
	const kvi_gpu_model *m = x->m;
	const bool follows = (m->flags & KVI_GPU_MODEL_SCALE) != 0;
	const uint32_t n0 = follows ? m->n0 : 1;
	for (uint32_t t = x->first; t < x->first + 32 * x->steps; t += 32) {
		u32v w = splat(DISTANCE_START * n0);
		if (follows && x->l->scale_w) {
			span<const uint32_t> from = span_at<const uint32_t>(x->l->scale_w,
			                                                    x->padded);
			const u32v q = ld(from, lanes() + t) / x->l->scale_n;
			w = (q * m->beta + DISTANCE_START * (16 - m->beta)) * n0 >> 4;
		}
		st(x->w, lanes() + t, w);
	}
}

/* All slots of the tokens. */
template <int D, bool ALL> WARP_FN void walk_slots(linear_walk *x)
{
	const kvi_gpu_model *m = x->m;
	const bool own = x->predicts && m->flags & KVI_GPU_MODEL_SELF;
	if (x->predicts)
		scale_begin(x);
	for (uint32_t h = 0; h < m->heads; h++)
		for (uint32_t i = 0; i < head_panels(m); i++) {
			linear_slot s;
			s.panel = panel_at(m, h, i);
			s.near = h * head_pairs(m) + s.panel.first / 2;
			if (own)
				add_before(x, &s.panel);
			for (s.at = 0; s.at < s.panel.slots; s.at += s.n) {
				s.c = s.panel.c + s.at;
				s.n = s.panel.first + s.at < m->rotary ? 2 : 1;
				s.row = s.near + s.at / 2;
				s.n_near = own ? (s.at + 1) / 2 : 0;
				walk_slot<D, ALL>(x, &s);
			}
		}
}

/* Decodes a stream of codec 7. Whether the stream was good. */
template <int D>
WARP_FN bool linear_decode(const kvi_gpu_chunk *c, const kvi_gpu_opened *o,
                           const kvi_gpu_tables *tables, const grid_shared *codes, uint32_t number)
{
	const uint32_t first = number * o->stream_tokens, left = c->tokens - first;
	const uint32_t n = left < o->stream_tokens ? left : o->stream_tokens;
	linear_walk x;
	walk_open(&x, c, tables);
	x.codes = codes;
	words_open(&x.words, c->payload + o->stream[number].words,
	           uniform(o->stream[number].n_words));
	x.state = ldg(span_at<const uint32_t>(c->payload + o->stream[number].states, 32), lanes());
	x.first = first;
	x.steps = n / 32;
	x.active = lanes() < 32;
	if (x.steps)
		walk_slots<D, true>(&x);
	x.first += 32 * x.steps;
	x.steps = 1;
	x.active = lanes() < n % 32;
	if (n % 32)
		walk_slots<D, false>(&x);
	return stream_ended(&x.words, x.state);
}

/* The features of 32 tokens of a chunk whose elements are at `known`, token after token. keeps:
 * elements and contexts are stored, too, for an encoder, in the order of slots. */
template <int D>
WARP_FN void find_features(const kvi_gpu_chunk *c, const kvi_gpu_tables *tables, uint64_t known,
                           bool keeps, uint32_t step)
{
	linear_walk x;
	walk_open(&x, c, tables);
	x.known = known;
	x.keeps = keeps;
	if (keeps)
		x.contexts = span_at<uint32_t>(c->contexts, x.channels * x.padded);
	x.first = 32 * step;
	x.steps = 1;
	x.active = lanes() + x.first < c->tokens;
	walk_slots<D, false>(&x);
}

#endif
