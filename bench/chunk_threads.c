/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * chunk_threads.c - a single chunk on two threads over one, and a part of a chunk over all of it
 *
 * usage: chunk_threads CACHE.safetensors [PROFILE.kvp]. For each level: the key of the lowest
 * layer, 256 tokens a chunk, encoded and decoded by one thread and by two, and 32 of its tokens;
 * then all tensors of 256 tokens. In memory, with all checks; the best of many rounds, in which the
 * contestants take turns. Levels 2 and 3 need a profile of the cache's shape.
 */
#include "config.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <kvarc.h>

enum { CHUNK = 256, PART = 32, ROUNDS = 200, LEVELS = 4, THREADS = 2 };

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

/* Appends segment after segment; the time of the fastest one but the first, which fits. */
static double encode(const struct threads_cache *c, int level, unsigned threads, uint64_t tokens,
                     struct threads_bytes *out)
{
	kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
	kvarc_sink sink = { .write = write_bytes, .opaque = out };
	kvarc_view *views = allocate(c->g.n_tensors * sizeof *views);
	kvarc_writer *w;
	double best = 1e9;
	o.level = KVARC_LEVEL(level);
	o.profile = level >= 2 ? c->profile : NULL;
	o.common.threads = threads;
	out->n = 0;
	require(kvarc_writer_open(&w, &sink, &o), "writer");
	require(kvarc_writer_set_geometry(w, &c->g), "geometry");
	for (uint64_t t0 = 0; t0 < tokens; t0 += CHUNK) {
		views_at(c, c->views, t0, views);
		double start = seconds_now();
		require(kvarc_writer_append(w, 0, CHUNK, NULL, NULL, views), "append");
		double s = seconds_now() - start;
		if (s < best && (t0 || tokens == CHUNK))
			best = s;
	}
	require(kvarc_writer_close(&w), "close");
	free(views);
	return best;
}

static kvarc_reader *open_reader(const struct threads_cache *c, const struct threads_bytes *archive,
                                 unsigned threads)
{
	kvarc_reader_options o = KVARC_READER_OPTIONS_INIT;
	kvarc_source source = { .size = archive->n, .memory = archive->p };
	kvarc_reader *r;
	o.common.threads = threads;
	o.profiles = &c->profile;
	o.n_profiles = c->profile != NULL;
	require(kvarc_reader_open(&r, &source, &o), "reader");
	return r;
}

/* Reads n tokens of the first segment; the time of it. */
static double decode(const struct threads_cache *c, kvarc_reader *r, uint64_t t0, uint64_t n)
{
	const kvarc_range range = { .n_layers = UINT32_MAX, .t0 = t0, .n = n };
	double start = seconds_now();
	require(kvarc_reader_read(r, &range, c->back), "read");
	double s = seconds_now() - start;
	for (size_t i = 0; i < c->g.n_tensors; i++)
		if (memcmp(c->back[i].data,
		           (uint8_t *)c->views[i].data + t0 * c->views[i].token_stride,
		           n * c->views[i].token_stride) != 0)
			require(KVARC_DATA, "what was read");
	return s;
}

static void keep_best(double *best, double s)
{
	if (*best == 0 || s < *best)
		*best = s;
}

/* One row: both ways with one thread and with two, and the part of the chunk. */
static void measure(const struct threads_cache *c, const char *what, int level, uint64_t tokens,
                    unsigned rounds)
{
	struct threads_bytes out = { 0 };
	double enc[THREADS] = { 0 }, dec[THREADS] = { 0 }, part = 0;
	kvarc_reader *r[THREADS];
	for (size_t i = 0; i < c->g.n_tensors; i++)
		out.capacity += 2 * tokens * row_bytes(&c->g.tensors[i]);
	out.capacity += 64 << 20; /* a profile */
	out.p = allocate(out.capacity);
	for (unsigned k = 0; k < rounds; k++)
		for (unsigned i = 0; i < THREADS; i++)
			keep_best(&enc[i], encode(c, level, i + 1, tokens, &out));
	for (unsigned i = 0; i < THREADS; i++)
		r[i] = open_reader(c, &out, i + 1);
	for (unsigned k = 0; k < 10 * rounds; k++) {
		for (unsigned i = 0; i < THREADS; i++)
			keep_best(&dec[i], decode(c, r[i], 0, CHUNK));
		keep_best(&part, decode(c, r[0], CHUNK / 2, PART));
	}
	printf("%-12s level %d  encode %7.0f us, 2 threads %5.2fx  decode %7.0f us, 2 threads "
	       "%5.2fx  %d of %d tokens %5.3f\n",
	       what, level, enc[0] * 1e6, enc[0] / enc[1], dec[0] * 1e6, dec[0] / dec[1], PART,
	       CHUNK, part / dec[0]);
	fflush(stdout);
	for (unsigned i = 0; i < THREADS; i++)
		kvarc_reader_close(&r[i]);
	free(out.p);
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
	struct threads_cache all = { 0 };
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
	all.profile = profile;
	kvarc_import *im = load(&all, &file);
	struct threads_cache key = all;
	key.one = all.g.tensors[0];
	key.g.tensors = &key.one;
	key.g.n_tensors = 1;
	printf("# chunks of %d x %d channels and %d tokens, of all %zu tensors and of one\n",
	       (int)key.one.heads, (int)key.one.channels, CHUNK, all.g.n_tensors);
	for (int level = 0; level < LEVELS; level++) {
		if (!has_level(profile, level))
			continue;
		measure(&key, "one chunk", level, all.tokens, ROUNDS / (level < 2 ? 1 : 4));
		measure(&all, "a segment", level, all.tokens, ROUNDS / (level < 2 ? 10 : 40));
	}
	for (size_t i = 0; i < all.g.n_tensors; i++) {
		free(all.views[i].data);
		free(all.back[i].data);
	}
	free(all.views);
	free(all.back);
	kvarc_import_close(&im);
	kvarc_profile_close(&profile);
	free(file.p);
	free(profile_file.p);
	return 0;
}
