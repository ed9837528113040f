/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * engine_speed.c - tokens a second of a model in exact arithmetic, by the length of the cache
 *
 * One thread, processor time, of whole segments of 256 tokens. A length is a sequence from its
 * first token on. The time of a segment grows with the tokens in front of it, about in a straight
 * line; so at most SAMPLES segments are timed, in the middles of equal parts of the sequence, and
 * what is in front of them is put into the cache: keys and values of the first FIRST tokens, again
 * and again, with RoPE for their new positions. usage: engine MODEL IDS LEVEL TOKENS...
 * MODEL: a GGUF or a folder. IDS: a file of token ids in decimals, repeated where it ends.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "exact/engine.h"

enum { SEGMENT = 256, SAMPLES = 8, FIRST = 1024, IDS_MAX = 1 << 20 };

/* Token ids, and rows of all layers of the first tokens, keys without RoPE. */
struct timed_run {
	struct kvi_engine *engine;
	struct kvi_run *run;
	bool closed;
	size_t layers, row, n_ids;
	int32_t *ids, positions[SEGMENT], at[SEGMENT];
	float *keys, *values; /* by layer, token */
	float *some;          /* rows of a segment */
};

static struct kvi_alloc alloc;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void fail(const char *what)
{
	fprintf(stderr, "engine: %s\n", what);
	exit(1);
}

static void *memory(size_t n, size_t size)
{
	void *p = kvi_array(&alloc, n, size);

	if (!p)
		fail("no memory");
	return p;
}

static void read_ids(struct timed_run *s, const char *path)
{
	FILE *f = fopen(path, "r");

	s->ids = memory(IDS_MAX, sizeof *s->ids);
	while (f && s->n_ids < IDS_MAX && fscanf(f, "%d", &s->ids[s->n_ids]) == 1)
		s->n_ids++;
	if (!s->n_ids)
		fail("no token ids");
	fclose(f);
}

static void place(struct timed_run *s, size_t at)
{
	for (size_t i = 0; i < SEGMENT; i++) {
		s->positions[i] = (int32_t)(at + i);
		s->at[i] = s->ids[(at + i) % s->n_ids];
	}
}

/* The next segment through all layers; its rows are stored when `keep` is set. */
static void go(struct timed_run *s, size_t at, bool keep)
{
	place(s, at);
	if (kvi_run_segment(s->run, s->at, s->positions, SEGMENT) != KVARC_OK)
		fail("a segment is refused");
	for (size_t l = 0; l < s->layers; l++) {
		const struct kvi_predicted p = kvi_run_predict(s->run);
		for (size_t t = 0; keep && t < SEGMENT; t++) {
			size_t to = (l * FIRST + at + t) * s->row;
			memcpy(s->keys + to, p.k + t * p.stride, s->row * sizeof(float));
			memcpy(s->values + to, p.v + t * p.stride, s->row * sizeof(float));
		}
		kvi_run_rotate(s->run, p.k, p.stride);
		if (kvi_run_advance(s->run, p.k, p.v, p.stride, s->closed) != KVARC_OK)
			fail("no memory");
	}
}

/* Segment `at` from stored rows. */
static void fill(struct timed_run *s, size_t at)
{
	place(s, at);
	for (size_t l = 0; l < s->layers; l++) {
		size_t from = (l * FIRST + at % FIRST) * s->row;
		memcpy(s->some, s->keys + from, SEGMENT * s->row * sizeof(float));
		kvi_run_place(s->run, l, at, s->positions, SEGMENT);
		kvi_run_rotate(s->run, s->some, s->row);
		if (kvi_run_put(s->run, l, at, s->some, s->values + from, s->row, SEGMENT) !=
		    KVARC_OK)
			fail("no memory");
	}
	kvi_run_place(s->run, 0, at + SEGMENT, NULL, 0);
}

/* Tokens a second of a sequence of that many; digest: of the hidden states, by the arithmetic. */
static double speed(struct timed_run *s, size_t tokens, uint64_t *digest)
{
	const size_t segments = tokens / SEGMENT;
	const size_t samples = segments < SAMPLES ? segments : SAMPLES;
	double used = 0;

	kvi_run_restart(s->run);
	for (size_t i = 0, next = 0; i < segments && next < samples; i++) {
		/* the middle of part `next` */
		if (i != (2 * next + 1) * segments / (2 * samples)) {
			fill(s, i * SEGMENT);
			continue;
		}
		double t = now();
		go(s, i * SEGMENT, false);
		used += now() - t;
		next++;
		const struct kvi_hidden h = kvi_run_hidden(s->run);
		*digest = kvi_h64(h.h, SEGMENT * h.width * sizeof *h.h) + 31 * *digest;
	}
	return (double)(samples * SEGMENT) / used;
}

static void open_all(struct timed_run *s, const char *path, unsigned level)
{
	const struct kvi_engine_level l = kvi_engine_level(level);
	struct kvi_model_file *file;
	struct kvi_pool *pool;
	kvarc_error error = { 0 };

	if (kvi_pool_open(&pool, &alloc, 1) != KVARC_OK ||
	    kvi_model_file_open(&file, &alloc, path, &error) != KVARC_OK ||
	    kvi_engine_open(&s->engine, &alloc, file, &l.arithmetic, pool, &error) != KVARC_OK)
		fail(error.text);
	const struct kvi_run_options o = {
		.engine = s->engine, .alloc = &alloc, .pool = pool, .isa_mask = 0
	};
	if (kvi_run_open(&s->run, &o) != KVARC_OK)
		fail("no memory");
	s->closed = l.closed;
	s->layers = file->n_layers;
	s->row = (size_t)file->kv_heads * file->head_channels;
	s->keys = memory(s->layers * FIRST, s->row * sizeof(float));
	s->values = memory(s->layers * FIRST, s->row * sizeof(float));
	s->some = memory(SEGMENT, s->row * sizeof(float));
}

int main(int argc, char **argv)
{
	struct timed_run s = { 0 };

	if (argc < 5)
		fail("usage: engine MODEL IDS LEVEL TOKENS...");
	kvi_alloc_init(&alloc, NULL, UINT64_MAX);
	read_ids(&s, argv[2]);
	open_all(&s, argv[1], (unsigned)atoi(argv[3]));
	for (size_t at = 0; at < FIRST; at += SEGMENT)
		go(&s, at, true);
	for (int i = 4; i < argc; i++) {
		size_t tokens = strtoul(argv[i], NULL, 10);
		uint64_t digest = 0;
		double by = speed(&s, tokens, &digest);
		printf("%zu tokens  %.1f tokens/s  0x%016llx\n", tokens, by,
		       (unsigned long long)digest);
		fflush(stdout);
	}
	return 0;
}
