/* SPDX-License-Identifier: BSD-3-Clause */
/* linear_codec.c - codecs linear and model: predicted by a tensor's linear model in a profile (spec
 * linear, model) */
#include "codecs/coder.h"

/* A chunk with its model at work. */
struct linear_work {
	struct kvi_linear linear;
	struct kvi_features out;
	const struct kvi_mask *mask;
	uint32_t *row, *by_channel; /* of each slot; of the channels of a head */
	uint16_t *x;                /* full steps: row after row; then the last tokens' rows */
	bool in_order;              /* rows are in slot order */
	size_t full;                /* tokens of the full steps */
	unsigned lanes;             /* of the last tokens */
};

bool kvi_linear_shape(const struct kvi_chunk *chunk)
{
	const struct kvi_linear_in *in = chunk->linear;
	const struct kvi_model *m = in ? in->model : NULL;
	return m && kvi_float_format(chunk->dtype) && in->dtype == chunk->dtype &&
	       in->n_tokens == chunk->n_tokens && m->heads == chunk->heads &&
	       m->head_channels == chunk->head_channels &&
	       (!m->rotary || (in->rope && in->positions && in->rope->rotary == m->rotary));
}

static bool usable(const struct kvi_features *f, const struct kvi_linear_in *in)
{
	return f && f->n_tokens == in->n_tokens;
}

bool kvi_linear_sources(const struct kvi_chunk *chunk)
{
	const struct kvi_linear_in *in = chunk->linear;
	const struct kvi_model *m = in->model;
	if ((m->level >= KVI_LEVEL_MODEL) != (in->expected != NULL))
		return false;
	for (unsigned i = 0; i < m->n_lower; i++)
		if (!usable(in->lower[i], in) || !in->lower[i]->z)
			return false;
	for (unsigned i = 0; i < m->n_same; i++)
		if (!usable(in->same[i], in) || !in->same[i]->r)
			return false;
	return !m->scale_source || usable(in->scale, in);
}

/* Rows of the matrix: remaining channels in order, then the constant ones. */
static void place_rows(struct linear_work *w)
{
	const struct kvi_model *m = w->linear.in->model;
	const uint8_t *constant = w->mask->channel_bits;
	uint32_t rest = 0, fixed = (uint32_t)w->mask->channels, *row = w->row;
	w->in_order = !constant;
	for (size_t h = 0, c = 0; h < m->heads; h++) {
		for (size_t i = 0; i < m->head_channels; i++, c++)
			w->by_channel[i] = kvi_bit(constant, c) ? fixed++ : rest++;
		for (size_t i = 0; i < m->head_channels; i++) {
			size_t from = kvi_slot_channel(m, w->linear.in->rope, i);
			*row++ = w->by_channel[from];
			w->in_order &= from == i;
		}
	}
}

static size_t aligned(size_t bytes)
{
	return (bytes + 63) & ~(size_t)63;
}

/* C is at most 2^20 and a chunk has 256 tokens at most: no overflow. */
static kvarc_ret begin(struct kvi_coder *c, const struct kvi_chunk *chunk,
                       const struct kvi_mask *mask, struct linear_work *w)
{
	const struct kvi_linear_in *in = chunk->linear;
	const struct kvi_model *m = in->model;
	size_t tokens = kvi_padded_tokens(in->n_tokens);
	size_t rows = aligned((mask->C + m->head_channels) * sizeof *w->row);
	size_t model = aligned(kvi_linear_bytes(in));
	size_t r = m->heads * kvi_head_stride(m) * tokens * sizeof *w->out.r;
	size_t own = chunk->features ? 0 : r + tokens * sizeof *w->out.w;
	uint8_t *memory = kvi_scratch(c, KVI_SCRATCH_LINEAR, rows + model + own);
	w->x = kvi_scratch(c, KVI_SCRATCH_SLOTS, mask->C * in->n_tokens * sizeof *w->x);
	if (!memory || !w->x)
		return kvi_alloc_error(c->alloc);
	w->mask = mask;
	w->row = (uint32_t *)(void *)memory;
	w->by_channel = w->row + mask->C;
	w->full = in->n_tokens / KVI_LANES * KVI_LANES;
	w->lanes = (unsigned)(in->n_tokens % KVI_LANES);
	w->linear.in = in;
	w->linear.kernels = c->kernels;
	w->linear.tables = &c->tables->grid;
	w->linear.out = &w->out;
	if (m->rotary &&
	    !(w->linear.turns = kvi_coder_rotations(c, in->rope, in->positions, in->n_tokens)))
		return kvi_alloc_error(c->alloc);
	memory += rows + model;
	if (chunk->features)
		w->out = *chunk->features;
	else
		w->out = (struct kvi_features){ .r = (int16_t *)(void *)memory,
			                        .w = (uint32_t *)(void *)(memory + r) };
	if (w->out.has_z)
		w->out.z = NULL;
	kvi_linear_begin(&w->linear, memory - model);
	place_rows(w);
	return KVARC_OK;
}

