/* SPDX-License-Identifier: BSD-3-Clause */
/* 03_append_commit.c - a cache in pages that is archived while it grows, through a crash */
#include "example.h"

enum { TOKENS = 400, PAGE = 16, PAGES = TOKENS / PAGE };

/* Appends tokens [t0, end) page by page: a view of a page is enough, wherever the page is. */
static void append(kvarc_writer *w, uint16_t *pool, size_t t0, size_t end)
{
	kvarc_view views[2 * LAYERS] = { KVARC_ZERO };
	int32_t ids[PAGE];

	for (size_t n; t0 < end; t0 += n) {
		size_t page = t0 / PAGE * 7 % PAGES; /* the block table of an engine */

		n = PAGE - t0 % PAGE < end - t0 ? PAGE - t0 % PAGE : end - t0;
		for (size_t i = 0; i < n; i++)
			ids[i] = (int32_t)(t0 + i);
		example_views(views, pool + page * PAGE * 2 * LAYERS * WIDTH, PAGE, t0 % PAGE);
		CHECK(kvarc_writer_append(w, 0, n, ids, NULL, views));
	}
}

int main(void)
{
	const char *path = "example-session.kva";
	kvarc_sink sink;
	kvarc_source source;
	uint16_t *pool = example_cache(TOKENS);
	kvarc_track track;
	kvarc_tensor tensors[2 * LAYERS];
	kvarc_geometry geometry;
	kvarc_writer *w;
	kvarc_reader *r;

	/* A commit waits for the disk: the flush of this sink is fsync. */
	CHECK(kvarc_sink_open_path(&sink, path, KVARC_SINK_TRUNCATE, NULL));
	example_geometry(&geometry, &track, tensors);
	CHECK(kvarc_writer_open(&w, &sink, NULL));
	CHECK(kvarc_writer_set_geometry(w, &geometry));
	append(w, pool, 0, 150);
	CHECK(kvarc_writer_commit(w)); /* on the disk from here on */
	append(w, pool, 150, 170);
	kvarc_writer_abort(&w); /* the process dies, in the middle of a write */
	CHECK(kvarc_source_open_path(&source, path, NULL));
	EXPECT(sink.write(sink.opaque, "half a frame", 12, source.size) == 0);
	kvarc_source_close(&source);
	CHECK(kvarc_sink_close(&sink, NULL));

	/* Another process continues behind the last commit. */
	CHECK(kvarc_source_open_path(&source, path, NULL));
	CHECK(kvarc_sink_open_path(&sink, path, KVARC_SINK_KEEP, NULL));
	CHECK(kvarc_writer_open_append(&w, &source, &sink, NULL));
	EXPECT(kvarc_writer_tokens(w, 0) == 150);
	append(w, pool, 150, 300);
	CHECK(kvarc_writer_checkpoint(w, "before the second answer", 0, NULL));
	CHECK(kvarc_writer_rewind(w, 0, 290)); /* the user edits the prompt */
	append(w, pool, 290, TOKENS);
	CHECK(kvarc_writer_close(&w));
	CHECK(kvarc_sink_close(&sink, NULL));
	kvarc_source_close(&source);

	CHECK(kvarc_source_open_path(&source, path, NULL));
	CHECK(kvarc_reader_open(&r, &source, NULL));
	CHECK(kvarc_reader_verify(r, NULL, NULL));
	EXPECT(kvarc_reader_tokens(r, 0) == TOKENS);
	printf("all %d tokens are there after the crash\n", TOKENS);
	kvarc_reader_close(&r);
	kvarc_source_close(&source);
	remove(path);
	free(pool);
	return 0;
}
