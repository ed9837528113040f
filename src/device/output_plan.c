/* SPDX-License-Identifier: BSD-3-Clause */
/* output_plan.c - which chunks an append has, and where they will lie in the memory of a device */
#include "config.h"

#include "plan_state.h"

#include <stdlib.h>
#include <string.h>

#include "util/error.h"
#include "writer/writer_coded.h"

/* What planning needs beyond the plan. */
struct output_walk {
	struct kvarc_device_plan *p;
	const int32_t *ids; /* of all tokens; NULL: not known */
	uint32_t row;       /* whose positions are at `positions` in the constants */
	uint64_t positions;
	uint64_t chunk_bytes; /* of the elements of the largest chunk */
	uint32_t last_layer;
};

/* Positions of a segment, once for all of its chunks. */
static kvarc_ret add_positions(struct output_walk *x, const struct kvi_append_chunk *c)
{
	const size_t bytes = c->shape.n_tokens * sizeof(int32_t);
	if (x->positions && x->row == c->row)
		return KVARC_OK;
	uint8_t *to = kvi_plan_reserve(x->p, bytes, &x->positions);
	if (!to)
		return kvi_fail_alloc(x->p->d->error, &x->p->d->alloc);
	memcpy(to, c->shape.positions, bytes);
	x->row = c->row;
	return KVARC_OK;
}

static void count(struct output_walk *x, const struct kvi_append_chunk *c, uint64_t bytes)
{
	kvarc_device_plan_info *info = &x->p->info;
	if (!info->chunks || c->layer < info->layer0)
		info->layer0 = c->layer;
	if (c->layer > x->last_layer)
		x->last_layer = c->layer;
	if (bytes > x->chunk_bytes)
		x->chunk_bytes = bytes;
	info->chunks++;
	info->raw_bytes += bytes;
	info->host_chunks++;
}

/* What the chunk of an append is for a plan: its model and its sources are found as those of chunks
 * of an archive. */
static struct kvi_located located(const struct output_walk *x, const struct kvi_append_chunk *c)
{
	struct kvi_located l = { .shape = c->shape,
		                 .tensor = c->tensor,
		                 .layer = c->layer,
		                 .head = c->head,
		                 .t0 = x->p->range.t0 + c->row,
		                 .header = { .codec = c->codec },
		                 .plan = c->plan,
		                 .order_index = c->order_index,
		                 .predicted = c->predicted,
		                 .ids = x->ids ? x->ids + c->row : NULL };
	/* of what the host codes with a tier there are no elements that readers get */
	l.shape.to = kvi_output_is_lossy(c->codec) ? 0 : l.shape.n_tokens;
	return l;
}

/* What kernels are given; of what they do not code features alone. */
static void fill_output(struct kvi_output_chunk *o, const struct kvi_append_chunk *c)
{
	const uint8_t codec = o->coded ? c->codec : KVI_CODEC_RAW;
	const struct kvi_chunk_header h = { .tensor = c->tensor,
		                            .head = c->head,
		                            .heads = (uint16_t)c->shape.heads,
		                            .codec = codec,
		                            .n = (uint16_t)c->shape.n_tokens };
	o->params_sequence = c->params_sequence;
	o->tensor = c->tensor;
	o->layer = c->layer;
	o->row = c->row;
	o->head = c->head;
	o->work = kvi_gpu_encode_work_of(&c->shape, codec);
	o->job.hashed = o->coded && c->hashed;
	kvi_gpu_chunk_fill(&o->job.job, &c->shape, &h, (uint32_t)kvi_gpu_encode_bound(&c->shape));
}

/* What a tier needs, and whether kernels can do without the host. */
static kvarc_ret add_tier(struct output_walk *x, const struct kvi_append_chunk *c,
                          struct kvi_output_chunk *o)
{
	struct kvi_gpu_quantiser *q = &o->job.lossy;
	if (!o->coded || !kvi_output_is_lossy(c->codec))
		return KVARC_OK;
	kvi_gpu_quantiser_fill(q, &c->shape, &c->tier, c->params);
	if (c->codec != KVI_CODEC_KLT)
		return KVARC_OK;
	kvarc_ret ret = kvi_plan_add_analysis(x->p, c->plan->of[c->order_index].model, q);
	o->coded = q->analysis != 0;
	return ret;
}

