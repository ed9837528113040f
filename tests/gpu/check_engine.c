/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * check_engine.c - check_engine [-n TOKENS] [-c CHANNELS] [MODEL...]: models through the kernels of
 * gpu/ on the host and through the engine of the library, bit by bit; -c: a model that is made in
 * memory, of heads of that number of channels
 *
 * Predictions of all layers and hidden states behind them, in open and in closed loops, in each
 * arithmetic that the kernels have.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine_trial.h"
#include "exact_plan.h"
#include "made_model.h"
#include "util/fpmode.h"

enum { SEGMENT = 256 };

/* What is compared: rows of all tokens, layer after layer. */
struct engine_rows {
	float *k, *v, *h;
	size_t kv, width; /* of a row */
};

struct check_tokens {
	int32_t *ids, *positions;
	size_t n;
};

struct check_way {
	struct kvi_arithmetic arithmetic;
	bool closed;
};

static struct kvi_alloc alloc;

static void *memory(size_t n, size_t size)
{
	void *p = calloc(n ? n : 1, size);
	if (!p) {
		fputs("check_engine: out of memory\n", stderr);
		exit(2);
	}
	return p;
}

static void wants(bool good, const char *what, const kvarc_error *error)
{
	if (good)
		return;
	fprintf(stderr, "check_engine: %s%s%s\n", what, error ? ": " : "",
	        error ? error->text : "");
	exit(1);
}

static struct engine_rows rows_of(const struct kvi_model_file *m, size_t n)
{
	struct engine_rows r = { .kv = (size_t)m->kv_heads * m->head_channels, .width = m->width };
	r.k = memory(m->n_layers * n * r.kv, sizeof(float));
	r.v = memory(m->n_layers * n * r.kv, sizeof(float));
	r.h = memory(m->n_layers * n * r.width, sizeof(float));
	return r;
}

static void free_rows(struct engine_rows *r)
{
	free(r->k);
	free(r->v);
	free(r->h);
}

/* Elements of a cache that are not quite those predicted, and one that is not finite. */
static float disturbed(float x, size_t t, size_t c)
{
	const uint32_t infinite = 0x7f800000;
	if (t % 97 == 5 && c == 1)
		memcpy(&x, &infinite, sizeof x);
	return x + (float)((t * 7 + c * 3) % 11) * 0x1p-8f;
}

/* Takes over the predictions of n tokens from `first` on; k and v become what attention sees. */
static void take(struct engine_rows *r, const struct kvi_predicted *p, size_t layer, size_t all,
                 size_t first, size_t n, bool closed, float *k, float *v)
{
	for (size_t t = 0; t < n; t++)
		for (size_t c = 0; c < r->kv; c++) {
			const size_t at = (layer * all + first + t) * r->kv + c;
			r->k[at] = p->k[t * p->stride + c];
			r->v[at] = p->v[t * p->stride + c];
			k[t * r->kv + c] = closed ? disturbed(r->k[at], first + t, c) : r->k[at];
			v[t * r->kv + c] = closed ? disturbed(r->v[at], first + t, c) : r->v[at];
		}
}

static void correct(const struct kvi_hidden *h, size_t width, size_t n)
{
	for (size_t t = 0; t < n; t++)
		for (size_t i = 0; i < width; i++)
			h->h[t * h->width + i] += h->root[t] * 0x1p-6f;
}

static void take_hidden(struct engine_rows *r, const struct kvi_hidden *h, size_t layer, size_t all,
                        size_t first, size_t n)
{
	for (size_t t = 0; t < n; t++)
		memcpy(r->h + (layer * all + first + t) * r->width, h->h + t * h->width,
		       r->width * sizeof(float));
}

/* By the library, segment after segment. */
static void by_library(const struct kvi_engine *e, struct kvi_pool *pool,
                       const struct check_tokens *t, const struct check_way *w,
                       struct engine_rows *r)
{
	const struct kvi_run_options o = {
		.engine = e, .alloc = &alloc, .pool = pool, .whole = true
	};
	struct kvi_run *run;
	float *k = memory(SEGMENT * r->kv, sizeof *k), *v = memory(SEGMENT * r->kv, sizeof *v);
	wants(!kvi_run_open(&run, &o), "no run", NULL);
	for (size_t at = 0; at < t->n; at += SEGMENT) {
		const size_t n = t->n - at < SEGMENT ? t->n - at : SEGMENT;
		wants(!kvi_run_segment(run, t->ids + at, t->positions + at, n), "no tokens", NULL);
		for (size_t l = 0; l < kvi_engine_model(e)->n_layers; l++) {
			const struct kvi_predicted p = kvi_run_predict(run);
			struct kvi_hidden h = kvi_run_hidden(run);
			take(r, &p, l, t->n, at, n, w->closed, k, v);
			kvi_run_rotate(run, k, r->kv);
			if (w->closed)
				correct(&h, r->width, n);
			wants(!kvi_run_advance(run, k, v, r->kv, w->closed), "no layer", NULL);
			h = kvi_run_hidden(run);
			take_hidden(r, &h, l, t->n, at, n);
		}
	}
	kvi_run_close(&run);
	free(k);
	free(v);
}

/* By the kernels, layer after layer. */
static void by_kernels(const struct kvi_engine *e, const struct check_tokens *t,
                       const struct check_way *w, struct engine_rows *r)
{
	struct engine_trial *trial = engine_trial_open(e, t->ids, t->positions, t->n);
	float *k, *v;
	wants(!posix_memalign((void **)&k, 64, t->n * r->kv * sizeof *k), "no memory", NULL);
	wants(!posix_memalign((void **)&v, 64, t->n * r->kv * sizeof *v), "no memory", NULL);
	for (size_t l = 0; l < kvi_engine_model(e)->n_layers; l++) {
		const struct kvi_predicted p = engine_trial_predict(trial);
		struct kvi_hidden h = engine_trial_hidden(trial);
		take(r, &p, l, t->n, 0, t->n, w->closed, k, v);
		engine_trial_rotate(trial, k, r->kv);
		if (w->closed)
			correct(&h, r->width, t->n);
		engine_trial_advance(trial, k, v, r->kv, w->closed);
		h = engine_trial_hidden(trial);
		take_hidden(r, &h, l, t->n, 0, t->n);
	}
	engine_trial_close(trial);
	free(k);
	free(v);
}

