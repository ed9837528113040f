/* SPDX-License-Identifier: BSD-3-Clause */
/* vq.c - the codec vq: scaled heads as indices of codebooks (spec vq) */
#include "codecs/vq/vq.h"

#include "codecs/lossy/quantiser_scales.h"

enum { SPARE_WORDS = 64, RATE_MAX = 4, TABLE_COST = 32 };

/* Parameters without values; NULL: no memory. */
static struct kvi_vq_params *params_new(const struct kvi_alloc *alloc,
                                        const struct kvi_chunk *shape, unsigned dim, unsigned parts,
                                        unsigned stages)
{
	const size_t tables = (size_t)parts * stages, freqs = tables * KVI_BYTE_SYMBOLS;
	const size_t book = tables * KVI_VQ_ENTRIES * dim;
	struct kvi_vq_params *p;
	p = kvi_params_new(alloc, KVI_CODEC_VQ, shape,
	                   sizeof *p + freqs * sizeof *p->freqs.freq + book,
	                   tables * TABLE_COST + book + freqs);
	if (!p)
		return NULL;
	p->dim = dim;
	p->parts = parts;
	p->stages = stages;
	p->freqs = (struct kvi_freqs){ (unsigned)tables, KVI_BYTE_SYMBOLS,
		                       (uint16_t *)(void *)(p + 1) };
	p->book = (int8_t *)(p->freqs.freq + freqs);
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
	struct kvi_vq_params *p = params_new(alloc, shape, dim, parts, stages);
	if (!p)
		return kvi_alloc_error(alloc);
	for (unsigned i = 0; i < p->freqs.n && good; i++) {
		const size_t bytes = (size_t)KVI_VQ_ENTRIES * dim;
		const uint8_t *book = kvi_get_bytes(in, bytes);
		good = book && kvi_freq_get(in, KVI_BYTE_SYMBOLS,
		                            p->freqs.freq + (size_t)i * KVI_BYTE_SYMBOLS);
		if (good)
			memcpy(kvi_vq_book(p, i), book, bytes);
	}
	if (good)
		*out = &p->common;
	else
		kvi_params_free(&p->common);
	return good ? KVARC_OK : KVARC_DATA;
}

static void serialise(const struct kvi_params *p, struct kvi_out *out)
{
	const struct kvi_vq_params *v = kvi_vq_params_of(p);
	kvi_put8(out, (uint8_t)v->dim);
	kvi_put8(out, (uint8_t)v->parts);
	kvi_put8(out, (uint8_t)v->stages);
	for (unsigned i = 0; i < v->freqs.n; i++) {
		kvi_put_bytes(out, kvi_vq_book(v, i), (size_t)KVI_VQ_ENTRIES * v->dim);
		kvi_freq_put(v->freqs.freq + (size_t)i * KVI_BYTE_SYMBOLS, KVI_BYTE_SYMBOLS, out);
	}
}

/* A chunk's indices and numbers. */
struct vq_work {
	const struct kvi_coder_job *job;
	const struct kvi_vq_params *v;
	size_t C, size, vectors; /* of a token: channels; of a head */
	struct kvi_lanes lanes;  /* of the stream */
	uint8_t *index, *table;  /* token-major; the table of each column */
	uint16_t *scales;
	float *x, *vector; /* of a token: numbers; as vectors */
};

/* Which table a column has. */
static unsigned table_of(const struct vq_work *w, size_t vector, size_t stage)
{
	return (unsigned)(vector % w->v->parts * w->v->stages + stage);
}

static kvarc_ret open_work(struct vq_work *w, struct kvi_coder *c, const struct kvi_coder_job *job)
{
	const struct kvi_chunk *chunk = job->chunk;
	const struct kvi_vq_params *v = kvi_vq_params_of(job->params);
	const size_t T = chunk->n_tokens, dim = v->dim;
	*w = (struct vq_work){ .job = job, .v = v };
	w->C = kvi_chunk_channels(chunk);
	w->size = kvarc_dtype_bytes(chunk->dtype);
	w->vectors = (chunk->head_channels + dim - 1) / dim;
	w->lanes = (struct kvi_lanes){ c->kernels, T, chunk->heads * w->vectors * v->stages };
	/* C is at most 2^20 and T 256: no overflow. */
	size_t padded = chunk->heads * w->vectors * dim;
	w->x = kvi_scratch(c, KVI_SCRATCH_COEFFICIENTS,
	                   (w->C + padded) * sizeof *w->x + T * chunk->heads * sizeof *w->scales);
	w->index = kvi_scratch(c, KVI_SCRATCH_CODES, T * w->lanes.channels);
	w->table = kvi_scratch(c, KVI_SCRATCH_CHANNELS, w->lanes.channels);
	if (!w->x || !w->index || !w->table)
		return kvi_alloc_error(c->alloc);
	for (size_t i = 0; i < w->lanes.channels; i++)
		w->table[i] = (uint8_t)table_of(w, i / v->stages % w->vectors, i % v->stages);
	w->vector = w->x + w->C;
	w->scales = (uint16_t *)(void *)(w->vector + padded);
	return KVARC_OK;
}