/* After the last slot. */
static void end(const struct linear_work *w, const struct kvi_chunk *chunk)
{
	if (chunk->features)
		chunk->features->n = w->out.n;
}

/* All blocks, with contexts to ctx or elements from reader. */
static bool apply(const struct linear_work *w, uint32_t *ctx, struct kvi_slot_reader *reader)
{
	struct kvi_linear_block b = {
		.steps = w->full / KVI_LANES,
		.lanes = KVI_LANES,
		.x = w->x,
		.row = w->row,
		.n_coded = w->mask->channels,
		.reader = reader,
		.ctx = ctx,
	};
	if (b.steps && !kvi_linear_apply(&w->linear, &b))
		return false;
	b.x += w->mask->C * w->full;
	if (ctx)
		b.ctx += w->mask->channels * w->full;
	b.first = w->full;
	b.steps = 1;
	b.lanes = w->lanes;
	return !w->lanes || kvi_linear_apply(&w->linear, &b);
}

/* Token-major elements into the rows. */
static void to_rows(const struct linear_work *w, const uint16_t *e)
{
	size_t n = w->mask->channels;
	const struct kvi_kernels *k = w->linear.kernels;
	k->transpose16(w->x, e, w->full, n);
	k->transpose16(w->x + w->mask->C * w->full, e + n * w->full, w->lanes, n);
}

/* The inverse of to_rows. */
static void from_rows(const struct linear_work *w, uint16_t *e)
{
	size_t n = w->mask->channels;
	const struct kvi_kernels *k = w->linear.kernels;
	k->transpose16(e, w->x, n, w->full);
	k->transpose16(e + n * w->full, w->x + w->mask->C * w->full, n, w->lanes);
}

static void fill(uint16_t *to, size_t n, uint16_t v)
{
	for (size_t i = 0; i < n; i++)
		to[i] = v;
}

/* The rows of constant channels. */
static void constant_rows(const struct linear_work *w)
{
	const struct kvi_mask *m = w->mask;
	const uint8_t *v = m->channel_values;
	uint16_t *full = w->x + m->channels * w->full;
	uint16_t *last = w->x + m->C * w->full + m->channels * w->lanes;
	for (size_t c = m->channels; c < m->C; c++, v += m->size) {
		uint16_t e = m->size == 1 ? *v : m->size == 2 ? kvi_load16(v) : kvi_load16(v + 2);
		fill(full, w->full, e);
		fill(last, w->lanes, e);
		full += w->full;
		last += w->lanes;
	}
}

/* Elements in stream order. */
static const uint16_t *stream_order(struct kvi_coder *c, const struct linear_work *w)
{
	size_t n = w->mask->channels, C = w->mask->C;
	if (w->in_order)
		return w->x;
	uint16_t *all = kvi_scratch(c, KVI_SCRATCH_PLANE, n * w->mask->T * sizeof *all);
	if (!all)
		return NULL;
	uint16_t *full = all, *last = all + n * w->full;
	for (size_t s = 0; s < C; s++) {
		size_t row = w->row[s];
		if (row >= n)
			continue;
		memcpy(full, w->x + row * w->full, w->full * sizeof *full);
		memcpy(last, w->x + C * w->full + row * w->lanes, w->lanes * sizeof *last);
		full += w->full;
		last += w->lanes;
	}
	return all;
}

/* Judged by the scale that adapts to the tokens: W / N is 13 where the model fits. */
static bool as_expected(const struct linear_work *w)
{
	const struct kvi_linear_in *in = w->linear.in;
	uint64_t sum = 0, n = (uint64_t)w->out.n * in->n_tokens;
	if (!(in->model->flags & KVI_MODEL_SCALE))
		return false;
	for (size_t t = 0; t < in->n_tokens; t++)
		sum += w->out.w[t];
	return sum > 10 * n && sum < 16 * n;
}

