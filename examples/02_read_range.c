/* SPDX-License-Identifier: BSD-3-Clause */
/* 02_read_range.c - some tokens of some layers; only what they need is decoded */
#include "example.h"

int main(void)
{
	enum { TOKENS = 700, FIRST = 500, N = 100, LAYER = 2 };
	kvarc_writer_options wo = KVARC_WRITER_OPTIONS_INIT;
	kvarc_range range = { .track = 0, .layer0 = LAYER, .n_layers = 1, .t0 = FIRST, .n = N };
	kvarc_track track;
	kvarc_tensor tensors[2 * LAYERS];
	kvarc_geometry geometry;
	kvarc_view views[2 * LAYERS];
	uint16_t *cache = example_cache(TOKENS);
	uint16_t part[2][N * WIDTH];
	FILE *f = tmpfile();
	kvarc_sink sink = { .write = example_write, .opaque = f };
	kvarc_source source = { .read = example_read, .opaque = f, .size = 0 };
	kvarc_writer *w;
	kvarc_reader *r;

	EXPECT(f != NULL);
	example_geometry(&geometry, &track, tensors);
	example_views(views, cache, TOKENS, 0);
	CHECK(kvarc_writer_open(&w, &sink, &wo));
	CHECK(kvarc_writer_set_geometry(w, &geometry));
	CHECK(kvarc_writer_append(w, 0, TOKENS, NULL, NULL, views));
	CHECK(kvarc_writer_close(&w));

	/* Tensors whose view has no data are left alone. */
	memset(views, 0, sizeof(views));
	for (size_t i = 0; i < 2; i++) {
		kvarc_view *v = &views[2 * LAYER + i];
		v->data = part[i];
		v->token_stride = WIDTH * sizeof(uint16_t);
		v->block_elems = WIDTH;
		v->elem_stride = sizeof(uint16_t);
	}
	source.size = example_size(f);
	CHECK(kvarc_reader_open(&r, &source, NULL));
	EXPECT(kvarc_reader_tokens(r, 0) == TOKENS);
	CHECK(kvarc_reader_read(r, &range, views));
	kvarc_reader_close(&r);

	for (size_t i = 0; i < 2; i++)
		EXPECT(memcmp(part[i], cache + ((2 * LAYER + i) * TOKENS + FIRST) * WIDTH,
		              sizeof(part[i])) == 0);
	printf("read tokens %d to %d of layer %d\n", FIRST, FIRST + N - 1, LAYER);
	fclose(f);
	free(cache);
	return 0;
}
