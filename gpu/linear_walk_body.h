/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * linear_walk_body.h - the slots of a tensor, one after the other: predicted, decoded or known, and
 * observed (spec linear 2 to 4)
 *
 * Behind a panel its features are in memory, where all lanes read them: tensor cores add them to
 * the sums of later panels.
 */
#ifndef KVI_GPU_LINEAR_WALK_BODY_H
#define KVI_GPU_LINEAR_WALK_BODY_H

#include "linear_token_body.h"

/* ----- predictions ------------------------------------------------ */

/* Adds the panels before a panel to its sums. */
template <bool ONE> WARP_FN void add_before(const linear_walk *x, const linear_panel *p)
{
	const kvi_gpu_model *m = x->m;
	const uint32_t own = x->own_panels, n = p->number % own;
	if (!n)
		return;
	const span<const uint32_t> coefficients = coefficients_of(m->b, m->b_blocks, p->number,
	                                                          m->b_blocks - blocks_of(own), 0);
	for (uint32_t k = 0; k < steps_of<ONE>(x); k++) {
		const uint32_t t = x->first + 32 * k;
		panel_sums s;
		sums_begin(&s);
		HAPPENS(own, blocks_of(n));
		add_panels<1>(&s, step_features(x->l->r, t / STEP_TOKENS, x->panels), p->number - n,
		              n, coefficients, 0);
		UNROLL
		for (uint32_t i = 0; i < 2; i++) {
			const boolv on = own_slot(i) < p->slots;
			const u32v slot = (own_slot(i) + p->c) * x->padded;
			UNROLL
			for (uint32_t j = 0; j < 4; j++) {
				const u32v at = slot + own_token(j) + t;
				st_if(x->sums, at, ld_if(x->sums, at, on) + sum_of(&s, i, j), on);
			}
		}
	}
}

WARP_FN u32v find_base(const linear_walk *x, const linear_slot *s, uint32_t i, uint32_t t)
{
	return ld(x->bases, lanes() + (t + (s->c + i) * x->padded));
}
template <bool ONE>
WARP_FN u32v base_of(const linear_walk *x, const linear_slot *s, uint32_t i, uint32_t t)
{
	return ONE ? x->now.base[i] : find_base(x, s, i, t);
}

/* The prediction of slot i of *s at the tokens from t on. */
template <bool ONE>
WARP_FN u32v slot_predicted(const linear_walk *x, const linear_slot *s, uint32_t i, uint32_t t)
{
	const uint32_t c = s->c + i;
	const u32v at = lanes() + (t + c * x->padded), base = base_of<ONE>(x, s, i, t);
	if (!x->adds)
		return base;
	u32v low = ld(x->sums, at), middle = splat(0), high = splat(0);
	if (s->at && x->sees_own) {
		const quads f = features_of<ONE>(x, x->l->r, &x->now.r, &s->panel, t);
		const quad b = ldg_quad(x->near, c * 4);
		HAPPENS(near, 1);
		UNROLL
		for (uint32_t k = 0; k < 4; k += 2) {
			low = dot_bytes<false>(f.v[k], b.v[k], low);
			middle = dot_bytes<false>(f.v[k + 1], b.v[k], middle);
			middle = dot_bytes<true>(f.v[k], b.v[k + 1], middle);
			high = dot_bytes<true>(f.v[k + 1], b.v[k + 1], high);
		}
	}
	const u32v sum = low + ((middle + (high << 8)) << 8);
	return limited(base + sar(sum, shift_of(s, i)), LINEAR_LIMIT);
}

/* What unknown tokens add to k'. */
WARP_FN u32v find_unknown(const linear_walk *x, uint32_t t)
{
	if (!(x->m->flags & KVI_GPU_MODEL_TABLE) || !x->m->unknown)
		return splat(0);
	const u32v row = ld(span_at<const uint32_t>(x->l->rows, x->padded), lanes() + t);
	return select(row == NO_ROW, splat(x->m->unknown), splat(0));
}
template <bool ONE> WARP_FN u32v unknown_of(const linear_walk *x, uint32_t t)
{
	return ONE ? x->now.unknown : find_unknown(x, t);
}

/* Where a pair is in the arrays of angles. */
WARP_FN u32v turn_index(const linear_walk *x, const linear_slot *s, uint32_t t)
{
	return lanes() + ((s->panel.first + s->at) / 2 * x->padded + t);
}
WARP_FN linear_turn find_turn(const linear_walk *x, const linear_slot *s, uint32_t t)
{
	const uint32_t n = x->rotary / 2 * x->padded;
	const u32v both = ld(span_at<const uint32_t>(x->l->turns, n), turn_index(x, s, t));
	linear_turn r;
	r.cosine = sar(both << 16, 16);
	r.sine = sar(both, 16);
	return r;
}
template <bool ONE>
WARP_FN linear_turn turn_of(const linear_walk *x, const linear_slot *s, uint32_t t)
{
	return ONE ? x->now.turn : find_turn(x, s, t);
}

