/* SPDX-License-Identifier: BSD-3-Clause */
/* plan_engine.c - the exact engine of a plan: what it needs, where that lies, and its launches */
#include "config.h"

#include "plan_engine.h"

#include <string.h>

#include "exact_launch.h"
#include "numeric/rope_angles.h"
#include "plan_state.h"
#include "util/error.h"
#include "writer/writer_coded.h"

void kvi_plan_engine_find(struct kvarc_device_plan *p)
{
	struct kvi_planned_engine *e = &p->engine;
	kvi_out_init(&e->ids, &p->d->alloc);
	kvi_out_init(&e->positions, &p->d->alloc);
	if (p->d->models && (p->w ? kvi_writer_model_of_append(p->w, p->range.track, &e->of)
	                          : kvi_reader_model_of_range(p->r, &p->range, &e->of)))
		e->model = kvi_device_find_model(p->d, e->of.weights, &e->of.arithmetic);
}

const struct kvi_located_model *kvi_plan_engine_walks(const struct kvarc_device_plan *p)
{
	return p->engine.model ? &p->engine.of : NULL;
}

void kvi_plan_engine_free(struct kvarc_device_plan *p)
{
	kvi_out_free(&p->engine.ids);
	kvi_out_free(&p->engine.positions);
	p->engine = (struct kvi_planned_engine){ .model = NULL };
}

/* ----- tokens ------------------------------------------------ */

/* Whether a model has all ids and positions of a segment. */
static bool tokens_fit(const struct kvi_gpu_exact_model *m, const struct kvi_located *chunk)
{
	for (uint32_t i = 0; i < chunk->shape.n_tokens; i++) {
		if (chunk->ids[i] < 0 || (uint32_t)chunk->ids[i] >= m->vocabulary)
			return false;
		if (m->position_rows && (chunk->shape.positions[i] < 0 ||
		                         (uint32_t)chunk->shape.positions[i] >= m->position_rows))
			return false;
	}
	return true;
}

/* The tokens of a segment come behind those before it. */
static kvarc_ret add_segment(struct kvarc_device_plan *p, const struct kvi_located *chunk)
{
	struct kvi_planned_engine *e = &p->engine;
	const size_t n = chunk->shape.n_tokens;
	if (!chunk->ids || chunk->t0 != e->tokens || !tokens_fit(&e->model->m, chunk) ||
	    e->tokens > UINT32_MAX - n) {
		e->unfit = true;
		return KVARC_OK;
	}
	kvi_put_bytes(&e->ids, chunk->ids, n * sizeof *chunk->ids);
	kvi_put_bytes(&e->positions, chunk->shape.positions, n * sizeof *chunk->ids);
	e->tokens += (uint32_t)n;
	e->segments++;
	return e->ids.failed || e->positions.failed ? kvi_fail_alloc(p->d->error, &p->d->alloc)
	                                            : KVARC_OK;
}

kvarc_ret kvi_plan_engine_add(struct kvarc_device_plan *p, const struct kvi_located *chunk,
                              bool modelled, bool host)
{
	struct kvi_planned_engine *e = &p->engine;
	const bool whole = !chunk->shape.from && chunk->shape.to == chunk->shape.n_tokens;
	if (!e->model || e->unfit || !chunk->predicted)
		return KVARC_OK;
	/* attention sees all tokens of a chunk; of what the host decodes there are those of the
	 * range alone; and a writer's own model would have to go through what it encodes */
	if (!modelled || chunk->shape.heads != p->geometry->tensors[chunk->tensor].heads ||
	    (host && (p->w || (!whole && e->of.closed)))) {
		e->unfit = true;
		return KVARC_OK;
	}
	e->predicted++;
	return chunk->t0 < e->tokens ? KVARC_OK : add_segment(p, chunk);
}

/* ----- constants ------------------------------------------------ */

static kvarc_ret put_constant(struct kvarc_device_plan *p, const void *from, size_t bytes,
                              uint64_t *at)
{
	uint8_t *to = kvi_plan_reserve(p, bytes, at);
	if (!to)
		return kvi_fail_alloc(p->d->error, &p->d->alloc);
	memcpy(to, from, bytes);
	return KVARC_OK;
}

/* Cosines and sines of a rope of the model, with the frequencies of the cache. */
static kvarc_ret put_turns(struct kvarc_device_plan *p, unsigned rope)
{
	struct kvi_planned_engine *e = &p->engine;
	const uint32_t pairs = e->model->m.pairs[rope];
	const kvarc_rope of = { .rotary = 2 * pairs, .freq = e->of.freq[rope] };
	struct kvi_rotations turns;
	if (!pairs || !of.freq)
		return KVARC_OK;
	void *buffer = kvi_malloc(&p->d->alloc, kvi_rotations_bytes(pairs, e->tokens));
	if (!buffer)
		return kvi_fail_alloc(p->d->error, &p->d->alloc);
	kvi_rotations_make(&turns, buffer, &of, (const int32_t *)(const void *)e->positions.p,
	                   e->tokens);
	e->capacity = (uint32_t)turns.tokens_capacity;
	kvarc_ret ret = put_constant(p, turns.turn,
	                             pairs * turns.tokens_capacity * 2 * sizeof *turns.turn,
	                             &e->turns_at[rope]);
	kvi_free(&p->d->alloc, buffer);
	return ret;
}

