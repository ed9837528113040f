/* SPDX-License-Identifier: BSD-3-Clause */
/* linear_model.c - a tensor's linear model at work on a segment (spec linear 2 to 4) */
#include "linear_model.h"

#include <string.h>

#include "numeric/formats.h"
#include "numeric/rotate.h"

enum { SCALE_START = 13 };

kvarc_ret kvi_features_open(struct kvi_features **out, const struct kvi_alloc *alloc,
                            const struct kvi_model *m, size_t n_tokens)
{
	size_t padded = kvi_padded_tokens(n_tokens);
	size_t n = m->heads * kvi_head_stride(m) * padded;
	struct kvi_features *f = kvi_calloc(alloc, 1, sizeof *f);
	*out = f;
	if (!f)
		return kvi_alloc_error(alloc);
	f->n_tokens = n_tokens;
	f->tokens_capacity = padded;
	f->r = kvi_array(alloc, n, sizeof *f->r);
	f->w = kvi_array(alloc, padded, sizeof *f->w);
	const bool z = m->level == KVI_LEVEL_LOWER || /* no others look at it */
	               m->level == KVI_LEVEL_BASIS;
	if (z)
		f->z = kvi_array(alloc, n, sizeof *f->z);
	if (f->r && f->w && (f->z || !z))
		return KVARC_OK;
	kvi_features_close(f, alloc);
	*out = NULL;
	return kvi_alloc_error(alloc);
}

void kvi_features_close(struct kvi_features *f, const struct kvi_alloc *alloc)
{
	if (!f)
		return;
	kvi_free(alloc, f->z);
	kvi_free(alloc, f->r);
	kvi_free(alloc, f->w);
	kvi_free(alloc, f);
}

size_t kvi_linear_bytes(const struct kvi_linear_in *in)
{
	size_t padded = kvi_padded_tokens(in->n_tokens);
	return padded * ((KVI_STRETCH + KVI_PANEL) * sizeof(int32_t) +
	                 (KVI_PANEL + 1) * sizeof(int16_t) + sizeof(int8_t *));
}

/* The row of the token table of an id; NULL: none. */
static const int8_t *table_row(const struct kvi_model *m, int32_t id)
{
	size_t lo = 0, hi = m->n_ids;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		if (m->ids[mid] < id)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < m->n_ids && m->ids[lo] == id ? m->table + lo * m->C : NULL;
}

static void begin_table(struct kvi_linear *l)
{
	const struct kvi_linear_in *in = l->in;
	const struct kvi_model *m = in->model;
	for (size_t t = 0; t < l->tokens_capacity; t++) {
		bool there = t < in->n_tokens;
		l->ids[t] = there && in->ids ? table_row(m, in->ids[t]) : NULL;
		l->unknown[t] = there && !l->ids[t] ? m->unknown : 0;
	}
}

static void begin_scale(const struct kvi_linear *l)
{
	const struct kvi_model *m = l->in->model;
	const struct kvi_features *from = l->only_z ? NULL : l->in->scale;
	struct kvi_features *f = l->out;
	f->n = m->flags & KVI_MODEL_SCALE ? m->n0 : 1;
	for (size_t t = 0; t < l->tokens_capacity; t++) {
		uint32_t q = from ? from->w[t] / from->n : 0;
		f->w[t] = SCALE_START * f->n;
		if (m->flags & KVI_MODEL_SCALE && from)
			f->w[t] = f->n * (SCALE_START * (16u - m->beta) + m->beta * q) >> 4;
	}
}

void kvi_linear_begin(struct kvi_linear *l, void *memory)
{
	size_t padded = kvi_padded_tokens(l->in->n_tokens);
	l->tokens_capacity = padded;
	l->ids = memory;
	l->below = (int32_t *)(void *)(l->ids + padded);
	l->sum = l->below + KVI_STRETCH * padded;
	l->table = (int16_t *)(void *)(l->sum + KVI_PANEL * padded);
	l->unknown = l->table + KVI_PANEL * padded;
	l->out->n_tokens = l->in->n_tokens;
	l->out->tokens_capacity = padded;
	if (l->in->model->flags & KVI_MODEL_TABLE)
		begin_table(l);
	begin_scale(l);
}

