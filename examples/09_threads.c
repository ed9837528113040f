/* SPDX-License-Identifier: BSD-3-Clause */
/* 09_threads.c - eight threads read one archive, with an allocator and a memory limit */
#include <pthread.h>
#include <stdatomic.h>

#include "example.h"

enum { THREADS = 8, TOKENS = 600, EACH = 2 * LAYERS * TOKENS * WIDTH };

static _Atomic long blocks; /* allocated and not freed */

static void *count_alloc(void *opaque, size_t bytes)
{
	(void)opaque;
	blocks++;
	return malloc(bytes);
}

static void count_free(void *opaque, void *ptr)
{
	(void)opaque;
	blocks -= ptr != NULL;
	free(ptr);
}

/* A reader for each thread; the archive in memory is shared and never copied. */
static void *read_all(void *archive)
{
	const kvarc_allocator allocator = { .alloc = count_alloc, .free = count_free };
	kvarc_reader_options options = { .common = { .allocator = &allocator,
		                                     .memlimit = 16 << 20 } };
	const kvarc_range all = KVARC_RANGE_ALL(0);
	uint16_t *cache = calloc(EACH, sizeof(*cache));
	kvarc_view views[2 * LAYERS];
	kvarc_source source;
	kvarc_reader *r;

	EXPECT(cache != NULL);
	example_views(views, cache, TOKENS, 0);
	CHECK(kvarc_memory_source(archive, &source));
	CHECK(kvarc_reader_open(&r, &source, &options));
	CHECK(kvarc_reader_read(r, &all, views));
	kvarc_reader_close(&r);
	return cache;
}

int main(void)
{
	uint16_t *cache = example_cache(TOKENS);
	kvarc_memory *archive = example_archive(cache, TOKENS);
	pthread_t threads[THREADS];
	void *back;

	for (int i = 0; i < THREADS; i++)
		EXPECT(pthread_create(&threads[i], NULL, read_all, archive) == 0);
	for (int i = 0; i < THREADS; i++) {
		EXPECT(pthread_join(threads[i], &back) == 0);
		EXPECT(memcmp(back, cache, EACH * sizeof(*cache)) == 0);
		free(back);
	}
	EXPECT(blocks == 0);
	printf("%d threads read the same cache\n", THREADS);
	kvarc_memory_close(&archive);
	free(cache);
	return 0;
}
