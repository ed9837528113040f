/* SPDX-License-Identifier: BSD-3-Clause */
/* token_blind.c - candidates for a token, or its expected embedding, through the model */
#include "token_blind.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "exact/engine_internal.h"
#include "exact/head.h"
#include "util/bytes.h"
#include "util/fpmode.h"
#include "util/hash.h"
#include "util/parallel.h"

/* ==== Candidates and expected embeddings (spec/codecs/model.md 6) ==== */

/* Most candidates for one token. */
enum { KVI_CANDIDATES_MAX = 16 };

/* The guess for a token: n candidates, or one expected embedding with its row. */
struct guess {
	size_t n; /* 0: nothing is known */
	int32_t ids[KVI_CANDIDATES_MAX];
	float p[KVI_CANDIDATES_MAX];
	float *row; /* width of the model; NULL: candidates */
};

struct guesses {
	struct kvi_run_options o;
	const struct kvi_model_file *m;
	unsigned blind;
	struct kvi_head *head;
	uint32_t *weights;   /* weights of the vocabulary for KVI_HEAD_TOKENS tokens */
	float *rows;         /* a row of the embedding for each worker */
	struct kvi_logits z; /* logits of the current tokens */
	struct guess *to;
};

static void guesses_close(struct guesses **out)
{
	struct guesses *g = *out;
	if (!g)
		return;
	kvi_head_close(&g->head);
	kvi_free(g->o.alloc, g->weights);
	kvi_free(g->o.alloc, g->rows);
	kvi_free(g->o.alloc, g);
	*out = NULL;
}

/* Opens the memory for guesses of a kind. Returns OK, MEM, MEMLIMIT. */
static kvarc_ret guesses_open(struct guesses **out, const struct kvi_run_options *options,
                              unsigned blind)
{
	struct guesses *g = kvi_calloc(options->alloc, 1, sizeof *g);
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
		guesses_close(out);
	return ret;
}

/* Chooses the entries of the vocabulary with the largest weights above 0, in descending order; of
 * equal weights the lowest ids. */
static void choose(const struct guesses *guesses, const uint32_t *w, struct guess *to)
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

/* Computes the mean of the embedding's rows by weight; sum 0: n is 0. row: scratch memory of the
 * model's width. Rows are finite: the engine has checked the embedding. */
static void expect_row(const struct guesses *guesses, const uint32_t *w, uint64_t sum, float *row,
                       struct guess *to)
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

static void guess_token(void *opaque, size_t t, unsigned worker)
{
	const struct guesses *g = opaque;
	uint32_t *w = g->weights + t * g->m->vocabulary;
	uint64_t sum = kvi_head_pick_weights(g->z.z + t * g->z.stride, g->m->vocabulary, w);
	if (g->to[t].row)
		expect_row(g, w, sum, g->rows + worker * g->m->width, &g->to[t]);
	else
		choose(g, w, &g->to[t]);
}

/* Guesses the token after each of n tokens, from their hidden states after the last layer. */
static void guesses_make(struct guesses *guesses, const float *h, size_t stride, size_t n,
                         struct guess *to)
{
	for (size_t t = 0, some; t < n; t += some) {
		some = n - t < KVI_HEAD_TOKENS ? n - t : KVI_HEAD_TOKENS;
		guesses->z = kvi_head_logits(guesses->head, h + t * stride, stride, some);
		guesses->to = to + t;
		kvi_parallel(guesses->o.pool, some, guess_token, guesses);
	}
}

/* ==== Runs of the model alone, and of candidates for its tokens ==== */

struct kvi_token_blind {
	const struct kvi_alloc *alloc;
	const struct kvi_model_file *m;
	struct kvi_run *run;
	struct guesses *guesses;
	size_t kv, layer_floats; /* floats of a row; of a layer's rows */
	float *k, *v;            /* predicted rows, by layer and token */
	float *own_k, *own_v;    /* rows of the tokens themselves, keys rotated */
	float *rows;             /* embeddings of candidates */
	struct guess *guess;     /* guesses for the segment's tokens and the next one */
	float *guess_rows;
	size_t before, n;
	int32_t positions[KVI_RUN_TOKENS];
};

bool kvi_token_blind_known(unsigned blind)
{
	return blind <= KVARC_BLIND_TOP_MAX || blind == KVARC_BLIND_EMBEDDING;
}

void kvi_token_blind_name(unsigned blind, char name[16])
{
	if (blind == KVARC_BLIND_EMBEDDING)
		snprintf(name, 16, "embedding");
	else
		snprintf(name, 16, "top-%u", blind & 0xff);
}

unsigned kvi_token_blind_of(const char *name)
{
	char text[16];
	const char *last = strrchr(name, ' ');
	last = last ? last + 1 : name;
	for (unsigned blind = 1; blind <= KVARC_BLIND_TOP_MAX; blind++) {
		kvi_token_blind_name(blind, text);
		if (!strcmp(text, last))
			return blind;
	}
	kvi_token_blind_name(KVARC_BLIND_EMBEDDING, text);
	return strcmp(text, last) ? 0 : KVARC_BLIND_EMBEDDING;
}

