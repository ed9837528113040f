/* SPDX-License-Identifier: BSD-3-Clause */
/* vq.c - codec 12: scaled heads as indices of codebooks (spec vq) */
#include "codecs/vq/vq.h"

#include "codecs/lossy/quantiser_scales.h"

enum {
	ENC_STRIDE = 512,
	ESCAPE = KVI_BYTE_SYMBOLS - 1,
	WORDS_EACH = 2,
	SPARE_WORDS = 64,
	RATE_UNIT = 16,
	RATE_MIN = 1,
	RATE_MAX = 4
};

struct kvi_params *kvi_vq_params_new(const struct kvi_alloc *alloc, const struct kvi_chunk *shape,
                                     unsigned dim, unsigned parts, unsigned stages)
{
	unsigned tables = parts * stages;
	size_t freq = (size_t)tables * KVI_BYTE_SYMBOLS * sizeof(uint16_t);
	size_t book = (size_t)tables * KVI_VQ_ENTRIES * dim;
	struct kvi_vq_params *v;
	struct kvi_params *p = kvi_calloc(alloc, 1, sizeof *p + sizeof *v + freq + book);
	if (!p)
		return NULL;
	v = (struct kvi_vq_params *)(void *)(p + 1);
	p->alloc = alloc;
	p->codec = KVI_CODEC_VQ;
	p->dtype = shape->dtype;
	p->heads = shape->heads;
	p->head_channels = shape->head_channels;
	p->n_tables = tables;
	p->books = book + (size_t)tables * KVI_BYTE_SYMBOLS;
	p->freq = (uint16_t *)(void *)(v + 1);
	p->vq = v;
	*v = (struct kvi_vq_params){ dim, parts, stages,
		                     (int8_t *)(p->freq + (size_t)tables * KVI_BYTE_SYMBOLS) };
	return p;
}

static kvarc_ret parse(const struct kvi_alloc *alloc, const struct kvi_chunk *shape,
                       struct kvi_in *in, struct kvi_params **out)
{
	unsigned dim = kvi_get8(in), parts = kvi_get8(in), stages = kvi_get8(in);
	bool good = (dim == 2 || dim == 4 || dim == 8) && parts >= 1 &&
	            parts <= KVI_VQ_DIM_MAX / dim && stages >= 1 && stages <= KVI_VQ_STAGES_MAX;
	if (in->bad || !good)
		return KVARC_DATA;
	struct kvi_params *p = kvi_vq_params_new(alloc, shape, dim, parts, stages);
	if (!p)
		return kvi_alloc_error(alloc);
	for (unsigned i = 0; i < p->n_tables && good; i++) {
		const size_t bytes = (size_t)KVI_VQ_ENTRIES * dim;
		const uint8_t *book = kvi_get_bytes(in, bytes);
		good = book && kvi_params_get_table(in, KVI_BYTE_SYMBOLS,
		                                    p->freq + (size_t)i * KVI_BYTE_SYMBOLS);
		if (good)
			memcpy(kvi_vq_book(p->vq, i), book, bytes);
	}
	if (good)
		*out = p;
	else
		kvi_params_free(p);
	return good ? KVARC_OK : KVARC_DATA;
}

static void serialise(const struct kvi_params *p, struct kvi_out *out)
{
	const struct kvi_vq_params *v = p->vq;
	kvi_put8(out, (uint8_t)v->dim);
	kvi_put8(out, (uint8_t)v->parts);
	kvi_put8(out, (uint8_t)v->stages);
	for (unsigned i = 0; i < p->n_tables; i++) {
		kvi_put_bytes(out, kvi_vq_book(v, i), (size_t)KVI_VQ_ENTRIES * v->dim);
		for (size_t s = 0; s < KVI_BYTE_SYMBOLS; s++)
			kvi_put_varint(out, p->freq[i * KVI_BYTE_SYMBOLS + s]);
	}
}

/* A chunk's indices and numbers. */
struct vq_work {
	const struct kvi_lossy_job *job;
	const struct kvi_vq_params *v;
	size_t C, size, vectors; /* of a token: channels; of a head */
	struct kvi_lanes lanes;  /* of the stream */
	uint8_t *index, *stream; /* tokens first; in stream order */
	uint16_t *scales;
	float *x, *vector; /* of a token: numbers; as vectors */
};

