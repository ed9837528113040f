/* SPDX-License-Identifier: BSD-3-Clause */
/* vq_fit.c - codebooks of the codec vq from the vectors of a chunk: k-means, the same on every
 * machine */
#include "codecs/tables_fit.h"
#include "vq.h"

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
	uint32_t *far; /* of each: squared distance to the nearest centre */
	uint8_t *nearest;
	float *centre; /* KVI_VQ_ENTRIES x dim */
	float *sum;
	uint32_t *count;
	struct kvi_vq_search *search;
	uint64_t random;
};

static uint64_t draw(struct means *m, uint64_t below)
{
	m->random = m->random * 6364136223846793005u + 1442695040888963407u;
	return (m->random >> 11) % below;
}

static float distance(const float *a, const float *b, unsigned dim)
{
	float sum = 0;
	for (unsigned d = 0; d < dim; d++)
		sum = sum + (a[d] - b[d]) * (a[d] - b[d]);
	return sum;
}

/* k-means++: each new centre is a vector, drawn by its squared distance, a whole number here. */
static void start(struct means *m)
{
	size_t at = draw(m, m->n);
	for (size_t i = 0; i < m->n; i++)
		m->far[i] = UINT32_MAX;
	for (size_t k = 0; k < KVI_VQ_ENTRIES; k++) {
		float *centre = m->centre + k * m->dim;
		uint64_t total = 0, r;
		memcpy(centre, m->x + at * m->dim, m->dim * sizeof *centre);
		for (size_t i = 0; i < m->n; i++) {
			/* at most 8 numbers of 4 * KVI_VQ_UNIT */
			uint32_t far = (uint32_t)distance(m->x + i * m->dim, centre, m->dim);
			m->far[i] = far < m->far[i] ? far : m->far[i];
			total += m->far[i];
		}
		if (!total)
			total = 1;
		for (at = 0, r = draw(m, total); at < m->n - 1; at++) {
			if (r < m->far[at])
				break;
			r -= m->far[at];
		}
	}
}

static void assign(struct means *m)
{
	kvi_vq_search_set(m->search, m->centre, m->dim);
	for (size_t i = 0; i < m->n; i++)
		m->nearest[i] = (uint8_t)kvi_vq_nearest(m->search, m->x + i * m->dim, m->dim);
}

/* Centres move to the mean of the vectors nearest to them; those without vectors stay. */
static void move(struct means *m)
{
	memset(m->sum, 0, (size_t)KVI_VQ_ENTRIES * m->dim * sizeof *m->sum);
	memset(m->count, 0, KVI_VQ_ENTRIES * sizeof *m->count);
	for (size_t i = 0; i < m->n; i++) {
		float *sum = m->sum + (size_t)m->nearest[i] * m->dim;
		for (unsigned d = 0; d < m->dim; d++)
			sum[d] = sum[d] + m->x[i * m->dim + d];
		m->count[m->nearest[i]]++;
	}
	for (size_t k = 0; k < KVI_VQ_ENTRIES; k++)
		for (unsigned d = 0; d < m->dim && m->count[k]; d++)
			m->centre[k * m->dim + d] = m->sum[k * m->dim + d] / (float)m->count[k];
}

static int8_t entry_of(float v)
{
	int e = (int)(v < 0 ? v - 0.5f : v + 0.5f);
	return (int8_t)(e > INT8_MAX ? INT8_MAX : e < -INT8_MAX ? -INT8_MAX : e);
}

/* A stage: its codebook, and the table of its indices; the vectors become their residuals. */
static void fit_stage(struct kvi_coder *c, struct means *m, int8_t *book, uint16_t *freq,
                      uint32_t *work)
{
	uint16_t counts[KVI_VQ_ENTRIES] = { 0 };
	uint8_t table[1];
	start(m);
	for (int i = 0; i < ROUNDS; i++) {
		assign(m);
		move(m);
	}
	for (size_t i = 0; i < (size_t)KVI_VQ_ENTRIES * m->dim; i++) {
		book[i] = entry_of(m->centre[i]);
		m->centre[i] = book[i];
	}
	assign(m);
	for (size_t i = 0; i < m->n; i++) {
		counts[m->nearest[i]]++;
		for (unsigned d = 0; d < m->dim; d++)
			m->x[i * m->dim + d] = m->x[i * m->dim + d] -
			                       m->centre[(size_t)m->nearest[i] * m->dim + d];
	}
	struct kvi_tables_fit f = { .kernels = c->kernels,
		                    .cost = c->tables->cost,
		                    .channels = 1,
		                    .symbols = KVI_VQ_ENTRIES,
		                    .stride = KVI_VQ_ENTRIES,
		                    .n_tables = 1,
		                    .counts = counts,
		                    .freq = freq,
		                    .table = table,
		                    .work = work };
	kvi_tables_fit(&f);
}