struct kvi_h128 kvi_token_blind_digest(const struct kvi_engine *engine, unsigned blind)
{
	uint8_t b[32] = { 0 };
	if (!blind)
		return kvi_engine_digest(engine);
	kvi_store_h128(b, kvi_engine_head_digest(engine));
	kvi_store32(b + 16, blind);
	return kvi_h128(b, sizeof b);
}

static kvarc_ret open_buffers(struct kvi_token_blind *model, unsigned blind)
{
	float **all[] = { &model->k, &model->v, &model->own_k, &model->own_v };
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		*all[i] = kvi_array(model->alloc, model->m->n_layers,
		                    model->layer_floats * sizeof **all[i]);
		if (!*all[i])
			return kvi_alloc_error(model->alloc);
	}
	model->guess = kvi_calloc(model->alloc, KVI_RUN_TOKENS + 1, sizeof *model->guess);
	if (!model->guess)
		return kvi_alloc_error(model->alloc);
	if (blind != KVARC_BLIND_EMBEDDING)
		return KVARC_OK;
	model->rows = kvi_array(model->alloc, KVI_RUN_TOKENS,
	                        model->m->width * sizeof *model->rows);
	model->guess_rows = kvi_array(model->alloc, KVI_RUN_TOKENS + 1,
	                              model->m->width * sizeof *model->guess_rows);
	if (!model->rows || !model->guess_rows)
		return kvi_alloc_error(model->alloc);
	for (size_t i = 0; i <= KVI_RUN_TOKENS; i++)
		model->guess[i].row = model->guess_rows + i * model->m->width;
	return KVARC_OK;
}

kvarc_ret kvi_token_blind_open(struct kvi_token_blind **out, const struct kvi_run_options *options,
                               unsigned blind)
{
	struct kvi_run_options run = *options;
	struct kvi_token_blind *b = kvi_calloc(options->alloc, 1, sizeof *b);
	*out = b;
	if (!b)
		return kvi_alloc_error(options->alloc);
	b->alloc = options->alloc;
	b->m = kvi_engine_model(options->engine);
	b->kv = (size_t)b->m->kv_heads * b->m->head_channels;
	b->layer_floats = KVI_RUN_TOKENS * b->kv;
	run.whole = true;
	kvarc_ret ret = kvi_run_open(&b->run, &run);
	if (!ret)
		ret = guesses_open(&b->guesses, &run, blind);
	if (!ret)
		ret = open_buffers(b, blind);
	if (ret)
		kvi_token_blind_close(out);
	return ret;
}

void kvi_token_blind_close(struct kvi_token_blind **out)
{
	struct kvi_token_blind *b = *out;
	if (!b)
		return;
	float *const buffers[] = { b->k, b->v, b->own_k, b->own_v, b->rows, b->guess_rows };
	for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
		kvi_free(b->alloc, buffers[i]);
	kvi_free(b->alloc, b->guess);
	guesses_close(&b->guesses);
	kvi_run_close(&b->run);
	kvi_free(b->alloc, b);
	*out = NULL;
}

static void copy_rows(float *to, size_t columns, const float *from, size_t stride, size_t n)
{
	for (size_t t = 0; t < n; t++)
		memcpy(to + t * columns, from + t * stride, columns * sizeof *to);
}

/* Keeps the rows of the tokens themselves: candidates overwrite them in the run. */
static kvarc_ret copy_own_rows(void *opaque, size_t layer, struct kvi_predicted *predicted)
{
	const struct kvi_token_blind *b = opaque;
	copy_rows(b->own_k + layer * b->layer_floats, b->kv, predicted->k, predicted->stride, b->n);
	copy_rows(b->own_v + layer * b->layer_floats, b->kv, predicted->v, predicted->stride, b->n);
	return KVARC_OK;
}

/* Runs the tokens themselves in an open loop, then guesses the token after each. */
static kvarc_ret run_tokens(struct kvi_token_blind *blind, const int32_t *ids)
{
	const struct kvi_run_pass pass = { .opaque = blind, .rows = copy_own_rows };
	kvarc_ret ret = kvi_run_through(blind->run, ids, blind->positions, blind->n, &pass);
	if (ret)
		return ret;
	const struct kvi_hidden h = kvi_run_hidden(blind->run);
	guesses_make(blind->guesses, h.h, h.width, blind->n, blind->guess + 1);
	return KVARC_OK;
}

/* Candidates that go through the model together. */
struct candidate_batch {
	struct kvi_token_blind *b;
	size_t n;
	int32_t ids[KVI_RUN_TOKENS], positions[KVI_RUN_TOKENS];
	size_t token[KVI_RUN_TOKENS], at[KVI_RUN_TOKENS];
	float p[KVI_RUN_TOKENS];
};

static void mix(float *x, const float *of, float p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		x[i] = x[i] + p * of[i];
}