static kvarc_ret open_work(struct vq_work *w, struct kvi_coder *c, const struct kvi_lossy_job *job)
{
	const struct kvi_chunk *chunk = &job->chunk;
	const struct kvi_vq_params *v = job->params->vq;
	const size_t T = chunk->n_tokens, dim = v->dim;
	*w = (struct vq_work){ .job = job, .v = v };
	w->C = kvi_chunk_channels(chunk);
	w->size = kvarc_dtype_bytes(chunk->dtype);
	w->vectors = (chunk->head_channels + dim - 1) / dim;
	w->lanes = (struct kvi_lanes){ c->kernels, T, chunk->heads * w->vectors * v->stages,
		                       job->lane_order };
	/* C is at most 2^20 and T 256: no overflow. */
	size_t padded = chunk->heads * w->vectors * dim;
	w->x = kvi_scratch(c, KVI_SCRATCH_COEFFICIENTS,
	                   (w->C + padded) * sizeof *w->x + T * chunk->heads * sizeof *w->scales);
	w->index = kvi_scratch(c, KVI_SCRATCH_CODES, 2 * T * w->lanes.channels);
	if (!w->x || !w->index)
		return kvi_alloc_error(c->alloc);
	w->stream = w->index + T * w->lanes.channels;
	w->vector = w->x + w->C;
	w->scales = (uint16_t *)(void *)(w->vector + padded);
	return KVARC_OK;
}

/* Which table a column has. */
static unsigned table_of(const struct vq_work *w, size_t vector, size_t stage)
{
	return (unsigned)(vector % w->v->parts * w->v->stages + stage);
}

/* A token's elements (spec vq 3). */
static void restore(struct vq_work *w, size_t t)
{
	const struct kvi_chunk *chunk = &w->job->chunk;
	const struct kvi_vq_params *v = w->v;
	const uint8_t *index = w->index + t * w->lanes.channels;
	const size_t hc = chunk->head_channels;
	float *x = w->x;
	for (size_t h = 0; h < chunk->heads; h++) {
		const float scale = kvi_scale_value(w->scales[t * chunk->heads + h]);
		for (size_t i = 0; i < w->vectors; i++, index += v->stages) {
			int z[KVI_VQ_DIM_MAX] = { 0 };
			for (unsigned s = 0; s < v->stages; s++) {
				const int8_t *entry = kvi_vq_book(v, table_of(w, i, s)) +
				                      index[s] * v->dim;
				for (unsigned d = 0; d < v->dim; d++)
					z[d] += entry[d];
			}
			for (unsigned d = 0; d < v->dim && i * v->dim + d < hc; d++)
				*x++ = ((float)z[d] * (1.0f / KVI_VQ_UNIT)) * scale;
		}
	}
	kvi_lossy_store(chunk->dtype, w->x, w->C, w->job->decoded + t * w->C * w->size);
}

/* What the coder is to do with a stream. */
static bool make_job(struct kvi_coder *c, const struct vq_work *w, bool decoding,
                     struct kvi_sym_job *s)
{
	const size_t columns = w->lanes.channels;
	uint8_t *table = kvi_scratch(c, KVI_SCRATCH_CHANNELS, columns);
	uint8_t *room = kvi_scratch(c, KVI_SCRATCH_CONTEXT, kvi_ring_capacity(&w->lanes));
	if (!table || !room)
		return false;
	for (size_t i = 0; i < columns; i++)
		table[i] = (uint8_t)table_of(w, i / w->v->stages % w->vectors, i % w->v->stages);
	struct kvi_ring8 tab = kvi_ring8_make(&w->lanes, table, room);
	*s = (struct kvi_sym_job){
		.steps = kvi_lane_steps(&w->lanes),
		.tables = kvi_params_tables(c, w->job->params, KVI_BYTE_SYMBOLS, ENC_STRIDE,
		                            decoding),
		.tab = tab.full,
		.tab_tail = tab.tail,
		.tab_steps = tab.steps,
		.escape = ESCAPE,
		.per_step = w->lanes.order == KVI_LANES_TOKENS,
	};
	return s->tables != NULL;
}

