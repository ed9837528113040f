/* SPDX-License-Identifier: BSD-3-Clause */
/* contexts.c - what a decoder knows of an element before it sees it (spec grid 2, 3) */
#include "grid.h"

#include "model/rotate.h"

void kvi_grid_params_finish(struct kvi_params *p)
{
	const struct kvi_grid_format *f = &kvi_float_format(p->dtype)->grid;
	for (size_t c = 0; c < kvi_params_channels(p); c++)
		p->ctx[c] = kvi_grid_context(
			kvi_fixed_mean(p->mean[c], p->k[c]), p->k[c], f);
}

/* One context a channel: the same for every token. */
static kvarc_ret fixed(struct kvi_coder *c, const struct kvi_job *job,
                       struct kvi_grid_job *g)
{
	size_t n = job->lanes.channels;
	uint32_t *channels = kvi_scratch(c, KVI_SCRATCH_CHANNELS, 4 * n);
	uint32_t *room = kvi_scratch(c, KVI_SCRATCH_CONTEXT,
	                             4 * kvi_ring_room(&job->lanes));
	if (!channels || !room)
		return kvi_alloc_error(c->alloc);
	kvi_job_channels32(job, job->params->ctx, channels);
	struct kvi_ring32 ring = kvi_ring32_make(&job->lanes, channels, room);
	g->ctx = ring.full;
	g->ctx_tail = ring.tail;
	g->ctx_steps = ring.steps;
	g->per_step = job->lanes.order == KVI_LANES_TOKENS;
	return KVARC_OK;
}

/* Contexts of all channels of one token. */
static void rotate_row(const struct kvi_job *job, int32_t position,
                       uint32_t *mu_bits, int16_t *k)
{
	const struct kvi_params *p = job->params;
	uint32_t n = p->head_channels;
	for (uint32_t h = 0; h < p->heads; h++) {
		struct kvi_head_params head = { p->k + h * n, p->mean + h * n,
			                        n };
		kvi_rotate_head(&head, job->chunk->rope, position,
		                mu_bits + h * n, k + h * n);
	}
}

static kvarc_ret rotating(struct kvi_coder *c, const struct kvi_job *job,
                          struct kvi_grid_job *g)
{
	const struct kvi_mask *m = &job->mask;
	const struct kvi_chunk *chunk = job->chunk;
	size_t C = m->C, n = kvi_mask_elements(m);
	bool tokens = job->lanes.order == KVI_LANES_TOKENS;
	uint32_t *ctx = kvi_scratch(c, KVI_SCRATCH_CONTEXT,
	                            (n + (tokens ? n : 0)) * 4);
	uint32_t *row = kvi_scratch(c, KVI_SCRATCH_CHANNELS, C * 10);
	if (!ctx || !row)
		return kvi_alloc_error(c->alloc);
	if (!chunk->rope || !chunk->positions)
		return KVARC_DATA;
	uint32_t *at = ctx, *row_ctx = row + C;
	int16_t *k = (int16_t *)(void *)(row + 2 * C);
	for (size_t t = 0; t < m->T; t++) {
		if (kvi_bit(m->row_bits, t))
			continue;
		rotate_row(job, chunk->positions[t], row, k);
		c->kernels->grid_contexts(m->channel_bits ? row_ctx : at, row,
		                          k, C, g->fmt);
		if (m->channel_bits)
			kvi_job_channels32(job, row_ctx, at);
		at += m->channels;
	}
	if (tokens) {
		kvi_lanes_to32(&job->lanes, ctx, ctx + n);
		ctx += n;
	}
	g->ctx = ctx;
	g->ctx_steps = g->steps.full_steps ? g->steps.full_steps : 1;
	g->ctx_tail = ctx + g->steps.full_steps * KVI_LANES;
	return KVARC_OK;
}

kvarc_ret kvi_grid_contexts(struct kvi_coder *c, const struct kvi_job *job,
                            struct kvi_grid_job *g)
{
	*g = (struct kvi_grid_job){
		.steps = kvi_lane_steps(&job->lanes),
		.fmt = &kvi_float_format(job->chunk->dtype)->grid,
		.tables = &c->tables->grid,
	};
	return job->params->rotate ? rotating(c, job, g) : fixed(c, job, g);
}
