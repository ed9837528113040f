/* SPDX-License-Identifier: BSD-3-Clause */
/* token_blind.c - runs of the model alone, and of candidates for its tokens */
#include "token_blind.h"

#include <stdio.h>
#include <string.h>

#include "token_guess.h"
#include "util/hash.h"
#include "exact/engine_internal.h"
#include "util/fpmode.h"
#include "util/bytes.h"

struct kvi_token_blind {
	const struct kvi_alloc *alloc;
	const struct kvi_model_file *m;
	struct kvi_run *run;
	struct kvi_guesses *guesses;
	size_t kv, layer_floats; /* floats of a row; of a layer's */
	float *k, *v;            /* predicted, by layer and token */
	float *own_k, *own_v;    /* of the tokens, keys rotated */
	float *rows;             /* embeddings of candidates */
	struct kvi_guess *guess; /* of the segment's tokens and the next one */
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

struct kvi_h128 kvi_token_blind_digest(const struct kvi_engine *e, unsigned blind)
{
	uint8_t b[32] = { 0 };
	if (!blind)
		return kvi_engine_digest(e);
	kvi_store_h128(b, kvi_engine_head_digest(e));
	kvi_store32(b + 16, blind);
	return kvi_h128(b, sizeof b);
}

static kvarc_ret open_buffers(struct kvi_token_blind *b, unsigned blind)
{
	float **all[] = { &b->k, &b->v, &b->own_k, &b->own_v };
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		*all[i] = kvi_array(b->alloc, b->m->n_layers, b->layer_floats * sizeof **all[i]);
		if (!*all[i])
			return kvi_alloc_error(b->alloc);
	}
	b->guess = kvi_calloc(b->alloc, KVI_RUN_TOKENS + 1, sizeof *b->guess);
	if (!b->guess)
		return kvi_alloc_error(b->alloc);
	if (blind != KVARC_BLIND_EMBEDDING)
		return KVARC_OK;
	b->rows = kvi_array(b->alloc, KVI_RUN_TOKENS, b->m->width * sizeof *b->rows);
	b->guess_rows = kvi_array(b->alloc, KVI_RUN_TOKENS + 1,
	                          b->m->width * sizeof *b->guess_rows);
	if (!b->rows || !b->guess_rows)
		return kvi_alloc_error(b->alloc);
	for (size_t i = 0; i <= KVI_RUN_TOKENS; i++)
		b->guess[i].row = b->guess_rows + i * b->m->width;
	return KVARC_OK;
}

