/* SPDX-License-Identifier: BSD-3-Clause */
/* linear_model.c - a tensor's linear model at work on a segment (spec linear 2 to 4) */
#include "linear_model.h"

#include <string.h>

#include "numeric/formats.h"
#include "numeric/rotate.h"

enum { SCALE_START = 13 };

kvarc_ret kvi_features_open(struct kvi_features **out, const struct kvi_alloc *alloc,
                            const struct kvi_model *model, size_t n_tokens)
{
	size_t padded = kvi_padded_tokens(n_tokens);
	size_t n = model->heads * kvi_head_stride(model) * padded;
	struct kvi_features *f = kvi_calloc(alloc, 1, sizeof *f);
	*out = f;
	if (!f)
		return kvi_alloc_error(alloc);
	f->n_tokens = n_tokens;
	f->tokens_capacity = padded;
	f->r = kvi_array(alloc, n, sizeof *f->r);
	f->w = kvi_array(alloc, padded, sizeof *f->w);
	const bool z = model->level == KVI_LEVEL_LOWER || /* z is read at these levels alone */
	               model->level == KVI_LEVEL_BASIS;
	if (z)
		f->z = kvi_array(alloc, n, sizeof *f->z);
	if (f->r && f->w && (f->z || !z))
		return KVARC_OK;
	kvi_features_close(f, alloc);
	*out = NULL;
	return kvi_alloc_error(alloc);
}

void kvi_features_close(struct kvi_features *features, const struct kvi_alloc *alloc)
{
	if (!features)
		return;
	kvi_free(alloc, features->z);
	kvi_free(alloc, features->r);
	kvi_free(alloc, features->w);
	kvi_free(alloc, features);
}

size_t kvi_linear_bytes(const struct kvi_linear_in *in)
{
	size_t padded = kvi_padded_tokens(in->n_tokens);
	return padded * ((KVI_STRETCH + KVI_PANEL) * sizeof(int32_t) +
	                 (KVI_PANEL + 1) * sizeof(int16_t) + sizeof(int8_t *));
}

/* The row of the token table of an id; NULL: none. */
static const int8_t *table_row(const struct kvi_model *model, int32_t id)
{
	size_t lo = 0, hi = model->n_ids;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		if (model->ids[mid] < id)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < model->n_ids && model->ids[lo] == id ? model->table + lo * model->C : NULL;
}

static void begin_table(struct kvi_linear *linear)
{
	const struct kvi_linear_in *in = linear->in;
	const struct kvi_model *m = in->model;
	for (size_t t = 0; t < linear->tokens_capacity; t++) {
		bool there = t < in->n_tokens;
		linear->ids[t] = there && in->ids ? table_row(m, in->ids[t]) : NULL;
		linear->unknown[t] = there && !linear->ids[t] ? m->unknown : 0;
	}
}

static void begin_scale(const struct kvi_linear *linear)
{
	const struct kvi_model *m = linear->in->model;
	const struct kvi_features *from = linear->only_z ? NULL : linear->in->scale;
	struct kvi_features *f = linear->out;
	f->n = m->flags & KVI_MODEL_SCALE ? m->n0 : 1;
	for (size_t t = 0; t < linear->tokens_capacity; t++) {
		uint32_t q = from ? from->w[t] / from->n : 0;
		f->w[t] = SCALE_START * f->n;
		if (m->flags & KVI_MODEL_SCALE && from)
			f->w[t] = f->n * (SCALE_START * (16u - m->beta) + m->beta * q) >> 4;
	}
}

void kvi_linear_begin(struct kvi_linear *linear, void *memory)
{
	size_t padded = kvi_padded_tokens(linear->in->n_tokens);
	linear->tokens_capacity = padded;
	linear->ids = memory;
	linear->below = (int32_t *)(void *)(linear->ids + padded);
	linear->sum = linear->below + KVI_STRETCH * padded;
	linear->table = (int16_t *)(void *)(linear->sum + KVI_PANEL * padded);
	linear->unknown = linear->table + KVI_PANEL * padded;
	linear->out->n_tokens = linear->in->n_tokens;
	linear->out->tokens_capacity = padded;
	if (linear->in->model->flags & KVI_MODEL_TABLE)
		begin_table(linear);
	begin_scale(linear);
}

