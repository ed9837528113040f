/* SPDX-License-Identifier: BSD-3-Clause */
/* vq.c - the codec vq: scaled heads as indices of codebooks */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "codecs/lossy/lossy_codec.h"
#include "codecs/lossy/quantiser_scales.h"
#include "codecs/symbols.h"
#include "codecs/tables_fit.h"

/* ==== Vectors of a token and their nearest codebook entries, for encoders of vq ==== */

/* Sizes and limits of codebooks. */
enum {
	VQ_ENTRIES = 256,
	VQ_DIM_MAX = 8,
	VQ_STAGES_MAX = 3,
	VQ_UNIT = 128 /* the number 1 in units of entries */
};

/* A codebook laid out for a search: entries by dimension, and their squares. */
struct vq_search {
	float entry[VQ_DIM_MAX][VQ_ENTRIES];
	float square[VQ_ENTRIES];
};

enum { BLOCK = 16 };

/* Prepares a search among VQ_ENTRIES vectors of dim numbers. */
static void vq_search_set(struct vq_search *search, const float *from, unsigned dim)
{
	for (size_t k = 0; k < VQ_ENTRIES; k++) {
		float square = 0;
		for (unsigned d = 0; d < dim; d++) {
			float v = from[k * dim + d];
			search->entry[d][k] = v;
			square = square + v * v;
		}
		search->square[k] = square;
	}
}

/* Prepares a search in a codebook. */
static void vq_search_book(struct vq_search *search, const int8_t *book, unsigned dim)
{
	float entries[VQ_ENTRIES * VQ_DIM_MAX];
	for (size_t i = 0; i < (size_t)VQ_ENTRIES * dim; i++)
		entries[i] = book[i];
	vq_search_set(search, entries, dim);
}

/* The entry nearest to x, the first one of several. */
/* |x - e|^2 less |x|^2, which is the same for all. */
static unsigned vq_nearest(const struct vq_search *search, const float *x, unsigned dim)
{
	float far[VQ_ENTRIES];
	float least[BLOCK];
	unsigned best = 0;
	memcpy(far, search->square, sizeof far);
	for (unsigned d = 0; d < dim; d++) {
		const float *entry = search->entry[d], twice = 2 * x[d];
		for (size_t k = 0; k < VQ_ENTRIES; k++)
			far[k] = far[k] - twice * entry[k];
	}
	/* The least distance first, then its index: both loops are fast. */
	memcpy(least, far, sizeof least);
	for (size_t k = BLOCK; k < VQ_ENTRIES; k += BLOCK)
		for (size_t i = 0; i < BLOCK; i++)
			least[i] = far[k + i] < least[i] ? far[k + i] : least[i];
	for (size_t i = 1; i < BLOCK; i++)
		least[0] = least[i] < least[0] ? least[i] : least[0];
	while (best < VQ_ENTRIES - 1 && far[best] != least[0])
		best++;
	return best;
}

/* A token's scales, and its vectors in units of entries, dim numbers per vector and zeros behind
 * the channels of a head. numbers: of the token; false: it has no valid scale. */
static bool vq_vectors(const struct kvi_chunk *chunk, unsigned dim, const float *numbers,
                       uint16_t *scales, float *vectors)
{
	const size_t hc = chunk->head_channels;
	const size_t padded = (hc + dim - 1) / dim * dim;
	for (size_t h = 0; h < chunk->heads; h++, numbers += hc) {
		float largest = 0;
		for (size_t i = 0; i < hc; i++) {
			float size = numbers[i] < 0 ? -numbers[i] : numbers[i];
			largest = size > largest ? size : largest;
		}
		scales[h] = kvi_scale_of(largest);
		if (!scales[h])
			return false;
		const float scale = kvi_scale_value(scales[h]);
		for (size_t i = 0; i < padded; i++)
			*vectors++ = i < hc ? numbers[i] / scale * VQ_UNIT : 0;
	}
	return true;
}

/*
 * ==== Codebooks of the codec vq from the vectors of a chunk: k-means, the same on every machine
 */

/* Parameters of the codec vq. */
struct vq_params {
	struct kvi_params common;
	unsigned dim, parts, stages;
	struct kvi_freqs freqs; /* parts * stages tables of KVI_BYTE_SYMBOLS */
	int8_t *book;           /* codebook of each part and stage: VQ_ENTRIES x dim */
};

/* The codebook of a table. */
static inline int8_t *vq_book(const struct vq_params *params, unsigned table)
{
	return params->book + (size_t)table * VQ_ENTRIES * params->dim;
}