template <int D, bool ONE>
WARP_FN void predict_one(linear_walk *x, const linear_slot *s, uint32_t t)
{
	linear_before b;
	b.expected = slot_predicted<ONE>(x, s, 0, t);
	b.k = k_of(s, 0) + unknown_of<ONE>(x, t);
	b.context = grid_context<D>(scaled_bits(b.expected, splat(step_of(s, 0))),
	                            linear_class(b.k, w_of<ONE>(x, t), offset_of(s), x->follows));
	keep_before<ONE>(x, 0, t, b);
}

template <int D, bool ONE>
WARP_FN void predict_pair(linear_walk *x, const linear_slot *s, uint32_t t)
{
	const u32v e = splat(step_of(s, 0) - 6);
	const linear_turn r = turn_of<ONE>(x, s, t);
	const u32v a = slot_predicted<ONE>(x, s, 0, t), b = slot_predicted<ONE>(x, s, 1, t);
	const u32v va = sar(a * r.cosine - b * r.sine + 128, 8);
	const u32v vb = sar(b * r.cosine + a * r.sine + 128, 8);
	const uint32_t ka = k_of(s, 0), kb = k_of(s, 1);
	const int32_t d = (int32_t)(ka - kb);
	const uint32_t scales = (uint32_t)((d < -32 ? -32 : d > 32 ? 32 : d) + 32) * 64;
	span<const int8_t> scale = span_at<const int8_t>(x->tables->scale, 65 * 64);
	const uint32_t n = x->rotary / 2 * x->padded;
	const u32v h = ld(span_at<const uint8_t>(x->l->classes, n), turn_index(x, s, t));
	const u32v least = unknown_of<ONE>(x, t) + kb, w = w_of<ONE>(x, t);
	linear_before one, two;
	one.k = least + ldg(scale, h + scales);
	two.k = least + ldg(scale, (h ^ 32) + scales);
	one.expected = sar(va + 32, 6);
	two.expected = sar(vb + 32, 6);
	one.context = grid_context<D>(scaled_bits(va, e),
	                              linear_class(one.k, w, offset_of(s), x->follows));
	two.context = grid_context<D>(scaled_bits(vb, e),
	                              linear_class(two.k, w, offset_of(s), x->follows));
	keep_before<ONE>(x, 0, t, one);
	keep_before<ONE>(x, 1, t, two);
}

/* ----- elements ------------------------------------------------ */

WARP_FN uint32_t channel_of(const linear_walk *x, const linear_slot *s, uint32_t i)
{
	const uint32_t slot = s->panel.first + s->at + i;
	return s->c + i - slot + slot_channel(x->rotary, x->interleaved, slot);
}

/* The elements of slot i of *s at the tokens from t on, which are there. */
template <int D>
WARP_FN u32v known_elements(const linear_walk *x, const linear_slot *s, uint32_t i, uint32_t t)
{
	typedef typename element_of<format<D>::size>::type element;
	span<const element> from = span_at<const element>(x->known,
	                                                  (size_t)x->c->tokens * x->channels);
	const u32v v = ldg_if(from, (lanes() + t) * x->channels + channel_of(x, s, i), x->active);
	return D == 1 ? v >> 16 : v;
}

template <bool ONE>
WARP_FN void keep_elements(linear_walk *x, const linear_slot *s, uint32_t i, uint32_t k, u32v v)
{
	st(x->elements, lanes() + (x->first + 32 * k + (s->c + i) * x->padded), v);
	if (ONE)
		x->now.element[i] = v;
}

/* Decodes slot i of *s at all tokens, unless its channel is constant. */
template <int D, bool ALL, bool ONE>
WARP_FN void decode_slot(linear_walk *x, const linear_slot *s, uint32_t i)
{
	constexpr uint32_t size = format<D>::size, bits = grid_format<D>::bits;
	const uint32_t value = uniform(ldg_one(x->columns, channel_of(x, s, i)));
	if (value) {
		const u32v v = payload_element<size>(
			span_at<const uint8_t>(x->c->payload, x->c->payload_bytes), splat(value),
			lanes() < 32);
		for (uint32_t k = 0; k < steps_of<ONE>(x); k++)
			keep_elements<ONE>(x, s, i, k, D == 1 ? v >> 16 : v);
		return;
	}
	for (uint32_t k = 0; k < steps_of<ONE>(x); k++) {
		const u32v context = before_of<ONE>(x, i, x->first + 32 * k).context;
		const u32v v = grid_step<D, ALL>(&x->words, &x->state, x->codes, context,
		                                 x->active);
		keep_elements<ONE>(x, s, i, k, v & ((1u << bits) - 1));
	}
}