/*
 * Slots of one head: a stretch of them, whose sums over lower layers are made
 * together, or a panel of that, predicted and coded slot by slot.
 */
struct linear_some {
	size_t head, first, slots;  /* first: in the head */
	size_t c;                   /* index of the first slot among all slots */
	const int32_t *below, *sum; /* sums; NULL: there are none */
	size_t below_step;
	size_t near; /* entries of a row of B before its slots */
	const int16_t *table;
};

/* int16 from one step of a tensor's features to the next. */
static size_t feature_step(const struct kvi_model *model)
{
	return model->heads * kvi_head_stride(model) * KVI_LANES;
}

/* Index of a head's features of a block. */
static size_t feature_at(const struct kvi_model *model, size_t head,
                         const struct kvi_linear_block *block)
{
	return block->first / KVI_LANES * feature_step(model) +
	       head * kvi_head_stride(model) * KVI_LANES;
}

/* A tensor's slots, of all heads or of one. */
static struct kvi_rows_part part_of(const struct kvi_model *model, const int16_t *features,
                                    size_t head, size_t slots, const struct kvi_linear_block *block)
{
	return (struct kvi_rows_part){ features + feature_at(model, head, block), slots / 2,
		                       feature_step(model) };
}

/* The slots of a source; adds its entries of a row to *n. */
static struct kvi_rows_part source_part(const struct linear_some *some,
                                        const struct kvi_source *source, const int16_t *features,
                                        const struct kvi_linear_block *block, size_t *n)
{
	const struct kvi_model *m = source->model;
	size_t head = source->scope ? some->head % m->heads : 0;
	size_t slots = (source->scope ? 1 : m->heads) * kvi_head_stride(m);
	*n += slots;
	return part_of(m, features, head, slots, block);
}

static void sum_below(const struct kvi_linear *linear, struct linear_some *some,
                      const struct kvi_linear_block *block)
{
	const struct kvi_model *m = linear->in->model;
	struct kvi_rows_part part[KVI_LOWER_MAX];
	size_t n = 0;
	for (size_t i = 0; i < m->n_lower; i++)
		part[i] = source_part(some, &m->lower[i], linear->in->lower[i]->z, block, &n);
	some->below = linear->below;
	some->below_step = some->slots * KVI_LANES;
	const struct kvi_rows r = {
		.sum = linear->below,
		.coef = m->a + some->c * m->a_stride,
		.q = m->qa + some->c,
		.part = part,
		.n_parts = m->n_lower,
		.rows = some->slots,
		.steps = block->steps,
		.sum_step = some->below_step,
		.coef_row = m->a_stride,
	};
	linear->kernels->slots.slot_rows(&r);
}

/* The transformer's prediction replaces that from lower layers. */
static void take_expected(const struct kvi_linear *linear, struct linear_some *some,
                          const struct kvi_linear_block *block)
{
	const size_t C = linear->in->model->C, n = linear->in->n_tokens;
	some->below = linear->below;
	some->below_step = some->slots * KVI_LANES;
	for (size_t i = 0; i < block->steps * KVI_LANES; i++) {
		const int16_t *e = linear->in->expected + (block->first + i) * C + some->c;
		int32_t *to = linear->below + i / KVI_LANES * some->below_step + i % KVI_LANES;
		for (size_t k = 0; k < some->slots; k++)
			to[k * KVI_LANES] = block->first + i < n ? e[k] : 0;
	}
}

/* Sums the contributions of the layer's tensors to a panel: sources, and the slots of the tensor
 * itself before the panel. */