/* Adds the candidates' rows of a layer, times p, to their tokens' predictions. END at the last
 * layer: its attention is not needed. */
static kvarc_ret mix_rows(void *opaque, size_t layer, const struct kvi_predicted *predicted)
{
	const struct candidate_batch *s = opaque;
	struct kvi_token_blind *b = s->b;
	uint64_t mode = kvi_fp_exact();
	for (size_t i = 0; i < s->n; i++) {
		size_t to = layer * b->layer_floats + s->token[i] * b->kv;
		mix(b->k + to, predicted->k + i * predicted->stride, s->p[i], b->kv);
		mix(b->v + to, predicted->v + i * predicted->stride, s->p[i], b->kv);
	}
	kvi_fp_restore(mode);
	return layer + 1 < b->m->n_layers ? KVARC_OK : KVARC_END;
}

static kvarc_ret run_batch(struct candidate_batch *batch)
{
	struct kvi_token_blind *b = batch->b;
	const struct kvi_candidates c = { batch->ids, b->rows, batch->positions, batch->at,
		                          batch->n };
	const struct kvi_run_pass pass = { .opaque = batch, .predicted = mix_rows };
	if (!batch->n)
		return KVARC_OK;
	kvarc_ret ret = kvi_run_candidates(b->run, &c);
	if (!ret)
		ret = kvi_run_layers(b->run, &pass);
	batch->n = 0;
	return ret == KVARC_END ? KVARC_OK : ret;
}

/* Runs candidates, those of the last token first: a candidate attends to the cached rows before its
 * token, and its own row stays in the cache at its token's index. So the rows before are still
 * those of the tokens themselves. */
static kvarc_ret run_candidates(struct kvi_token_blind *blind)
{
	struct candidate_batch s = { .b = blind };
	kvarc_ret ret = KVARC_OK;
	for (size_t t = blind->n; t-- > 0 && !ret;) {
		const struct guess *g = &blind->guess[t];
		for (size_t i = 0; i < g->n && !ret; i++) {
			if (g->row)
				memcpy(blind->rows + s.n * blind->m->width, g->row,
				       blind->m->width * sizeof *g->row);
			s.ids[s.n] = g->ids[i];
			s.p[s.n] = g->p[i];
			s.positions[s.n] = blind->positions[t];
			s.token[s.n] = t;
			s.at[s.n++] = blind->before + t;
			if (s.n == KVI_RUN_TOKENS)
				ret = run_batch(&s);
		}
	}
	return ret ? ret : run_batch(&s);
}

/* Moves the next token's guess to index 0, where each guess has a row buffer of its own. */
static void shift(struct kvi_token_blind *blind)
{
	struct guess *first = blind->guess, *next = blind->guess + blind->n;
	if (blind->n && first->row)
		memcpy(first->row, next->row, blind->m->width * sizeof *first->row);
	if (blind->n) {
		float *row = first->row;
		*first = *next;
		first->row = row;
	}
	blind->before += blind->n;
	if (!blind->before)
		first->n = 0;
}

/*
 * Three passes: the tokens themselves, which give their own rows and guesses for the tokens after
 * them; the candidates, which give the predictions; then the own rows replace those of the
 * candidates in the cache.
 */
kvarc_ret kvi_token_blind_segment(struct kvi_token_blind *blind, const int32_t *ids,
                                  const int32_t *positions, size_t n)
{
	shift(blind);
	blind->n = n;
	memcpy(blind->positions, positions, n * sizeof *positions);
	for (uint32_t l = 0; l < blind->m->n_layers; l++) {
		memset(blind->k + l * blind->layer_floats, 0, n * blind->kv * sizeof *blind->k);
		memset(blind->v + l * blind->layer_floats, 0, n * blind->kv * sizeof *blind->v);
	}
	kvarc_ret ret = run_tokens(blind, ids);
	if (!ret)
		ret = run_candidates(blind);
	for (uint32_t l = 0; l < blind->m->n_layers && !ret; l++)
		ret = kvi_run_put(blind->run, l, blind->before,
		                  blind->own_k + l * blind->layer_floats,
		                  blind->own_v + l * blind->layer_floats, blind->kv, n);
	/* candidates moved the run off the sequence: the next segment comes behind these tokens */
	kvi_run_place(blind->run, 0, blind->before, blind->positions, n);
	return ret;
}

struct kvi_predicted kvi_token_blind_predict(struct kvi_token_blind *blind, uint32_t layer)
{
	kvi_run_place(blind->run, layer, blind->before, blind->positions, blind->n);
	return (struct kvi_predicted){ blind->k + layer * blind->layer_floats,
		                       blind->v + layer * blind->layer_floats, blind->kv };
}

void kvi_token_blind_rotate_row(const struct kvi_token_blind *blind, size_t t, float *k)
{
	kvi_run_rotate_row(blind->run, t, k);
}

void kvi_token_blind_restart(struct kvi_token_blind *blind)
{
	kvi_run_restart(blind->run);
	blind->before = blind->n = 0;
}
