/* SPDX-License-Identifier: BSD-3-Clause */
/* contexts.c - contexts of elements from parameters and positions (spec grid 2, 3) */
#include "grid.h"

#include "numeric/rotate.h"

/* Vectors of a fixed size: the same results on every machine. */
enum { SIDE = 4 };
typedef int32_t lanes __attribute__((vector_size(SIDE * sizeof(int32_t))));

/*
 * Moves the means of contexts up by half of a cell, or of the element's own step where that is
 * wider, for formats whose elements are the middles of their cells (spec near 2). In 1/8 of the
 * grid's unit.
 */
static inline lanes moved(lanes ctx, int m)
{
	lanes y = (ctx >> 13 & 0x3fff8) | (ctx & 7), g = ctx >> 8 & 255;
	lanes half = (4 & (g == 127)) | (2 & (g == 128)) | (1 & (g == 129));
	lanes own = (1 & (y >> (m + 1) != 0)) + (1 & (y >> (m + 2) != 0)) +
	            (2 & (y >> (m + 3) != 0));
	lanes more = own > half, sign = ctx >> 31;
	/* ^ sign: of a mean below zero -y - 1, rounded down as y is */
	y = (y ^ sign) + ((own & more) | (half & ~more));
	lanes neg = y >> 31, size = y ^ neg, cells = size >> 3;
	lanes over = cells > 0x7fff;
	cells = (cells & ~over) | (0x7fff & over);
	return (ctx & 0xfff8) | (size & 7) | cells << 16 | (neg & INT32_MIN);
}

static void half_up(uint32_t *ctx, size_t n, int m)
{
	size_t i = 0;
	for (; i + SIDE <= n; i += SIDE) {
		lanes c;
		memcpy(&c, ctx + i, sizeof c);
		c = moved(c, m);
		memcpy(ctx + i, &c, sizeof c);
	}
	lanes rest = { 0 };
	memcpy(&rest, ctx + i, (n - i) * sizeof *ctx);
	rest = moved(rest, m);
	memcpy(ctx + i, &rest, (n - i) * sizeof *ctx);
}

void kvi_grid_fixed_contexts(const struct kvi_grid_params *params,
                             const struct kvi_grid_format *fmt, uint32_t *ctx)
{
	for (size_t c = 0; c < kvi_params_channels(&params->common); c++)
		ctx[c] = kvi_grid_context(kvi_fixed_mean(params->mean[c], params->k[c]),
		                          params->k[c], fmt);
	if (fmt->whole)
		half_up(ctx, kvi_params_channels(&params->common), fmt->mant_bits);
}

struct kvi_grid_params *kvi_grid_params_new(const struct kvi_alloc *alloc, uint8_t codec,
                                            const struct kvi_chunk *shape)
{
	size_t C = kvi_chunk_channels(shape);
	size_t each = sizeof(uint32_t) + 2 * sizeof(int16_t) + 1;
	struct kvi_grid_params *p;
	p = kvi_params_new(alloc, codec, shape, sizeof *p + C * each, 0);
	if (!p)
		return NULL;
	p->ctx = (uint32_t *)(void *)(p + 1);
	p->k = (int16_t *)(void *)(p->ctx + C);
	p->mean = p->k + C;
	p->set = (uint8_t *)(p->mean + C);
	return p;
}

void kvi_grid_params_finish(struct kvi_grid_params *params)
{
	kvi_grid_fixed_contexts(params, &kvi_float_format(params->common.dtype)->grid, params->ctx);
}

/* Contexts of the remaining channels, equal for all tokens; NULL: no memory. */
static uint32_t *fixed(struct kvi_coder *coder, const struct kvi_coder_job *job,
                       const struct kvi_grid_params *params)
{
	uint32_t *channels = kvi_scratch(coder, KVI_SCRATCH_CHANNELS,
	                                 job->mask.channels * sizeof *channels);
	if (channels)
		kvi_mask_channels(&job->mask, sizeof *channels, params->ctx, channels);
	return channels;
}

/* Finishes the contexts of a token: moves the rotated ones where fmt->whole, and sets the
 * others. */