static kvarc_ret encode(struct kvi_coder *c, const struct kvi_coder_job *job,
                        struct kvi_payload *out)
{
	const struct kvi_mask *m = &job->mask;
	size_t n = kvi_mask_elements(m);
	unsigned dtype = job->chunk->dtype;
	struct linear_work w = { .linear.predicts = true };
	uint32_t state[KVI_LANES];
	const uint16_t *e = kvi_coded_elements(c, dtype, job->packed, n);
	uint32_t *ctx = kvi_scratch(c, KVI_SCRATCH_CONTEXT, n * sizeof *ctx);
	if (!e || !ctx)
		return kvi_alloc_error(c->alloc);
	kvarc_ret ret = begin(c, job->chunk, m, &w);
	if (ret)
		return ret;
	to_rows(&w, e);
	constant_rows(&w);
	apply(&w, ctx, NULL);
	end(&w, job->chunk);
	if (job->chunk->features && job->chunk->made)
		job->chunk->made(job->chunk->made_opaque);
	out->expected = as_expected(&w);
	e = stream_order(c, &w);
	if (!e)
		return kvi_alloc_error(c->alloc);
	struct kvi_grid_job g = {
		.steps = { w.full / KVI_LANES * m->channels, w.lanes ? m->channels : 0, w.lanes },
		.fmt = &kvi_float_format(dtype)->grid,
		.tables = w.linear.tables,
		.ctx = ctx,
		.ctx_tail = ctx + m->channels * w.full,
	};
	g.ctx_steps = g.steps.full_steps ? g.steps.full_steps : 1;
	size_t words = c->kernels->grid_encode(&g, e, (uint16_t *)(void *)out->words, state);
	out->end = kvi_coded_planes(c, dtype, job->packed, n, out->words);
	kvi_stream_put(out, words, state);
	return KVARC_OK;
}

static kvarc_ret decode(struct kvi_coder *c, const struct kvi_coder_job *job, struct kvi_in *in)
{
	size_t n = kvi_mask_elements(&job->mask);
	unsigned dtype = job->chunk->dtype;
	struct linear_work w = { .linear.predicts = true };
	struct kvi_slot_reader reader;
	struct kvi_stream s;
	if (!kvi_stream_get(in, &s))
		return KVARC_DATA;
	uint16_t *e = kvi_coded_buffer(c, dtype, job->decoded, n);
	if (!e)
		return kvi_alloc_error(c->alloc);
	kvarc_ret ret = begin(c, job->chunk, &job->mask, &w);
	if (ret)
		return ret;
	memcpy(reader.state, s.state, sizeof s.state);
	reader.words = kvi_words_begin(&s);
	constant_rows(&w);
	if (!apply(&w, NULL, &reader) || !kvi_stream_done(reader.state, &reader.words))
		return KVARC_DATA;
	end(&w, job->chunk);
	from_rows(&w, e);
	return kvi_coded_place(c, dtype, e, n, in, job->decoded);
}

const struct kvi_codec kvi_codec_linear = {
	.takes = KVI_TAKES_FLOATS,
	.words_each = 3,
	.plane_bits = kvi_coded_plane_bits,
	.encode = encode,
	.decode = decode,
};

kvarc_ret kvi_chunk_features(struct kvi_coder *c, const struct kvi_chunk *chunk, const uint8_t *raw,
                             bool only_z)
{
	struct kvi_mask all = { .T = chunk->n_tokens, .C = kvi_chunk_channels(chunk) };
	all.rows = all.T;
	all.channels = all.C;
	if (!kvi_chunk_valid(chunk) || !kvi_linear_shape(chunk))
		return KVARC_PROG;
	if (!only_z && !kvi_linear_sources(chunk))
		return KVARC_DATA;
	if (only_z && !chunk->features->z)
		return KVARC_OK;
	struct kvi_chunk some = *chunk;
	struct linear_work w = { .linear.only_z = only_z };
	if (only_z)
		some.features = NULL;
	w.linear.predicts = !only_z && chunk->linear->model->flags & KVI_MODEL_SCALE;
	const uint16_t *e = kvi_coded_elements(c, chunk->dtype, raw, kvi_mask_elements(&all));
	if (!e)
		return kvi_alloc_error(c->alloc);
	kvarc_ret ret = begin(c, &some, &all, &w);
	if (ret)
		return ret;
	if (only_z)
		w.out.z = chunk->features->z;
	to_rows(&w, e);
	apply(&w, NULL, NULL);
	if (!only_z)
		end(&w, chunk);
	return KVARC_OK;
}