static kvarc_ret get_stream(struct kvi_coder *c, struct vq_work *w, struct kvi_in *in)
{
	const size_t n = w->lanes.rows * w->lanes.channels;
	struct kvi_sym_job job;
	struct kvi_stream s;
	if (!kvi_stream_get(in, &s))
		return KVARC_DATA;
	uint16_t *sym = kvi_scratch(c, KVI_SCRATCH_ELEMENTS, 3 * n);
	if (!sym || !make_job(c, w, true, &job))
		return kvi_alloc_error(c->alloc);
	uint8_t *esc = (uint8_t *)(sym + n);
	if (!c->kernels->sym_decode(&job, &s, sym, esc))
		return KVARC_DATA;
	bool tokens = w->lanes.order == KVI_LANES_TOKENS;
	uint8_t *to = tokens ? w->stream : w->index;
	for (size_t i = 0; i < n; i++)
		to[i] = (uint8_t)(sym[i] == ESCAPE ? esc[i] : sym[i]);
	if (tokens)
		kvi_lanes_from8(&w->lanes, to, w->index);
	return KVARC_OK;
}

static kvarc_ret decode(struct kvi_coder *c, const struct kvi_lossy_job *job, struct kvi_in *in)
{
	struct vq_work w;
	kvarc_ret ret = open_work(&w, c, job);
	if (!ret)
		ret = kvi_scales_get(c, in, (size_t)job->chunk.n_tokens * job->chunk.heads,
		                     w.scales);
	if (!ret)
		ret = get_stream(c, &w, in);
	for (size_t t = 0; t < job->chunk.n_tokens && !ret; t++)
		restore(&w, t);
	return ret;
}

/* Encoding. */

static kvarc_ret put_stream(struct kvi_coder *c, struct vq_work *w, struct kvi_out *out)
{
	const size_t n = w->lanes.rows * w->lanes.channels;
	const size_t room = KVI_STREAM_HEAD + 2 * (WORDS_EACH * n + SPARE_WORDS);
	struct kvi_sym_job job;
	uint32_t state[KVI_LANES];
	uint16_t *sym = kvi_scratch(c, KVI_SCRATCH_ELEMENTS, n * sizeof *sym);
	uint8_t *end = kvi_scratch(c, KVI_SCRATCH_OUT, room + 1);
	if (!sym || !end || !make_job(c, w, false, &job))
		return kvi_alloc_error(c->alloc);
	end += room & ~(size_t)1;
	const uint8_t *table = c->scratch[KVI_SCRATCH_CHANNELS].p, *from = w->index;
	if (w->lanes.order == KVI_LANES_TOKENS) {
		kvi_lanes_to8(&w->lanes, w->index, w->stream);
		from = w->stream;
	}
	size_t at = 0;
	for (size_t t = 0; t < w->lanes.rows; t += KVI_LANES) {
		size_t rows = w->lanes.rows - t;
		rows = rows < KVI_LANES ? rows : KVI_LANES;
		for (size_t i = 0; i < rows * w->lanes.channels; i++, at++) {
			size_t column = w->lanes.order == KVI_LANES_TOKENS ? i / rows
			                                                   : i % w->lanes.channels;
			const uint16_t *freq = w->job->params->freq +
			                       (size_t)table[column] * KVI_BYTE_SYMBOLS;
			sym[at] = freq[from[at]] ? from[at] : ESCAPE;
		}
	}
	struct kvi_payload p = { .words = end };
	size_t words = c->kernels->sym_encode(&job, sym, from, (uint16_t *)(void *)end, state);
	kvi_stream_put(&p, words, state);
	kvi_put_bytes(out, p.begin, (size_t)(end - p.begin));
	return KVARC_OK;
}

/* Whether what came back of a token is near enough. */
static bool near(const struct vq_work *w, size_t t, const float *was)
{
	const double most = w->job->tier->fallback / 1000.0;
	double error = 0, size = 0;
	kvi_floats_exact(w->job->chunk.dtype, w->job->decoded + t * w->C * w->size, w->C, w->x);
	for (size_t i = 0; i < w->C; i++) {
		double e = (double)was[i] - (double)w->x[i];
		error = error + e * e;
		size = size + (double)was[i] * (double)was[i];
	}
	return most == 0 || error <= size * (most * most);
}