/* The elements of slot i of *s, which are known; stores them and contexts for an encoder. */
template <int D> WARP_FN void know_slot(linear_walk *x, const linear_slot *s, uint32_t i)
{
	const u32v at = lanes() + (x->first + (s->c + i) * x->padded);
	x->now.element[i] = known_elements<D>(x, s, i, x->first);
	if (x->keeps) {
		st(x->elements, at, x->now.element[i]);
		st(x->contexts, at, x->now.before[i].context);
	}
}

/* ----- observations ------------------------------------------------ */

/* Slot i of *s as integers. */
template <int D, bool ONE>
WARP_FN u32v slot_integers(const linear_walk *x, const linear_slot *s, uint32_t i, uint32_t t)
{
	const u32v at = lanes() + (t + (s->c + i) * x->padded);
	return linear_integer<D>(ONE ? x->now.element[i] : ld(x->elements, at), step_of(s, i));
}

/* The distances of the slots of *s, in integers v, are added to w. */
template <bool ONE, uint32_t N>
WARP_FN void observe_scale(linear_walk *x, const linear_slot *s, uint32_t t, const u32v *v)
{
	u32v w = w_of<ONE>(x, t);
	UNROLL
	for (uint32_t i = 0; i < N; i++) {
		const linear_before b = before_of<ONE>(x, i, t);
		const u32v distance = linear_distance(v[i] - b.expected, b.k, step_of(s, i));
		w += x->follows ? distance : splat(0);
	}
	keep_w<ONE>(x, t, w);
}

/* u less `from`, limited, as a feature. */
WARP_FN u32v feature_of(u32v u, u32v from)
{
	const u32v v = u - from + (LINEAR_LIMIT + 1);
	return max_signed(min_signed(v, splat(2 * LINEAR_LIMIT + 1)), splat(1));
}

/* Puts u less `from` behind the features of the panel. */
template <uint32_t N> WARP_FN quads features_behind(quads f, const u32v *u, const u32v *from)
{
	const u32v a = feature_of(u[0], from[0]);
	return N == 1 ? feature_behind(f, a) : pair_behind(f, a, feature_of(u[N - 1], from[N - 1]));
}

/* Stores what a slot, or a pair, gives to others: u less the base, u less the mean. */
template <bool ONE, uint32_t N>
WARP_FN void observe_features(linear_walk *x, const linear_slot *s, uint32_t t, const u32v *u)
{
	const linear_panel *p = &s->panel;
	if (x->predicts) {
		const quads f = features_of<ONE>(x, x->l->r, &x->now.r, p, t);
		const u32v base[2] = { base_of<ONE>(x, s, 0, t), base_of<ONE>(x, s, N - 1, t) };
		keep_features<ONE>(x, x->l->r, &x->now.r, p, t, features_behind<N>(f, u, base));
	}
	if (x->gives_z) {
		const quads f = features_of<ONE>(x, x->l->z, &x->now.z, p, t);
		const u32v mean[2] = { splat(mean_of(s, 0)), splat(mean_of(s, N - 1)) };
		keep_features<ONE>(x, x->l->z, &x->now.z, p, t, features_behind<N>(f, u, mean));
	}
}

template <int D, bool ONE, uint32_t N>
WARP_FN void observe(linear_walk *x, const linear_slot *s, uint32_t t)
{
	u32v v[N];
	UNROLL
	for (uint32_t i = 0; i < N; i++)
		v[i] = slot_integers<D, ONE>(x, s, i, t);
	if (x->predicts)
		observe_scale<ONE, N>(x, s, t, v);
	if (N == 2) {
		const linear_turn r = turn_of<ONE>(x, s, t);
		const u32v a = v[0] * r.cosine + v[N - 1] * r.sine + 8192;
		const u32v b = v[N - 1] * r.cosine - v[0] * r.sine + 8192;
		v[0] = sar(a, 14);
		v[N - 1] = sar(b, 14);
	}
	observe_features<ONE, N>(x, s, t, v);
}

/* ----- all slots ------------------------------------------------ */

/* N slots, one or a pair, of which elements may be known. */
template <int D, bool ALL, bool ONE, uint32_t N>
WARP_FN void walk_slot(linear_walk *x, linear_slot *s)
{
	s->c = s->panel.c + s->at;
	if (ONE && N == 2)
		x->now.turn = find_turn(x, s, x->first);
	UNROLL
	for (uint32_t i = 0; i < N; i++) {
		s->number[i] = ldg_quad(x->numbers, (s->c + i) * 4);
		if (ONE && x->predicts)
			x->now.base[i] = find_base(x, s, i, x->first);
	}
	for (uint32_t k = 0; k < steps_of<ONE>(x) && x->predicts; k++)
		if (N == 2)
			predict_pair<D, ONE>(x, s, x->first + 32 * k);
		else
			predict_one<D, ONE>(x, s, x->first + 32 * k);
	UNROLL
	for (uint32_t i = 0; i < N; i++)
		if (x->known)
			know_slot<D>(x, s, i);
		else
			decode_slot<D, ALL, ONE>(x, s, i);
	for (uint32_t k = 0; k < steps_of<ONE>(x); k++)
		observe<D, ONE, N>(x, s, x->first + 32 * k);
	s->at += N;
}

