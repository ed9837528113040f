/* SPDX-License-Identifier: BSD-3-Clause */
/* output_plan.c - which chunks an append has, and where they will lie in the memory of a device */
#include "config.h"

#include "plan_state.h"

#include <stdlib.h>
#include <string.h>

#include "util/error.h"
#include "writer/writer_coded.h"

/* State of planning beyond the plan. */
struct output_walk {
	struct kvarc_device_plan *p;
	uint32_t row; /* row whose positions are at `positions` in the constants */
	uint64_t positions;
	uint64_t chunk_bytes; /* bytes of the elements of the largest chunk */
	uint32_t last_layer;
};

/* Positions of a segment, once for all of its chunks. */
static kvarc_ret add_positions(struct output_walk *walk, const struct kvi_append_chunk *chunk)
{
	const size_t bytes = chunk->shape.n_tokens * sizeof(int32_t);
	if (walk->positions && walk->row == chunk->row)
		return KVARC_OK;
	uint8_t *to = kvi_plan_reserve(walk->p, bytes, &walk->positions);
	if (!to)
		return kvi_fail_alloc(walk->p->d->error, &walk->p->d->alloc);
	memcpy(to, chunk->shape.positions, bytes);
	walk->row = chunk->row;
	return KVARC_OK;
}

static void count(struct output_walk *walk, const struct kvi_append_chunk *chunk, uint64_t bytes)
{
	kvarc_device_plan_info *info = &walk->p->info;
	if (!info->chunks || chunk->layer < info->layer0)
		info->layer0 = chunk->layer;
	if (chunk->layer > walk->last_layer)
		walk->last_layer = chunk->layer;
	if (bytes > walk->chunk_bytes)
		walk->chunk_bytes = bytes;
	info->chunks++;
	info->raw_bytes += bytes;
	info->host_chunks++;
}

static void fill_output(struct kvi_output_chunk *chunk, const struct kvi_append_chunk *append_chunk)
{
	const struct kvi_chunk_header h = { .tensor = append_chunk->tensor,
		                            .head = append_chunk->head,
		                            .heads = (uint16_t)append_chunk->shape.heads,
		                            .codec = append_chunk->codec,
		                            .n = (uint16_t)append_chunk->shape.n_tokens };
	chunk->params_sequence = append_chunk->params_sequence;
	chunk->tensor = append_chunk->tensor;
	chunk->layer = append_chunk->layer;
	chunk->row = append_chunk->row;
	chunk->head = append_chunk->head;
	chunk->work = kvi_gpu_encode_work_of(&append_chunk->shape, append_chunk->codec);
	chunk->job.hashed = append_chunk->hashed;
	kvi_gpu_chunk_fill(&chunk->job.job, &append_chunk->shape, &h,
	                   (uint32_t)kvi_gpu_encode_bound(&append_chunk->shape));
}

/* Parameters, and the positions of what rotates. */
static kvarc_ret add_params(struct output_walk *walk, const struct kvi_append_chunk *chunk,
                            struct kvi_gpu_chunk *job)
{
	struct kvi_planned_params params = { chunk->params_sequence, chunk->tensor, chunk->head,
		                             0 };
	kvarc_ret ret = kvi_plan_add_params(walk->p, &params, chunk->params, &chunk->shape);
	job->params = params.at;
	if (ret || !chunk->shape.rope)
		return ret;
	ret = add_positions(walk, chunk);
	job->positions = walk->positions;
	return ret;
}

static kvarc_ret take(void *opaque, const struct kvi_append_chunk *chunk)
{
	struct output_walk *x = opaque;
	struct kvarc_device_plan *p = x->p;
	struct kvi_output_chunk o = { 0 };
	count(x, chunk, kvi_chunk_bytes(&chunk->shape));
	if (!chunk->elsewhere || kvi_chunk_channels(&chunk->shape) > KVI_GPU_CHANNELS ||
	    !kvi_plan_has_kernel(chunk->codec, chunk->shape.dtype))
		return KVARC_OK;
	fill_output(&o, chunk);
	kvarc_ret ret = add_params(x, chunk, &o.job.job);
	if (ret)
		return ret;
	struct kvi_output_chunk *to = kvi_list_add(&p->outputs, &p->d->alloc, sizeof *to);
	if (!to)
		return kvi_fail_alloc(p->d->error, &p->d->alloc);
	*to = o;
	p->info.host_chunks--;
	return KVARC_OK;
}

