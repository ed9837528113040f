/* SPDX-License-Identifier: BSD-3-Clause */
/* linear_codec.c - codecs linear and model: predicted by a tensor's linear model in a profile (spec
 * linear, model) */
#include "codecs/coder.h"

/* Most words that an element takes in a stream; bytes of the check of the codec model. */
enum { LINEAR_WORDS = 3, CHECK_BYTES = 8 };

/* A chunk with its model at work. */
struct linear_work {
	struct kvi_linear linear;
	struct kvi_features out;
	const struct kvi_mask *mask;
	uint32_t *row, *by_channel; /* row of each slot; rows of the channels of a head */
	uint16_t *x;                /* elements of each part row after row, full steps before the
	                             * last one */
	bool in_order;              /* rows are in slot order */
};

bool kvi_linear_shape(const struct kvi_linear_in *in, const struct kvi_chunk *chunk)
{
	const struct kvi_model *m = in ? in->model : NULL;
	return m && kvi_float_format(chunk->dtype) && in->dtype == chunk->dtype &&
	       in->n_tokens == chunk->n_tokens && m->heads == chunk->heads &&
	       m->head_channels == chunk->head_channels &&
	       (!m->rotary || (in->rope && in->positions && in->rope->rotary == m->rotary));
}

static bool usable(const struct kvi_features *features, const struct kvi_linear_in *in)
{
	return features && features->n_tokens == in->n_tokens;
}