/*
 * Slots of one head: a stretch of them, whose sums over lower layers are made
 * together, or a panel of that, predicted and coded slot by slot.
 */
struct linear_some {
	size_t head, first, slots;  /* first: in the head */
	size_t c;                   /* of all slots */
	const int32_t *below, *sum; /* NULL: there are none */
	size_t below_step;
	size_t near; /* entries of a row of B before its slots */
	const int16_t *table;
};

/* int16 from one step of a tensor's features to the next. */
static size_t feature_step(const struct kvi_model *m)
{
	return m->heads * kvi_head_stride(m) * KVI_LANES;
}

/* Where a head's features of a block are. */
static size_t feature_at(const struct kvi_model *m, size_t head, const struct kvi_linear_block *b)
{
	return b->first / KVI_LANES * feature_step(m) + head * kvi_head_stride(m) * KVI_LANES;
}

/* A tensor's slots, of all heads or of one. */
static struct kvi_rows_part part_of(const struct kvi_model *m, const int16_t *features, size_t head,
                                    size_t slots, const struct kvi_linear_block *b)
{
	return (struct kvi_rows_part){ features + feature_at(m, head, b), slots / 2,
		                       feature_step(m) };
}

/* The same of a source; entries of a row are added to *n. */
static struct kvi_rows_part source_part(const struct linear_some *some, const struct kvi_source *s,
                                        const int16_t *features, const struct kvi_linear_block *b,
                                        size_t *n)
{
	const struct kvi_model *m = s->model;
	size_t head = s->scope ? some->head % m->heads : 0;
	size_t slots = (s->scope ? 1 : m->heads) * kvi_head_stride(m);
	*n += slots;
	return part_of(m, features, head, slots, b);
}

static void sum_below(const struct kvi_linear *l, struct linear_some *s,
                      const struct kvi_linear_block *b)
{
	const struct kvi_model *m = l->in->model;
	struct kvi_rows_part part[KVI_LOWER_MAX];
	size_t n = 0;
	for (size_t i = 0; i < m->n_lower; i++)
		part[i] = source_part(s, &m->lower[i], l->in->lower[i]->z, b, &n);
	s->below = l->below;
	s->below_step = s->slots * KVI_LANES;
	const struct kvi_rows r = {
		.sum = l->below,
		.coef = m->a + s->c * m->a_stride,
		.q = m->qa + s->c,
		.part = part,
		.n_parts = m->n_lower,
		.rows = s->slots,
		.steps = b->steps,
		.sum_step = s->below_step,
		.coef_row = m->a_stride,
	};
	l->kernels->slot_rows(&r);
}

/* The transformer's prediction replaces that from lower layers. */
static void take_expected(const struct kvi_linear *l, struct linear_some *s,
                          const struct kvi_linear_block *b)
{
	const size_t C = l->in->model->C, n = l->in->n_tokens;
	s->below = l->below;
	s->below_step = s->slots * KVI_LANES;
	for (size_t i = 0; i < b->steps * KVI_LANES; i++) {
		const int16_t *e = l->in->expected + (b->first + i) * C + s->c;
		int32_t *to = l->below + i / KVI_LANES * s->below_step + i % KVI_LANES;
		for (size_t k = 0; k < s->slots; k++)
			to[k * KVI_LANES] = b->first + i < n ? e[k] : 0;
	}
}

/* What the tensors of the layer add to a panel: sources, and of the tensor
 * itself the slots before it. */
