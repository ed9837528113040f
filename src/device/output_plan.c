/* SPDX-License-Identifier: BSD-3-Clause */
/* output_plan.c - which chunks an append has, and where they will lie in the memory of a device */
#include "config.h"

#include "plan_state.h"

#include <string.h>

#include "util/error.h"
#include "writer/writer_coded.h"

/* State of planning beyond the plan. */
struct output_walk {
	struct kvarc_device_plan *p;
	uint32_t row; /* row whose positions are at `positions` in the constants */
	uint64_t positions;
	uint64_t chunk_bytes; /* bytes of the elements of the largest chunk */
	uint64_t sums_bytes;  /* bytes of the sums of all chunks so far */
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

static struct kvi_planned_chunk planned(const struct kvarc_device_plan *plan,
                                        const struct kvi_append_chunk *chunk)
{
	const struct kvi_chunk_header h = { .tensor = chunk->tensor,
		                            .head = chunk->head,
		                            .heads = (uint16_t)chunk->shape.heads,
		                            .codec = chunk->codec,
		                            .n = (uint16_t)chunk->shape.n_tokens };
	struct kvi_planned_chunk c = { .params_sequence = chunk->params_sequence,
		                       .t0 = plan->range.t0 + chunk->row,
		                       .tensor = chunk->tensor,
		                       .layer = chunk->layer,
		                       .head = chunk->head };
	kvi_gpu_chunk_fill(&c.job, &chunk->shape, &h, 0);
	c.job.hashed = chunk->hashed;
	return c;
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
	count(x, chunk, kvi_chunk_bytes(&chunk->shape));
	if (!chunk->elsewhere || kvi_chunk_channels(&chunk->shape) > KVI_GPU_CHANNELS ||
	    !kvi_plan_has_kernel(chunk->codec, chunk->shape.dtype))
		return KVARC_OK;
	struct kvi_planned_chunk c = planned(p, chunk);
	kvarc_ret ret = chunk->params ? add_params(x, chunk, &c.job) : KVARC_OK;
	if (ret)
		return ret;
	p->output_bytes += kvi_gpu_encode_bound(&chunk->shape);
	c.job.sums = x->sums_bytes;
	x->sums_bytes += chunk->hashed ? kvi_gpu_sums_bytes(&chunk->shape) : 0;
	struct kvi_planned_chunk *to = kvi_list_add(&p->chunks, &p->d->alloc, sizeof *to);
	if (!to)
		return kvi_fail_alloc(p->d->error, &p->d->alloc);
	*to = c;
	p->info.host_chunks--;
	return KVARC_OK;
}

/* Offsets in staging memory; work memory also has a chunk that the host encodes. */
static void lay_out(struct kvarc_device_plan *plan, const struct output_walk *walk)
{
	struct kvi_planned_chunk *c = plan->chunks.p;
	kvarc_device_plan_info *info = &plan->info;
	plan->jobs_at = plan->constants.n;
	plan->locks_at = plan->jobs_at + plan->chunks.n * sizeof(struct kvi_gpu_chunk);
	plan->output_at = kvi_part_aligned(plan->locks_at + plan->slots * sizeof(uint32_t));
	const uint64_t sums_at = plan->output_at + sizeof(struct kvi_gpu_output) +
	                         plan->output_bytes;
	for (size_t i = 0; i < plan->chunks.n; i++) {
		c[i].job.output = plan->output_at;
		c[i].job.sums += sums_at;
	}
	info->staging_bytes = sums_at + walk->sums_bytes;
	info->work_bytes = plan->slots * plan->slot_bytes;
	if (info->work_bytes < walk->chunk_bytes)
		info->work_bytes = walk->chunk_bytes;
	info->status_bytes = (plan->chunks.n ? plan->chunks.n : 1) * sizeof(struct kvi_gpu_encoded);
	if (info->chunks)
		info->n_layers = walk->last_layer - info->layer0 + 1;
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
	if (!ret && plan->chunks.n > UINT32_MAX / sizeof(struct kvi_gpu_chunk))
		ret = kvi_fail(plan->d->error, KVARC_GEOMETRY,
		               "the tokens have too many chunks for one plan");
	if (!ret)
		ret = keep(plan, ids, &plan->ids);
	if (!ret)
		ret = keep(plan, positions, &plan->positions);
	if (ret)
		return ret;
	kvi_plan_arrange(plan);
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
