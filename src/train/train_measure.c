/* SPDX-License-Identifier: BSD-3-Clause */
/* train_measure.c - bits that each stage of a predictor saves on an archive coded with it */
#include <string.h>

#include "numeric/rotate.h"
#include "train_sample.h"
#include "util/error.h"
#include "reader/reader_internal.h"
#include "util/pool.h"

enum {
	TOKENS = 256,
	PIECE = 64,             /* tokens of a piece; TOKENS in all, spread evenly */
	SAMPLE_BYTES = 64 << 20 /* fewer when they are more than this */
};

/* Tokens of the archive in memory: all tensors of its track, one after another. */
struct measure_piece {
	const struct measuring *m;
	uint64_t t0;
	uint32_t n;
	uint8_t *raw;
	kvarc_view *views;
	int32_t *ids, *positions;
};

struct measuring {
	kvarc_reader *r;
	kvarc_trainer *t;
	const struct kvi_profile *profile;
	unsigned level; /* level of the archive */
	uint32_t track;
	struct measure_piece pieces[TOKENS / PIECE];
	size_t n_pieces;
	kvarc_measured_fn fn;
	void *opaque;
};

/* ---- the sample ---- */

static uint64_t row_bytes(const struct measuring *measuring)
{
	const kvarc_geometry *g = kvarc_reader_geometry(measuring->r);
	uint64_t row = 0;
	for (size_t i = 0; i < g->n_tensors; i++)
		if (g->tensors[i].track == measuring->track)
			row += kvi_tensor_bytes(&g->tensors[i]);
	return row;
}

/* Pieces that lie evenly, from the first token to the last. */
static void choose(struct measuring *measuring)
{
	uint64_t have = kvarc_reader_tokens(measuring->r, measuring->track);
	uint64_t most = SAMPLE_BYTES / (row_bytes(measuring) + 1) / PIECE;
	uint64_t n = (have + PIECE - 1) / PIECE;
	n = n > TOKENS / PIECE ? TOKENS / PIECE : n;
	n = n > most ? most : n;
	n = n ? n : have > 0;
	for (uint64_t i = 0; i < n; i++) {
		/* a piece is a segment, or half of one, of the usual size */
		uint64_t last = (have - 1) / PIECE;
		uint64_t t0 = n > 1 ? last * i / (n - 1) * PIECE : 0;
		uint64_t left = have - t0;
		measuring->pieces[i] = (struct measure_piece){
			.m = measuring, .t0 = t0, .n = left < PIECE ? (uint32_t)left : PIECE
		};
	}
	measuring->n_pieces = (size_t)n;
}

static kvarc_ret read_piece(struct measuring *measuring, struct measure_piece *piece)
{
	const kvarc_geometry *g = kvarc_reader_geometry(measuring->r);
	const kvarc_range range = {
		.track = measuring->track, .n_layers = UINT32_MAX, .t0 = piece->t0, .n = piece->n
	};
	const struct kvi_alloc *a = &measuring->t->alloc;
	piece->raw = kvi_array(a, piece->n, (size_t)row_bytes(measuring));
	piece->views = kvi_calloc(a, g->n_tensors, sizeof *piece->views);
	piece->ids = kvi_array(a, piece->n, 2 * sizeof *piece->ids);
	if (!piece->raw || !piece->views || !piece->ids)
		return kvi_train_no_memory(measuring->t);
	piece->positions = piece->ids + piece->n;
	uint8_t *at = piece->raw;
	for (size_t i = 0; i < g->n_tensors; i++) {
		const kvarc_tensor *t = &g->tensors[i];
		uint32_t bytes = kvi_tensor_bytes(t);
		if (t->track != measuring->track)
			continue;
		piece->views[i] =
			(kvarc_view){ .data = at,
			              .token_stride = bytes,
			              .block_elems = kvi_tensor_width(t),
			              .elem_stride = (uint32_t)kvarc_dtype_bytes(t->dtype) };
		at += (size_t)piece->n * bytes;
	}
	kvarc_ret ret = kvarc_reader_read_tokens(measuring->r, measuring->track, piece->t0,
	                                         piece->n, piece->ids, piece->positions);
	if (ret == KVARC_OPTIONS) { /* ids are not stored: no table knows them */
		memset(piece->ids, 0xff, piece->n * sizeof *piece->ids);
		ret = kvarc_reader_read_tokens(measuring->r, measuring->track, piece->t0, piece->n,
		                               NULL, piece->positions);
	}
	return ret ? ret : kvarc_reader_read(measuring->r, &range, piece->views);
}

