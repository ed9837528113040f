/* SPDX-License-Identifier: BSD-3-Clause */
/* 02_read_range.c - some tokens of some layers; only what they need is decoded */
#include "example.h"

int main(void)
{
	enum { TOKENS = 700, FIRST = 500, N = 100, LAYER = 2 };
	kvarc_range range = { .track = 0, .layer0 = LAYER, .n_layers = 1, .t0 = FIRST, .n = N };
	kvarc_view views[2 * LAYERS];
	uint16_t *cache = example_cache(TOKENS);
	uint16_t part[2][N * WIDTH];
	kvarc_memory *archive = example_archive(cache, TOKENS);
	kvarc_source source;
	kvarc_reader *r;

	/* Tensors whose view has no data are left alone. */
	memset(views, 0, sizeof(views));
	for (size_t i = 0; i < 2; i++) {
		kvarc_view *v = &views[2 * LAYER + i];
		v->data = part[i];
		v->token_stride = WIDTH * sizeof(uint16_t);
		v->block_elems = WIDTH;
		v->elem_stride = sizeof(uint16_t);
	}
	CHECK(kvarc_memory_source(archive, &source));
	CHECK(kvarc_reader_open(&r, &source, NULL));
	EXPECT(kvarc_reader_tokens(r, 0) == TOKENS);
	CHECK(kvarc_reader_read(r, &range, views));
	kvarc_reader_close(&r);

	for (size_t i = 0; i < 2; i++)
		EXPECT(memcmp(part[i], cache + ((2 * LAYER + i) * TOKENS + FIRST) * WIDTH,
		              sizeof(part[i])) == 0);
	printf("read tokens %d to %d of layer %d\n", FIRST, FIRST + N - 1, LAYER);
	kvarc_memory_close(&archive);
	free(cache);
	return 0;
}
