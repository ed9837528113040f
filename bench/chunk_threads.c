/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * chunk_threads.c - a single chunk on two threads over one, and a part of a chunk over all of it
 *
 * usage: chunk_threads CACHE.safetensors [PROFILE.kvp]. For each level: the key of the lowest
 * layer, 256 tokens a chunk, encoded and decoded by one thread and by two, and 32 of its tokens;
 * then all tensors of 256 tokens. Two coders of one thread each, which share nothing, do the same
 * at the same time: more than their speed over one of them no two threads can reach. In memory,
 * with all checks; the best of many rounds, in which the contestants take turns. The last numbers
 * are how long a cache line takes from one of two threads to the other and back: where that is
 * much, their cores have no cache in common. Levels 2 and 3 need a profile of the cache's shape.
 */
#include "config.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <kvarc.h>

enum { CHUNK = 256, PART = 32, ROUNDS = 200, TURNS = 10, MEETINGS = 100, LEVELS = 4 };

struct threads_bytes {
	uint8_t *p;
	size_t n, capacity;
};

/* A cache in memory: all of its tensors, or the first one alone. */
struct threads_cache {
	kvarc_geometry g;
	kvarc_tensor one;
	uint64_t tokens;
	kvarc_view *views, *back;
	const kvarc_profile *profile;
};

static void require(kvarc_ret ret, const char *what)
{
	if (ret == KVARC_OK)
		return;
	fprintf(stderr, "chunk_threads: %s: %s\n", what, kvarc_strerror(ret));
	exit(1);
}

static void *allocate(size_t bytes)
{
	void *p = calloc(bytes ? bytes : 1, 1);
	require(p ? KVARC_OK : KVARC_MEM, "memory");
	return p;
}

static double seconds_now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void read_file(struct threads_bytes *b, const char *path)
{
	FILE *f = fopen(path, "rb");
	require(f && !fseek(f, 0, SEEK_END) ? KVARC_OK : KVARC_IO, path);
	b->n = (size_t)ftell(f);
	b->p = allocate(b->n);
	rewind(f);
	require(fread(b->p, 1, b->n, f) == b->n ? KVARC_OK : KVARC_IO, path);
	fclose(f);
}

static int write_bytes(void *opaque, const void *data, size_t n, uint64_t at)
{
	struct threads_bytes *b = opaque;
	if (at > b->capacity || n > b->capacity - at)
		return -1;
	memcpy(b->p + at, data, n);
	b->n = at + n > b->n ? (size_t)(at + n) : b->n;
	return 0;
}

static int64_t read_bytes(void *opaque, void *buf, size_t n, uint64_t at)
{
	const struct threads_bytes *b = opaque;
	if (at >= b->n)
		return 0;
	n = n < b->n - at ? n : (size_t)(b->n - at);
	memcpy(buf, b->p + at, n);
	return (int64_t)n;
}

static size_t row_bytes(const kvarc_tensor *t)
{
	return (size_t)t->heads * t->channels * kvarc_dtype_bytes(t->dtype);
}

/* Packed views of all tensors from token t0 on. */
static void views_at(const struct threads_cache *c, const kvarc_view *base, uint64_t t0,
                     kvarc_view *views)
{
	for (size_t i = 0; i < c->g.n_tensors; i++) {
		views[i] = base[i];
		views[i].data = (uint8_t *)base[i].data + t0 * base[i].token_stride;
	}
}

static kvarc_view *make_views(const struct threads_cache *c)
{
	kvarc_view *v = allocate(c->g.n_tensors * sizeof *v);
	for (size_t i = 0; i < c->g.n_tensors; i++) {
		const kvarc_tensor *t = &c->g.tensors[i];
		v[i] = (kvarc_view){ .data = allocate(c->tokens * row_bytes(t)),
			             .token_stride = row_bytes(t),
			             .block_elems = t->heads * t->channels,
			             .elem_stride = (uint32_t)kvarc_dtype_bytes(t->dtype) };
	}
	return v;
}

