/* SPDX-License-Identifier: BSD-3-Clause */
/* 03_append_commit.c - a session that grows, with commits that survive a crash */
#include "example.h"

int main(void)
{
	enum { TOKENS = 400, TURN = 100 };
	kvarc_writer_options wo = KVARC_WRITER_OPTIONS_INIT;
	kvarc_track track;
	kvarc_tensor tensors[2 * LAYERS];
	kvarc_geometry geometry;
	kvarc_view views[2 * LAYERS];
	kvarc_info info;
	uint16_t *cache = example_cache(TOKENS);
	int32_t ids[TURN];
	FILE *f = tmpfile();
	kvarc_sink sink = { .write = example_write, .opaque = f };
	kvarc_source source = { .read = example_read, .opaque = f, .size = 0 };
	kvarc_writer *w;
	kvarc_reader *r;

	EXPECT(f != NULL);
	example_geometry(&geometry, &track, tensors);
	CHECK(kvarc_writer_open(&w, &sink, &wo));
	CHECK(kvarc_writer_set_geometry(w, &geometry));
	CHECK(kvarc_writer_identity(w, 1, (const char *const[]){ "model" },
	                            (const char *const[]){ "example" }));
	for (size_t t = 0; t < TOKENS; t += TURN) {
		for (size_t i = 0; i < TURN; i++)
			ids[i] = (int32_t)(t + i);
		example_views(views, cache, TOKENS, t);
		CHECK(kvarc_writer_append(w, 0, TURN, ids, NULL, views));
		CHECK(kvarc_writer_commit(w));
	}
	/* The process dies here: no index, no footer. */
	kvarc_writer_abort(&w);

	source.size = example_size(f);
	CHECK(kvarc_reader_open(&r, &source, NULL));
	CHECK(kvarc_reader_get_info(r, &info));
	EXPECT(info.state == KVARC_STATE_OPEN);
	EXPECT(kvarc_reader_tokens(r, 0) == TOKENS);
	EXPECT(strcmp(kvarc_reader_identity(r, "model"), "example") == 0);
	CHECK(kvarc_reader_verify(r, NULL, NULL));
	printf("all %d tokens are there after the crash\n", TOKENS);
	kvarc_reader_close(&r);
	fclose(f);
	free(cache);
	return 0;
}