/* A token's elements (spec vq 3). */
static void restore(struct vq_work *w, size_t t)
{
	const struct kvi_chunk *chunk = w->job->chunk;
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

static kvarc_ret decode(struct kvi_coder *c, const struct kvi_coder_job *job, struct kvi_in *in)
{
	struct vq_work w;
	kvarc_ret ret = open_work(&w, c, job);
	if (!ret)
		ret = kvi_scales_get(c, in, (size_t)job->chunk->n_tokens * job->chunk->heads,
		                     w.scales);
	if (!ret)
		ret = kvi_byte_stream_get(c, &w.lanes, &w.v->freqs, w.table, in, w.index);
	for (size_t t = 0; t < job->chunk->n_tokens && !ret; t++)
		restore(&w, t);
	return ret;
}

/* Encoding. */

static kvarc_ret put_stream(struct kvi_coder *c, struct vq_work *w, struct kvi_payload *out)
{
	const size_t words = KVI_BYTE_WORDS * w->lanes.rows * w->lanes.channels + SPARE_WORDS;
	out->words = kvi_scratch_end(c, KVI_SCRATCH_OUT, KVI_STREAM_HEAD + 2 * words);
	kvarc_ret ret = out->words ? kvi_byte_stream_put(c, &w->lanes, &w->v->freqs, w->table,
	                                                 w->index, out)
	                           : kvi_alloc_error(c->alloc);
	if (!ret)
		kvi_put_bytes(out->body, out->begin, (size_t)(out->end - out->begin));
	return ret;
}

/* Whether the error of a decoded token is within the bound of the fallback. */
static bool near(const struct vq_work *w, size_t t, const float *was)
{
	const double most = w->job->tier->params.vq.fallback / 1000.0;
	double error = 0, size = 0;
	kvi_floats_exact(w->job->chunk->dtype, w->job->decoded + t * w->C * w->size, w->C, w->x);
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
	const struct kvi_chunk *chunk = w->job->chunk;
	const struct kvi_vq_params *v = w->v;
	uint8_t *index = w->index + t * w->lanes.channels;
	float *x = w->vector;
	kvi_floats_exact(chunk->dtype, w->job->packed + t * w->C * w->size, w->C, was);
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

static kvarc_ret encode(struct kvi_coder *c, const struct kvi_coder_job *job,
                        struct kvi_payload *out)
{
	struct vq_work w;
	kvarc_ret ret = open_work(&w, c, job);
	if (ret)
		return ret;
	const size_t tables = w.v->freqs.n;
	struct kvi_vq_search *books = kvi_scratch(c, KVI_SCRATCH_FIT,
	                                          tables * sizeof *books + w.C * sizeof(float));
	if (!books)
		return kvi_alloc_error(c->alloc);
	float *was = (float *)(void *)(books + tables);
	for (unsigned i = 0; i < tables; i++)
		kvi_vq_search_book(&books[i], kvi_vq_book(w.v, i), w.v->dim);
	for (size_t t = 0; t < job->chunk->n_tokens; t++) {
		job->refused[t] = !quantise(&w, books, t, was);
		out->refused = out->refused || job->refused[t];
	}
	if (out->refused)
		return KVARC_OK;
	ret = kvi_scales_put(c, w.scales, (size_t)job->chunk->n_tokens * job->chunk->heads,
	                     out->body);
	return ret ? ret : put_stream(c, &w, out);
}

/* Vectors of 8 up to three bits, of 2 for four; or the halves of 8. */
static kvarc_ret fit(struct kvi_coder *c, const struct kvi_coder_job *job, struct kvi_params **out)
{
	const int rate = kvi_lossy_bits(job->tier, job->chunk);
	bool product = job->tier->flags & KVARC_LOSSY_PRODUCT;
	unsigned dim = product ? 4 : rate == RATE_MAX ? 2 : 8;
	unsigned stages = product || rate == RATE_MAX ? 1 : (unsigned)rate;
	struct kvi_vq_params *p = params_new(c->alloc, job->chunk, dim, product ? 2 : 1, stages);
	if (!p)
		return kvi_alloc_error(c->alloc);
	kvarc_ret ret = kvi_vq_fit(c, job, p);
	if (ret)
		kvi_params_free(&p->common);
	else
		*out = &p->common;
	return ret;
}

const struct kvi_codec kvi_codec_vq = {
	.takes = KVI_TAKES_FLOATS,
	.parse = parse,
	.serialise = serialise,
	.fit = fit,
	.encode = encode,
	.decode = decode,
};