static kvarc_import *load(struct threads_cache *c, struct threads_bytes *file)
{
	kvarc_import_options o = KVARC_IMPORT_OPTIONS_INIT;
	kvarc_source source = { .read = read_bytes, .opaque = file, .size = file->n };
	kvarc_import *im;
	o.profiles = &c->profile;
	o.n_profiles = c->profile != NULL;
	o.rope = c->profile ? NULL : "none";
	require(kvarc_import_open(&im, &source, NULL, &o), "the cache");
	c->g = *kvarc_import_geometry(im);
	c->tokens = kvarc_import_tokens(im, 0) / CHUNK * CHUNK;
	require(c->tokens && c->g.n_tracks == 1 ? KVARC_OK : KVARC_OPTIONS, "256 tokens, a track");
	c->views = make_views(c);
	for (size_t i = 0; i < c->g.n_tensors; i++)
		for (uint64_t t = 0; t < c->tokens; t += CHUNK)
			if (kvarc_import_fetch(im, (uint32_t)i, 0, c->g.tensors[i].heads, t, CHUNK,
			                       (uint8_t *)c->views[i].data +
			                               t * c->views[i].token_stride))
				require(KVARC_IO, "the cache");
	c->back = make_views(c);
	return im;
}

static void unload(struct threads_cache *c, kvarc_import **im)
{
	for (size_t i = 0; i < c->g.n_tensors; i++) {
		free(c->views[i].data);
		free(c->back[i].data);
	}
	free(c->views);
	free(c->back);
	kvarc_import_close(im);
}

/* A coder at work on a cache; two of them may share nothing but `line`. */
struct threads_coder {
	const struct threads_cache *c;
	int level;
	unsigned threads;
	struct threads_bytes archive;
	kvarc_reader *r;
	atomic_uint *line; /* counts starts of two coders; NULL: it is alone */
	double s[TURNS];   /* seconds of each append or read */
};

/* Returns when the other coder is here, too. */
static void line_up(atomic_uint *line)
{
	if (!line)
		return;
	const unsigned both = atomic_fetch_add(line, 1) / 2 * 2 + 2;
	while (atomic_load(line) < both)
		;
}

/* How many appends of an encoder count, at most TURNS. */
static size_t appends(const struct threads_cache *c)
{
	return c->tokens / CHUNK < TURNS ? (size_t)(c->tokens / CHUNK) : TURNS;
}

/* Appends segment after segment. */
static void *encode(void *coder)
{
	struct threads_coder *k = coder;
	const struct threads_cache *c = k->c;
	kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
	kvarc_sink sink = { .write = write_bytes, .opaque = &k->archive };
	kvarc_view *views = allocate(c->g.n_tensors * sizeof *views);
	kvarc_writer *w;
	o.level = KVARC_LEVEL(k->level);
	o.profile = k->level >= 2 ? c->profile : NULL;
	o.common.threads = k->threads;
	k->archive.n = 0;
	require(kvarc_writer_open(&w, &sink, &o), "writer");
	require(kvarc_writer_set_geometry(w, &c->g), "geometry");
	for (size_t i = 0; i < appends(c); i++) {
		views_at(c, c->views, i * CHUNK, views);
		line_up(k->line);
		double start = seconds_now();
		require(kvarc_writer_append(w, 0, CHUNK, NULL, NULL, views), "append");
		k->s[i] = seconds_now() - start;
	}
	require(kvarc_writer_close(&w), "close");
	free(views);
	return NULL;
}

static void open_reader(struct threads_coder *k)
{
	kvarc_reader_options o = KVARC_READER_OPTIONS_INIT;
	kvarc_source source = { .size = k->archive.n, .memory = k->archive.p };
	o.common.threads = k->threads;
	o.profiles = &k->c->profile;
	o.n_profiles = k->c->profile != NULL;
	require(kvarc_reader_open(&k->r, &source, &o), "reader");
}