static void finish_row(const struct kvi_grid_params *params, const struct kvi_grid_format *fmt,
                       const kvarc_rope *rope, uint32_t *ctx)
{
	size_t n = params->common.head_channels, heads = params->common.heads,
	       rest = n - rope->rotary;
	for (size_t h = 0; fmt->whole && h < heads; h++)
		half_up(ctx + h * n, rope->rotary, fmt->mant_bits);
	for (size_t h = 0; rest && h < heads; h++)
		memcpy(ctx + h * n + rope->rotary, params->ctx + h * n + rope->rotary,
		       rest * sizeof *ctx);
}

void kvi_grid_rotate_row(const struct kvi_coder *coder, const struct kvi_grid_params *params,
                         const struct kvi_grid_format *fmt, const kvarc_rope *rope,
                         const struct kvi_token_turns *turns, size_t t, uint32_t *ctx)
{
	const struct kvi_rotation r = kvi_grid_rotation(coder->tables, params, fmt, rope, turns, t);
	coder->kernels->coding.rotated_contexts(ctx, &r);
	finish_row(params, fmt, rope, ctx);
}

/* Tokens from t on, of `left`, whose contexts the set makes at once and that all have whole rows;
 * 0: none. Fewer than MANY are faster one by one. */
static size_t rows_at_once(const struct kvi_grid_contexts *contexts, size_t t, size_t left)
{
	enum { MANY = 8, PAIRS = 16 };
	const struct kvi_mask *m = &contexts->job->mask;
	size_t n = 0;
	if (!contexts->coder->kernels->coding.rotated_tokens || !contexts->turns->by_pair ||
	    m->channel_bits || contexts->turns->pairs % PAIRS)
		return 0;
	while (n < left && n < KVI_TURNED && !kvi_bit(m->row_bits, t + n))
		n++;
	return n < MANY ? 0 : n;
}

/* Makes the rotated contexts of n tokens from t on. */
static void rotate_rows(const struct kvi_grid_contexts *contexts, size_t t, size_t n, uint32_t *ctx)
{
	const kvarc_rope *rope = contexts->job->chunk->rope;
	const size_t row = contexts->job->mask.channels;
	const struct kvi_rotation r = kvi_grid_rotation(contexts->coder->tables, contexts->p,
	                                                contexts->fmt, rope, contexts->turns, t);
	const struct kvi_rotated tokens = { n, row, contexts->turns->stride,
		                            contexts->turns->by_pair + t };
	contexts->coder->kernels->coding.rotated_tokens(ctx, &r, &tokens);
	for (size_t i = 0; i < n; i++)
		finish_row(contexts->p, contexts->fmt, rope, ctx + i * row);
}

/* Memory for contexts of all elements, token-major, and of `more` others, and for `rows` rows. */
static kvarc_ret open_rotating(struct kvi_coder *coder, const struct kvi_coder_job *job,
                               size_t more, size_t rows, struct kvi_grid_contexts *contexts)
{
	const size_t n = kvi_mask_elements(&job->mask);
	if (!job->chunk->rope || !job->chunk->positions)
		return KVARC_DATA;
	contexts->ctx = kvi_scratch(coder, KVI_SCRATCH_CONTEXT, (n + more) * sizeof *contexts->ctx);
	contexts->rows = kvi_scratch(coder, KVI_SCRATCH_CHANNELS,
	                             rows * job->mask.C * sizeof *contexts->rows);
	contexts->turns = kvi_coder_token_turns(coder, job->chunk->rope, job->chunk->positions,
	                                        job->chunk->n_tokens);
	return contexts->ctx && contexts->rows && contexts->turns ? KVARC_OK
	                                                          : kvi_alloc_error(coder->alloc);
}

static struct kvi_grid_contexts contexts_of(const struct kvi_coder *coder,
                                            const struct kvi_coder_job *job,
                                            const struct kvi_grid_params *params,
                                            const struct kvi_grid_format *fmt)
{
	return (struct kvi_grid_contexts){
		.fmt = fmt,
		.tables = &coder->grid,
		.channels = job->mask.channels,
		.coder = coder,
		.job = job,
		.p = params,
	};
}

kvarc_ret kvi_grid_contexts_open(struct kvi_coder *coder, const struct kvi_coder_job *job,
                                 const struct kvi_grid_params *params,
                                 const struct kvi_grid_format *fmt,
                                 struct kvi_grid_contexts *contexts)
{
	*contexts = contexts_of(coder, job, params, fmt);
	if (params->common.rotates)
		return open_rotating(coder, job, 0, KVI_STREAMS_MAX, contexts);
	contexts->ring = kvi_ring_capacity(job->mask.rows, contexts->channels);
	contexts->rings = kvi_scratch(coder, KVI_SCRATCH_CONTEXT,
	                              2 * contexts->ring * sizeof *contexts->rings);
	contexts->ctx = fixed(coder, job, params);
	return contexts->rings && contexts->ctx ? KVARC_OK : kvi_alloc_error(coder->alloc);
}

