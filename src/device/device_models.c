/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device_models.c - chunks with a linear model: what kernels make of their features, and in which
 * order (spec linear 6)
 */
#include "config.h"

#include "plan_state.h"

#include <string.h>

#include "format/codec_ids.h"
#include "reader/reader_located.h"
#include "util/error.h"

static struct kvi_planned_model *model_at(const struct kvarc_device_plan *p, uint32_t i)
{
	return KVI_LIST(struct kvi_planned_model, p->modelled, i);
}

/* ----- sources ------------------------------------------------ */

/* The chunk of a segment with an index in the order of chunks; NULL: the plan has none. */
static struct kvi_planned_model *find_chunk(const struct kvarc_device_plan *p, uint64_t t0,
                                            uint32_t order_index, uint32_t *at)
{
	for (size_t i = p->modelled.n; i-- > 0;) {
		struct kvi_planned_model *x = model_at(p, (uint32_t)i);
		if (x->t0 != t0 || x->order_index < order_index)
			return NULL;
		*at = (uint32_t)i;
		if (x->order_index == order_index)
			return x;
	}
	return NULL;
}

/* Finds the sources of a chunk; whether r and w can be made of its elements. */
static bool find_sources(const struct kvarc_device_plan *p, const struct kvi_planned *plan,
                         struct kvi_planned_model *x)
{
	const struct kvi_model *m = x->model;
	const struct kvi_planned_model *from;
	for (unsigned i = 0; i < m->n_lower; i++) {
		from = find_chunk(p, x->t0, plan->lower[i], &x->lower[i]);
		if (!from || !from->z_there)
			return false;
	}
	for (unsigned i = 0; i < m->n_same; i++) {
		from = find_chunk(p, x->t0, plan->same[i], &x->same[i]);
		if (!from || !from->all_there)
			return false;
	}
	if (!m->scale_source)
		return true;
	from = find_chunk(p, x->t0, plan->scale, &x->scale);
	return from && from->all_there;
}

/* Where all chunks of a segment find an array; it is added at its first use. */
static kvarc_ret segment_array(struct kvarc_device_plan *p, const int32_t *from, uint32_t n,
                               uint64_t *at)
{
	if (*at || !from)
		return KVARC_OK;
	uint8_t *to = kvi_plan_reserve(p, n * sizeof *from, at);
	if (!to)
		return kvi_fail_alloc(p->d->error, &p->d->alloc);
	memcpy(to, from, n * sizeof *from);
	return KVARC_OK;
}

kvarc_ret kvi_plan_add_model(struct kvarc_device_plan *p, const struct kvi_located *chunk,
                             uint32_t *modelled, bool *decodable)
{
	const struct kvi_planned *plan = chunk->plan ? &chunk->plan->of[chunk->order_index] : NULL;
	const struct kvi_model *m = plan ? plan->model : NULL;
	const kvarc_tensor *t = &p->geometry->tensors[chunk->tensor];
	const bool transforms = chunk->header.codec == KVI_CODEC_KLT;
	const bool coded = *decodable && (transforms || kvi_plan_is_linear(chunk->header.codec));
	const bool whole = chunk->shape.from == 0 && chunk->shape.to == chunk->shape.n_tokens;
	*modelled = 0;
	if (coded)
		*decodable = false;
	if (!m || !kvi_gpu_model_taken(m) || chunk->shape.heads != t->heads ||
	    (m->rotary && !chunk->shape.rope))
		return KVARC_OK;
	struct kvi_planned_model x = { .model = m,
		                       .profile = chunk->plan->profile,
		                       .rope = chunk->shape.rope,
		                       .order_index = chunk->order_index,
		                       .layer = chunk->layer,
		                       .t0 = chunk->t0,
		                       .tokens = chunk->shape.n_tokens,
		                       .predicted = chunk->predicted,
		                       .exact = chunk->exact,
		                       .kind = t->kind };
	const bool all = plan->complete && find_sources(p, plan, &x) &&
	                 (chunk->predicted || m->level < KVI_LEVEL_MODEL || transforms);
	x.coded = coded && all;
	x.transforms = x.coded && transforms;
	*decodable |= x.coded;
	/* of what the host decodes there are the tokens of the range alone */
	x.z_there = *decodable || whole;
	x.all_there = all && x.z_there;
	if (p->segment_t0 != x.t0 || !p->modelled.n)
		p->segment_positions = p->segment_ids = 0;
	p->segment_t0 = x.t0;
	kvarc_ret ret = segment_array(p, m->rotary ? chunk->shape.positions : NULL, x.tokens,
	                              &p->segment_positions);
	if (ret == KVARC_OK)
		ret = segment_array(p, m->flags & KVI_MODEL_TABLE ? chunk->ids : NULL, x.tokens,
		                    &p->segment_ids);
	x.positions = p->segment_positions;
	x.job.ids = p->segment_ids;
	struct kvi_planned_model *to = ret ? NULL
	                                   : kvi_list_add(&p->modelled, &p->d->alloc, sizeof *to);
	if (!to)
		return ret ? ret : kvi_fail_alloc(p->d->error, &p->d->alloc);
	*to = x;
	*modelled = (uint32_t)p->modelled.n;
	return KVARC_OK;
}

