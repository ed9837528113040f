/* SPDX-License-Identifier: BSD-3-Clause */
/* 07_external_predictor.c - an engine of your own predicts the cache */
#include "example.h"

enum { TOKENS = 600 };

/* This one computes a hash, which the cache of the example holds, too. An engine would run its
 * transformer in segment, predict and advance, and come to the same bits everywhere: then the
 * archive holds checks, and of the tokens their ids alone. */
struct sequence {
	int32_t positions[256];
	size_t n;
};

static uint16_t element(uint32_t tensor, int32_t position, uint32_t c)
{
	uint32_t state = tensor * 7919 + (uint32_t)position * WIDTH + c;

	return example_value(&state, c);
}

static float number(uint16_t bf16)
{
	uint32_t bits = (uint32_t)bf16 << 16;
	float x;

	memcpy(&x, &bits, sizeof(x));
	return x;
}

static int engine_open(void *opaque, void **sequence)
{
	(void)opaque;
	*sequence = calloc(1, sizeof(struct sequence));
	return *sequence ? 0 : -1;
}

static int engine_segment(void *sequence, const int32_t *ids, const int32_t *positions, size_t n)
{
	struct sequence *s = sequence;

	(void)ids;
	memcpy(s->positions, positions, n * sizeof(*positions));
	s->n = n;
	return 0;
}

static int engine_predict(void *sequence, uint32_t layer, float *k, float *v)
{
	struct sequence *s = sequence;

	for (size_t t = 0; t < s->n; t++)
		for (uint32_t c = 0; c < WIDTH; c++) {
			*k++ = number(element(2 * layer, s->positions[t], c));
			*v++ = number(element(2 * layer + 1, s->positions[t], c));
		}
	return 0;
}

static int engine_advance(void *sequence, uint32_t layer, const float *k, const float *v)
{
	(void)sequence, (void)layer, (void)k, (void)v;
	return 0;
}

static int engine_restart(void *sequence)
{
	(void)sequence;
	return 0;
}

int main(void)
{
	kvarc_external engine = { .identity = { 0x6b, 0x76, 7 },
		                  .name = "hash",
		                  .layers = LAYERS,
		                  .heads = HEADS,
		                  .channels = CHANNELS,
		                  .open = engine_open,
		                  .close = free,
		                  .segment = engine_segment,
		                  .predict = engine_predict,
		                  .advance = engine_advance,
		                  .restart = engine_restart };
	kvarc_predictor *predictor;
	kvarc_profile *profile;
	kvarc_writer_options wo = KVARC_WRITER_OPTIONS_INIT;
	kvarc_reader_options ro = { 0 };
	kvarc_track track;
	kvarc_tensor tensors[2 * LAYERS];
	kvarc_geometry geometry;
	kvarc_view views[2 * LAYERS];
	uint16_t *cache = example_cache(TOKENS), *back = example_cache(TOKENS);
	static int32_t ids[TOKENS];
	size_t n = 2 * LAYERS * TOKENS * WIDTH, capacity, plain, written;
	uint8_t *archive;

	for (size_t i = 0; i < n; i++)
		cache[i] = element((uint32_t)(i / WIDTH / TOKENS), (int32_t)(i / WIDTH % TOKENS),
		                   i % WIDTH);
	example_geometry(&geometry, &track, tensors);
	example_views(views, cache, TOKENS, 0);
	capacity = kvarc_encode_bound(&geometry, TOKENS);
	archive = malloc(capacity);
	EXPECT(archive != NULL);
	CHECK(kvarc_encode_buffer(archive, capacity, &plain, &geometry, TOKENS, ids, views, &wo));

	CHECK(kvarc_predictor_open_external(&predictor, &engine, NULL));
	CHECK(kvarc_profile_of_sizes(&profile, 5, &geometry, 256, views, NULL));
	wo.level = 5;
	wo.predictor = predictor;
	wo.profile = profile;
	wo.flags = KVARC_WRITE_EMBED_PROFILE;
	CHECK(kvarc_encode_buffer(archive, capacity, &written, &geometry, TOKENS, ids, views, &wo));
	printf("%zu bytes: %zu by level 1, %zu with the engine, %zu times smaller\n",
	       n * sizeof(*cache), plain, written, n * sizeof(*cache) / written);
	EXPECT(written < plain / 50);

	ro.predictor = predictor;
	example_views(views, back, TOKENS, 0);
	CHECK(kvarc_decode_buffer(archive, written, views, 2 * LAYERS, &ro));
	EXPECT(memcmp(cache, back, n * sizeof(*cache)) == 0);
	ro.predictor = NULL;
	EXPECT(kvarc_decode_buffer(archive, written, views, 2 * LAYERS, &ro) == KVARC_PREDICTOR);

	kvarc_profile_close(&profile);
	kvarc_predictor_close(&predictor);
	free(archive);
	free(back);
	free(cache);
	return 0;
}