static int fetch(void *opaque, uint32_t tensor, uint32_t head, uint32_t heads, uint64_t t0,
                 uint32_t n, void *dst)
{
	const struct measure_piece *p = opaque;
	const kvarc_view *v = &p->views[tensor];
	(void)head, (void)heads; /* the trainer asks for all heads */
	memcpy(dst, (const uint8_t *)v->data + t0 * v->token_stride, n * (size_t)v->token_stride);
	return 0;
}

static kvarc_ret take_sample(struct measuring *measuring)
{
	const kvarc_geometry *g = kvarc_reader_geometry(measuring->r);
	kvarc_ret ret = KVARC_OK;
	choose(measuring);
	for (size_t i = 0; i < measuring->n_pieces && !ret; i++) {
		struct measure_piece *p = &measuring->pieces[i];
		ret = read_piece(measuring, p);
		if (!ret)
			ret = kvarc_trainer_add(measuring->t, g, measuring->track, p->n, p->ids,
			                        p->positions, fetch, p);
	}
	/* Nothing is fitted to the sample. */
	for (size_t i = 0; i < measuring->t->n_stacks; i++)
		for (size_t k = 0; k < measuring->t->stacks[i].n_caches; k++)
			measuring->t->stacks[i].caches[k]->held = 0;
	return ret;
}

/* ---- models that are like those of the trainer ---- */

/* Sources in the order in which kvi_train_view_make goes through them. */
static bool lower_match(struct kvi_train_task *task, const struct kvi_model *model)
{
	unsigned at = 0;
	size_t b = 0;
	for (; b < task->n_below && at < model->n_lower; b++)
		for (size_t s = 0; s < task->below[b]->n; s++, at++) {
			const struct kvi_train_shape *from = task->below[b]->tensors[s].shape;
			if (at == model->n_lower || model->lower[at].kind != from->kind ||
			    model->lower[at].delta != model->layer - from->layer)
				return false;
		}
	task->n_below = model->n_lower ? b : task->n_below;
	return at == model->n_lower;
}

static bool same_match(const struct kvi_train_task *task, unsigned level, size_t i)
{
	struct kvi_model *const *of = task->models[level - KVI_LEVEL_PROFILE];
	const struct kvi_model *m = of[i];
	for (unsigned s = 0; s < m->n_same; s++)
		if (s >= i || m->same[s].model != of[s])
			return false;
	return !m->beta || (i && m->scale_source == of[i - 1]);
}

static bool model_matches(struct measuring *measuring, struct kvi_train_task *task, unsigned level,
                          size_t i)
{
	const struct kvi_train_shape *s = &task->stack->shapes[task->first + i];
	const struct kvi_train_cache *c = task->stack->caches[0];
	const kvarc_tensor *t = &c->geometry.tensors[c->tensors[task->first + i]];
	const struct kvi_model *x = kvi_profile_model(measuring->profile, level, s->layer, s->kind);
	const struct kvi_model *other = task->models[0][i];
	if (!x || !kvi_model_fits(x, t, kvi_tensor_rope(&c->geometry, t)) || x->rope != s->rope)
		return false;
	if (other && memcmp(x->step, other->step, x->C * sizeof *x->step))
		return false;
	/* Views read it only. */
	task->models[level - KVI_LEVEL_PROFILE][i] = (struct kvi_model *)(uintptr_t)x;
	return same_match(task, level, i) && lower_match(task, x);
}

/* The models of a layer, of all its tensors; of level 2 only if there are such. */
static bool find_models(struct measuring *measuring, struct kvi_train_task *task, size_t n)
{
	uint32_t layer = task->stack->shapes[task->first].layer;
	unsigned kind = task->stack->shapes[task->first].kind;
	for (unsigned level = KVI_LEVEL_PROFILE; level <= measuring->level; level++) {
		if (level < measuring->level &&
		    !kvi_profile_model(measuring->profile, level, layer, kind))
			continue;
		for (size_t i = 0; i < n; i++)
			if (!model_matches(measuring, task, level, i))
				return false;
	}
	return true;
}

/* ---- one layer ---- */

struct tensor_results {
	double bits[KVARC_STAGES];
	_Atomic uint64_t *slots;
	int16_t *k;
};

static void price(struct measuring *measuring, struct kvi_train_view view[], size_t i,
                  enum kvarc_stage stage, struct tensor_results *to)
{
	const struct kvi_model *x = view[i].model;
	bool own = stage >= KVARC_STAGE_SCALE; /* the model's scales */
	bool follow = own && x->flags & KVI_MODEL_SCALE;
	struct kvi_train_scale s = { .k = own ? x->k : to->k,
		                     .n0 = follow ? x->n0 : 0,
		                     .beta = follow ? x->beta : 0,
		                     .unknown = own ? x->unknown : 0,
		                     .source = follow && i ? view[i - 1].scale : NULL };
	bool last = stage ==
	            (measuring->level == KVI_LEVEL_LOWER ? KVARC_STAGE_BELOW : KVARC_STAGE_SCALE);
	uint64_t bits = kvi_train_price(measuring->t, &view[i], &s, last ? to->slots : NULL);
	to->bits[stage] = (double)bits / 256 / ((double)view[i].n * (double)x->C);
}