kvarc_ret kvi_token_blind_open(struct kvi_token_blind **out, const struct kvi_run_options *o,
                               unsigned blind)
{
	struct kvi_run_options run = *o;
	struct kvi_token_blind *b = kvi_calloc(o->alloc, 1, sizeof *b);
	*out = b;
	if (!b)
		return kvi_alloc_error(o->alloc);
	b->alloc = o->alloc;
	b->m = kvi_engine_model(o->engine);
	b->kv = (size_t)b->m->kv_heads * b->m->head_channels;
	b->layer_floats = KVI_RUN_TOKENS * b->kv;
	run.whole = true;
	kvarc_ret ret = kvi_run_open(&b->run, &run);
	if (!ret)
		ret = kvi_guesses_open(&b->guesses, &run, blind);
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
	kvi_guesses_close(&b->guesses);
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
static kvarc_ret copy_own_rows(void *opaque, size_t layer, struct kvi_predicted *p)
{
	const struct kvi_token_blind *b = opaque;
	copy_rows(b->own_k + layer * b->layer_floats, b->kv, p->k, p->stride, b->n);
	copy_rows(b->own_v + layer * b->layer_floats, b->kv, p->v, p->stride, b->n);
	return KVARC_OK;
}

/* The tokens themselves, in an open loop; then the candidates for the token after each. */
static kvarc_ret go_on(struct kvi_token_blind *b, const int32_t *ids)
{
	const struct kvi_run_pass pass = { .opaque = b, .rows = copy_own_rows };
	kvarc_ret ret = kvi_run_through(b->run, ids, b->positions, b->n, &pass);
	if (ret)
		return ret;
	const struct kvi_hidden h = kvi_run_hidden(b->run);
	kvi_guesses_make(b->guesses, h.h, h.width, b->n, b->guess + 1);
	return KVARC_OK;
}

/* Candidates that go through the model together. */
struct some {
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

/* Adds the candidates' rows of a layer to their tokens' predictions. The last layer is not run. */
static kvarc_ret mix_rows(void *opaque, size_t layer, const struct kvi_predicted *p)
{
	const struct some *s = opaque;
	struct kvi_token_blind *b = s->b;
	uint64_t mode = kvi_fp_exact();
	for (size_t i = 0; i < s->n; i++) {
		size_t to = layer * b->layer_floats + s->token[i] * b->kv;
		mix(b->k + to, p->k + i * p->stride, s->p[i], b->kv);
		mix(b->v + to, p->v + i * p->stride, s->p[i], b->kv);
	}
	kvi_fp_restore(mode);
	return layer + 1 < b->m->n_layers ? KVARC_OK : KVARC_END;
}

static kvarc_ret run_some(struct some *s)
{
	struct kvi_token_blind *b = s->b;
	const struct kvi_candidates c = { s->ids, b->rows, s->positions, s->at, s->n };
	const struct kvi_run_pass pass = { .opaque = s, .predicted = mix_rows };
	if (!s->n)
		return KVARC_OK;
	kvarc_ret ret = kvi_run_candidates(b->run, &c);
	if (!ret)
		ret = kvi_run_layers(b->run, &pass);
	s->n = 0;
	return ret == KVARC_END ? KVARC_OK : ret;
}

/* From the last token on, because a candidate stays in its token's place. */
static kvarc_ret run_candidates(struct kvi_token_blind *b)
{
	struct some s = { .b = b };
	kvarc_ret ret = KVARC_OK;
	for (size_t t = b->n; t-- > 0 && !ret;) {
		const struct kvi_guess *g = &b->guess[t];
		for (size_t i = 0; i < g->n && !ret; i++) {
			if (g->row)
				memcpy(b->rows + s.n * b->m->width, g->row,
				       b->m->width * sizeof *g->row);
			s.ids[s.n] = g->ids[i];
			s.p[s.n] = g->p[i];
			s.positions[s.n] = b->positions[t];
			s.token[s.n] = t;
			s.at[s.n++] = b->before + t;
			if (s.n == KVI_RUN_TOKENS)
				ret = run_some(&s);
		}
	}
	return ret ? ret : run_some(&s);
}

/* The next token is the first one now. */
static void shift(struct kvi_token_blind *b)
{
	struct kvi_guess *first = b->guess, *next = b->guess + b->n;
	if (b->n && first->row)
		memcpy(first->row, next->row, b->m->width * sizeof *first->row);
	if (b->n) {
		float *row = first->row;
		*first = *next;
		first->row = row;
	}
	b->before += b->n;
	if (!b->before)
		first->n = 0;
}

kvarc_ret kvi_token_blind_segment(struct kvi_token_blind *b, const int32_t *ids,
                                  const int32_t *positions, size_t n)
{
	shift(b);
	b->n = n;
	memcpy(b->positions, positions, n * sizeof *positions);
	for (uint32_t l = 0; l < b->m->n_layers; l++) {
		memset(b->k + l * b->layer_floats, 0, n * b->kv * sizeof *b->k);
		memset(b->v + l * b->layer_floats, 0, n * b->kv * sizeof *b->v);
	}
	kvarc_ret ret = go_on(b, ids);
	if (!ret)
		ret = run_candidates(b);
	for (uint32_t l = 0; l < b->m->n_layers && !ret; l++)
		ret = kvi_run_put(b->run, l, b->before, b->own_k + l * b->layer_floats,
		                  b->own_v + l * b->layer_floats, b->kv, n);
	kvi_run_place(b->run, 0, b->before, b->positions, n);
	return ret;
}

struct kvi_predicted kvi_token_blind_predict(struct kvi_token_blind *b, uint32_t layer)
{
	kvi_run_place(b->run, layer, b->before, b->positions, b->n);
	return (struct kvi_predicted){ b->k + layer * b->layer_floats,
		                       b->v + layer * b->layer_floats, b->kv };
}

void kvi_token_blind_rotate_row(const struct kvi_token_blind *b, size_t t, float *k)
{
	kvi_run_rotate_row(b->run, t, k);
}

void kvi_token_blind_restart(struct kvi_token_blind *b)
{
	kvi_run_restart(b->run);
	b->before = b->n = 0;
}
