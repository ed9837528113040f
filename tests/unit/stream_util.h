/* SPDX-License-Identifier: BSD-3-Clause */
/* stream_util.h - files in memory that fail on demand, geometries, data: for the stream tests */
#ifndef STREAM_UTIL_H
#define STREAM_UTIL_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kvarc.h"

/* A file in memory; the limits make its callbacks fail or come up short. */
struct memfile {
	uint8_t *p;
	size_t n, cap;
	long fail_at; /* the call that fails, counted from 0; -1: none */
	_Atomic long calls;
	size_t short_max; /* bytes a read gives at most, 0: all */
	uint64_t next;    /* pipe: where the next read must be */
	bool pipe;
};

void memfile_free(struct memfile *f);
kvarc_sink memfile_sink(struct memfile *f);
/* size KVARC_UNKNOWN when f->pipe. */
kvarc_source memfile_source(struct memfile *f);

/* Counts what is held, fails on demand; safe with threads. */
struct counting {
	_Atomic long calls, held;
	long fail_at; /* -1: none; from this call on all fail when sticky */
	bool sticky;
};
kvarc_allocator counting_allocator(struct counting *c);

/* A whole cache: geometry, tokens and data of every tensor, packed. */
struct cache {
	kvarc_geometry g;
	kvarc_rope ropes[2];
	kvarc_track tracks[4];
	kvarc_tensor tensors[16];
	uint64_t n[4]; /* tokens a track */
	int32_t *ids[4], *positions[4];
	uint8_t *data[16];
	kvarc_view views[16];
};

/* Deterministic; several shapes, numbered from 0 to CACHES - 1. */
enum { CACHES = 7 };
void cache_make(struct cache *c, int number, uint64_t seed);
/* Memory for data, ids and positions of a geometry that is filled in, and the views of it. */
void cache_link(struct cache *c);
/* The same geometry with empty (0xa5) data, to read into. */
void cache_make_empty(struct cache *c, const struct cache *like);
void cache_free(struct cache *c);
size_t cache_bytes(const struct cache *c, size_t tensor);
bool cache_equal(const struct cache *a, const struct cache *b);
/* Views that start at token t0. */
void cache_views_at(const struct cache *c, uint64_t t0, kvarc_view *views);
int cache_fetch(void *cache, uint32_t tensor, uint32_t head, uint32_t heads, uint64_t t0,
                uint32_t n, void *dst);
int cache_deliver(void *cache, uint32_t tensor, uint32_t head, uint32_t heads, uint64_t t0,
                  uint32_t n, const void *src);

/* Writes all tracks with append, all at once. */
kvarc_ret cache_write(const struct cache *c, struct memfile *f, const kvarc_writer_options *o);
/* Reads everything in order into to. *state: how it ended. */
kvarc_ret cache_read_seq(struct cache *to, struct memfile *f, const kvarc_reader_options *o,
                         kvarc_state *state);
/* Reads all tracks by range. */
kvarc_ret cache_read_range(struct cache *to, struct memfile *f, const kvarc_reader_options *o);
kvarc_ret cache_verify(struct memfile *f, const kvarc_reader_options *o);

uint64_t rand_next(uint64_t *state);

/* A file id of zeros: the same bytes each time. */
kvarc_writer_options stream_options(int level, unsigned threads);
/* A written cache, for tests that read; the caller frees it. */
struct memfile stream_written(const struct cache *c, const kvarc_writer_options *o);

#endif
