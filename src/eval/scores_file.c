/* SPDX-License-Identifier: BSD-3-Clause */
/* scores_file.c - attention that tokens get, and how much they surprise */
#include "scores_file.h"

#include <math.h>
#include <string.h>

#include "exact/elementwise.h"
#include "util/parallel.h"

enum { STEP = KVI_TEACHER_FORCED_STEP };

struct scoring {
	const struct kvi_scores_options *o;
	struct kvi_teacher_forced *f;
	const struct kvi_teacher_forced_text *text;
	const kvarc_view *views;
	const struct kvi_elementwise *elementwise;
	float *score;
	size_t capacity; /* tokens, whole steps */
	/* H2O */
	float *rows;  /* keys of a step, as they are stored */
	float *keys;  /* keys of a layer: steps of tokens, each channel by channel */
	float *z;     /* logits of a query, by worker */
	double *sums; /* sums by head and token */
	/* current layer, tokens and queries */
	size_t layer, t0, n;
	const struct kvi_queries *q;
	const struct kvi_logits *logits;
};

/* ---- H2O ---- */

static size_t row_of(const struct scoring *scoring)
{
	return (size_t)scoring->o->model->kv_heads * scoring->o->model->head_channels;
}

static void load_step(void *opaque, size_t i, unsigned worker)
{
	const struct scoring *s = opaque;
	const size_t c = row_of(s), t0 = s->t0;
	(void)worker;
	for (size_t t = 0; t < s->n; t++)
		s->keys[(t0 * c) + i * STEP + t] = s->rows[t * c + i];
}

/* Steps before the last one do not change, but the buffer holds one layer only. */
static void load_keys(struct scoring *scoring, size_t end)
{
	for (scoring->t0 = 0; scoring->t0 < end; scoring->t0 += STEP) {
		scoring->n = end - scoring->t0 < STEP ? end - scoring->t0 : STEP;
		kvi_teacher_forced_keys(scoring->f, scoring->layer, scoring->views, scoring->t0,
		                        scoring->n, scoring->rows);
		kvi_parallel(scoring->o->pool, row_of(scoring), load_step, scoring);
	}
}

/* z = products of a query with the keys of a step; k: a step of each channel. By tokens, so that
 * vector units may add them up in the same order. */
static void products(float *restrict z, const float *restrict q, const float *restrict k,
                     size_t channels)
{
	memset(z, 0, STEP * sizeof *z);
	for (size_t c = 0; c < channels; c++, k += STEP)
		for (size_t t = 0; t < STEP; t++)
			z[t] += q[c] * k[t];
}

/* Adds the attention weights of a token's query to the sums of the tokens that it sees. */
static void share_out(const struct scoring *scoring, size_t head, size_t token, const float *q,
                      float *z)
{
	const struct kvi_model_file *m = scoring->o->model;
	const size_t hd = m->head_channels, kv = head / (m->heads / m->kv_heads);
	const size_t window = m->layers[scoring->layer].window;
	const size_t first = window && token >= window ? token - window + 1 : 0;
	double *sums = scoring->sums + head * scoring->capacity, total = 0;
	float most = -INFINITY;
	for (size_t t0 = first / STEP * STEP; t0 <= token; t0 += STEP)
		products(z + t0, q, scoring->keys + t0 * row_of(scoring) + kv * hd * STEP, hd);
	for (size_t t = first; t <= token; t++)
		most = z[t] > most ? z[t] : most;
	for (size_t t = first; t <= token; t++) {
		z[t] = scoring->elementwise->exp((z[t] - most) * m->attention_scale);
		total += (double)z[t];
	}
	for (size_t t = first; t <= token; t++)
		sums[t] += (double)z[t] / total;
}

static void one_head(void *opaque, size_t head, unsigned worker)
{
	const struct scoring *s = opaque;
	const size_t hd = s->o->model->head_channels;
	for (size_t i = 0; i < s->n; i++)
		share_out(s, head, s->t0 + i, s->q->q + i * s->q->stride + head * hd,
		          s->z + worker * s->capacity);
}

static kvarc_ret take_queries(void *opaque, size_t layer, const struct kvi_queries *queries,
                              size_t t0, size_t n)
{
	struct scoring *s = opaque;
	s->layer = layer;
	load_keys(s, t0 + n);
	s->q = queries;
	s->t0 = t0;
	s->n = n;
	kvi_parallel(s->o->pool, s->o->model->heads, one_head, s);
	return KVARC_OK;
}