enum {
	SAMPLE = 8192,    /* vectors at most, of a part */
	SAMPLE_MIN = 512, /* fewer never pay for a codebook */
	ROUNDS = 6
};

/* Vectors of one part, and where the fit stands. */
struct means {
	unsigned dim;
	size_t n;
	float *x;      /* n x dim */
	uint32_t *far; /* squared distance of each vector to the nearest centre */
	uint8_t *nearest;
	float *centre; /* VQ_ENTRIES x dim */
	float *sum;
	uint32_t *count;
	struct vq_search *search;
	uint64_t random;
};

static uint64_t draw(struct means *means, uint64_t below)
{
	means->random = means->random * 6364136223846793005u + 1442695040888963407u;
	return (means->random >> 11) % below;
}

static float distance(const float *a, const float *b, unsigned dim)
{
	float sum = 0;
	for (unsigned d = 0; d < dim; d++)
		sum = sum + (a[d] - b[d]) * (a[d] - b[d]);
	return sum;
}

/* k-means++: each new centre is a vector, drawn by its squared distance, a whole number here. */
static void start(struct means *means)
{
	size_t at = draw(means, means->n);
	for (size_t i = 0; i < means->n; i++)
		means->far[i] = UINT32_MAX;
	for (size_t k = 0; k < VQ_ENTRIES; k++) {
		float *centre = means->centre + k * means->dim;
		uint64_t total = 0, r;
		memcpy(centre, means->x + at * means->dim, means->dim * sizeof *centre);
		for (size_t i = 0; i < means->n; i++) {
			/* a sum of at most 8 squares of a few VQ_UNIT: no overflow */
			uint32_t far = (uint32_t)distance(means->x + i * means->dim, centre,
			                                  means->dim);
			means->far[i] = far < means->far[i] ? far : means->far[i];
			total += means->far[i];
		}
		if (!total)
			total = 1;
		for (at = 0, r = draw(means, total); at < means->n - 1; at++) {
			if (r < means->far[at])
				break;
			r -= means->far[at];
		}
	}
}

static void assign(struct means *means)
{
	vq_search_set(means->search, means->centre, means->dim);
	for (size_t i = 0; i < means->n; i++)
		means->nearest[i] = (uint8_t)vq_nearest(means->search, means->x + i * means->dim,
		                                        means->dim);
}

/* Centres move to the mean of the vectors nearest to them; those without vectors stay. */
static void move(struct means *means)
{
	memset(means->sum, 0, (size_t)VQ_ENTRIES * means->dim * sizeof *means->sum);
	memset(means->count, 0, VQ_ENTRIES * sizeof *means->count);
	for (size_t i = 0; i < means->n; i++) {
		float *sum = means->sum + (size_t)means->nearest[i] * means->dim;
		for (unsigned d = 0; d < means->dim; d++)
			sum[d] = sum[d] + means->x[i * means->dim + d];
		means->count[means->nearest[i]]++;
	}
	for (size_t k = 0; k < VQ_ENTRIES; k++)
		for (unsigned d = 0; d < means->dim && means->count[k]; d++)
			means->centre[k * means->dim + d] = means->sum[k * means->dim + d] /
			                                    (float)means->count[k];
}

static int8_t entry_of(float v)
{
	int e = (int)(v < 0 ? v - 0.5f : v + 0.5f);
	return (int8_t)(e > INT8_MAX ? INT8_MAX : e < -INT8_MAX ? -INT8_MAX : e);
}

/* A stage: its codebook, and the table of its indices; the vectors become their residuals. */
static void fit_stage(struct kvi_coder *coder, struct means *means, int8_t *book, uint16_t *freq,
                      uint32_t *work)
{
	uint16_t counts[VQ_ENTRIES] = { 0 };
	uint8_t table[1];
	start(means);
	for (int i = 0; i < ROUNDS; i++) {
		assign(means);
		move(means);
	}
	for (size_t i = 0; i < (size_t)VQ_ENTRIES * means->dim; i++) {
		book[i] = entry_of(means->centre[i]);
		means->centre[i] = book[i];
	}
	assign(means);
	for (size_t i = 0; i < means->n; i++) {
		counts[means->nearest[i]]++;
		for (unsigned d = 0; d < means->dim; d++)
			means->x[i * means->dim + d] =
				means->x[i * means->dim + d] -
				means->centre[(size_t)means->nearest[i] * means->dim + d];
	}
	struct kvi_tables_fit f = { .kernels = coder->kernels,
		                    .cost = coder->tables->cost,
		                    .channels = 1,
		                    .symbols = VQ_ENTRIES,
		                    .stride = VQ_ENTRIES,
		                    .n_tables = 1,
		                    .counts = counts,
		                    .freq = freq,
		                    .table = table,
		                    .work = work };
	kvi_tables_fit(&f);
}