int kvi_output_compare(const struct kvi_output_chunk *chunk,
                       const struct kvi_output_chunk *output_chunk)
{
	if (chunk->layer != output_chunk->layer)
		return chunk->layer < output_chunk->layer ? -1 : 1;
	if (chunk->row != output_chunk->row)
		return chunk->row < output_chunk->row ? -1 : 1;
	if (chunk->tensor != output_chunk->tensor)
		return chunk->tensor < output_chunk->tensor ? -1 : 1;
	return chunk->head < output_chunk->head ? -1 : chunk->head > output_chunk->head;
}

static int compare(const void *a, const void *b)
{
	return kvi_output_compare(a, b);
}

/* Assigns offsets in staging memory to the payloads, and then to the jobs. */
static void lay_out_staging(struct kvarc_device_plan *plan)
{
	struct kvi_output_chunk *c = plan->outputs.p;
	uint64_t at = plan->constants.n;
	for (size_t i = 0; i < plan->outputs.n; i++) {
		c[i].job.job.payload = at;
		at += kvi_part_aligned(c[i].job.job.payload_bytes);
	}
	plan->jobs_at = at;
}

/* The host's chunks are collected in work memory, too, one at a time. */
static void lay_out(struct kvarc_device_plan *plan, const struct output_walk *walk)
{
	const uint64_t collected = KVI_COLLECTED_AT + walk->chunk_bytes;
	struct kvi_output_chunk *c = plan->outputs.p;
	struct kvi_work_layout l = { 0 };
	lay_out_staging(plan);
	for (size_t i = 0; i < plan->outputs.n; i++)
		kvi_gpu_encode_place(&c[i].job, &c[i].work,
		                     kvi_work_take(&l, c[i].layer, c[i].work.job.bytes));
	plan->info.work_bytes = l.most > collected ? l.most : collected;
	plan->info.staging_bytes = plan->jobs_at + plan->outputs.n * sizeof(struct kvi_gpu_encode);
	plan->info.status_bytes = (plan->outputs.n ? plan->outputs.n : 1) *
	                          sizeof(struct kvi_gpu_encoded);
	if (plan->info.chunks)
		plan->info.n_layers = walk->last_layer - plan->info.layer0 + 1;
}

/* A copy of n numbers of the caller; NULL: of none. */
static kvarc_ret keep(struct kvarc_device_plan *plan, const int32_t *from, int32_t **to)
{
	const size_t n = (size_t)plan->range.n;
	if (!from)
		return KVARC_OK;
	*to = kvi_array(&plan->d->alloc, n, sizeof **to);
	if (!*to)
		return kvi_fail_alloc(plan->d->error, &plan->d->alloc);
	memcpy(*to, from, n * sizeof **to);
	return KVARC_OK;
}

static kvarc_ret load_encoders(struct kvarc_device *device)
{
	kvarc_ret ret = kvi_device_enter(device);
	if (ret)
		return ret;
	ret = kvi_device_load(device, &device->encoders);
	kvi_device_leave(device);
	return ret;
}

static kvarc_ret fill(struct kvarc_device_plan *plan, const int32_t *ids, const int32_t *positions)
{
	struct output_walk x = { .p = plan };
	kvarc_ret ret = kvi_plan_begin_constants(plan);
	if (!ret)
		ret = kvi_writer_plan_append(plan->w, plan->range.track, plan->range.n, positions,
		                             take, &x);
	if (!ret && plan->outputs.n > UINT32_MAX / sizeof(struct kvi_gpu_encode))
		ret = kvi_fail(plan->d->error, KVARC_GEOMETRY,
		               "the tokens have too many chunks for one plan");
	if (!ret)
		ret = keep(plan, ids, &plan->ids);
	if (!ret)
		ret = keep(plan, positions, &plan->positions);
	if (ret)
		return ret;
	if (plan->outputs.n)
		qsort(plan->outputs.p, plan->outputs.n, sizeof(struct kvi_output_chunk), compare);
	lay_out(plan, &x);
	return KVARC_OK;
}

kvarc_ret kvarc_device_plan_write(kvarc_device_plan **out, kvarc_device *device, kvarc_writer *w,
                                  uint32_t track, uint64_t n, const int32_t *ids,
                                  const int32_t *positions)
{
	static const char call[] = "kvarc_device_plan_write";
	if (!out || !device || !w || !n)
		return kvi_fail(device ? device->error : NULL, KVARC_PROG,
		                "%s: an argument is NULL, or 0", call);
	*out = NULL;
	if (!kvi_writer_geometry(w))
		return kvi_fail(device->error, KVARC_PROG,
		                "%s: call kvarc_writer_set_geometry first", call);
	kvarc_ret ret = load_encoders(device);
	struct kvarc_device_plan *p = ret ? NULL : kvi_calloc(&device->alloc, 1, sizeof *p);
	if (!p)
		return ret ? ret : kvi_fail_alloc(device->error, &device->alloc);
	p->d = device;
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
