/* SPDX-License-Identifier: BSD-3-Clause */
/* example.h - a small made-up cache, and a way to stop when a call fails */
#ifndef KVARC_EXAMPLE_H
#define KVARC_EXAMPLE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvarc.h>

enum { LAYERS = 4, HEADS = 2, CHANNELS = 32, WIDTH = HEADS * CHANNELS };

/* Ends the example with a line that says which call failed, and how. */
#define CHECK(call)                                                                 \
	do {                                                                        \
		kvarc_ret check_ = (call);                                          \
		if (check_ != KVARC_OK) {                                           \
			fprintf(stderr, "%s: %s\n", #call, kvarc_strerror(check_)); \
			exit(1);                                                    \
		}                                                                   \
	} while (0)

#define EXPECT(condition)                                            \
	do {                                                         \
		if (!(condition)) {                                  \
			fprintf(stderr, "not so: %s\n", #condition); \
			exit(1);                                     \
		}                                                    \
	} while (0)

/* A bf16 with a plausible size for channel c. */
static inline uint16_t example_value(uint32_t *state, unsigned c)
{
	*state = *state * 1664525u + 1013904223u;
	return (uint16_t)((*state >> 16 & 0x80ff) | (0x3e00u + (c % 8) * 0x80));
}

/* tokens rows of WIDTH elements for each of the 2 * LAYERS tensors. */
static inline uint16_t *example_cache(size_t tokens)
{
	size_t n = 2 * LAYERS * tokens * WIDTH;
	uint16_t *cache = malloc(n * sizeof(*cache));
	uint32_t state = 1;

	EXPECT(cache != NULL);
	for (size_t i = 0; i < n; i++)
		cache[i] = example_value(&state, i % WIDTH);
	return cache;
}

/* One track; key and value of each layer, in this order. */
static inline void example_geometry(kvarc_geometry *g, kvarc_track *track,
                                    kvarc_tensor tensors[2 * LAYERS])
{
	memset(track, 0, sizeof(*track));
	memset(tensors, 0, 2 * LAYERS * sizeof(*tensors));
	for (unsigned i = 0; i < 2 * LAYERS; i++) {
		tensors[i].layer = i / 2;
		tensors[i].kind = i % 2 ? KVARC_VALUE : KVARC_KEY;
		tensors[i].dtype = KVARC_BF16;
		tensors[i].heads = HEADS;
		tensors[i].channels = CHANNELS;
	}
	memset(g, 0, sizeof(*g));
	g->n_tracks = 1;
	g->tracks = track;
	g->n_tensors = 2 * LAYERS;
	g->tensors = tensors;
}

/* Views of such a cache from token t0 on; views of tensor i start at its row t0. */
static inline void example_views(kvarc_view views[2 * LAYERS], uint16_t *cache, size_t tokens,
                                 size_t t0)
{
	memset(views, 0, 2 * LAYERS * sizeof(*views));
	for (size_t i = 0; i < 2 * LAYERS; i++) {
		views[i].data = cache + (i * tokens + t0) * WIDTH;
		views[i].token_stride = WIDTH * sizeof(*cache);
		views[i].block_stride = 0;
		views[i].block_elems = WIDTH;
		views[i].elem_stride = sizeof(*cache);
	}
}

/* An archive of such a cache, in memory. */
static inline kvarc_memory *example_archive(uint16_t *cache, size_t tokens)
{
	kvarc_track track;
	kvarc_tensor tensors[2 * LAYERS];
	kvarc_geometry geometry;
	kvarc_view views[2 * LAYERS];
	kvarc_memory *archive;
	kvarc_sink sink;
	kvarc_writer *w;

	example_geometry(&geometry, &track, tensors);
	example_views(views, cache, tokens, 0);
	CHECK(kvarc_memory_open(&archive, NULL));
	CHECK(kvarc_memory_sink(archive, &sink));
	CHECK(kvarc_writer_open(&w, &sink, NULL));
	CHECK(kvarc_writer_set_geometry(w, &geometry));
	CHECK(kvarc_writer_append(w, 0, tokens, NULL, NULL, views));
	CHECK(kvarc_writer_close(&w));
	return archive;
}

#endif
