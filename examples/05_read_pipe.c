/* SPDX-License-Identifier: BSD-3-Clause */
/* 05_read_pipe.c - segments in order from a source that cannot seek */
#include "example.h"

/* A source that only goes forward, like a pipe or a socket. */
static int64_t forward_read(void *opaque, void *buf, size_t bytes, uint64_t offset)
{
	FILE *f = opaque;

	(void)offset;
	bytes = fread(buf, 1, bytes, f);
	return ferror(f) ? -1 : (int64_t)bytes;
}

/* A kvarc_deliver: n tokens of some heads of a tensor, decoded and checked. */
static int take_block(void *opaque, uint32_t tensor, uint32_t head, uint32_t heads, uint64_t t0,
                      uint32_t n, const void *src)
{
	uint64_t *elements = opaque;

	(void)tensor;
	(void)head;
	(void)t0;
	(void)src;
	*elements += (uint64_t)heads * CHANNELS * n;
	return 0;
}

int main(void)
{
	enum { TOKENS = 600 };
	kvarc_writer_options wo = KVARC_WRITER_OPTIONS_INIT;
	kvarc_track track;
	kvarc_tensor tensors[2 * LAYERS];
	kvarc_geometry geometry;
	kvarc_view views[2 * LAYERS];
	uint16_t *cache = example_cache(TOKENS);
	FILE *f = tmpfile();
	kvarc_sink sink = { .write = example_write, .opaque = f };
	kvarc_source source = { .read = forward_read, .opaque = f, .size = KVARC_UNKNOWN };
	kvarc_segment segment;
	uint64_t elements = 0, tokens = 0;
	kvarc_writer *w;
	kvarc_reader *r;
	kvarc_ret ret;

	EXPECT(f != NULL);
	example_geometry(&geometry, &track, tensors);
	example_views(views, cache, TOKENS, 0);
	wo.flags = KVARC_WRITE_STREAMABLE;
	CHECK(kvarc_writer_open(&w, &sink, &wo));
	CHECK(kvarc_writer_set_geometry(w, &geometry));
	CHECK(kvarc_writer_append(w, 0, TOKENS, NULL, NULL, views));
	CHECK(kvarc_writer_close(&w));
	rewind(f);

	CHECK(kvarc_reader_open(&r, &source, NULL));
	while ((ret = kvarc_reader_next_segment(r, &segment)) == KVARC_OK) {
		CHECK(kvarc_reader_segment_deliver(r, take_block, &elements));
		tokens += segment.n;
		printf("tokens %llu to %llu\n", (unsigned long long)segment.t0,
		       (unsigned long long)(segment.t0 + segment.n - 1));
	}
	EXPECT(ret == KVARC_END);
	EXPECT(tokens == TOKENS);
	EXPECT(elements == (uint64_t)2 * LAYERS * TOKENS * WIDTH);
	kvarc_reader_close(&r);
	fclose(f);
	free(cache);
	return 0;
}