/* ----- features ------------------------------------------------ */

static void want(struct kvi_planned_model *x, unsigned features)
{
	if (x->features < features)
		x->features = (uint8_t)features;
}

/* Whether kernels need the sources of a chunk. */
static bool predicts(const struct kvi_planned_model *x)
{
	return x->transforms || x->features == KVI_GPU_FEATURES_ALL;
}

/* What chunks need of each other: sources come before what is predicted from them. */
static void ask(struct kvarc_device_plan *p)
{
	for (size_t k = p->modelled.n; k-- > 0;) {
		struct kvi_planned_model *x = model_at(p, (uint32_t)k);
		const struct kvi_model *m = x->model;
		if ((x->coded && !x->transforms) || x->corrects)
			want(x, KVI_GPU_FEATURES_ALL);
		if (!predicts(x))
			continue;
		for (unsigned i = 0; i < m->n_lower; i++) {
			want(model_at(p, x->lower[i]), KVI_GPU_FEATURES_Z);
			model_at(p, x->lower[i])->z = true;
			if (m->lower[i].delta > p->reach)
				p->reach = m->lower[i].delta;
		}
		for (unsigned i = 0; i < m->n_same; i++)
			want(model_at(p, x->same[i]), KVI_GPU_FEATURES_ALL);
		if (m->scale_source)
			want(model_at(p, x->scale), KVI_GPU_FEATURES_ALL);
	}
}

static void behind(struct kvi_planned_model *x, const struct kvi_planned_model *source)
{
	if (x->stage <= source->stage)
		x->stage = source->stage + 1;
}

static void order(struct kvarc_device_plan *p)
{
	for (size_t k = 0; k < p->modelled.n; k++) {
		struct kvi_planned_model *x = model_at(p, (uint32_t)k);
		const struct kvi_model *m = x->model;
		if (!predicts(x))
			continue;
		for (unsigned i = 0; i < m->n_lower; i++)
			if (!m->lower[i].delta) /* of codec klt alone */
				behind(x, model_at(p, x->lower[i]));
		for (unsigned i = 0; i < m->n_same; i++)
			behind(x, model_at(p, x->same[i]));
		if (m->scale_source)
			behind(x, model_at(p, x->scale));
	}
}

/* Whether a chunk has a job for its model; elements of predicted chunks are what attention sees. */
static bool is_made(const struct kvi_planned_model *x)
{
	return x->features || x->transforms || x->predicted;
}

/* Which chunks correct the hidden state of the engine: not where both of a layer are what was
 * predicted (spec predicted 3). */
static void correct(struct kvarc_device_plan *p)
{
	for (size_t k = 0; k < p->modelled.n && p->engine.of.closed; k++) {
		struct kvi_planned_model *x = model_at(p, (uint32_t)k);
		x->corrects = x->predicted && x->model->flags & KVI_MODEL_CORRECTS;
		for (size_t i = k; i-- > 0 && model_at(p, (uint32_t)i)->t0 == x->t0;) {
			struct kvi_planned_model *y = model_at(p, (uint32_t)i);
			if (y->layer == x->layer && x->exact && y->exact)
				x->corrects = y->corrects = false;
		}
	}
}

/* ----- constants ------------------------------------------------ */

/* The model of a chunk, unless it stays in the device; it is added at its first use. */
static kvarc_ret add_model(struct kvarc_device_plan *p, struct kvi_planned_model *of)
{
	const struct kvi_model *m = of->model;
	const size_t before = p->constants.n;
	struct kvi_gpu_model model;
	uint64_t arrays, *at = &of->job.model;
	if (kvi_kept_take(p, of))
		return KVARC_OK;
	for (size_t i = p->models.n; i-- > 0;) {
		const struct kvi_model_constants *x = KVI_LIST(struct kvi_model_constants,
		                                               p->models, i);
		*at = x->at;
		if (x->model == m)
			return KVARC_OK;
	}
	uint8_t *to = kvi_plan_reserve(p, kvi_gpu_model_bytes(m), &arrays);
	if (to)
		kvi_gpu_model_fill(&model, m, to, arrays);
	to = to ? kvi_plan_reserve(p, sizeof model, at) : NULL;
	struct kvi_model_constants *x = to ? kvi_list_add(&p->models, &p->d->alloc, sizeof *x)
	                                   : NULL;
	if (!x)
		return kvi_fail_alloc(p->d->error, &p->d->alloc);
	memcpy(to, &model, sizeof model);
	*x = (struct kvi_model_constants){ m, *at };
	p->info.profile_bytes += p->constants.n - before;
	return KVARC_OK;
}