/* A token's scales and indices; false: it has to stay exact. */
static bool quantise(struct vq_work *w, const struct kvi_vq_search *books, size_t t, float *was)
{
	const struct kvi_chunk *chunk = &w->job->chunk;
	const struct kvi_vq_params *v = w->v;
	uint8_t *index = w->index + t * w->lanes.channels;
	float *x = w->vector;
	kvi_floats_exact(chunk->dtype, w->job->elements + t * w->C * w->size, w->C, was);
	if (!kvi_vq_vectors(chunk, v->dim, was, w->scales + t * chunk->heads, x))
		return false;
	for (size_t i = 0; i < chunk->heads * w->vectors; i++, x += v->dim)
		for (unsigned s = 0; s < v->stages; s++) {
			unsigned table = table_of(w, i % w->vectors, s);
			unsigned k = kvi_vq_nearest(&books[table], x, v->dim);
			for (unsigned d = 0; d < v->dim; d++)
				x[d] = x[d] - books[table].entry[d][k];
			*index++ = (uint8_t)k;
		}
	restore(w, t);
	return near(w, t, was);
}

static kvarc_ret encode(struct kvi_coder *c, const struct kvi_lossy_job *job, struct kvi_out *body,
                        bool *refused)
{
	const size_t tables = job->params->n_tables;
	struct vq_work w;
	kvarc_ret ret = open_work(&w, c, job);
	if (ret)
		return ret;
	struct kvi_vq_search *books = kvi_scratch(c, KVI_SCRATCH_FIT,
	                                          tables * sizeof *books + w.C * sizeof(float));
	if (!books)
		return kvi_alloc_error(c->alloc);
	float *was = (float *)(void *)(books + tables);
	for (unsigned i = 0; i < tables; i++)
		kvi_vq_search_book(&books[i], kvi_vq_book(w.v, i), w.v->dim);
	*refused = false;
	for (size_t t = 0; t < job->chunk.n_tokens; t++) {
		job->refused[t] = !quantise(&w, books, t, was);
		*refused = *refused || job->refused[t];
	}
	if (*refused)
		return KVARC_OK;
	if (!kvi_scales_put(c, w.scales, (size_t)job->chunk.n_tokens * job->chunk.heads, body))
		return kvi_alloc_error(c->alloc);
	return put_stream(c, &w, body);
}

static int rate_of(const kvarc_lossy *tier, const struct kvi_chunk *chunk)
{
	return (tier->rate + (chunk->kind == KVARC_KEY ? tier->key_rate : 0)) / RATE_UNIT;
}

/* Vectors of 8 up to three bits, of 2 for four; or the halves of 8. */
static kvarc_ret fit(struct kvi_coder *c, const struct kvi_lossy_job *job, struct kvi_params **out)
{
	const int rate = rate_of(job->tier, &job->chunk);
	bool product = job->tier->flags & KVARC_LOSSY_PRODUCT;
	unsigned dim = product ? 4 : rate == RATE_MAX ? 2 : 8;
	unsigned stages = product || rate == RATE_MAX ? 1 : (unsigned)rate;
	struct kvi_params *p = kvi_vq_params_new(c->alloc, &job->chunk, dim, product ? 2 : 1,
	                                         stages);
	if (!p)
		return kvi_alloc_error(c->alloc);
	kvarc_ret ret = kvi_vq_fit(c, job, p);
	if (ret)
		kvi_params_free(p);
	else
		*out = p;
	return ret;
}

static bool takes(const kvarc_lossy *tier, const struct kvi_chunk *chunk)
{
	return rate_of(tier, chunk) >= RATE_MIN && rate_of(tier, chunk) <= RATE_MAX &&
	       (chunk->kind == KVARC_KEY || chunk->kind == KVARC_VALUE ||
	        chunk->kind == KVARC_CROSS_KEY || chunk->kind == KVARC_CROSS_VALUE);
}

const struct kvi_lossy_codec kvi_lossy_vq = { parse, serialise, fit, takes, encode, decode };
