/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * linear_token_body.h - what tokens take from slot to slot of codec 7 (linear_walk_body.h)
 *
 * A lane is a token. Of 32 tokens (ONE) it is in registers, of more of them in memory, where a lane
 * reads what it has written itself, or an earlier kernel has.
 */
#ifndef KVI_GPU_LINEAR_TOKEN_BODY_H
#define KVI_GPU_LINEAR_TOKEN_BODY_H

#include "chunk_finish_body.h"
#include "linear_formulas_body.h"

/* What is known of a slot at 32 tokens before it is decoded. */
struct linear_before {
	u32v context, expected, k;
};

/* Cosine and sine of a pair. */
struct linear_turn {
	u32v cosine, sine;
};

/* What 32 tokens have: distances, what is added to k' of unknown ones, features of the panel
 * (linear_job.h); of a slot or a pair the bases, what is known before, elements, angles. */
struct linear_token {
	u32v w, unknown;
	quads r, z;
	u32v base[2];
	linear_before before[2];
	u32v element[2];
	linear_turn turn;
};

/* Tokens on their way through the slots. */
struct linear_walk {
	const kvi_gpu_chunk *c;
	const kvi_gpu_linear *l;
	const kvi_gpu_model *m;
	uint32_t heads, head_channels, rotary, channels;
	uint32_t padded, panels; /* tokens; panels of features of a step */
	uint32_t own_panels;     /* of the heads of which a slot sees earlier slots */
	uint32_t first, steps;   /* tokens from first on, 32 a step */
	boolv active;            /* lanes of a step; where not all: of the only one */
	bool predicts;           /* else z alone is wanted */
	bool adds, sees_own;     /* sums over features; also over those of earlier slots */
	bool follows;            /* the scale adapts to the tokens */
	bool gives_z;            /* other layers want z */
	bool interleaved;
	bool keeps; /* known elements and their contexts, by slot */
	span<const int16_t> bases;
	span<const uint32_t> numbers, near, columns;
	span<uint32_t> sums, slots, contexts;
	span<uint16_t> elements;
	uint64_t known; /* the elements, token after token; 0: in the stream */
	const kvi_gpu_tables *tables;
	const grid_shared *codes;
	words_in words;
	u32v state;
	linear_token now; /* of 32 tokens */
};

WARP_FN void walk_open(linear_walk *x, const kvi_gpu_chunk *c, const kvi_gpu_tables *tables)
{
	const kvi_gpu_linear *l = linear_of(c);
	const kvi_gpu_model *m = model_of(l);
	const uint32_t heads = uniform(m->heads), head_channels = uniform(m->head_channels);
	const uint32_t C = heads * head_channels, n = uniform(padded_tokens(c));
	const uint32_t panels = heads * panels_of(head_channels);
	x->c = c;
	x->l = l;
	x->m = m;
	x->heads = heads;
	x->head_channels = head_channels;
	x->rotary = uniform(m->rotary);
	x->channels = C;
	x->padded = n;
	x->panels = panels;
	x->own_panels = panels;
	if (uniform(m->flags & KVI_GPU_MODEL_SELF_HEAD))
		x->own_panels = panels_of(head_channels);
	x->tables = tables;
	x->predicts = uniform(l->features) == KVI_GPU_FEATURES_ALL;
	x->adds = uniform(m->b != 0);
	x->sees_own = uniform(m->near != 0);
	x->follows = x->predicts && uniform(m->flags & KVI_GPU_MODEL_SCALE);
	x->gives_z = uniform(l->z != 0);
	x->interleaved = uniform(l->interleaved);
	x->numbers = span_at<const uint32_t>(m->slots, C * 4);
	x->near = span_at<const uint32_t>(m->near, m->near ? C * 4 : 0);
	x->bases = span_at<const int16_t>(l->bases, C * n);
	x->sums = span_at<uint32_t>(l->sums, m->b ? C * n : 0);
	x->slots = span_at<uint32_t>(l->slots, 2 * 3 * n);
	x->elements = span_at<uint16_t>(l->elements, C * n);
	x->columns = span_at<const uint32_t>(c->columns, C);
	x->known = 0;
	x->keeps = false;
}