/* Parameters, and whether kernels take them. */
static kvarc_ret add_params(struct output_walk *x, const struct kvi_append_chunk *c,
                            struct kvi_output_chunk *o)
{
	struct kvi_planned_params params = { c->params_sequence, c->tensor, c->head, 0, 0 };
	if (!o->coded || kvi_plan_is_linear(c->codec) || c->codec == KVI_CODEC_KLT)
		return KVARC_OK;
	kvarc_ret ret = kvi_plan_add_params(x->p, &params, c->params, &c->shape);
	o->coded = params.tables <= KVI_GPU_TABLES;
	o->job.job.params = params.at;
	if (ret || (c->codec != KVI_CODEC_GRID && c->codec != KVI_CODEC_HAD) || !c->shape.rope)
		return ret;
	ret = add_positions(x, c);
	o->job.job.positions = x->positions;
	return ret;
}

static kvarc_ret take(void *opaque, const struct kvi_append_chunk *c)
{
	struct output_walk *x = opaque;
	struct kvarc_device_plan *p = x->p;
	const struct kvi_located l = located(x, c);
	const uint64_t bytes = kvi_chunk_bytes(&c->shape);
	struct kvi_output_chunk o = { 0 };
	count(x, c, bytes);
	o.coded = c->elsewhere && kvi_chunk_channels(&c->shape) <= KVI_GPU_CHANNELS &&
	          kvi_plan_has_kernel(c->codec, c->shape.dtype);
	kvarc_ret ret = add_tier(x, c, &o);
	if (!ret)
		ret = kvi_plan_add_model(p, &l, &o.modelled, &o.coded);
	if (!ret)
		ret = kvi_plan_engine_add(p, &l, o.modelled, !o.coded);
	if (!ret)
		ret = add_params(x, c, &o);
	if (ret || (!o.coded && !o.modelled))
		return ret;
	const uint64_t params = o.job.job.params, positions = o.job.job.positions;
	fill_output(&o, c);
	o.job.job.params = params;
	o.job.job.positions = positions;
	p->info.host_chunks -= o.coded;
	struct kvi_output_chunk *to = kvi_list_add(&p->outputs, &p->d->alloc, sizeof *to);
	if (!to)
		return kvi_fail_alloc(p->d->error, &p->d->alloc);
	*to = o;
	return KVARC_OK;
}

/* Chunks that kernels do not code stay where others need their features. */
static void drop_unused(struct kvarc_device_plan *p)
{
	struct kvi_output_chunk *c = p->outputs.p;
	size_t n = 0;
	for (size_t i = 0; i < p->outputs.n; i++)
		if (c[i].coded || kvi_plan_makes_features(p, c[i].modelled))
			c[n++] = c[i];
	p->outputs.n = n;
}

int kvi_output_compare(const struct kvi_output_chunk *a, const struct kvi_output_chunk *b)
{
	if (a->layer != b->layer)
		return a->layer < b->layer ? -1 : 1;
	if (a->row != b->row)
		return a->row < b->row ? -1 : 1;
	if (a->tensor != b->tensor)
		return a->tensor < b->tensor ? -1 : 1;
	return a->head < b->head ? -1 : a->head > b->head;
}

static int compare(const void *a, const void *b)
{
	return kvi_output_compare(a, b);
}

/* Where payloads will lie in staging memory, behind them the jobs. */
static void lay_out_staging(struct kvarc_device_plan *p)
{
	struct kvi_output_chunk *c = p->outputs.p;
	uint64_t at = p->constants.n;
	for (size_t i = 0; i < p->outputs.n; i++) {
		c[i].job.job.payload = at;
		at += kvi_part_aligned(c[i].job.job.payload_bytes);
	}
	p->jobs_at = at;
	p->linear_at = kvi_part_aligned(at + p->outputs.n * sizeof(struct kvi_gpu_encode));
}

/* The host's chunks are collected in work memory, too, one at a time. */
static void lay_out(struct kvarc_device_plan *p, const struct output_walk *x)
{
	const uint64_t collected = KVI_COLLECTED_AT + x->chunk_bytes;
	struct kvi_output_chunk *c = p->outputs.p;
	struct kvi_work_layout l = { .reach = p->reach };
	lay_out_staging(p);
	for (size_t i = 0; i < p->outputs.n; i++)
		kvi_work_take(&l, c[i].layer, c[i].work.job.bytes,
		              kvi_plan_model_bytes(p, c[i].modelled));
	kvi_work_again(&l);
	p->info.work_bytes = kvi_plan_engine_place(p, kvi_work_bytes(&l));
	if (p->info.work_bytes < collected)
		p->info.work_bytes = collected;
	for (size_t i = 0; i < p->outputs.n; i++) {
		const struct kvi_work_part at =
			kvi_work_take(&l, c[i].layer, c[i].work.job.bytes,
		                      kvi_plan_model_bytes(p, c[i].modelled));
		kvi_gpu_encode_place(&c[i].job, &c[i].work, at.own);
		kvi_plan_place_model(p, c[i].modelled, &c[i].job.job, &at);
	}
	p->info.staging_bytes = p->linear_at + p->n_linear * sizeof(struct kvi_gpu_linear);
	p->info.status_bytes = (p->outputs.n ? p->outputs.n : 1) * sizeof(struct kvi_gpu_encoded);
	if (p->info.chunks)
		p->info.n_layers = x->last_layer - p->info.layer0 + 1;
}