/* What is known of tokens before the first slot; w: spec linear 4. */
template <bool ONE> WARP_FN void tokens_begin(linear_walk *x)
{
	const kvi_gpu_model *m = x->m;
	const uint32_t n0 = x->follows ? m->n0 : 1;
	for (uint32_t k = 0; k < steps_of<ONE>(x); k++) {
		const uint32_t t = x->first + 32 * k;
		u32v w = splat(DISTANCE_START * n0);
		if (x->follows && x->l->scale_w) {
			span<const uint32_t> from = span_at<const uint32_t>(x->l->scale_w,
			                                                    x->padded);
			const u32v q = ld(from, lanes() + t) / x->l->scale_n;
			w = (q * m->beta + DISTANCE_START * (16 - m->beta)) * n0 >> 4;
		}
		keep_w<ONE>(x, t, w);
	}
	if (ONE)
		x->now.unknown = find_unknown(x, x->first);
}

/* Stores the features of a panel, which may have fewer slots, where all lanes read them. */
template <bool ONE>
WARP_FN void store_features(linear_walk *x, uint64_t memory, const quads *now,
                            const linear_panel *p)
{
	for (uint32_t k = 0; k < steps_of<ONE>(x); k++) {
		const uint32_t t = x->first + 32 * k;
		quads f = features_of<ONE>(x, memory, now, p, t);
		for (uint32_t i = p->slots; i < PANEL; i++)
			f = feature_behind(f, splat(0));
		st_quads_if(features_at(x, memory), features_index(x, p, t), f, lanes() < 32);
	}
}

template <int D, bool ALL, bool ONE> WARP_FN void walk_panel(linear_walk *x, const linear_panel *p)
{
	linear_slot s;
	s.panel = *p;
	if (x->predicts && x->sees_own) {
		warp_barrier();
		add_before<ONE>(x, p);
		warp_barrier();
	}
	for (s.at = 0; s.at < p->slots;)
		if (p->first + s.at < x->rotary)
			walk_slot<D, ALL, ONE, 2>(x, &s);
		else
			walk_slot<D, ALL, ONE, 1>(x, &s);
	if (x->predicts && (ONE || p->slots < PANEL))
		store_features<ONE>(x, x->l->r, &x->now.r, p);
	if (x->gives_z && (ONE || p->slots < PANEL))
		store_features<ONE>(x, x->l->z, &x->now.z, p);
}

/* All slots of the tokens. */
template <int D, bool ALL, bool ONE> WARP_FN void walk_slots(linear_walk *x)
{
	UNROLL
	for (uint32_t i = 0; i < 4 && ONE; i++)
		x->now.r.v[i] = x->now.z.v[i] = splat(0);
	if (x->predicts)
		tokens_begin<ONE>(x);
	for (uint32_t h = 0; h < x->heads; h++)
		for (uint32_t i = 0; i < panels_of(x->head_channels); i++) {
			const linear_panel p = panel_at(x->head_channels, h, i);
			walk_panel<D, ALL, ONE>(x, &p);
		}
	if (ONE && x->predicts)
		st(w_at(x), lanes() + x->first, x->now.w);
}

/* Decodes a stream of codec 7. Whether the stream was good. */
template <int D>
WARP_FN bool linear_decode(const kvi_gpu_chunk *c, const kvi_gpu_opened *o,
                           const kvi_gpu_tables *tables, const grid_shared *codes, uint32_t number)
{
	const uint32_t first = number * o->stream_tokens, left = c->tokens - first;
	const uint32_t n = uniform(left < o->stream_tokens ? left : o->stream_tokens);
	linear_walk x;
	walk_open(&x, c, tables);
	x.codes = codes;
	words_open(&x.words, c->payload + o->stream[number].words,
	           uniform(o->stream[number].n_words));
	x.state = ldg(span_at<const uint32_t>(c->payload + o->stream[number].states, 32), lanes());
	x.predicts = true;
	x.first = first;
	x.steps = n < 64 ? 0 : n / 32;
	if (x.steps) {
		x.active = lanes() < 32;
		walk_slots<D, true, false>(&x);
	}
	for (uint32_t t = 32 * x.steps; t < n; t += 32) {
		x.first = first + t;
		x.active = lanes() < n - t;
		walk_slots<D, false, true>(&x);
	}
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
	x.active = lanes() + x.first < c->tokens;
	walk_slots<D, false, true>(&x);
}

#endif
