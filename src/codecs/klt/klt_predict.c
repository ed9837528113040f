/* SPDX-License-Identifier: BSD-3-Clause */
/* klt_predict.c - predicts elements from decoded tensors of the same tokens (spec klt 2) */
#include "klt_predict.h"

float kvi_klt_power(int e)
{
	uint32_t b = e < -149 || e > 127 ? 0
	             : e < -126          ? 1u << (149 + e)
	                                 : (uint32_t)(127 + e) << 23;
	float f;
	memcpy(&f, &b, sizeof f);
	return f;
}

bool kvi_klt_has_sources(const struct kvi_linear_in *in)
{
	for (unsigned i = 0; i < in->model->n_lower; i++)
		if (!in->lower[i] || !in->lower[i]->z || in->lower[i]->n_tokens != in->n_tokens)
			return false;
	return true;
}

/* int16 of a block of a source's features. */
static size_t block_entries(const struct kvi_model *m)
{
	return m->heads * kvi_head_stride(m) * KVI_LANES;
}

kvarc_ret kvi_klt_below_open(struct kvi_klt_below *b, struct kvi_coder *c,
                             const struct kvi_coder_job *job)
{
	const struct kvi_linear_in *in = job->chunk->linear;
	const struct kvi_model *m = in->model;
	const size_t sums = m->head_channels * KVI_LANES;
	/* Models are 2^20 slots at most: no overflow. */
	size_t bytes = sums * sizeof *b->sums +
	               m->C * (sizeof *b->unit + KVI_LANES * sizeof *b->expected);
	*b = (struct kvi_klt_below){ .job = job,
		                     .in = in,
		                     .kernels = c->kernels,
		                     .transform = kvi_transform_get(c->kernels->isa) };
	if (!m->n_lower)
		return KVARC_OK;
	for (unsigned i = 0; i < m->n_lower; i++)
		bytes += block_entries(m->lower[i].model) * sizeof **b->rows;
	b->sums = kvi_scratch(c, KVI_SCRATCH_PREDICTION, bytes);
	if (!b->sums)
		return kvi_alloc_error(c->alloc);
	b->unit = (float *)(void *)(b->sums + sums);
	for (size_t i = 0; i < m->C; i++)
		b->unit[i] = kvi_klt_power(m->step[i]);
	b->expected = (int16_t *)(void *)(b->unit + m->C);
	int16_t *at = b->expected + m->C * KVI_LANES;
	for (unsigned i = 0; i < m->n_lower; i++) {
		b->rows[i] = at;
		at += block_entries(m->lower[i].model);
	}
	return KVARC_OK;
}

/* Features of tokens that are not a block of the segment. */
static void gather(const struct kvi_klt_below *b, unsigned source, size_t first, size_t n)
{
	const size_t entries = block_entries(b->in->model->lower[source].model);
	const int16_t *z = b->in->lower[source]->z;
	const uint8_t *token = b->job->token + first;
	for (size_t at = 0; at < entries; at += KVI_PAIR_STEP) {
		int16_t *to = b->rows[source] + at;
		for (size_t i = 0; i < n; i++)
			memcpy(to + 2 * i,
			       z + token[i] / KVI_LANES * entries + at + token[i] % KVI_LANES * 2,
			       2 * sizeof *to);
		memset(to + 2 * n, 0, (KVI_LANES - n) * 2 * sizeof *to);
	}
}

void kvi_klt_below_tile(struct kvi_klt_below *b, size_t first)
{
	const struct kvi_model *m = b->in->model;
	const uint8_t *token = b->job->token + first;
	size_t left = b->job->chunk->n_tokens - first;
	size_t n = left < KVI_LANES ? left : KVI_LANES;
	bool block = token[0] % KVI_LANES == 0 && n == KVI_LANES &&
	             token[n - 1] - token[0] == (int)n - 1;
	for (unsigned i = 0; i < m->n_lower; i++) {
		const struct kvi_model *from = m->lower[i].model;
		size_t entries = block_entries(from);
		if (!block)
			gather(b, i, first, n);
		b->all[i] = (struct kvi_rows_part){
			block ? b->in->lower[i]->z + token[0] / KVI_LANES * entries : b->rows[i],
			from->heads * kvi_head_stride(from) / 2, entries
		};
	}
}

void kvi_klt_below_head(struct kvi_klt_below *b, size_t head)
{
	const struct kvi_model *m = b->in->model;
	if (!m->n_lower)
		return;
	const size_t first = head * m->head_channels;
	struct kvi_rows_part part[KVI_LOWER_MAX];
	for (unsigned i = 0; i < m->n_lower; i++) {
		const struct kvi_model *from = m->lower[i].model;
		const size_t pairs = kvi_head_stride(from) / 2;
		part[i] = b->all[i];
		if (!m->lower[i].scope)
			continue;
		part[i].features += head % from->heads * pairs * KVI_PAIR_STEP;
		part[i].n_pairs = pairs;
	}
	const struct kvi_rows r = { .sum = b->sums,
		                    .coef = m->a + first * m->a_stride,
		                    .q = m->qa + first,
		                    .part = part,
		                    .n_parts = m->n_lower,
		                    .rows = m->head_channels,
		                    .steps = 1,
		                    .sum_step = m->head_channels * KVI_LANES,
		                    .coef_row = m->a_stride };
	b->kernels->slot_rows(&r);
	b->transform->expect(b->sums, m->head_channels, m->mean + first, m->qa + first,
	                     b->expected + first * KVI_LANES);
}

void kvi_klt_below_add(const struct kvi_klt_below *b, size_t head, bool minus, float *x)
{
	const size_t first = head * b->in->model->head_channels;
	if (b->in->model->n_lower)
		b->transform->add_expected(b->expected + first * KVI_LANES,
		                           b->in->model->head_channels, b->unit + first, minus, x);
}