/* The vectors of a part, evenly from all tokens. */
static bool collect(struct means *means, const struct kvi_coder_job *job,
                    const struct vq_params *params, unsigned part, float *numbers, float *vectors,
                    uint16_t *scales)
{
	const struct kvi_chunk *chunk = job->chunk;
	const size_t C = kvi_chunk_channels(chunk), dim = params->dim;
	const size_t each = (chunk->head_channels + dim - 1) / dim;
	const size_t token = C * kvarc_dtype_bytes(chunk->dtype);
	const size_t all = chunk->n_tokens * chunk->heads * each / params->parts;
	const size_t every = all / SAMPLE + 1;
	size_t seen = 0;
	means->n = 0;
	for (size_t t = 0; t < chunk->n_tokens; t++) {
		kvi_floats_exact(chunk->dtype, job->packed + t * token, C, numbers);
		if (!vq_vectors(chunk, params->dim, numbers, scales, vectors))
			continue;
		for (size_t i = 0; i < chunk->heads * each; i++) {
			if (i % each % params->parts != part || seen++ % every ||
			    means->n == SAMPLE)
				continue;
			memcpy(means->x + means->n++ * dim, vectors + i * dim,
			       dim * sizeof *means->x);
		}
	}
	return means->n >= SAMPLE_MIN;
}

/* Divides one block of scratch memory among the arrays of a fit; false: no memory. */
static bool reserve(struct kvi_coder *coder, const struct kvi_chunk *chunk, struct means *means,
                    float **numbers, float **vectors, uint16_t **scales, uint32_t **work)
{
	const size_t C = kvi_chunk_channels(chunk), dim = means->dim;
	const size_t padded = (chunk->head_channels + dim - 1) / dim * dim * chunk->heads;
	const size_t entries = (size_t)VQ_ENTRIES * dim;
	const size_t words = SAMPLE * dim + SAMPLE + 2 * entries + VQ_ENTRIES + C + padded;
	const size_t tables = kvi_tables_fit_work(1, 1, VQ_ENTRIES);
	means->search = kvi_scratch(coder, KVI_SCRATCH_FIT,
	                            sizeof *means->search + words * sizeof(float) + tables +
	                                    chunk->heads * sizeof **scales + SAMPLE);
	if (!means->search)
		return false;
	means->x = (float *)(void *)(means->search + 1);
	means->far = (uint32_t *)(void *)(means->x + SAMPLE * dim);
	means->centre = (float *)(void *)(means->far + SAMPLE);
	means->sum = means->centre + entries;
	means->count = (uint32_t *)(void *)(means->sum + entries);
	*numbers = (float *)(void *)(means->count + VQ_ENTRIES);
	*vectors = *numbers + C;
	*work = (uint32_t *)(void *)(*vectors + padded);
	*scales = (uint16_t *)(void *)((uint8_t *)*work + tables);
	means->nearest = (uint8_t *)(*scales + chunk->heads);
	return true;
}

/* Fits codebooks and tables of params, whose shape is set. Returns OK, MEM, MEMLIMIT, END (too few
 * vectors). */
static kvarc_ret vq_fit(struct kvi_coder *coder, const struct kvi_coder_job *job,
                        struct vq_params *params)
{
	struct means m = { .dim = params->dim };
	float *numbers, *vectors;
	uint16_t *scales;
	uint32_t *work;
	if (!reserve(coder, job->chunk, &m, &numbers, &vectors, &scales, &work))
		return kvi_alloc_error(coder->alloc);
	for (unsigned part = 0; part < params->parts; part++) {
		m.random = part;
		if (!collect(&m, job, params, part, numbers, vectors, scales))
			return KVARC_END;
		for (unsigned s = 0; s < params->stages; s++) {
			size_t table = (size_t)part * params->stages + s;
			fit_stage(coder, &m, vq_book(params, (unsigned)table),
			          params->freqs.freq + table * KVI_BYTE_SYMBOLS, work);
		}
	}
	return KVARC_OK;
}

/* ==== The codec vq: scaled heads as indices of codebooks (spec vq) ==== */

/* The parameters of the codec vq; NULL: they are of another codec. */
static inline struct vq_params *vq_params_of(const struct kvi_params *params)
{
	return params->codec == KVI_CODEC_VQ ? (struct vq_params *)(uintptr_t)params : NULL;
}

enum { SPARE_WORDS = 64, RATE_MAX = 4, TABLE_COST = 32 };