static void sum_same(const struct kvi_linear *linear, struct linear_some *some,
                     const struct kvi_linear_block *block)
{
	const struct kvi_model *m = linear->in->model;
	struct kvi_rows_part part[KVI_SAME_MAX + 1];
	size_t n = 0, n_parts = m->n_same;
	for (size_t i = 0; i < m->n_same; i++)
		part[i] = source_part(some, &m->same[i], linear->in->same[i]->r, block, &n);
	if (m->flags & KVI_MODEL_SELF) {
		size_t head = m->flags & KVI_MODEL_SELF_HEAD ? some->head : 0;
		size_t before = (some->head - head) * kvi_head_stride(m) + some->first;
		part[n_parts++] = part_of(m, linear->out->r, head, before, block);
		n += before;
	}
	some->near = n;
	some->sum = linear->sum;
	const struct kvi_rows r = {
		.sum = linear->sum,
		.coef = m->b + some->c * m->b_stride,
		.q = m->qb + some->c,
		.part = part,
		.n_parts = n_parts,
		.rows = some->slots,
		.steps = block->steps,
		.sum_step = some->slots * KVI_LANES,
		.coef_row = m->b_stride,
	};
	linear->kernels->slots.slot_rows(&r);
}

/* Token table, slots of the panel by token. */
static void sum_table(const struct kvi_linear *linear, struct linear_some *some,
                      const struct kvi_linear_block *block)
{
	const struct kvi_model *m = linear->in->model;
	size_t tokens = block->steps * KVI_LANES;
	for (size_t t = 0; t < tokens; t++) {
		const int8_t *row = linear->ids[block->first + t];
		for (size_t i = 0; i < some->slots; i++) {
			int v = row ? row[some->c + i] * (1 << m->tshift) : 0;
			linear->table[i * tokens + t] = (int16_t)v;
		}
	}
	some->table = linear->table;
}

static void set_slot(const struct kvi_linear *linear, const struct linear_some *some,
                     const struct kvi_linear_block *block, size_t i, uint32_t **ctx,
                     struct kvi_slot *slot)
{
	const struct kvi_model *m = linear->in->model;
	size_t c = some->c + i, n = block->steps * block->lanes, row = block->row[c];
	size_t part = (size_t)block->lanes << block->part_shift;
	bool coded = row < block->n_coded;
	*slot = (struct kvi_slot){
		.x = block->x + row * (part < n ? part : n),
		.known = !block->reader || !coded,
		.mean = m->mean[c],
		.k = m->k[c],
		.step = m->step[c],
		.table = some->table ? some->table + i * block->steps * KVI_LANES : NULL,
		.below_step = some->below_step,
		.sum_step = some->slots * KVI_LANES,
	};
	if (some->below) {
		slot->qa = m->qa ? m->qa[c] : 0; /* `expected` has no fraction bits */
		slot->below = some->below + i * KVI_LANES;
	}
	if (some->sum) {
		slot->qb = m->qb[c];
		slot->sum = some->sum + i * KVI_LANES;
	}
	if (*ctx && coded) {
		slot->ctx = *ctx;
		*ctx += n;
	}
}

/* The finished pairs of the panel that slot i of it, or a pair, looks at. */
static void set_near(const struct kvi_linear *linear, const struct linear_some *some, size_t i,
                     size_t n, struct kvi_slot_job *job)
{
	const struct kvi_model *m = linear->in->model;
	if (!some->sum || !(m->flags & KVI_MODEL_SELF))
		return;
	job->n_near = (i + 1) / 2;
	for (size_t k = 0; k < n; k++)
		job->slot[k].coef = m->b + (some->c + i + k) * m->b_stride + some->near;
}

/* Cosine, sine and angle class of a rotated pair. */
static void set_turn(const struct kvi_linear *linear, const struct linear_some *some,
                     const struct kvi_linear_block *block, size_t i, struct kvi_slot_job *job)
{
	size_t at = (some->first + i) / 2 * linear->turns->tokens_capacity + block->first;
	int d = kvi_clamp(job->slot[0].k - job->slot[1].k, -32, 32) + 32;
	job->pair = true;
	job->cos_sin = linear->turns->turn + 2 * at;
	job->angle_class = linear->turns->angle_class + at;
	job->scales = kvi_rot_scale + d * 64;
}

