/* SPDX-License-Identifier: BSD-3-Clause */
/* token_guess.c - candidates and expected embeddings (spec/codecs/model.md 6) */
#include "token_guess.h"

#include <string.h>

#include "util/parallel.h"

struct kvi_guesses {
	struct kvi_run_options o;
	const struct kvi_model_file *m;
	unsigned blind;
	struct kvi_head *head;
	uint32_t *weights;   /* weights of the vocabulary for KVI_HEAD_TOKENS tokens */
	float *rows;         /* a row of the embedding for each worker */
	struct kvi_logits z; /* logits of the current tokens */
	struct kvi_guess *to;
};

kvarc_ret kvi_guesses_open(struct kvi_guesses **out, const struct kvi_run_options *options,
                           unsigned blind)
{
	struct kvi_guesses *g = kvi_calloc(options->alloc, 1, sizeof *g);
	*out = g;
	if (!g)
		return kvi_alloc_error(options->alloc);
	g->o = *options;
	g->m = kvi_engine_model(options->engine);
	g->blind = blind;
	g->weights = kvi_array(options->alloc, g->m->vocabulary,
	                       KVI_HEAD_TOKENS * sizeof *g->weights);
	g->rows = kvi_array(options->alloc, kvi_pool_workers(options->pool),
	                    g->m->width * sizeof *g->rows);
	kvarc_ret ret = g->weights && g->rows ? kvi_head_open(&g->head, options)
	                                      : kvi_alloc_error(options->alloc);
	if (ret)
		kvi_guesses_close(out);
	return ret;
}

void kvi_guesses_close(struct kvi_guesses **out)
{
	struct kvi_guesses *g = *out;
	if (!g)
		return;
	kvi_head_close(&g->head);
	kvi_free(g->o.alloc, g->weights);
	kvi_free(g->o.alloc, g->rows);
	kvi_free(g->o.alloc, g);
	*out = NULL;
}

/* The heaviest words, in order; of the same weight the first. */
static void choose(const struct kvi_guesses *guesses, const uint32_t *w, struct kvi_guess *to)
{
	uint32_t sum = 0, best[KVI_CANDIDATES_MAX];
	to->n = 0;
	for (uint32_t i = 0; i < guesses->m->vocabulary; i++) {
		if (!w[i] || (to->n == guesses->blind && w[i] <= best[to->n - 1]))
			continue;
		size_t at = to->n < guesses->blind ? to->n++ : to->n - 1;
		for (; at && best[at - 1] < w[i]; at--) {
			best[at] = best[at - 1];
			to->ids[at] = to->ids[at - 1];
		}
		best[at] = w[i];
		to->ids[at] = (int32_t)i;
	}
	for (size_t i = 0; i < to->n; i++)
		sum += best[i];
	for (size_t i = 0; i < to->n; i++)
		to->p[i] = (float)best[i] / (float)sum;
}

static void expect_row(const struct kvi_guesses *guesses, const uint32_t *w, uint64_t sum,
                       float *row, struct kvi_guess *to)
{
	to->n = sum ? 1 : 0;
	to->p[0] = 1;
	memset(to->row, 0, guesses->m->width * sizeof *to->row);
	for (uint32_t i = 0; i < guesses->m->vocabulary; i++) {
		float p = (float)w[i] / (float)sum;
		if (!w[i] || !kvi_matrix_row(&guesses->m->embedding, i, row))
			continue;
		for (size_t c = 0; c < guesses->m->width; c++)
			to->row[c] = to->row[c] + p * row[c];
	}
}

static void guess(void *opaque, size_t t, unsigned worker)
{
	const struct kvi_guesses *g = opaque;
	uint32_t *w = g->weights + t * g->m->vocabulary;
	uint64_t sum = kvi_head_weights(g->z.z + t * g->z.stride, g->m->vocabulary, w);
	if (g->to[t].row)
		expect_row(g, w, sum, g->rows + worker * g->m->width, &g->to[t]);
	else
		choose(g, w, &g->to[t]);
}

void kvi_guesses_make(struct kvi_guesses *guesses, const float *h, size_t stride, size_t n,
                      struct kvi_guess *to)
{
	for (size_t t = 0, some; t < n; t += some) {
		some = n - t < KVI_HEAD_TOKENS ? n - t : KVI_HEAD_TOKENS;
		guesses->z = kvi_head_logits(guesses->head, h + t * stride, stride, some);
		guesses->to = to + t;
		kvi_parallel(guesses->o.pool, some, guess, guesses);
	}
}