/* The vectors of a part, evenly from all tokens. */
static bool collect(struct means *m, const struct kvi_coder_job *job, const struct kvi_vq_params *v,
                    unsigned part, float *numbers, float *vectors, uint16_t *scales)
{
	const struct kvi_chunk *chunk = job->chunk;
	const size_t C = kvi_chunk_channels(chunk), dim = v->dim;
	const size_t each = (chunk->head_channels + dim - 1) / dim;
	const size_t token = C * kvarc_dtype_bytes(chunk->dtype);
	const size_t all = chunk->n_tokens * chunk->heads * each / v->parts;
	const size_t every = all / SAMPLE + 1;
	size_t seen = 0;
	m->n = 0;
	for (size_t t = 0; t < chunk->n_tokens; t++) {
		kvi_floats_exact(chunk->dtype, job->packed + t * token, C, numbers);
		if (!kvi_vq_vectors(chunk, v->dim, numbers, scales, vectors))
			continue;
		for (size_t i = 0; i < chunk->heads * each; i++) {
			if (i % each % v->parts != part || seen++ % every || m->n == SAMPLE)
				continue;
			memcpy(m->x + m->n++ * dim, vectors + i * dim, dim * sizeof *m->x);
		}
	}
	return m->n >= SAMPLE_MIN;
}

/* One block of scratch memory for the whole fit. */
static bool reserve(struct kvi_coder *c, const struct kvi_chunk *chunk, struct means *m,
                    float **numbers, float **vectors, uint16_t **scales, uint32_t **work)
{
	const size_t C = kvi_chunk_channels(chunk), dim = m->dim;
	const size_t padded = (chunk->head_channels + dim - 1) / dim * dim * chunk->heads;
	const size_t entries = (size_t)KVI_VQ_ENTRIES * dim;
	const size_t words = SAMPLE * dim + SAMPLE + 2 * entries + KVI_VQ_ENTRIES + C + padded;
	const size_t tables = kvi_tables_fit_work(1, 1, KVI_VQ_ENTRIES);
	m->search = kvi_scratch(c, KVI_SCRATCH_FIT,
	                        sizeof *m->search + words * sizeof(float) + tables +
	                                chunk->heads * sizeof **scales + SAMPLE);
	if (!m->search)
		return false;
	m->x = (float *)(void *)(m->search + 1);
	m->far = (uint32_t *)(void *)(m->x + SAMPLE * dim);
	m->centre = (float *)(void *)(m->far + SAMPLE);
	m->sum = m->centre + entries;
	m->count = (uint32_t *)(void *)(m->sum + entries);
	*numbers = (float *)(void *)(m->count + KVI_VQ_ENTRIES);
	*vectors = *numbers + C;
	*work = (uint32_t *)(void *)(*vectors + padded);
	*scales = (uint16_t *)(void *)((uint8_t *)*work + tables);
	m->nearest = (uint8_t *)(*scales + chunk->heads);
	return true;
}

kvarc_ret kvi_vq_fit(struct kvi_coder *c, const struct kvi_coder_job *job, struct kvi_vq_params *p)
{
	struct means m = { .dim = p->dim };
	float *numbers, *vectors;
	uint16_t *scales;
	uint32_t *work;
	if (!reserve(c, job->chunk, &m, &numbers, &vectors, &scales, &work))
		return kvi_alloc_error(c->alloc);
	for (unsigned part = 0; part < p->parts; part++) {
		m.random = part;
		if (!collect(&m, job, p, part, numbers, vectors, scales))
			return KVARC_END;
		for (unsigned s = 0; s < p->stages; s++) {
			size_t table = (size_t)part * p->stages + s;
			fit_stage(c, &m, kvi_vq_book(p, (unsigned)table),
			          p->freqs.freq + table * KVI_BYTE_SYMBOLS, work);
		}
	}
	return KVARC_OK;
}
