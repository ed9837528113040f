/* SPDX-License-Identifier: BSD-3-Clause */
/* bench_cache.c - the archive of a cache that is measured, in memory */
#include "config.h"

#include "bench_cache.h"

#include <string.h>

static int write_memory(void *opaque, const void *buf, size_t bytes, uint64_t offset)
{
	struct bench_cache *c = opaque;

	if (offset > c->archive_capacity || bytes > c->archive_capacity - offset)
		return -1;
	memcpy(c->archive + offset, buf, bytes);
	if (offset + bytes > c->archive_bytes)
		c->archive_bytes = offset + bytes;
	return 0;
}

kvarc_sink bench_cache_sink(struct bench_cache *cache)
{
	cache->archive_bytes = 0;
	return (kvarc_sink){ .write = write_memory, .opaque = cache };
}
