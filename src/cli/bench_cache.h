/* SPDX-License-Identifier: BSD-3-Clause */
/* bench_cache.h - a cache that is measured, and one measurement of it */
#ifndef KVARC_CLI_BENCH_CACHE_H
#define KVARC_CLI_BENCH_CACHE_H

#include <stdint.h>

#include "kvarc.h"
#include "cli/tiers.h"

/* A cache in memory, its decoded copy and its archive. bench_cache_free releases everything. */
struct bench_cache {
	const kvarc_geometry *geometry; /* lives in the two handles below */
	kvarc_import *im;
	kvarc_reader *reader;
	uint64_t *tokens; /* numbers of tokens, by track */
	struct bench_tokens {
		int32_t *ids, *positions; /* ids may be NULL */
	} * of;                           /* tokens by track */
	kvarc_view *views;                /* views by tensor, packed */
	kvarc_view *decoded;              /* buffers for decoded elements, by tensor */
	uint8_t *data, *decoded_data;
	uint64_t raw_bytes, elements;
	uint8_t *archive;
	uint64_t archive_bytes, archive_capacity;
	uint64_t held_bytes; /* bytes of data, decoded_data and archive together, at most */
};

/* Settings of a measurement, then its results (times in seconds). */
struct bench_run {
	int level;
	const struct tier *tier;      /* NULL: the level's */
	const kvarc_profile *profile; /* levels 2 to 7 */
	uint32_t isa_mask;
	const char *device; /* "cuda:0": coded there, and not by the threads; NULL */
	unsigned threads;
	double encode_seconds, decode_seconds; /* the fastest */
	uint64_t memory_bytes;                 /* peak memory of the library, or of the GPU */
	uint64_t chunks, host_chunks;          /* device: encoded; of these by the host */
};

/* Writes to the archive of cache. */
kvarc_sink bench_cache_sink(struct bench_cache *cache);

#endif