static bool apply_panel(const struct kvi_linear *linear, const struct linear_some *some,
                        const struct kvi_linear_block *block, struct kvi_slot_block *kb,
                        uint32_t **ctx)
{
	const struct kvi_model *m = linear->in->model;
	size_t near = feature_at(m, some->head, block) + some->first * KVI_LANES, done;
	for (size_t i = 0; i < some->slots; i += done) {
		size_t at = near + i / 2 * KVI_PAIR_STEP;
		bool pair = some->first + i < m->rotary;
		struct kvi_slot_job j = {
			.half = i & 1,
			.r = linear->only_z ? NULL : linear->out->r + at,
			.z = linear->out->z ? linear->out->z + at : NULL,
			.near = linear->out->r + near,
			.feature_step = feature_step(m),
			.n = linear->out->n,
			.grow = some->c + i < KVI_SCALE_SLOTS,
		};
		done = pair ? 2 : 1;
		for (size_t k = 0; k < done; k++)
			set_slot(linear, some, block, i + k, ctx, &j.slot[k]);
		set_near(linear, some, i, done, &j);
		if (pair)
			set_turn(linear, some, block, i, &j);
		if (!linear->kernels->slots.slot(kb, &j))
			return false;
		if (kb->w && j.grow)
			linear->out->n += (uint32_t)done;
	}
	return true;
}

static bool apply_stretch(const struct kvi_linear *linear, struct linear_some *some,
                          const struct kvi_linear_block *block, struct kvi_slot_block *kb,
                          uint32_t **ctx)
{
	const struct kvi_model *m = linear->in->model;
	if (linear->in->expected && !linear->only_z)
		take_expected(linear, some, block);
	else if (m->n_lower && !linear->only_z)
		sum_below(linear, some, block);
	for (size_t i = 0; i < some->slots; i += KVI_PANEL) {
		struct linear_some p = *some;
		p.first += i;
		p.c += i;
		p.slots = some->slots - i < KVI_PANEL ? some->slots - i : KVI_PANEL;
		p.below = some->below ? some->below + i * KVI_LANES : NULL;
		if (m->flags & KVI_MODEL_TABLE)
			sum_table(linear, &p, block);
		if (m->b_stride && linear->predicts)
			sum_same(linear, &p, block);
		if (!apply_panel(linear, &p, block, kb, ctx))
			return false;
	}
	return true;
}

bool kvi_linear_apply(const struct kvi_linear *linear, const struct kvi_linear_block *block)
{
	const struct kvi_model *m = linear->in->model;
	const bool scale = m->flags & KVI_MODEL_SCALE && !linear->only_z;
	uint32_t *ctx = block->ctx;
	struct kvi_slot_block kb = {
		.tokens = block->steps * KVI_LANES,
		.lanes = block->lanes,
		.fmt = &kvi_float_format(linear->in->dtype)->grid,
		.tables = linear->tables,
		.unknown = m->flags & KVI_MODEL_TABLE ? linear->unknown + block->first : NULL,
		.w = scale ? linear->out->w + block->first : NULL,
		.reader = block->reader,
		.part_shift = block->part_shift,
		.x_part = block->x_part,
	};
	linear->out->n = scale ? m->n0 : 1;
	for (size_t h = 0; h < m->heads; h++)
		for (size_t c = 0; c < m->head_channels; c += KVI_STRETCH) {
			struct linear_some s = { .head = h,
				                 .first = c,
				                 .slots = KVI_STRETCH,
				                 .c = h * m->head_channels + c };
			if (m->head_channels - c < KVI_STRETCH)
				s.slots = m->head_channels - c;
			if (!apply_stretch(linear, &s, block, &kb, &ctx))
				return false;
		}
	return true;
}