static void sum_same(const struct kvi_linear *l, struct linear_some *p,
                     const struct kvi_linear_block *b)
{
	const struct kvi_model *m = l->in->model;
	struct kvi_rows_part part[KVI_SAME_MAX + 1];
	size_t n = 0, n_parts = m->n_same;
	for (size_t i = 0; i < m->n_same; i++)
		part[i] = source_part(p, &m->same[i], l->in->same[i]->r, b, &n);
	if (m->flags & KVI_MODEL_SELF) {
		size_t head = m->flags & KVI_MODEL_SELF_HEAD ? p->head : 0;
		size_t before = (p->head - head) * kvi_head_stride(m) + p->first;
		part[n_parts++] = part_of(m, l->out->r, head, before, b);
		n += before;
	}
	p->near = n;
	p->sum = l->sum;
	const struct kvi_rows r = {
		.sum = l->sum,
		.coef = m->b + p->c * m->b_stride,
		.q = m->qb + p->c,
		.part = part,
		.n_parts = n_parts,
		.rows = p->slots,
		.steps = b->steps,
		.sum_step = p->slots * KVI_LANES,
		.coef_row = m->b_stride,
	};
	l->kernels->slot_rows(&r);
}

/* Token table, slots of the panel by token. */
static void sum_table(const struct kvi_linear *l, struct linear_some *p,
                      const struct kvi_linear_block *b)
{
	const struct kvi_model *m = l->in->model;
	size_t tokens = b->steps * KVI_LANES;
	for (size_t t = 0; t < tokens; t++) {
		const int8_t *row = l->ids[b->first + t];
		for (size_t i = 0; i < p->slots; i++) {
			int v = row ? row[p->c + i] * (1 << m->tshift) : 0;
			l->table[i * tokens + t] = (int16_t)v;
		}
	}
	p->table = l->table;
}

static void set_slot(const struct kvi_linear *l, const struct linear_some *p,
                     const struct kvi_linear_block *b, size_t i, uint32_t **ctx,
                     struct kvi_slot *slot)
{
	const struct kvi_model *m = l->in->model;
	size_t c = p->c + i, n = b->steps * b->lanes, row = b->row[c];
	size_t part = (size_t)b->lanes << b->part_shift;
	bool coded = row < b->n_coded;
	*slot = (struct kvi_slot){
		.x = b->x + row * (part < n ? part : n),
		.known = !b->reader || !coded,
		.mean = m->mean[c],
		.k = m->k[c],
		.step = m->step[c],
		.table = p->table ? p->table + i * b->steps * KVI_LANES : NULL,
		.below_step = p->below_step,
		.sum_step = p->slots * KVI_LANES,
	};
	if (p->below) {
		slot->qa = m->qa ? m->qa[c] : 0; /* else expected */
		slot->below = p->below + i * KVI_LANES;
	}
	if (p->sum) {
		slot->qb = m->qb[c];
		slot->sum = p->sum + i * KVI_LANES;
	}
	if (*ctx && coded) {
		slot->ctx = *ctx;
		*ctx += n;
	}
}

/* The finished pairs of the panel that slot i of it, or a pair, looks at. */
static void set_near(const struct kvi_linear *l, const struct linear_some *p, size_t i, size_t n,
                     struct kvi_slot_job *j)
{
	const struct kvi_model *m = l->in->model;
	if (!p->sum || !(m->flags & KVI_MODEL_SELF))
		return;
	j->n_near = (i + 1) / 2;
	for (size_t k = 0; k < n; k++)
		j->slot[k].coef = m->b + (p->c + i + k) * m->b_stride + p->near;
}

/* Cosine, sine and angle class of a rotated pair. */
static void set_turn(const struct kvi_linear *l, const struct linear_some *p,
                     const struct kvi_linear_block *b, size_t i, struct kvi_slot_job *j)
{
	size_t at = (p->first + i) / 2 * l->turns->tokens_capacity + b->first;
	int d = kvi_clamp(j->slot[0].k - j->slot[1].k, -32, 32) + 32;
	j->pair = true;
	j->cos_sin = l->turns->turn + 2 * at;
	j->angle_class = l->turns->angle_class + at;
	j->scales = kvi_rot_scale + d * 64;
}