/* The same of the frequencies of a rope. */
static kvarc_ret add_rope(struct kvarc_device_plan *p, const kvarc_rope *rope, uint64_t *at)
{
	const size_t bytes = rope->rotary / 2 * sizeof *rope->freq;
	if (p->rope == rope) {
		*at = p->rope_at;
		return KVARC_OK;
	}
	uint8_t *to = kvi_plan_reserve(p, bytes, at);
	if (!to)
		return kvi_fail_alloc(p->d->error, &p->d->alloc);
	memcpy(to, rope->freq, bytes);
	p->rope = rope;
	p->rope_at = *at;
	return KVARC_OK;
}

kvarc_ret kvi_plan_models(struct kvarc_device_plan *p)
{
	kvarc_ret ret = KVARC_OK;
	correct(p);
	ask(p);
	order(p);
	for (size_t i = 0; i < p->modelled.n && !ret; i++) {
		struct kvi_planned_model *x = model_at(p, (uint32_t)i);
		if (!is_made(x))
			continue;
		ret = add_model(p, x);
		if (!ret && x->model->rotary) {
			x->job.interleaved = x->rope->pairing == KVARC_ROPE_INTERLEAVED;
			ret = add_rope(p, x->rope, &x->job.frequencies);
		}
	}
	return ret;
}

/* ----- memory and warps ------------------------------------------------ */

void kvi_model_warps_add(struct kvi_model_warps *w, const struct kvi_gpu_chunk *j)
{
	enum { PANELS = 2 * KVI_GPU_PANEL }; /* slots of a warp of sums */
	const uint32_t pairs = (j->head_channels + 1) / 2;
	const uint32_t angles = pairs < KVI_PLAN_STEPS ? (uint32_t)KVI_PLAN_STEPS : pairs;
	const uint32_t sums = j->heads * ((j->head_channels + PANELS - 1) / PANELS);
	w->angles = angles > w->angles ? angles : w->angles;
	w->sums = sums > w->sums ? sums : w->sums;
}

static struct kvi_gpu_linear_shape shape_of(const struct kvi_planned_model *x)
{
	return (struct kvi_gpu_linear_shape){ .model = x->model,
		                              .tokens = x->tokens,
		                              .coded = x->coded && !x->transforms,
		                              .transforms = x->transforms,
		                              .z = x->z,
		                              .features = x->features };
}

/* What has features of number `modelled` less 1; NULL: nothing. */
static struct kvi_planned_model *made_of(const struct kvarc_device_plan *p, uint32_t modelled)
{
	struct kvi_planned_model *x = modelled ? model_at(p, modelled - 1) : NULL;
	return x && is_made(x) ? x : NULL;
}

bool kvi_plan_makes_features(const struct kvarc_device_plan *p, uint32_t modelled)
{
	return made_of(p, modelled) != NULL;
}

struct kvi_gpu_linear_bytes kvi_plan_model_bytes(const struct kvarc_device_plan *p,
                                                 uint32_t modelled)
{
	const struct kvi_planned_model *x = made_of(p, modelled);
	if (!x)
		return (struct kvi_gpu_linear_bytes){ 0, 0 };
	const struct kvi_gpu_linear_shape s = shape_of(x);
	return kvi_gpu_linear_place(NULL, &s, 0, 0);
}

void kvi_plan_place_model(struct kvarc_device_plan *p, uint32_t modelled, struct kvi_gpu_chunk *job,
                          const struct kvi_work_part *at)
{
	struct kvi_planned_model *x = made_of(p, modelled);
	if (!x)
		return;
	const struct kvi_gpu_linear_shape s = shape_of(x);
	kvi_gpu_linear_place(&x->job, &s, at->model, at->kept);
	kvi_plan_engine_expects(p, x, &x->job.expects);
	job->stage = x->stage;
	job->linear = p->linear_at + p->n_linear++ * sizeof x->job;
	if (!job->positions)
		job->positions = x->positions;
}

struct kvi_gpu_linear kvi_plan_linear_job(const struct kvarc_device_plan *p, uint32_t modelled)
{
	const struct kvi_planned_model *x = model_at(p, modelled - 1);
	const struct kvi_model *m = x->model;
	struct kvi_gpu_linear job = x->job;
	if (x->kept) /* an offset like others, which may wrap */
		job.model = kvi_kept_address(p, x) - p->staging;
	if (!predicts(x))
		return job;
	for (unsigned i = 0; i < m->n_lower; i++)
		job.lower[i] = kvi_gpu_source_of(&m->lower[i], &model_at(p, x->lower[i])->job);
	for (unsigned i = 0; i < m->n_same; i++)
		job.same[i] = kvi_gpu_source_of(&m->same[i], &model_at(p, x->same[i])->job);
	if (m->scale_source) {
		job.scale_w = model_at(p, x->scale)->job.w;
		job.scale_kept = model_at(p, x->scale)->job.kept;
		job.scale_hashes = model_at(p, x->scale)->job.expects.hashes;
		job.scale_n = kvi_gpu_scale_n(m->scale_source);
	}
	return job;
}