void kvi_grid_contexts_cut(struct kvi_grid_contexts *contexts, size_t rows, size_t last)
{
	if (contexts->rings)
		contexts->of = kvi_rings_make(rows, last, contexts->channels, sizeof *contexts->ctx,
		                              contexts->ctx, contexts->rings, contexts->ring);
}

void kvi_grid_contexts_fill(const struct kvi_grid_contexts *contexts,
                            const struct kvi_stream_part *part, unsigned number)
{
	const struct kvi_mask *m = &contexts->job->mask;
	if (!contexts->rows)
		return; /* all contexts are made already */
	uint32_t *row = contexts->rows + number * m->C;
	uint32_t *to = contexts->ctx + part->first * m->channels;
	for (size_t t = kvi_mask_token(m, part->first), n = 0, some; n < part->rows; t += some) {
		some = 1;
		if (kvi_bit(m->row_bits, t))
			continue;
		some = rows_at_once(contexts, t, part->rows - n);
		if (some) {
			rotate_rows(contexts, t, some, to);
		} else {
			some = 1;
			kvi_grid_rotate_row(contexts->coder, contexts->p, contexts->fmt,
			                    contexts->job->chunk->rope, contexts->turns, t,
			                    m->channel_bits ? row : to);
		}
		if (m->channel_bits)
			kvi_mask_channels(m, sizeof *row, row, to);
		to += some * m->channels;
		n += some;
	}
}

struct kvi_grid_job kvi_grid_part(const struct kvi_grid_contexts *contexts,
                                  const struct kvi_stream_part *part)
{
	const size_t n = part->rows * contexts->channels;
	struct kvi_grid_job g = { .steps = kvi_element_steps(n),
		                  .fmt = contexts->fmt,
		                  .tables = contexts->tables };
	if (contexts->rings) {
		const struct kvi_ring *ring = kvi_rings_of(&contexts->of, part->rows);
		g.ctx = ring->full;
		g.ctx_tail = ring->tail;
		g.ctx_steps = ring->steps;
		return g;
	}
	g.ctx = contexts->ctx + part->first * contexts->channels;
	g.ctx_tail = g.ctx + g.steps.full_steps * KVI_LANES;
	g.ctx_steps = g.steps.full_steps ? g.steps.full_steps : 1;
	return g;
}

kvarc_ret kvi_grid_token_job(struct kvi_coder *coder, const struct kvi_coder_job *job,
                             const struct kvi_grid_params *params,
                             const struct kvi_grid_format *fmt, struct kvi_grid_job *grid_job)
{
	const size_t n = kvi_mask_elements(&job->mask);
	if (!kvi_grid_decodes(coder))
		return kvi_alloc_error(coder->alloc);
	*grid_job = (struct kvi_grid_job){
		.steps = kvi_token_steps(&job->lanes),
		.fmt = fmt,
		.tables = &coder->grid,
		.per_step = !params->common.rotates,
	};
	if (grid_job->per_step) {
		grid_job->ctx = grid_job->ctx_tail = fixed(coder, job, params);
		grid_job->ctx_steps = job->lanes.channels;
		return grid_job->ctx ? KVARC_OK : kvi_alloc_error(coder->alloc);
	}
	struct kvi_grid_contexts x = contexts_of(coder, job, params, fmt);
	const struct kvi_stream_part all = { 0, job->mask.rows };
	kvarc_ret ret = open_rotating(coder, job, n, 1, &x);
	if (ret)
		return ret;
	kvi_grid_contexts_fill(&x, &all, 0);
	kvi_lanes_to32(&job->lanes, x.ctx, x.ctx + n);
	grid_job->ctx = x.ctx + n;
	grid_job->ctx_steps = grid_job->steps.full_steps ? grid_job->steps.full_steps : 1;
	grid_job->ctx_tail = grid_job->ctx + grid_job->steps.full_steps * KVI_LANES;
	return KVARC_OK;
}
