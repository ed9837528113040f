/* SPDX-License-Identifier: BSD-3-Clause */
/* 06_allocator.c - your own allocator, a memory limit, and errors with text */
#include "example.h"

struct pool {
	size_t blocks;
};

static void *pool_alloc(void *opaque, size_t bytes)
{
	struct pool *p = opaque;

	p->blocks++;
	return malloc(bytes);
}

static void pool_free(void *opaque, void *ptr)
{
	struct pool *p = opaque;

	if (ptr)
		p->blocks--;
	free(ptr);
}

int main(void)
{
	enum { TOKENS = 300 };
	struct pool pool = { 0 };
	kvarc_allocator allocator = { .alloc = pool_alloc, .free = pool_free, .opaque = &pool };
	kvarc_error error = { 0 };
	kvarc_writer_options options = KVARC_WRITER_OPTIONS_INIT;
	kvarc_track track;
	kvarc_tensor tensors[2 * LAYERS];
	kvarc_geometry geometry;
	kvarc_view views[2 * LAYERS];
	uint16_t *cache = example_cache(TOKENS);
	size_t capacity, written;
	uint8_t *archive;
	kvarc_ret ret;

	example_geometry(&geometry, &track, tensors);
	example_views(views, cache, TOKENS, 0);
	capacity = kvarc_encode_bound(&geometry, TOKENS);
	archive = malloc(capacity);
	EXPECT(archive != NULL);
	options.common.allocator = &allocator;
	options.common.error = &error;

	/* Far too little: refused before anything is done. */
	options.common.memlimit = 4096;
	ret = kvarc_encode_buffer(archive, capacity, &written, &geometry, TOKENS, NULL, views,
	                          &options);
	EXPECT(ret == KVARC_MEMLIMIT);
	printf("with 4 KiB: %s\n", error.text[0] ? error.text : kvarc_strerror(ret));
	EXPECT(pool.blocks == 0);

	options.common.memlimit = 0; /* the default */
	CHECK(kvarc_encode_buffer(archive, capacity, &written, &geometry, TOKENS, NULL, views,
	                          &options));
	EXPECT(pool.blocks == 0);
	printf("with the default: %zu bytes, and every block was freed\n", written);
	free(archive);
	free(cache);
	return 0;
}