/* The models of a level applied, with scales that are fitted to the residual and
 * then, of levels 2 and 3, with their own. */
static kvarc_ret measure_level(struct measuring *measuring, struct kvi_train_task *task,
                               const struct kvi_train_pieces *pieces, unsigned level,
                               struct tensor_results *to)
{
	struct kvi_train_view v[KVI_TRAIN_TENSORS];
	uint64_t fitted;
	if (level > KVI_LEVEL_CELLS && !task->models[level - KVI_LEVEL_PROFILE][0])
		return KVARC_OK;
	kvarc_ret ret = kvi_train_view_make(measuring->t, task, pieces, level, v);
	for (size_t i = 0; i < task->layer->n && !ret; i++) {
		if (level < KVI_LEVEL_LOWER)
			ret = kvi_train_fit_scales(measuring->t, &v[i], NULL, NULL, to[i].k,
			                           &fitted);
		if (!ret && level < KVI_LEVEL_LOWER)
			price(measuring, v, i,
			      level == KVI_LEVEL_CELLS ? KVARC_STAGE_MEANS : KVARC_STAGE_LAYER,
			      &to[i]);
		if (!ret && level > KVI_LEVEL_CELLS)
			price(measuring, v, i,
			      level == KVI_LEVEL_PROFILE ? KVARC_STAGE_SCALE : KVARC_STAGE_BELOW,
			      &to[i]);
	}
	kvi_train_view_free(measuring->t, v);
	return ret;
}

/* Reports the results of a tensor, by channel, not by slot. */
static void tell(struct measuring *measuring, const struct kvi_train_task *task, size_t i,
                 const struct kvi_train_pieces *pieces, struct tensor_results *results,
                 float *channels)
{
	const struct kvi_train_cache *c = task->stack->caches[0];
	uint32_t tensor = c->tensors[task->first + i];
	const kvarc_tensor *g = &c->geometry.tensors[tensor];
	const kvarc_rope *rope = kvi_tensor_rope(&c->geometry, g);
	const struct kvi_model *model = task->models[measuring->level - KVI_LEVEL_PROFILE][i];
	kvarc_measured out = { .tensor = tensor,
		               .tokens = pieces->n_tokens,
		               .channel_bits = channels,
		               .table = model->n_ids > 0 };
	memcpy(out.bits, results->bits, sizeof out.bits);
	for (size_t s = 0; s < model->C; s++) {
		size_t at = s / g->channels * g->channels + kvi_rope_channel(rope, s % g->channels);
		channels[at] = (float)((double)atomic_load(&results->slots[s]) / 256 /
		                       (double)pieces->n_tokens);
	}
	measuring->fn(measuring->opaque, &out);
}

static kvarc_ret measure_layer(struct measuring *measuring, struct kvi_train_task *task)
{
	struct tensor_results of[KVI_TRAIN_TENSORS] = { 0 };
	const struct kvi_alloc *a = &measuring->t->alloc;
	struct kvi_train_pieces p;
	float *channels = NULL;
	kvarc_ret ret = kvi_train_pieces_choose(measuring->t, task, true, TOKENS, &p);
	for (size_t i = 0; i < task->layer->n && !ret; i++) {
		size_t rows = task->layer->tensors[i].rows;
		of[i].slots = kvi_calloc(a, rows, sizeof *of[i].slots);
		of[i].k = kvi_calloc(a, rows, sizeof *of[i].k);
		if (!of[i].slots || !of[i].k)
			ret = kvi_train_no_memory(measuring->t);
	}
	for (unsigned level = KVI_LEVEL_CELLS; level <= measuring->level && !ret; level++)
		ret = measure_level(measuring, task, &p, level, of);
	for (size_t i = 0; i < task->layer->n && !ret; i++) {
		channels = kvi_calloc(a, task->layer->tensors[i].rows, sizeof *channels);
		if (channels)
			tell(measuring, task, i, &p, &of[i], channels);
		else
			ret = kvi_train_no_memory(measuring->t);
		kvi_free(a, channels);
	}
	for (size_t i = 0; i < task->layer->n; i++) {
		kvi_free(a, of[i].slots);
		kvi_free(a, of[i].k);
	}
	kvi_free(a, p.p);
	return ret;
}