/* A slot, or the two of a rotated pair. */
struct linear_slot {
	linear_panel panel;
	uint32_t at; /* in the panel */
	uint32_t c;  /* of all slots */
	quad number[2];
};
/* The numbers of its slot i (kvi_gpu_model), with a sign. */
WARP_FN uint32_t step_of(const linear_slot *s, uint32_t i)
{
	return s->number[i].v[0];
}
WARP_FN uint32_t k_of(const linear_slot *s, uint32_t i)
{
	return (uint32_t)(int16_t)s->number[i].v[1];
}
WARP_FN uint32_t mean_of(const linear_slot *s, uint32_t i)
{
	return (uint32_t)((int32_t)s->number[i].v[1] >> 16);
}
WARP_FN uint32_t shift_of(const linear_slot *s, uint32_t i)
{
	return s->number[i].v[2] >> 8;
}
/* Of a slot, or of both of a pair. */
WARP_FN uint32_t offset_of(const linear_slot *s)
{
	return s->number[0].v[3];
}

/* ----- registers and memory ------------------------------------------------ */

template <bool ONE> WARP_FN uint32_t steps_of(const linear_walk *x)
{
	return ONE ? 1 : x->steps;
}

/* Where features and distances are; not in registers of their own. */
WARP_FN span<uint32_t> features_at(const linear_walk *x, uint64_t features)
{
	return span_at<uint32_t>(features, x->panels * x->padded * 4);
}
WARP_FN span<uint32_t> w_at(const linear_walk *x)
{
	return span_at<uint32_t>(x->l->w, x->padded);
}

/* Of slot i at the tokens from t on. */
template <bool ONE> WARP_FN linear_before before_of(const linear_walk *x, uint32_t i, uint32_t t)
{
	if (ONE)
		return x->now.before[i];
	linear_before b;
	const u32v at = lanes() + (i * 3 * x->padded + t);
	b.context = ld(x->slots, at);
	b.expected = ld(x->slots, at + x->padded);
	b.k = ld(x->slots, at + 2 * x->padded);
	return b;
}
template <bool ONE>
WARP_FN void keep_before(linear_walk *x, uint32_t i, uint32_t t, linear_before b)
{
	if (ONE) {
		x->now.before[i] = b;
		return;
	}
	const u32v at = lanes() + (i * 3 * x->padded + t);
	st(x->slots, at, b.context);
	st(x->slots, at + x->padded, b.expected);
	st(x->slots, at + 2 * x->padded, b.k);
}

template <bool ONE> WARP_FN u32v w_of(const linear_walk *x, uint32_t t)
{
	return ONE ? x->now.w : ld(w_at(x), lanes() + t);
}
template <bool ONE> WARP_FN void keep_w(linear_walk *x, uint32_t t, u32v w)
{
	if (ONE)
		x->now.w = w;
	else
		st(w_at(x), lanes() + t, w);
}

/* Where the features of a panel are. */
WARP_FN u32v features_index(const linear_walk *x, const linear_panel *p, uint32_t t)
{
	return lanes() + (t / STEP_TOKENS * x->panels + p->number) * STEP_TOKENS;
}
/* Those of the slots so far, at the end of the panel. */
template <bool ONE>
WARP_FN quads features_of(const linear_walk *x, uint64_t memory, const quads *now,
                          const linear_panel *p, uint32_t t)
{
	if (ONE)
		return *now;
	return ld_quads_if(features_at(x, memory), features_index(x, p, t), lanes() < 32);
}
template <bool ONE>
WARP_FN void keep_features(const linear_walk *x, uint64_t memory, quads *now, const linear_panel *p,
                           uint32_t t, quads f)
{
	if (ONE)
		*now = f;
	else
		st_quads_if(features_at(x, memory), features_index(x, p, t), f, lanes() < 32);
}

/* Puts a feature, or those of a pair, behind the others. */
WARP_FN quads feature_behind(quads f, u32v a)
{
	f.v[0] = bytes_of(f.v[0], f.v[2], splat(0x4321));
	f.v[1] = bytes_of(f.v[1], f.v[3], splat(0x4321));
	f.v[2] = bytes_of(f.v[2], a, splat(0x4321));
	f.v[3] = bytes_of(f.v[3], a, splat(0x5321));
	return f;
}
WARP_FN quads pair_behind(quads f, u32v a, u32v b)
{
	const u32v both = bytes_of(a, b, splat(0x5140));
	f.v[0] = bytes_of(f.v[0], f.v[2], splat(0x5432));
	f.v[1] = bytes_of(f.v[1], f.v[3], splat(0x5432));
	f.v[2] = bytes_of(f.v[2], both, splat(0x5432));
	f.v[3] = bytes_of(f.v[3], both, splat(0x7632));
	return f;
}

#endif
