/* SPDX-License-Identifier: BSD-3-Clause */
/* train_table.c - the lowest layer from token ids */
#include "train_table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train_sample.h"
#include "train_run.h"

enum { SHIFT_MAX = 8, ROWS_MAX = 1 << 20, LIMIT = 32767 };

static int compare_ids(const void *a, const void *b)
{
	int32_t x, y;
	memcpy(&x, a, sizeof x);
	memcpy(&y, b, sizeof y);
	return (x > y) - (x < y);
}

int32_t kvi_train_table_row(const struct kvi_model *model, int32_t id)
{
	const int32_t *at = NULL;
	if (model->flags & KVI_MODEL_TABLE && model->n_ids)
		at = bsearch(&id, model->ids, model->n_ids, sizeof id, compare_ids);
	return at ? (int32_t)(at - model->ids) : -1;
}

kvarc_ret kvi_train_ids_collect(kvarc_trainer *trainer, const struct kvi_train_task *task,
                                struct kvi_train_ids *ids)
{
	size_t n = 0;
	*ids = (struct kvi_train_ids){ 0 };
	for (size_t i = 0; i < task->stack->n_caches; i++)
		if (!task->stack->caches[i]->ids)
			return KVARC_OK;
	ids->id = kvi_array(&trainer->alloc, task->stack->n_tokens, sizeof *ids->id);
	if (!ids->id)
		return kvi_train_no_memory(trainer);
	for (size_t i = 0; i < task->stack->n_caches; i++) {
		const struct kvi_train_cache *c = task->stack->caches[i];
		for (size_t v = 0; v < c->held; v++)
			if (!task->weights->bad[c->first + v])
				ids->id[n++] = c->ids[v];
	}
	if (n)
		qsort(ids->id, n, sizeof *ids->id, compare_ids);
	for (size_t v = 0; v < n && ids->n < ROWS_MAX; v++)
		if (v == 0 || ids->id[v] != ids->id[v - 1])
			ids->id[ids->n++] = ids->id[v];
	return KVARC_OK;
}

struct table_job {
	const struct kvi_train_task *task;
	struct kvi_model *m;
	const struct kvi_train_tensor *x;
	const int32_t *row; /* row of each token in the table, -1: none */
	uint32_t *count;    /* tokens of each row */
	int32_t *sum;       /* C x n_ids; then the means */
};

/* Mean of slot c for each id. */
static void add_slot(void *arg, size_t c)
{
	const struct table_job *j = arg;
	const int16_t *z = j->x->z + kvi_train_row_of(j->m, c) * j->x->capacity;
	int32_t *sum = j->sum + c * j->m->n_ids;
	size_t n = j->task->stack->n_tokens;
	for (size_t v = 0; v < n; v++)
		if (j->row[v] >= 0)
			sum[j->row[v]] += z[v];
	for (size_t i = 0; i < j->m->n_ids; i++) {
		int32_t count = (int32_t)j->count[i], half = count / 2;
		sum[i] = (sum[i] < 0 ? sum[i] - half : sum[i] + half) / count;
	}
}

static int8_t entry(int32_t mean, unsigned shift)
{
	int32_t half = shift ? 1 << (shift - 1) : 0;
	int32_t v = (mean + half) >> shift;
	return (int8_t)(v < -127 ? -127 : v > 127 ? 127 : v);
}

/* The shift with the smallest residual, counted in digits. */
static unsigned choose_shift(const int32_t *mean, size_t n)
{
	unsigned best = 0;
	double least = 0;
	size_t step = n / 65536 + 1;
	for (unsigned shift = 0; shift <= SHIFT_MAX; shift++) {
		uint64_t digits = 0;
		for (size_t i = 0; i < n; i += step) {
			int32_t d = mean[i] - entry(mean[i], shift) * (1 << shift);
			uint32_t left = (uint32_t)(d < 0 ? -d : d) + 4;
			/* counts in 1/8 digits: the leading one and three more */
			unsigned top = 31 - (unsigned)__builtin_clz(left);
			digits += top * 8 + (left << (31 - top) >> 28 & 7);
		}
		if (shift == 0 || (double)digits < least) {
			least = (double)digits;
			best = shift;
		}
	}
	return best;
}

static kvarc_ret fill_table(kvarc_trainer *trainer, struct table_job *job)
{
	struct kvi_model *m = job->m;
	job->sum = kvi_calloc(&trainer->alloc, m->C, m->n_ids * sizeof *job->sum);
	if (!job->sum)
		return kvi_train_no_memory(trainer);
	kvi_train_parallel(trainer, m->C, add_slot, job);
	m->tshift = (uint8_t)choose_shift(job->sum, m->C * m->n_ids);
	for (size_t i = 0; i < m->n_ids; i++)
		for (size_t c = 0; c < m->C; c++)
			m->table[i * m->C + c] = entry(job->sum[c * m->n_ids + i], m->tshift);
	kvi_free(&trainer->alloc, job->sum);
	return KVARC_OK;
}

