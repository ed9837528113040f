/* SPDX-License-Identifier: BSD-3-Clause */
/* 01_pack_buffer.c - a whole cache in memory into an archive in memory, and back */
#include "example.h"

int main(void)
{
	enum { TOKENS = 300 };
	kvarc_writer_options options = KVARC_WRITER_OPTIONS_INIT;
	kvarc_track track;
	kvarc_tensor tensors[2 * LAYERS];
	kvarc_geometry geometry;
	kvarc_view views[2 * LAYERS];
	size_t cache_bytes = 2 * LAYERS * TOKENS * WIDTH * sizeof(uint16_t);
	uint16_t *cache = example_cache(TOKENS);
	uint16_t *back = calloc(1, cache_bytes);
	size_t capacity, written;
	uint8_t *archive;

	example_geometry(&geometry, &track, tensors);
	example_views(views, cache, TOKENS, 0);
	capacity = kvarc_encode_bound(&geometry, TOKENS);
	archive = malloc(capacity);
	EXPECT(back != NULL && archive != NULL);

	CHECK(kvarc_encode_buffer(archive, capacity, &written, &geometry, TOKENS, NULL, views,
	                          &options));
	printf("%zu bytes became %zu, %.2f bits per element\n", cache_bytes, written,
	       8.0 * (double)written / ((double)cache_bytes / 2));

	example_views(views, back, TOKENS, 0);
	CHECK(kvarc_decode_buffer(archive, written, views, 2 * LAYERS, NULL));
	EXPECT(memcmp(cache, back, cache_bytes) == 0);

	free(archive);
	free(back);
	free(cache);
	return 0;
}