/* ---- layer after layer ---- */

/* Layers that have no models as the trainer makes them are left out, and those above
 * that need them. */
static kvarc_ret measure_stack(struct measuring *measuring, const struct kvi_train_stack *stack)
{
	enum { KEEP = KVI_TRAIN_BELOW + 1 };
	struct kvi_train_layer layers[KEEP];
	kvarc_ret ret = KVARC_OK;
	size_t count = 0, n;
	memset(layers, 0, sizeof layers);
	for (size_t first = 0; first < stack->n_shapes && !ret; first += n) {
		struct kvi_train_task k = { .stack = stack,
			                    .first = first,
			                    .layer = &layers[count % KEEP] };
		n = kvi_train_layer_shapes(stack, first);
		for (size_t b = 1; b <= KVI_TRAIN_BELOW && b <= count; b++)
			k.below[k.n_below++] = &layers[(count - b) % KEEP];
		if (n > KVI_TRAIN_TENSORS || !find_models(measuring, &k, n))
			continue;
		kvi_train_layer_free(measuring->t, k.layer);
		ret = kvi_train_layer_take(measuring->t, stack, first, n,
		                           (const struct kvi_model *const *)
		                                   k.models[measuring->level - KVI_LEVEL_PROFILE],
		                           k.layer);
		if (!ret)
			ret = measure_layer(measuring, &k);
		kvi_train_layer_rest(measuring->t, k.layer);
		count++;
	}
	for (size_t i = 0; i < KEEP; i++)
		kvi_train_layer_free(measuring->t, &layers[i]);
	return ret;
}

/* ---- the predictor, and a trainer to work in ---- */

/* Opens a trainer whose ropes are those of the profile, by number. */
static kvarc_ret open_trainer(struct measuring *measuring)
{
	kvarc_trainer_options o = KVARC_TRAINER_OPTIONS_INIT;
	o.common = *kvi_reader_common(measuring->r);
	o.common.progress = NULL;
	o.held_out = KVARC_TRAIN_NONE_HELD_OUT;
	kvarc_ret ret = kvarc_trainer_open(&measuring->t, &o);
	if (ret)
		return ret;
	kvarc_trainer *t = measuring->t;
	t->kernels = kvi_train_kernels_get(o.common.isa_mask);
	for (size_t i = 0; i < measuring->profile->n_ropes; i++) {
		const struct kvi_profile_rope *from = &measuring->profile->ropes[i];
		size_t bytes = from->rotary / 2 * sizeof *from->freq;
		uint64_t *freq = kvi_malloc(&t->alloc, bytes);
		if (!freq)
			return kvi_train_no_memory(t);
		memcpy(freq, from->freq, bytes);
		t->ropes[t->n_ropes++] = (struct kvi_profile_rope){ from->rotary, freq };
	}
	ret = kvi_pool_open(&t->pool, &t->alloc, o.common.threads);
	if (!ret)
		ret = kvi_train_prices_open(&t->prices, &t->alloc);
	return ret ? kvi_train_no_memory(t) : KVARC_OK;
}

static void close_trainer(struct measuring *measuring)
{
	for (size_t i = 0; measuring->t && i < measuring->n_pieces; i++) {
		kvi_free(&measuring->t->alloc, measuring->pieces[i].raw);
		kvi_free(&measuring->t->alloc, measuring->pieces[i].views);
		kvi_free(&measuring->t->alloc, measuring->pieces[i].ids);
	}
	if (measuring->t) {
		kvi_train_prices_close(measuring->t->prices);
		kvi_pool_close(measuring->t->pool);
	}
	kvarc_trainer_close(&measuring->t);
}

kvarc_ret kvarc_reader_measure(kvarc_reader *r, uint32_t track, kvarc_measured_fn fn, void *opaque)
{
	struct measuring m = { .r = r, .track = track, .fn = fn, .opaque = opaque };
	if (!r || !fn)
		return KVARC_PROG;
	if (!kvi_reader_can_seek(r))
		return KVARC_OPTIONS;
	if (track >= kvarc_reader_geometry(r)->n_tracks)
		return KVARC_GEOMETRY;
	/* Stages of a transformer are not measured. */
	kvarc_ret ret = kvi_reader_first_profile(r, KVI_LEVEL_LOWER, &m.level, &m.profile);
	if (!ret)
		ret = open_trainer(&m);
	if (!ret)
		ret = take_sample(&m);
	for (size_t i = 0; m.t && i < m.t->n_stacks && !ret; i++)
		ret = measure_stack(&m, &m.t->stacks[i]);
	close_trainer(&m);
	return ret;
}