/* Whether each segment has the keys and values of each layer that the range and the model have. */
static bool all_there(const struct kvarc_device_plan *p)
{
	const struct kvi_planned_engine *e = &p->engine;
	const uint32_t layers = p->range.n_layers < e->model->m.n_layers ? p->range.n_layers
	                                                                 : e->model->m.n_layers;
	return e->predicted == 2 * (uint64_t)e->segments * layers;
}

kvarc_ret kvi_plan_engine_settle(struct kvarc_device_plan *p)
{
	struct kvi_planned_engine *e = &p->engine;
	if (!e->model || e->unfit)
		return KVARC_OK;
	e->run = (struct kvi_gpu_exact_run){ .m = &e->model->m, .tokens = e->tokens };
	e->unfit = !e->tokens || !all_there(p) || !kvi_gpu_exact_place(&e->run, 0);
	if (e->unfit)
		return KVARC_OK;
	kvarc_ret ret = put_constant(p, e->ids.p, e->ids.n, &e->ids_at);
	if (!ret)
		ret = put_constant(p, e->positions.p, e->positions.n, &e->positions_at);
	for (unsigned i = 0; i < e->model->m.n_ropes && !ret; i++)
		ret = put_turns(p, i);
	return ret;
}

/* ----- work memory ------------------------------------------------ */

uint64_t kvi_plan_engine_place(struct kvarc_device_plan *p, uint64_t at)
{
	struct kvi_planned_engine *e = &p->engine;
	if (!e->model)
		return at;
	/* not 0, which means none */
	at = (at + KVI_PLACE_ALIGN) & ~(uint64_t)(KVI_PLACE_ALIGN - 1);
	e->lost = at;
	at += KVI_PLACE_ALIGN;
	for (unsigned i = 0; i < 2 && e->of.closed; i++) {
		e->numbers[i] = at;
		/* whole rows of 64 bytes; kvi_gpu_exact_place has bounded them */
		at += ((uint64_t)e->tokens * e->run.kv * sizeof(float) + KVI_PLACE_ALIGN - 1) &
		      ~(uint64_t)(KVI_PLACE_ALIGN - 1);
	}
	e->run_at = at;
	return at + kvi_gpu_exact_place(&e->run, at);
}

void kvi_plan_engine_expects(const struct kvarc_device_plan *p, const struct kvi_planned_model *x,
                             struct kvi_gpu_expects *to)
{
	const struct kvi_planned_engine *e = &p->engine;
	const bool key = x->kind == KVARC_KEY;
	if (!x->predicted)
		return;
	const uint64_t row = x->t0 * e->run.kv * sizeof(float);
	to->p = (key ? e->run.k : e->run.v) + row;
	to->p_stride = e->run.kv;
	to->t0 = (uint32_t)x->t0;
	if (!e->of.closed)
		return;
	to->numbers = e->numbers[!key] + row;
	to->numbers_stride = e->run.kv;
	to->lost = e->lost;
	if (!x->corrects)
		return;
	to->h = e->run.h + x->t0 * e->run.width * sizeof(float);
	to->h_stride = e->run.width;
	to->root = e->run.root + x->t0 * sizeof(float);
}

/* ----- layers ------------------------------------------------ */

bool kvi_plan_engine_predicts(const struct kvarc_device_plan *p, uint32_t layer)
{
	return p->engine.model && layer < p->engine.model->m.n_layers;
}

/* The run at its addresses. */
static struct kvi_gpu_exact_run run_of(const struct kvarc_device_plan *p,
                                       struct kvi_exact_stream *to)
{
	const struct kvi_planned_engine *e = &p->engine;
	struct kvi_gpu_exact_run r = e->run;
	r.ids = p->staging + e->ids_at;
	r.positions = p->staging + e->positions_at;
	for (unsigned i = 0; i < e->model->m.n_ropes; i++)
		r.turns[i] = p->staging + e->turns_at[i];
	r.capacity = e->capacity;
	r.run_step = kvi_exact_launch;
	r.opaque = to;
	kvi_gpu_exact_place(&r, p->work + e->run_at);
	return r;
}

kvarc_ret kvi_plan_engine_enter(struct kvarc_device_plan *p, uint32_t layer, void *stream)
{
	struct kvi_exact_stream to = { p->d, stream };
	struct kvi_gpu_exact_run r = run_of(p, &to);
	kvarc_ret ret = layer ? KVARC_OK : kvi_gpu_exact_begin(&r);
	return ret ? ret : kvi_gpu_exact_predict(&r, &r.m->layers[layer]);
}

kvarc_ret kvi_plan_engine_turn(struct kvarc_device_plan *p, uint32_t layer, void *stream)
{
	struct kvi_exact_stream to = { p->d, stream };
	struct kvi_gpu_exact_run r = run_of(p, &to);
	return kvi_gpu_exact_turn(&r, &r.m->layers[layer], r.k, r.kv);
}

kvarc_ret kvi_plan_engine_leave(struct kvarc_device_plan *p, uint32_t layer, void *stream)
{
	const struct kvi_planned_engine *e = &p->engine;
	struct kvi_exact_stream to = { p->d, stream };
	struct kvi_gpu_exact_run r = run_of(p, &to);
	const struct kvi_gpu_exact_layer *l = &r.m->layers[layer];
	if (e->of.closed)
		return kvi_gpu_exact_advance(&r, l, p->work + e->numbers[0],
		                             p->work + e->numbers[1], r.kv, true);
	return kvi_gpu_exact_advance(&r, l, r.k, r.v, r.kv, false);
}