static void find_rows(const struct kvi_train_task *task, const struct kvi_model *model,
                      int32_t *row, uint32_t *count)
{
	for (size_t i = 0; i < task->stack->n_caches; i++) {
		const struct kvi_train_cache *c = task->stack->caches[i];
		for (size_t v = 0; v < c->n; v++) {
			int32_t at = -1;
			if (v < c->held && !task->weights->bad[c->first + v])
				at = kvi_train_table_row(model, c->ids[v]);
			/* the limit lets the sums of z fit in 32 bits */
			if (at >= 0 && count[at] == UINT16_MAX)
				at = -1;
			else if (at >= 0)
				count[at]++;
			row[c->first + v] = at;
		}
	}
}

struct left_job {
	const struct kvi_train_task *task;
	const struct kvi_model *m;
	const struct kvi_train_tensor *x;
	struct kvi_train_tensor *left;
	const int32_t *row;
};

static void subtract_slot(void *arg, size_t c)
{
	const struct left_job *j = arg;
	size_t at = kvi_train_row_of(j->m, c) * j->x->capacity;
	const int16_t *z = j->x->z + at;
	int16_t *to = j->left->z + at;
	for (size_t i = 0; i < j->task->stack->n_caches; i++) {
		const struct kvi_train_cache *k = j->task->stack->caches[i];
		for (size_t v = k->first; v < k->first + k->n; v++) {
			int32_t row = j->row[v], d = z[v];
			if (row >= 0 && !kvi_train_pretend(k->ids[v - k->first]))
				d -= j->m->table[(size_t)row * j->m->C + c] * (1 << j->m->tshift);
			to[v] = (int16_t)kvi_train_clamp(d, LIMIT);
		}
	}
}

/* Weights each token by the inverse of its mean residual: known ids count as much as others. */
static void weigh_left(const struct kvi_train_kernels *kernels, struct kvi_train_residual *left,
                       const struct kvi_train_weights *w, size_t n)
{
	float *to = left->weights.w;
	double count = kvi_train_sum_sizes(kernels, &left->layer, n, to);
	for (size_t v = 0; v < n; v++) {
		float scale = count > 0 ? to[v] / (float)count : 1;
		to[v] = !(w->w[v] > 0) ? 0 : 1 / (scale < 0.005f ? 0.005f : scale);
	}
}

kvarc_ret kvi_train_tables(kvarc_trainer *trainer, struct kvi_train_task *task,
                           struct kvi_train_residual *left)
{
	size_t n = task->stack->n_tokens;
	uint32_t n_ids = task->models[1][0]->n_ids;
	int32_t *row = kvi_array(&trainer->alloc, n, sizeof *row);
	uint32_t *count = kvi_calloc(&trainer->alloc, n_ids, sizeof *count);
	kvarc_ret ret = row && count ? KVARC_OK : kvi_train_no_memory(trainer);
	*left = (struct kvi_train_residual){ .layer = *task->layer, .weights = *task->weights };
	for (size_t i = 0; i < task->layer->n; i++)
		left->layer.tensors[i].z = NULL;
	left->weights.w = kvi_array(&trainer->alloc, n, sizeof(float));
	if (!ret && !left->weights.w)
		ret = kvi_train_no_memory(trainer);
	if (!ret)
		find_rows(task, task->models[1][0], row, count);
	for (size_t i = 0; i < task->layer->n && !ret; i++) {
		struct kvi_train_tensor *x = &left->layer.tensors[i];
		struct table_job j = {
			task, task->models[1][i], &task->layer->tensors[i], row, count, NULL
		};
		struct left_job l = { task, j.m, j.x, x, row };
		ret = fill_table(trainer, &j);
		x->z = kvi_calloc(&trainer->alloc, x->rows, x->capacity * sizeof *x->z);
		if (!ret && !x->z)
			ret = kvi_train_no_memory(trainer);
		if (!ret)
			kvi_train_parallel(trainer, j.m->C, subtract_slot, &l);
	}
	if (!ret)
		weigh_left(trainer->kernels, left, task->weights, n);
	kvi_free(&trainer->alloc, row);
	kvi_free(&trainer->alloc, count);
	return ret;
}

void kvi_train_residual_free(kvarc_trainer *trainer, struct kvi_train_residual *left)
{
	for (size_t i = 0; i < left->layer.n; i++)
		kvi_free(&trainer->alloc, left->layer.tensors[i].z);
	kvi_free(&trainer->alloc, left->weights.w);
}
