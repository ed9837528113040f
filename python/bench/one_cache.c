/* SPDX-License-Identifier: BSD-3-Clause */
/* one_cache.c - saves a cache to a file and loads it again: processor seconds, bytes of the archive
 *
 * one_cache CACHE LAYERS HEADS TOKENS CHANNELS LEVEL ARCHIVE: CACHE has bf16, tensors of [head]
 * [token][channel], one after another. Times are of the fastest of three rounds.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kvarc.h"

#define CHECK(call)                                                    \
	do {                                                           \
		if ((call) != KVARC_OK) {                              \
			fprintf(stderr, "one_cache: failed: " #call "\n"); \
			exit(1);                                       \
		}                                                      \
	} while (0)

enum { ROUNDS = 3 };

struct shape {
	uint32_t layers, heads, tokens, channels;
};

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Tensors [head][token][channel], one after another. */
static void set_views(kvarc_view *views, const struct shape *s, uint16_t *data)
{
	const size_t head = (size_t)s->tokens * s->channels;
	for (uint32_t i = 0; i < 2 * s->layers; i++)
		views[i] = (kvarc_view){ .data = data ? data + i * s->heads * head : NULL,
			                 .token_stride = 2 * s->channels,
			                 .block_stride = 2 * head,
			                 .block_elems = s->channels,
			                 .elem_stride = 2 };
}

static void save(const struct shape *s, const kvarc_view *views, int level, const char *path)
{
	kvarc_tensor *tensors = calloc(2 * s->layers, sizeof *tensors);
	const kvarc_track track = { .kind = KVARC_TRACK_SELF };
	const kvarc_geometry g = { .n_tracks = 1,
		                   .n_tensors = 2 * s->layers,
		                   .tracks = &track,
		                   .tensors = tensors };
	const kvarc_writer_options options = { .level = KVARC_LEVEL(level) };
	kvarc_sink sink;
	kvarc_writer *w;
	if (!tensors)
		exit(1);
	for (uint32_t i = 0; i < g.n_tensors; i++)
		tensors[i] = (kvarc_tensor){ .layer = i / 2,
			                     .kind = i % 2 ? KVARC_VALUE : KVARC_KEY,
			                     .dtype = KVARC_BF16,
			                     .heads = s->heads,
			                     .channels = s->channels };
	CHECK(kvarc_sink_open_path(&sink, path, KVARC_SINK_TRUNCATE, NULL));
	sink.flush = NULL;
	CHECK(kvarc_writer_open(&w, &sink, &options));
	CHECK(kvarc_writer_set_geometry(w, &g));
	CHECK(kvarc_writer_append(w, 0, s->tokens, NULL, NULL, views));
	CHECK(kvarc_writer_close(&w));
	CHECK(kvarc_sink_close(&sink, NULL));
	free(tensors);
}

/* Into memory of its own for each tensor; returns the bytes of the archive. */
static uint64_t load(const struct shape *s, kvarc_view *views, const char *path)
{
	const size_t tensor = (size_t)s->heads * s->tokens * s->channels;
	const kvarc_range range = KVARC_RANGE_ALL(0);
	kvarc_source source;
	kvarc_reader *r;
	CHECK(kvarc_source_open_path(&source, path, NULL));
	CHECK(kvarc_reader_open(&r, &source, NULL));
	set_views(views, s, NULL);
	for (uint32_t i = 0; i < 2 * s->layers; i++)
		if (!(views[i].data = malloc(2 * tensor)))
			exit(1);
	CHECK(kvarc_reader_read(r, &range, views));
	kvarc_reader_close(&r);
	const uint64_t bytes = source.size;
	kvarc_source_close(&source);
	return bytes;
}

/* The same bits? Frees them. */
static int compare(const struct shape *s, const kvarc_view *views, const kvarc_view *back)
{
	const size_t bytes = 2 * (size_t)s->heads * s->tokens * s->channels;
	int same = 1;
	for (uint32_t i = 0; i < 2 * s->layers; i++) {
		same = same && !memcmp(views[i].data, back[i].data, bytes);
		free(back[i].data);
	}
	return same;
}

int main(int argc, char **argv)
{
	if (argc != 8)
		return 1;
	const struct shape s = { (uint32_t)atoi(argv[2]), (uint32_t)atoi(argv[3]),
		                 (uint32_t)atoi(argv[4]), (uint32_t)atoi(argv[5]) };
	const size_t n = 2 * (size_t)s.layers * s.heads * s.tokens * s.channels;
	uint16_t *data = malloc(2 * n);
	kvarc_view *views = calloc(2 * s.layers, sizeof *views);
	FILE *f = fopen(argv[1], "rb");
	if (!data || !views || !f || fread(data, 2, n, f) != n)
		return 1;
	fclose(f);
	set_views(views, &s, data);
	kvarc_view *into = calloc(2 * s.layers, sizeof *into);
	double saved = 1e9, loaded = 1e9;
	uint64_t bytes = 0;
	if (!into)
		return 1;
	for (int i = 0; i < ROUNDS; i++) {
		remove(argv[7]); /* to truncate a file takes as long as to free its pages */
		double start = now();
		save(&s, views, atoi(argv[6]), argv[7]);
		saved = now() - start < saved ? now() - start : saved;
		start = now();
		bytes = load(&s, into, argv[7]);
		loaded = now() - start < loaded ? now() - start : loaded;
		if (!compare(&s, views, into))
			return 1;
	}
	printf("%.6f %.6f %llu\n", saved, loaded, (unsigned long long)bytes);
	free(into);
	free(views);
	free(data);
	return 0;
}