static bool apply_panel(const struct kvi_linear *l, const struct linear_some *p,
                        const struct kvi_linear_block *b, struct kvi_slot_block *kb, uint32_t **ctx)
{
	const struct kvi_model *m = l->in->model;
	size_t near = feature_at(m, p->head, b) + p->first * KVI_LANES, done;
	for (size_t i = 0; i < p->slots; i += done) {
		size_t at = near + i / 2 * KVI_PAIR_STEP;
		bool pair = p->first + i < m->rotary;
		struct kvi_slot_job j = {
			.half = i & 1,
			.r = l->only_z ? NULL : l->out->r + at,
			.z = l->out->z ? l->out->z + at : NULL,
			.near = l->out->r + near,
			.feature_step = feature_step(m),
			.n = l->out->n,
			.grow = p->c + i < KVI_SCALE_SLOTS,
		};
		done = pair ? 2 : 1;
		for (size_t k = 0; k < done; k++)
			set_slot(l, p, b, i + k, ctx, &j.slot[k]);
		set_near(l, p, i, done, &j);
		if (pair)
			set_turn(l, p, b, i, &j);
		if (!l->kernels->slot(kb, &j))
			return false;
		if (kb->w && j.grow)
			l->out->n += (uint32_t)done;
	}
	return true;
}

static bool apply_stretch(const struct kvi_linear *l, struct linear_some *s,
                          const struct kvi_linear_block *b, struct kvi_slot_block *kb,
                          uint32_t **ctx)
{
	const struct kvi_model *m = l->in->model;
	if (l->in->expected && !l->only_z)
		take_expected(l, s, b);
	else if (m->n_lower && !l->only_z)
		sum_below(l, s, b);
	for (size_t i = 0; i < s->slots; i += KVI_PANEL) {
		struct linear_some p = *s;
		p.first += i;
		p.c += i;
		p.slots = s->slots - i < KVI_PANEL ? s->slots - i : KVI_PANEL;
		p.below = s->below ? s->below + i * KVI_LANES : NULL;
		if (m->flags & KVI_MODEL_TABLE)
			sum_table(l, &p, b);
		if (m->b_stride && l->predicts)
			sum_same(l, &p, b);
		if (!apply_panel(l, &p, b, kb, ctx))
			return false;
	}
	return true;
}

bool kvi_linear_apply(const struct kvi_linear *l, const struct kvi_linear_block *b)
{
	const struct kvi_model *m = l->in->model;
	const bool scale = m->flags & KVI_MODEL_SCALE && !l->only_z;
	uint32_t *ctx = b->ctx;
	struct kvi_slot_block kb = {
		.tokens = b->steps * KVI_LANES,
		.lanes = b->lanes,
		.fmt = &kvi_float_format(l->in->dtype)->grid,
		.tables = l->tables,
		.unknown = m->flags & KVI_MODEL_TABLE ? l->unknown + b->first : NULL,
		.w = scale ? l->out->w + b->first : NULL,
		.reader = b->reader,
		.part_shift = b->part_shift,
		.x_part = b->x_part,
	};
	l->out->n = scale ? m->n0 : 1;
	for (size_t h = 0; h < m->heads; h++)
		for (size_t c = 0; c < m->head_channels; c += KVI_STRETCH) {
			struct linear_some s = { .head = h,
				                 .first = c,
				                 .slots = KVI_STRETCH,
				                 .c = h * m->head_channels + c };
			if (m->head_channels - c < KVI_STRETCH)
				s.slots = m->head_channels - c;
			if (!apply_stretch(l, &s, b, &kb, &ctx))
				return false;
		}
	return true;
}