/* Reads n tokens of the first segment; the time of it. */
static double decode(const struct threads_coder *k, uint64_t t0, uint64_t n)
{
	const kvarc_range range = { .n_layers = UINT32_MAX, .t0 = t0, .n = n };
	const struct threads_cache *c = k->c;
	line_up(k->line);
	double start = seconds_now();
	require(kvarc_reader_read(k->r, &range, c->back), "read");
	double s = seconds_now() - start;
	for (size_t i = 0; i < c->g.n_tensors; i++)
		if (memcmp(c->back[i].data,
		           (uint8_t *)c->views[i].data + t0 * c->views[i].token_stride,
		           n * c->views[i].token_stride) != 0)
			require(KVARC_DATA, "what was read");
	return s;
}

/* Reads the first segment again and again. */
static void *decode_turns(void *coder)
{
	struct threads_coder *k = coder;
	for (size_t i = 0; i < TURNS; i++)
		k->s[i] = decode(k, 0, CHUNK);
	return NULL;
}

/* The time in which a cache line goes from one thread to another and back. */
static void *meet(void *coder)
{
	struct threads_coder *k = coder;
	for (size_t i = 0; i < TURNS; i++) {
		double start = seconds_now();
		for (unsigned n = 0; n < MEETINGS; n++)
			line_up(k->line);
		k->s[i] = (seconds_now() - start) / MEETINGS;
	}
	return NULL;
}

/* Two coders do the same at the same time, in threads of the program. */
static void run_both(struct threads_coder k[2], void *(*run)(void *coder))
{
	atomic_uint line;
	pthread_t other;
	atomic_init(&line, 0);
	k[0].line = k[1].line = &line;
	require(pthread_create(&other, NULL, run, &k[1]) ? KVARC_MEM : KVARC_OK, "thread");
	run(&k[0]);
	pthread_join(other, NULL);
	k[0].line = k[1].line = NULL;
}

static double later(double a, double b)
{
	return a > b ? a : b;
}

static void keep_best(double *best, double s)
{
	if (*best == 0 || s < *best)
		*best = s;
}

/* The fastest append but the first one, which fits parameters; of two coders, until both ended. */
static void keep_best_append(double *best, const struct threads_coder *a,
                             const struct threads_coder *b)
{
	const size_t n = appends(a->c);
	for (size_t i = n > 1; i < n; i++)
		keep_best(best, later(a->s[i], b->s[i]));
}

/* Contestants: one thread, two threads, and two coders of one thread each at the same time. */
enum { ONE, TWO, BOTH, CONTESTANTS, CODERS = BOTH + 2 };

/* Seconds of each, both ways; of a read of a part of the chunk by one thread; of a meeting, in the
 * rounds when that took least and most. */
struct threads_times {
	double enc[CONTESTANTS], dec[CONTESTANTS], part, near, far;
};

/* How far the cores are from each other that the system, or one below it, has chosen. */
static void keep_distance(struct threads_coder k[CODERS], struct threads_times *t)
{
	double best = 0;
	run_both(&k[BOTH], meet);
	for (unsigned i = 0; i < TURNS; i++)
		keep_best(&best, k[BOTH].s[i]);
	keep_best(&t->near, best);
	t->far = later(t->far, best);
}

static void encode_in_turns(struct threads_coder k[CODERS], unsigned rounds,
                            struct threads_times *t)
{
	for (unsigned round = 0; round < rounds; round++) {
		for (unsigned i = ONE; i <= TWO; i++) {
			encode(&k[i]);
			keep_best_append(&t->enc[i], &k[i], &k[i]);
		}
		run_both(&k[BOTH], encode);
		keep_best_append(&t->enc[BOTH], &k[BOTH], &k[BOTH + 1]);
		keep_distance(k, t);
	}
}

static void decode_in_turns(struct threads_coder k[CODERS], unsigned rounds,
                            struct threads_times *t)
{
	for (unsigned i = 0; i < CODERS; i++)
		open_reader(&k[i]);
	for (unsigned round = 0; round < rounds; round++) {
		for (unsigned turn = 0; turn < TURNS; turn++) {
			for (unsigned i = ONE; i <= TWO; i++)
				keep_best(&t->dec[i], decode(&k[i], 0, CHUNK));
			keep_best(&t->part, decode(&k[ONE], CHUNK / 2, PART));
		}
		run_both(&k[BOTH], decode_turns);
		for (unsigned turn = 0; turn < TURNS; turn++)
			keep_best(&t->dec[BOTH], later(k[BOTH].s[turn], k[BOTH + 1].s[turn]));
		keep_distance(k, t);
	}
	for (unsigned i = 0; i < CODERS; i++)
		kvarc_reader_close(&k[i].r);
}