/* A copy of n numbers of the caller; NULL: of none. */
static kvarc_ret keep(struct kvarc_device_plan *p, const int32_t *from, int32_t **to)
{
	const size_t n = (size_t)p->range.n;
	if (!from)
		return KVARC_OK;
	*to = kvi_array(&p->d->alloc, n, sizeof **to);
	if (!*to)
		return kvi_fail_alloc(p->d->error, &p->d->alloc);
	memcpy(*to, from, n * sizeof **to);
	return KVARC_OK;
}

static kvarc_ret load_encoders(struct kvarc_device *d)
{
	kvarc_ret ret = kvi_device_enter(d);
	if (ret)
		return ret;
	ret = kvi_device_load_encoders(d);
	kvi_device_leave(d);
	return ret;
}

/* Goes through the chunks of the append. */
static kvarc_ret walk(struct output_walk *x, const int32_t *positions)
{
	struct kvarc_device_plan *p = x->p;
	*x = (struct output_walk){ .p = p, .ids = x->ids };
	p->rope = NULL;
	p->info = (kvarc_device_plan_info){ 0 };
	kvarc_ret ret = kvi_plan_begin_constants(p);
	if (!ret)
		ret = kvi_writer_plan_append(p->w, p->range.track, p->range.n, positions,
		                             kvi_plan_engine_walks(p), take, x);
	return ret ? ret : kvi_plan_engine_settle(p);
}

static kvarc_ret fill(struct kvarc_device_plan *p, const int32_t *ids, const int32_t *positions)
{
	struct output_walk x = { .p = p, .ids = ids };
	kvi_plan_engine_find(p);
	kvarc_ret ret = walk(&x, positions);
	if (!ret && p->engine.unfit) {
		/* the host encodes what needs the model */
		kvi_plan_empty(p);
		ret = walk(&x, positions);
	}
	if (!ret && p->outputs.n > UINT32_MAX / sizeof(struct kvi_gpu_encode))
		ret = kvi_fail(p->d->error, KVARC_GEOMETRY,
		               "the tokens have too many chunks for one plan");
	if (!ret)
		ret = keep(p, ids, &p->ids);
	if (!ret)
		ret = keep(p, positions, &p->positions);
	if (!ret)
		ret = kvi_plan_models(p);
	if (ret)
		return ret;
	drop_unused(p);
	if (p->outputs.n)
		qsort(p->outputs.p, p->outputs.n, sizeof(struct kvi_output_chunk), compare);
	lay_out(p, &x);
	return KVARC_OK;
}

kvarc_ret kvarc_device_plan_write(kvarc_device_plan **out, kvarc_device *d, kvarc_writer *w,
                                  uint32_t track, uint64_t n, const int32_t *ids,
                                  const int32_t *positions)
{
	static const char call[] = "kvarc_device_plan_write";
	if (!out || !d || !w || !n)
		return kvi_fail(d ? d->error : NULL, KVARC_PROG, "%s: an argument is NULL, or 0",
		                call);
	*out = NULL;
	if (!kvi_writer_geometry(w))
		return kvi_fail(d->error, KVARC_PROG, "%s: call kvarc_writer_set_geometry first",
		                call);
	kvarc_ret ret = load_encoders(d);
	struct kvarc_device_plan *p = ret ? NULL : kvi_calloc(&d->alloc, 1, sizeof *p);
	if (!p)
		return ret ? ret : kvi_fail_alloc(d->error, &d->alloc);
	p->d = d;
	p->w = w;
	p->range = (kvarc_range){
		.track = track, .n_layers = UINT32_MAX, .t0 = kvarc_writer_tokens(w, track), .n = n
	};
	p->tokens = n;
	p->geometry = kvi_writer_geometry(w);
	ret = fill(p, ids, positions);
	*out = p;
	if (ret)
		kvarc_device_plan_close(out);
	return ret;
}