/* Parameters without values; NULL: no memory. */
static struct vq_params *params_new(const struct kvi_alloc *alloc, const struct kvi_chunk *shape,
                                    unsigned dim, unsigned parts, unsigned stages)
{
	const size_t tables = (size_t)parts * stages, freqs = tables * KVI_BYTE_SYMBOLS;
	const size_t book = tables * VQ_ENTRIES * dim;
	struct vq_params *p;
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
	bool good = (dim == 2 || dim == 4 || dim == 8) && parts >= 1 && parts <= VQ_DIM_MAX / dim &&
	            stages >= 1 && stages <= VQ_STAGES_MAX;
	if (in->bad || !good)
		return KVARC_DATA;
	struct vq_params *p = params_new(alloc, shape, dim, parts, stages);
	if (!p)
		return kvi_alloc_error(alloc);
	for (unsigned i = 0; i < p->freqs.n && good; i++) {
		const size_t bytes = (size_t)VQ_ENTRIES * dim;
		const uint8_t *book = kvi_get_bytes(in, bytes);
		good = book && kvi_freq_get(in, KVI_BYTE_SYMBOLS,
		                            p->freqs.freq + (size_t)i * KVI_BYTE_SYMBOLS);
		if (good)
			memcpy(vq_book(p, i), book, bytes);
	}
	if (good)
		*out = &p->common;
	else
		kvi_params_free(&p->common);
	return good ? KVARC_OK : KVARC_DATA;
}

static void serialise(const struct kvi_params *params, struct kvi_out *out)
{
	const struct vq_params *v = vq_params_of(params);
	kvi_put8(out, (uint8_t)v->dim);
	kvi_put8(out, (uint8_t)v->parts);
	kvi_put8(out, (uint8_t)v->stages);
	for (unsigned i = 0; i < v->freqs.n; i++) {
		kvi_put_bytes(out, vq_book(v, i), (size_t)VQ_ENTRIES * v->dim);
		kvi_freq_put(v->freqs.freq + (size_t)i * KVI_BYTE_SYMBOLS, KVI_BYTE_SYMBOLS, out);
	}
}

/* A chunk's indices and numbers. */
struct vq_work {
	const struct kvi_coder_job *job;
	const struct vq_params *v;
	size_t C, size, vectors; /* channels of a token; bytes of an element; vectors of a head */
	struct kvi_lanes lanes;  /* lanes of the stream of indices */
	uint8_t *index, *table;  /* token-major; the table of each column */
	uint16_t *scales;
	float *x, *vector; /* numbers of a token; its vectors */
};

/* The table of a column. */
static unsigned table_of(const struct vq_work *w, size_t vector, size_t stage)
{
	return (unsigned)(vector % w->v->parts * w->v->stages + stage);
}

static kvarc_ret open_work(struct vq_work *w, struct kvi_coder *coder,
                           const struct kvi_coder_job *job)
{
	const struct kvi_chunk *chunk = job->chunk;
	const struct vq_params *v = vq_params_of(job->params);
	const size_t T = chunk->n_tokens, dim = v->dim;
	*w = (struct vq_work){ .job = job, .v = v };
	w->C = kvi_chunk_channels(chunk);
	w->size = kvarc_dtype_bytes(chunk->dtype);
	w->vectors = (chunk->head_channels + dim - 1) / dim;
	w->lanes = (struct kvi_lanes){ coder->kernels, T, chunk->heads * w->vectors * v->stages };
	/* C is at most 2^20 and T 256: no overflow. */
	size_t padded = chunk->heads * w->vectors * dim;
	w->x = kvi_scratch(coder, KVI_SCRATCH_COEFFICIENTS,
	                   (w->C + padded) * sizeof *w->x + T * chunk->heads * sizeof *w->scales);
	w->index = kvi_scratch(coder, KVI_SCRATCH_CODES, T * w->lanes.channels);
	w->table = kvi_scratch(coder, KVI_SCRATCH_CHANNELS, w->lanes.channels);
	if (!w->x || !w->index || !w->table)
		return kvi_alloc_error(coder->alloc);
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
	const struct vq_params *v = w->v;
	const uint8_t *index = w->index + t * w->lanes.channels;
	const size_t hc = chunk->head_channels;
	float *x = w->x;
	for (size_t h = 0; h < chunk->heads; h++) {
		const float scale = kvi_scale_value(w->scales[t * chunk->heads + h]);
		for (size_t i = 0; i < w->vectors; i++, index += v->stages) {
			int z[VQ_DIM_MAX] = { 0 };
			for (unsigned s = 0; s < v->stages; s++) {
				const int8_t *entry = vq_book(v, table_of(w, i, s)) +
				                      index[s] * v->dim;
				for (unsigned d = 0; d < v->dim; d++)
					z[d] += entry[d];
			}
			for (unsigned d = 0; d < v->dim && i * v->dim + d < hc; d++)
				*x++ = ((float)z[d] * (1.0f / VQ_UNIT)) * scale;
		}
	}
	kvi_lossy_store(chunk->dtype, w->x, w->C, w->job->decoded + t * w->C * w->size);
}

