/* SPDX-License-Identifier: BSD-3-Clause */
/* 08_slow_source.c - a range over a source where each request takes long, as over a network */
#include "example.h"

/* An archive far away, and what was asked of it. */
struct remote {
	kvarc_memory *archive;
	unsigned requests;
	uint64_t bytes;
};

/* A kvarc_source.read: one request, which a store in the network answers after 30 ms, say. */
static int64_t get(void *opaque, void *buf, size_t bytes, uint64_t offset)
{
	struct remote *far = opaque;

	far->requests++;
	far->bytes += bytes;
	memcpy(buf, (const char *)kvarc_memory_data(far->archive) + offset, bytes);
	return (int64_t)bytes;
}

/* A kvarc_source.read_ranges: all of them could be on their way at the same time. */
static int get_ranges(void *opaque, const kvarc_byte_range *ranges, size_t n)
{
	for (size_t i = 0; i < n; i++)
		get(opaque, ranges[i].buf, (size_t)ranges[i].bytes, ranges[i].offset);
	return 0;
}

int main(void)
{
	enum { TOKENS = 3000, FIRST = 1100, N = 50, LAYER = 1 };
	const kvarc_range range = { .layer0 = LAYER, .n_layers = 1, .t0 = FIRST, .n = N };
	uint16_t *cache = example_cache(TOKENS);
	uint16_t *back = calloc(2 * LAYERS * TOKENS * WIDTH, sizeof(*back));
	struct remote far = { .archive = example_archive(cache, TOKENS) };
	kvarc_source source = { .read = get, .opaque = &far, .read_ranges = get_ranges };
	const kvarc_byte_range *planned;
	kvarc_view views[2 * LAYERS];
	kvarc_reader *r;
	size_t n;

	source.size = kvarc_memory_bytes(far.archive);
	CHECK(kvarc_reader_open(&r, &source, NULL));
	/* What the read will ask for; a program could have it fetched meanwhile. */
	CHECK(kvarc_reader_plan(r, &range, NULL, &planned, &n));
	EXPECT(n && planned[0].offset + planned[0].bytes <= source.size);
	example_views(views, back, TOKENS, FIRST);
	CHECK(kvarc_reader_read(r, &range, views));
	kvarc_reader_close(&r);

	for (size_t i = 2 * LAYER * TOKENS + FIRST, end = i + N; i < end; i++)
		EXPECT(memcmp(back + i * WIDTH, cache + i * WIDTH, WIDTH * sizeof(*back)) == 0);
	printf("%u requests, %llu bytes\n", far.requests, (unsigned long long)far.bytes);
	EXPECT(far.requests <= 6 && far.bytes < source.size / 8);
	kvarc_memory_close(&far.archive);
	free(back);
	free(cache);
	return 0;
}