/* Bits of numbers; a difference ends the program. */
static void compare(const float *a, const float *b, size_t layers, size_t n, size_t columns,
                    const char *model, const char *what)
{
	for (size_t i = 0; i < layers * n * columns; i++)
		if (memcmp(&a[i], &b[i], sizeof *a)) {
			fprintf(stderr,
			        "check_engine: %s: %s of layer %zu, token %zu, channel %zu: "
			        "%a by the library, %a by the kernels\n",
			        model, what, i / columns / n, i / columns % n, i % columns,
			        (double)a[i], (double)b[i]);
			exit(1);
		}
}

/* Of an arithmetic; returns the number of numbers that were compared. */
static size_t check_way(const char *path, const struct kvi_model_file *m, struct kvi_pool *pool,
                        const struct check_tokens *t, const struct check_way *w)
{
	kvarc_error error = { .text = "" };
	struct kvi_engine *e;
	struct engine_rows wanted = rows_of(m, t->n), got = rows_of(m, t->n);
	wants(!kvi_engine_open(&e, &alloc, m, &w->arithmetic, pool, &error), path, &error);
	by_library(e, pool, t, w, &wanted);
	const uint64_t mode = kvi_fp_exact();
	by_kernels(e, t, w, &got);
	kvi_fp_restore(mode);
	compare(wanted.k, got.k, m->n_layers, t->n, wanted.kv, path, "predicted key");
	compare(wanted.v, got.v, m->n_layers, t->n, wanted.kv, path, "predicted value");
	compare(wanted.h, got.h, m->n_layers, t->n, wanted.width, path, "hidden state");
	kvi_engine_close(&e);
	free_rows(&wanted);
	free_rows(&got);
	return m->n_layers * t->n * (2 * wanted.kv + wanted.width);
}

static struct check_tokens tokens_of(const struct kvi_model_file *m, size_t n)
{
	struct check_tokens t = { .n = n };
	uint32_t seed = 7;
	if (m->positions.data && t.n > m->positions.rows)
		t.n = m->positions.rows;
	t.ids = memory(t.n, sizeof *t.ids);
	t.positions = memory(t.n, sizeof *t.positions);
	for (size_t i = 0; i < t.n; i++) {
		seed = seed * 1664525u + 1013904223u;
		t.ids[i] = (int32_t)((seed >> 8) % m->vocabulary);
		t.positions[i] = (int32_t)i;
	}
	return t;
}

/* What was checked. */
struct check_count {
	size_t models, ways, numbers;
};

/* A model in all arithmetics that kernels have. */
static void check_model(const char *name, const struct kvi_model_file *m, size_t n,
                        struct kvi_pool *pool, struct check_count *count)
{
	struct check_tokens t = tokens_of(m, n);
	for (unsigned level = 4; level <= 8; level++) {
		const struct kvi_engine_level l = kvi_engine_level(level);
		/* in place of level 8, which computes what level 7 does: W8A8 throughout */
		const struct check_way w = { level < 8 ? l.arithmetic
			                               : (struct kvi_arithmetic){ .fp8 = false },
			                     level < 8 ? l.closed : false };
		wants(kvi_gpu_exact_takes(&w.arithmetic), "an arithmetic without kernels", NULL);
		count->numbers += check_way(name, m, pool, &t, &w);
		count->ways++;
	}
	count->models++;
	free(t.ids);
	free(t.positions);
}

static void check_file(const char *path, size_t n, struct kvi_pool *pool, struct check_count *count)
{
	struct kvi_model_file *m;
	kvarc_error error = { .text = "" };
	const kvarc_ret ret = kvi_model_file_open(&m, &alloc, path, &error);
	if (ret == KVARC_OPTIONS) /* this build does not read such files */
		return;
	wants(!ret, path, &error);
	check_model(path, m, n, pool, count);
	kvi_model_file_close(&m);
}

static void check_made(uint32_t channels, size_t n, struct kvi_pool *pool,
                       struct check_count *count)
{
	struct made_model m;
	char name[64];
	snprintf(name, sizeof name, "a model of heads of %u channels", (unsigned)channels);
	made_model_open(&m, &alloc, channels);
	check_model(name, &m.file, n, pool, count);
	made_model_close(&m);
}

int main(int argc, char **argv)
{
	size_t tokens = 300, channels = 0;
	struct check_count count = { 0 };
	struct kvi_pool *pool;
	for (int c; (c = getopt(argc, argv, "n:c:")) != -1;) {
		if (c != 'n' && c != 'c')
			return 2;
		*(c == 'n' ? &tokens : &channels) = strtoul(optarg, NULL, 10);
	}
	if (channels > MADE_CHANNELS_MAX)
		return 2;
	kvi_alloc_init(&alloc, NULL, 0);
	wants(!kvi_pool_open(&pool, &alloc, 1), "no pool", NULL);
	if (channels)
		check_made((uint32_t)channels, tokens, pool, &count);
	for (int i = optind; i < argc; i++)
		check_file(argv[i], tokens, pool, &count);
	kvi_pool_close(pool);
	printf("%zu models in %zu ways, %zu numbers are the same\n", count.models, count.ways,
	       count.numbers);
	return 0;
}