bool kvi_linear_sources(const struct kvi_linear_in *in)
{
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
static kvarc_ret begin(struct kvi_coder *coder, const struct kvi_linear_io *linear,
                       const struct kvi_mask *mask, struct linear_work *w)
{
	const struct kvi_linear_in *in = linear->in;
	const struct kvi_model *m = in->model;
	size_t tokens = kvi_padded_tokens(in->n_tokens);
	size_t rows = aligned((mask->C + m->head_channels) * sizeof *w->row);
	size_t model = aligned(kvi_linear_bytes(in));
	size_t r = m->heads * kvi_head_stride(m) * tokens * sizeof *w->out.r;
	size_t own = linear->features ? 0 : r + tokens * sizeof *w->out.w;
	uint8_t *memory = kvi_scratch(coder, KVI_SCRATCH_LINEAR, rows + model + own);
	w->x = kvi_scratch(coder, KVI_SCRATCH_SLOTS, mask->C * in->n_tokens * sizeof *w->x);
	if (!memory || !w->x)
		return kvi_alloc_error(coder->alloc);
	w->mask = mask;
	w->row = (uint32_t *)(void *)memory;
	w->by_channel = w->row + mask->C;
	w->linear.in = in;
	w->linear.kernels = coder->kernels;
	w->linear.tables = &coder->grid;
	w->linear.out = &w->out;
	if (m->rotary &&
	    !(w->linear.turns = kvi_coder_rotations(coder, in->rope, in->positions, in->n_tokens)))
		return kvi_alloc_error(coder->alloc);
	memory += rows + model;
	if (linear->features)
		w->out = *linear->features;
	else
		w->out = (struct kvi_features){ .r = (int16_t *)(void *)memory,
			                        .w = (uint32_t *)(void *)(memory + r) };
	if (w->out.has_z)
		w->out.z = NULL;
	kvi_linear_begin(&w->linear, memory - model);
	place_rows(w);
	return KVARC_OK;
}

/* Finishes the chunk's features after the last slot. */
static void end(const struct linear_work *w, struct kvi_features *features)
{
	if (!features)
		return;
	features->n = w->out.n;
	if (w->linear.in->expected)
		features->expected_hash = kvi_expected_hash(w->linear.in);
}

/* Tokens of a part that are in full steps. */
static size_t full_of(const struct kvi_stream_part *part)
{
	return part->rows / KVI_LANES * KVI_LANES;
}

static struct kvi_stream_part all_tokens(const struct linear_work *w)
{
	return (struct kvi_stream_part){ 0, w->mask->T };
}

/* The block of a part's full steps; `apply` changes it into the block of the last step. */
static struct kvi_linear_block block_of(const struct linear_work *w,
                                        const struct kvi_stream_part *part)
{
	return (struct kvi_linear_block){
		.first = part->first,
		.steps = full_of(part) / KVI_LANES,
		.lanes = KVI_LANES,
		.x = w->x + w->mask->C * part->first,
		.row = w->row,
		.n_coded = w->mask->channels,
		.part_shift = KVI_ONE_STREAM,
	};
}

/* A part, with contexts to ctx or elements from reader. */
static bool apply(const struct linear_work *w, const struct kvi_stream_part *part, uint32_t *ctx,
                  struct kvi_slot_reader *reader)
{
	const size_t full = full_of(part);
	struct kvi_linear_block b = block_of(w, part);
	b.reader = reader;
	b.ctx = ctx;
	if (b.steps && !kvi_linear_apply(&w->linear, &b))
		return false;
	b.x += w->mask->C * full;
	if (ctx)
		b.ctx += w->mask->channels * full;
	b.first += full;
	b.steps = 1;
	b.lanes = (unsigned)(part->rows - full);
	return !b.lanes || kvi_linear_apply(&w->linear, &b);
}

/* Token-major elements of a part into its rows. */
static void to_rows(const struct linear_work *w, const struct kvi_stream_part *part,
                    const uint16_t *e)
{
	const size_t n = w->mask->channels, full = full_of(part);
	const struct kvi_kernels *k = w->linear.kernels;
	uint16_t *x = w->x + w->mask->C * part->first;
	e += n * part->first;
	k->moves.transpose16(x, e, full, n);
	k->moves.transpose16(x + w->mask->C * full, e + n * full, part->rows - full, n);
}

/* The inverse of to_rows. */
static void from_rows(const struct linear_work *w, const struct kvi_stream_part *part, uint16_t *e)
{
	const size_t n = w->mask->channels, full = full_of(part);
	const struct kvi_kernels *k = w->linear.kernels;
	const uint16_t *x = w->x + w->mask->C * part->first;
	e += n * part->first;
	k->moves.transpose16(e, x, n, full);
	k->moves.transpose16(e + n * full, x + w->mask->C * full, n, part->rows - full);
}

static void fill(uint16_t *to, size_t n, uint16_t v)
{
	for (size_t i = 0; i < n; i++)
		to[i] = v;
}

/* The rows of constant channels. */
static void constant_rows(const struct linear_work *w, const struct kvi_stream_part *part)
{
	const struct kvi_mask *m = w->mask;
	const uint8_t *v = m->channel_values;
	const size_t full = full_of(part), lanes = part->rows - full;
	uint16_t *x = w->x + m->C * part->first;
	for (size_t c = m->channels; c < m->C; c++, v += m->size) {
		uint16_t e = m->size == 1 ? *v : m->size == 2 ? kvi_load16(v) : kvi_load16(v + 2);
		fill(x + c * full, full, e);
		fill(x + m->C * full + c * lanes, lanes, e);
	}
}

/* An encoder's elements and contexts of all tokens, and buffers for parts of them. */
struct linear_source {
	const struct linear_work *w;
	const struct kvi_grid_format *fmt;
	const uint32_t *ctx;
	uint32_t *part_ctx;
	uint16_t *part_x;
};

/* Elements and contexts of `rows` tokens in slot order; from: the first of them in a matrix of
 * rows of `stride` tokens. */
static void gather(const struct linear_source *source, const uint16_t *x, const uint32_t *ctx,
                   size_t stride, size_t rows, size_t at)
{
	const size_t n = source->w->mask->channels, C = source->w->mask->C;
	for (size_t slot = 0; slot < C; slot++) {
		const size_t row = source->w->row[slot];
		if (row >= n)
			continue;
		memcpy(source->part_x + at, x + row * stride, rows * sizeof *x);
		memcpy(source->part_ctx + at, ctx, rows * sizeof *ctx);
		ctx += stride;
		at += rows;
	}
}

/* A part for the kernels of the grid codec, in memory of its own; returns its elements. */
static const uint16_t *part_job(const struct linear_source *source,
                                const struct kvi_stream_part *part, struct kvi_grid_job *job)
{
	const struct kvi_mask *m = source->w->mask;
	const struct kvi_stream_part all = all_tokens(source->w);
	const size_t whole = full_of(&all), full = full_of(part), lanes = part->rows - full;
	const bool as_it_is = part->rows == m->T && source->w->in_order;
	const size_t at = m->channels * part->first;
	const uint32_t *ctx = as_it_is ? source->ctx : source->part_ctx + at;
	if (!as_it_is) {
		gather(source, source->w->x + part->first, source->ctx + part->first, whole, full,
		       at);
		gather(source, source->w->x + m->C * whole, source->ctx + m->channels * whole,
		       m->T - whole, lanes, at + m->channels * full);
	}
	*job = (struct kvi_grid_job){
		.steps = { full / KVI_LANES * m->channels, lanes ? m->channels : 0,
		           (unsigned)lanes },
		.fmt = source->fmt,
		.tables = source->w->linear.tables,
		.ctx = ctx,
		.ctx_tail = ctx + m->channels * full,
	};
	job->ctx_steps = job->steps.full_steps ? job->steps.full_steps : 1;
	return as_it_is ? source->w->x : source->part_x + at;
}

static size_t encode_part(void *opaque, const struct kvi_stream_part *part, uint16_t *end,
                          uint32_t state[KVI_LANES])
{
	const struct linear_source *s = opaque;
	struct kvi_grid_job g;
	const uint16_t *x = part_job(s, part, &g);
	return s->w->linear.kernels->coding.grid_encode(&g, x, end, state);
}

static void encode_two(void *opaque, const struct kvi_stream_part part[2], uint16_t *const end[2],
                       size_t n[2], uint32_t *const state[2])
{
	const struct linear_source *s = opaque;
	struct kvi_grid_job g[2];
	const uint16_t *const x[2] = { part_job(s, &part[0], &g[0]), part_job(s, &part[1], &g[1]) };
	s->w->linear.kernels->coding.grid_encode2(
		(const struct kvi_grid_job *const[2]){ &g[0], &g[1] }, x, end, n, state);
}

/* Whether the model fits, by the scale that adapts to the tokens: W / N is then about 13. */
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

/* Streams and planes, once contexts are known. */
static kvarc_ret put(struct kvi_coder *coder, const struct kvi_coder_job *job,
                     struct linear_source *source, struct kvi_payload *out)
{
	const size_t n = kvi_mask_elements(&job->mask);
	source->part_ctx = kvi_scratch(coder, KVI_SCRATCH_PLANE,
	                               n * (sizeof *source->ctx + sizeof *source->part_x));
	if (!source->part_ctx)
		return kvi_alloc_error(coder->alloc);
	source->part_x = (uint16_t *)(void *)(source->part_ctx + n);
	out->end = kvi_coded_planes(coder, job->chunk->dtype, job->packed, n, out->words);
	const struct kvi_streams_encoder e = {
		.opaque = source,
		.part = encode_part,
		.two = coder->kernels->coding.grid_encode2 ? encode_two : NULL,
		.trial = KVI_LANES,
		.token_words = LINEAR_WORDS * job->mask.channels,
		.plane_bytes = (size_t)(out->end - out->words),
	};
	out->streams.rows = job->mask.rows;
	out->begin = kvi_streams_encode(coder->pool, &out->streams, &e, out->words);
	return KVARC_OK;
}

static kvarc_ret encode(struct kvi_coder *coder, const struct kvi_coder_job *job,
                        struct kvi_payload *out)
{
	const struct kvi_mask *m = &job->mask;
	size_t n = kvi_mask_elements(m);
	unsigned dtype = job->chunk->dtype;
	struct linear_work w = { .linear.predicts = true };
	const uint16_t *e = kvi_coded_elements(coder, dtype, job->packed, n);
	uint32_t *ctx = kvi_scratch(coder, KVI_SCRATCH_CONTEXT, n * sizeof *ctx);
	if (!e || !ctx)
		return kvi_alloc_error(coder->alloc);
	kvarc_ret ret = begin(coder, &job->linear, m, &w);
	if (ret)
		return ret;
	const struct kvi_stream_part all = all_tokens(&w);
	to_rows(&w, &all, e);
	constant_rows(&w, &all);
	apply(&w, &all, ctx, NULL);
	end(&w, job->linear.features);
	if (job->linear.features && job->request->made)
		job->request->made(job->request->made_opaque);
	out->expected = as_expected(&w);
	struct linear_source s = { &w, &kvi_float_format(dtype)->grid, ctx, NULL, NULL };
	return put(coder, job, &s, out);
}

/* A chunk whose streams are decoded. */
struct linear_decoder {
	struct linear_work w;
	const struct kvi_coder_job *job;
	struct kvi_coded_planes planes;
	uint16_t *elements;
	uint32_t n; /* N of spec linear 4, which is the same for all parts */
};

/* The work on the tokens from `first` on alone: sums of other tokens are left to others. */
static void begin_part(const struct linear_work *w, size_t first, struct linear_work *part)
{
	*part = *w;
	part->linear.out = &part->out;
	part->linear.below += KVI_STRETCH * first;
	part->linear.sum += KVI_PANEL * first;
	part->linear.table += KVI_PANEL * first;
}

/* Streams of one size step by step together: so a coefficient is loaded once for all tokens, and
 * steps of different streams do not wait for each other. Then what the last one has less. */
static bool decode_together(const struct linear_work *w, const struct kvi_streams *streams,
                            const struct kvi_streams_in *in, unsigned first, unsigned n)
{
	struct kvi_slot_reader reader[KVI_STREAMS_MAX];
	const size_t from = kvi_stream_first(streams, first),
		     rows = kvi_stream_first(streams, first + n) - from;
	const size_t whole = rows / streams->tokens;
	const struct kvi_stream_part equal = { from, whole * streams->tokens };
	const struct kvi_stream_part rest = { from + equal.rows, rows - equal.rows };
	for (unsigned i = 0; i < n; i++) {
		const struct kvi_stream_part p = kvi_stream_part_of(streams, first + i);
		memcpy(reader[i].state, in->stream[first + i].state, sizeof reader[i].state);
		reader[i].words = kvi_words_begin(&in->stream[first + i]);
		constant_rows(w, &p);
	}
	struct kvi_linear_block b = block_of(w, &equal);
	b.reader = reader;
	b.part_shift = streams->size;
	b.x_part = w->mask->C * streams->tokens;
	bool ok = !whole || kvi_linear_apply(&w->linear, &b);
	ok = ok && (!rest.rows || apply(w, &rest, NULL, &reader[whole]));
	for (unsigned i = 0; i < n && ok; i++)
		ok = kvi_stream_done(reader[i].state, &reader[i].words);
	return ok;
}

static bool decode_some(void *opaque, unsigned first, unsigned n)
{
	struct linear_decoder *d = opaque;
	const struct kvi_coder_job *job = d->job;
	const size_t C = job->mask.channels;
	struct linear_work part;
	begin_part(&d->w, kvi_stream_first(&job->streams, first), &part);
	if (!decode_together(&part, &job->streams, job->streams_in, first, n))
		return false;
	if (first == job->streams_in->first)
		d->n = part.out.n;
	for (unsigned i = first; i < first + n; i++) {
		const struct kvi_stream_part p = kvi_stream_part_of(&job->streams, i);
		from_rows(&part, &p, d->elements);
		kvi_coded_place(job->chunk->dtype, d->elements, &d->planes, p.first * C, p.rows * C,
		                job->decoded);
	}
	return true;
}

static kvarc_ret decode(struct kvi_coder *coder, const struct kvi_coder_job *job, struct kvi_in *in)
{
	const size_t n = kvi_mask_elements(&job->mask);
	const unsigned dtype = job->chunk->dtype;
	const struct kvi_linear_in *from = job->linear.in;
	struct linear_decoder x = { .w.linear.predicts = true, .job = job };
	/* The workers of upper layers wait for this chunk, and so can help, where layers depend on
	 * each other. */
	const bool chained = from->model->n_lower && !from->expected;
	const struct kvi_streams_decoder d = {
		.opaque = &x,
		.some = decode_some,
		.most = KVI_STREAMS_MAX,
		.helpers = chained ? job->helpers : 0,
	};
	x.elements = kvi_coded_buffer(coder, dtype, job->decoded, n);
	if (!x.elements || !kvi_grid_decodes(coder))
		return kvi_alloc_error(coder->alloc);
	kvarc_ret ret = begin(coder, &job->linear, &job->mask, &x.w);
	if (!ret)
		ret = kvi_coded_planes_get(coder, dtype, n, in, &x.planes);
	if (!ret)
		ret = kvi_streams_decode(coder, job, &d);
	x.w.out.n = x.n;
	if (!ret)
		end(&x.w, job->linear.features);
	return ret;
}

const struct kvi_codec kvi_codec_linear = {
	.takes = KVI_TAKES_FLOATS,
	.words_each = LINEAR_WORDS,
	.n_planes = kvi_coded_n_planes,
	.encode = encode,
	.decode = decode,
};

/* The check of the predicted means (spec model 4). */
static void put_check(const struct kvi_coder_job *job, const struct kvi_payload *out, uint8_t *to)
{
	(void)out;
	kvi_store64(to, kvi_expected_check(job->linear.in));
}

/* Whether the predicted means are those that the writer had. */
static kvarc_ret get_check(struct kvi_coder_job *job, struct kvi_in *in)
{
	uint64_t check = kvi_get64(in);
	if (in->bad)
		return KVARC_DATA;
	return check == kvi_expected_check(job->linear.in) ? KVARC_OK : KVARC_PREDICTOR;
}

const struct kvi_codec kvi_codec_model = {
	.takes = KVI_TAKES_FLOATS,
	.head_bytes = CHECK_BYTES,
	.put_head = put_check,
	.get_head = get_check,
	.words_each = LINEAR_WORDS,
	.n_planes = kvi_coded_n_planes,
	.encode = encode,
	.decode = decode,
};

/* The wanted ones of n tokens, in whole steps. */
static struct kvi_stream_part wanted_steps(struct kvi_tokens wanted, size_t n)
{
	const size_t to = kvi_padded_tokens(wanted.end);
	const size_t first = wanted.first / KVI_LANES * KVI_LANES;
	return (struct kvi_stream_part){ first, (to && to < n ? to : n) - first };
}

kvarc_ret kvi_chunk_features(struct kvi_coder *coder, const struct kvi_chunk *chunk,
                             const struct kvi_linear_io *linear, struct kvi_tokens wanted,
                             const uint8_t *raw, bool only_z)
{
	struct kvi_mask all = { .T = chunk->n_tokens, .C = kvi_chunk_channels(chunk) };
	all.rows = all.T;
	all.channels = all.C;
	if (!kvi_chunk_valid(chunk) || !kvi_linear_shape(linear->in, chunk))
		return KVARC_PROG;
	if (!only_z && !kvi_linear_sources(linear->in))
		return KVARC_DATA;
	if (only_z && !linear->features->z)
		return KVARC_OK;
	const struct kvi_linear_io io = { linear->in, only_z ? NULL : linear->features };
	struct linear_work w = { .linear.only_z = only_z };
	w.linear.predicts = !only_z && linear->in->model->flags & KVI_MODEL_SCALE;
	const uint16_t *e = kvi_coded_elements(coder, chunk->dtype, raw, kvi_mask_elements(&all));
	if (!e)
		return kvi_alloc_error(coder->alloc);
	kvarc_ret ret = begin(coder, &io, &all, &w);
	if (ret)
		return ret;
	if (only_z)
		w.out.z = linear->features->z;
	const struct kvi_stream_part tokens = wanted_steps(wanted, chunk->n_tokens);
	to_rows(&w, &tokens, e);
	apply(&w, &tokens, NULL, NULL);
	end(&w, io.features);
	return KVARC_OK;
}