static kvarc_ret decode(struct kvi_coder *coder, const struct kvi_coder_job *job, struct kvi_in *in)
{
	struct vq_work w;
	kvarc_ret ret = open_work(&w, coder, job);
	if (!ret)
		ret = kvi_scales_get(coder, in, (size_t)job->chunk->n_tokens * job->chunk->heads,
		                     w.scales);
	if (!ret)
		ret = kvi_byte_stream_get(coder, &w.lanes, &w.v->freqs, w.table, in, w.index);
	for (size_t t = 0; t < job->chunk->n_tokens && !ret; t++)
		restore(&w, t);
	return ret;
}

/* Encoding. */

static kvarc_ret put_stream(struct kvi_coder *coder, struct vq_work *w, struct kvi_payload *out)
{
	const size_t words = KVI_BYTE_WORDS * w->lanes.rows * w->lanes.channels + SPARE_WORDS;
	out->words = kvi_scratch_end(coder, KVI_SCRATCH_OUT, KVI_STREAM_HEAD + 2 * words);
	kvarc_ret ret = out->words ? kvi_byte_stream_put(coder, &w->lanes, &w->v->freqs, w->table,
	                                                 w->index, out)
	                           : kvi_alloc_error(coder->alloc);
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
static bool quantise(struct vq_work *w, const struct vq_search *books, size_t t, float *was)
{
	const struct kvi_chunk *chunk = w->job->chunk;
	const struct vq_params *v = w->v;
	uint8_t *index = w->index + t * w->lanes.channels;
	float *x = w->vector;
	kvi_floats_exact(chunk->dtype, w->job->packed + t * w->C * w->size, w->C, was);
	if (!vq_vectors(chunk, v->dim, was, w->scales + t * chunk->heads, x))
		return false;
	for (size_t i = 0; i < chunk->heads * w->vectors; i++, x += v->dim)
		for (unsigned s = 0; s < v->stages; s++) {
			unsigned table = table_of(w, i % w->vectors, s);
			unsigned k = vq_nearest(&books[table], x, v->dim);
			for (unsigned d = 0; d < v->dim; d++)
				x[d] = x[d] - books[table].entry[d][k];
			*index++ = (uint8_t)k;
		}
	restore(w, t);
	return near(w, t, was);
}

static kvarc_ret encode(struct kvi_coder *coder, const struct kvi_coder_job *job,
                        struct kvi_payload *out)
{
	struct vq_work w;
	kvarc_ret ret = open_work(&w, coder, job);
	if (ret)
		return ret;
	const size_t tables = w.v->freqs.n;
	struct vq_search *books = kvi_scratch(coder, KVI_SCRATCH_FIT,
	                                      tables * sizeof *books + w.C * sizeof(float));
	if (!books)
		return kvi_alloc_error(coder->alloc);
	float *was = (float *)(void *)(books + tables);
	for (unsigned i = 0; i < tables; i++)
		vq_search_book(&books[i], vq_book(w.v, i), w.v->dim);
	for (size_t t = 0; t < job->chunk->n_tokens; t++) {
		job->refused[t] = !quantise(&w, books, t, was);
		out->refused = out->refused || job->refused[t];
	}
	if (out->refused)
		return KVARC_OK;
	ret = kvi_scales_put(coder, w.scales, (size_t)job->chunk->n_tokens * job->chunk->heads,
	                     out->body);
	return ret ? ret : put_stream(coder, &w, out);
}

/* Vectors of 8 up to three bits, of 2 for four; or the halves of 8. */
static kvarc_ret fit(struct kvi_coder *coder, const struct kvi_coder_job *job,
                     struct kvi_params **out)
{
	const int rate = kvi_lossy_bits(job->tier, job->request->kind);
	bool product = job->tier->flags & KVARC_LOSSY_PRODUCT;
	unsigned dim = product ? 4 : rate == RATE_MAX ? 2 : 8;
	unsigned stages = product || rate == RATE_MAX ? 1 : (unsigned)rate;
	struct vq_params *p = params_new(coder->alloc, job->chunk, dim, product ? 2 : 1, stages);
	if (!p)
		return kvi_alloc_error(coder->alloc);
	kvarc_ret ret = vq_fit(coder, job, p);
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
