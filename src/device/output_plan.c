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
	uint32_t row; /* whose positions are at `positions` in the constants */
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

static void fill_output(struct kvi_output_chunk *o, const struct kvi_append_chunk *c)
{
	const struct kvi_chunk_header h = { .tensor = c->tensor,
		                            .head = c->head,
		                            .heads = (uint16_t)c->shape.heads,
		                            .codec = c->codec,
		                            .n = (uint16_t)c->shape.n_tokens };
	o->params_sequence = c->params_sequence;
	o->tensor = c->tensor;
	o->layer = c->layer;
	o->row = c->row;
	o->head = c->head;
	o->work = kvi_gpu_encode_work_of(&c->shape, c->codec);
	o->job.hashed = c->hashed;
	kvi_gpu_chunk_fill(&o->job.job, &c->shape, &h, (uint32_t)kvi_gpu_encode_bound(&c->shape));
}

/* Parameters, and the positions of what rotates. */
static kvarc_ret add_params(struct output_walk *x, const struct kvi_append_chunk *c,
                            struct kvi_gpu_chunk *job, uint32_t *tables)
{
	struct kvi_planned_params params = { c->params_sequence, c->tensor, c->head, 0, 0 };
	kvarc_ret ret = kvi_plan_add_params(x->p, &params, c->params, &c->shape);
	*tables = params.tables;
	job->params = params.at;
	if (ret || c->codec != KVI_CODEC_GRID || !c->shape.rope)
		return ret;
	ret = add_positions(x, c);
	job->positions = x->positions;
	return ret;
}

static kvarc_ret take(void *opaque, const struct kvi_append_chunk *c)
{
	struct output_walk *x = opaque;
	struct kvarc_device_plan *p = x->p;
	struct kvi_output_chunk o = { 0 };
	uint32_t tables;
	count(x, c, kvi_chunk_bytes(&c->shape));
	if (!c->elsewhere || kvi_chunk_channels(&c->shape) > KVI_GPU_CHANNELS ||
	    !kvi_plan_has_kernel(c->codec, c->shape.dtype))
		return KVARC_OK;
	fill_output(&o, c);
	kvarc_ret ret = add_params(x, c, &o.job.job, &tables);
	if (ret || tables > KVI_GPU_TABLES)
		return ret;
	struct kvi_output_chunk *to = kvi_list_add(&p->outputs, &p->d->alloc, sizeof *to);
	if (!to)
		return kvi_fail_alloc(p->d->error, &p->d->alloc);
	*to = o;
	p->info.host_chunks--;
	return KVARC_OK;
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
}

/* The host's chunks are collected in work memory, too, one at a time. */
static void lay_out(struct kvarc_device_plan *p, const struct output_walk *x)
{
	const uint64_t collected = KVI_COLLECTED_AT + x->chunk_bytes;
	struct kvi_output_chunk *c = p->outputs.p;
	struct kvi_work_layout l = { 0 };
	lay_out_staging(p);
	for (size_t i = 0; i < p->outputs.n; i++)
		kvi_gpu_encode_place(&c[i].job, &c[i].work,
		                     kvi_work_take(&l, c[i].layer, c[i].work.job.bytes));
	p->info.work_bytes = l.most > collected ? l.most : collected;
	p->info.staging_bytes = p->jobs_at + p->outputs.n * sizeof(struct kvi_gpu_encode);
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

static kvarc_ret fill(struct kvarc_device_plan *p, const int32_t *ids, const int32_t *positions)
{
	struct output_walk x = { .p = p };
	kvarc_ret ret = kvi_plan_begin_constants(p);
	if (!ret)
		ret = kvi_writer_plan_append(p->w, p->range.track, p->range.n, positions, take, &x);
	if (!ret && p->outputs.n > UINT32_MAX / sizeof(struct kvi_gpu_encode))
		ret = kvi_fail(p->d->error, KVARC_GEOMETRY,
		               "the tokens have too many chunks for one plan");
	if (!ret)
		ret = keep(p, ids, &p->ids);
	if (!ret)
		ret = keep(p, positions, &p->positions);
	if (ret)
		return ret;
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