static void mean_of_heads(const struct scoring *scoring)
{
	const struct kvi_model_file *m = scoring->o->model;
	const double n = (double)m->heads * m->n_layers;
	for (size_t t = 0; t < scoring->text->n; t++) {
		double sum = 0;
		for (size_t h = 0; h < m->heads; h++)
			sum += scoring->sums[h * scoring->capacity + t];
		scoring->score[t] = (float)(sum / n);
	}
}

static kvarc_ret open_attention(struct scoring *scoring)
{
	const struct kvi_alloc *alloc = scoring->o->alloc;
	const size_t c = row_of(scoring);
	scoring->rows = kvi_array(alloc, c, STEP * sizeof *scoring->rows);
	scoring->keys = kvi_array(alloc, scoring->capacity, c * sizeof *scoring->keys);
	scoring->z = kvi_array(alloc, scoring->capacity,
	                       kvi_pool_workers(scoring->o->pool) * sizeof *scoring->z);
	scoring->sums = kvi_calloc(alloc, scoring->capacity,
	                           scoring->o->model->heads * sizeof *scoring->sums);
	if (!scoring->rows || !scoring->keys || !scoring->z || !scoring->sums)
		return kvi_alloc_error(alloc);
	/* The end of the last step is multiplied with, but not looked at. */
	memset(scoring->keys, 0, scoring->capacity * c * sizeof *scoring->keys);
	return KVARC_OK;
}

/* ---- surprisal ---- */

static void surprise_one(void *opaque, size_t i, unsigned worker)
{
	const struct scoring *s = opaque;
	const float *z = s->logits->z + i * s->logits->stride;
	const size_t words = s->o->model->vocabulary, t = s->t0 + i + 1;
	float most = z[0];
	double sum = 0;
	(void)worker;
	if (t >= s->text->n)
		return;
	for (size_t w = 1; w < words; w++)
		most = z[w] > most ? z[w] : most;
	for (size_t w = 0; w < words; w++)
		sum += (double)s->elementwise->exp(z[w] - most);
	s->score[t] = (float)(log(sum) + ((double)most - (double)z[s->text->ids[t]]));
}

static kvarc_ret take_logits(void *opaque, const struct kvi_logits *logits, size_t t0, size_t n)
{
	struct scoring *s = opaque;
	s->logits = logits;
	s->t0 = t0;
	kvi_parallel(s->o->pool, n, surprise_one, s);
	return KVARC_OK;
}

/* ---- both ---- */

static kvarc_ret count(void *opaque, size_t t0, size_t n)
{
	const struct scoring *s = opaque;
	return s->o->done ? s->o->done(s->o->opaque, t0, n) : KVARC_OK;
}

kvarc_ret kvi_scores_make(struct kvi_teacher_forced *teacher,
                          const struct kvi_scores_options *options,
                          const struct kvi_teacher_forced_text *text, const kvarc_view *views,
                          float *score)
{
	const bool attention = options->kind == KVARC_SCORE_H2O;
	struct scoring s = { .o = options,
		             .f = teacher,
		             .text = text,
		             .views = views,
		             .score = score,
		             .elementwise = kvi_elementwise_get(options->isa_mask),
		             .capacity = (text->n + STEP - 1) / STEP * STEP };
	const struct kvi_teacher_forced_observer watch = { .opaque = &s,
		                                           .queries = attention ? take_queries
		                                                                : NULL,
		                                           .logits = attention ? NULL : take_logits,
		                                           .done = count };
	/* Ids are checked as the model goes through them, one step ahead of what reads them here.
	 * */
	for (size_t t = 0; t < text->n; t++)
		if (text->ids[t] < 0 || (uint32_t)text->ids[t] >= options->model->vocabulary)
			return KVARC_DATA;
	kvarc_ret ret = attention ? open_attention(&s) : KVARC_OK;
	if (!ret)
		ret = kvi_teacher_forced_observed(teacher, text, views, &watch);
	if (!ret && attention)
		mean_of_heads(&s);
	else if (!ret && text->n)
		score[0] = (float)log((double)options->model->vocabulary);
	kvi_free(options->alloc, s.rows);
	kvi_free(options->alloc, s.keys);
	kvi_free(options->alloc, s.z);
	kvi_free(options->alloc, s.sums);
	return ret;
}