/* One row. c: the same cache twice, in memory of its own. */
static void measure(const struct threads_cache c[2], const char *what, int level, unsigned rounds)
{
	struct threads_coder k[CODERS] = { 0 };
	struct threads_times t = { 0 };
	for (unsigned i = 0; i < CODERS; i++) {
		struct threads_bytes *archive = &k[i].archive;
		k[i].c = &c[i == BOTH + 1];
		k[i].level = level;
		k[i].threads = i == TWO ? 2 : 1;
		for (size_t j = 0; j < c->g.n_tensors; j++)
			archive->capacity += 2 * c->tokens * row_bytes(&c->g.tensors[j]);
		archive->capacity += 64 << 20; /* a profile */
		archive->p = allocate(archive->capacity);
	}
	encode_in_turns(k, rounds, &t);
	decode_in_turns(k, rounds, &t);
	printf("%-12s level %d  encode %7.0f us, 2 threads %5.2fx, 2 coders %5.2fx  ", what, level,
	       t.enc[ONE] * 1e6, t.enc[ONE] / t.enc[TWO], 2 * t.enc[ONE] / t.enc[BOTH]);
	printf("decode %7.0f us, 2 threads %5.2fx, 2 coders %5.2fx  ", t.dec[ONE] * 1e6,
	       t.dec[ONE] / t.dec[TWO], 2 * t.dec[ONE] / t.dec[BOTH]);
	printf("%d of %d tokens %5.3f  cores %3.0f to %3.0f ns\n", PART, CHUNK, t.part / t.dec[ONE],
	       t.near * 1e9, t.far * 1e9);
	fflush(stdout);
	for (unsigned i = 0; i < CODERS; i++)
		free(k[i].archive.p);
}

static bool has_level(const kvarc_profile *p, int level)
{
	kvarc_profile_info info;
	return level < 2 ||
	       (p && kvarc_profile_get_info(p, &info) == KVARC_OK && info.levels >> level & 1);
}

int main(int argc, char **argv)
{
	struct threads_bytes file = { 0 }, profile_file = { 0 };
	struct threads_cache all[2] = { { .profile = NULL } }, key[2];
	kvarc_import *im[2];
	kvarc_profile *profile = NULL;
	if (argc < 2 || argc > 3) {
		fprintf(stderr, "usage: chunk_threads CACHE.safetensors [PROFILE.kvp]\n");
		return 2;
	}
	if (argc > 2) {
		read_file(&profile_file, argv[2]);
		kvarc_source source = { .read = read_bytes,
			                .opaque = &profile_file,
			                .size = profile_file.n };
		require(kvarc_profile_open(&profile, &source, NULL), argv[2]);
	}
	read_file(&file, argv[1]);
	for (unsigned i = 0; i < 2; i++) {
		all[i].profile = profile;
		im[i] = load(&all[i], &file);
		key[i] = all[i];
		key[i].one = all[i].g.tensors[0];
		key[i].g.tensors = &key[i].one;
		key[i].g.n_tensors = 1;
	}
	printf("# chunks of %d x %d channels and %d tokens, of all %zu tensors and of one\n",
	       (int)key->one.heads, (int)key->one.channels, CHUNK, all->g.n_tensors);
	for (int level = 0; level < LEVELS; level++) {
		if (!has_level(profile, level))
			continue;
		measure(key, "one chunk", level, ROUNDS / (level < 2 ? 1 : 4));
		measure(all, "a segment", level, ROUNDS / (level < 2 ? 10 : 40));
	}
	for (unsigned i = 0; i < 2; i++)
		unload(&all[i], &im[i]);
	kvarc_profile_close(&profile);
	free(file.p);
	free(profile_file.p);
	return 0;
}
