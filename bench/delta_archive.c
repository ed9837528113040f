/* SPDX-License-Identifier: BSD-3-Clause */
/* delta_archive.c - bytes of an archive whose elements are predicted by those of another cache */
/*
 * delta TOKENS LAYERS HEADS CHANNELS bf16|f16 FILE GUESS: FILE and GUESS hold elements of 16 bits,
 * keys and values of each layer by turns, as token, head, channel (dedup_pairs.py writes them).
 * GUESS is what an external predictor says. Prints the bits of an element at level 1 and with the
 * predictor, whose profile is in the archive; the archive must decode to the same elements.
 */
#include "config.h"

#include <stdbool.h>

#include "../examples/example.h"

/* kvarc_profile_of_sizes is for residuals of about this part of the sizes. */
enum { RESIDUAL_PART = 512 };

struct delta_input {
	size_t tokens, layers, heads, channels, width, all;
	bool f16;
	uint16_t *file, *guess;
};

struct delta_sequence {
	const struct delta_input *in;
	size_t at, n;
};

static float of_bits(uint32_t bits)
{
	float x;

	memcpy(&x, &bits, sizeof(x));
	return x;
}

static float number(const struct delta_input *in, uint16_t x)
{
	float scale = x & 0x8000 ? -0x1p-24f : 0x1p-24f;
	uint32_t order = x >> 10 & 31, low = x & 0x3ff;

	if (!in->f16)
		return of_bits((uint32_t)x << 16);
	return order ? scale * (float)(low | 0x400) * (float)(1u << (order - 1))
	             : scale * (float)low;
}

static int delta_open(void *opaque, void **sequence)
{
	struct delta_sequence *s = calloc(1, sizeof(*s));

	*sequence = s;
	if (s)
		s->in = opaque;
	return s ? 0 : -1;
}

static int delta_segment(void *sequence, const int32_t *ids, const int32_t *positions, size_t n)
{
	struct delta_sequence *s = sequence;

	(void)ids;
	s->at = (size_t)positions[0];
	s->n = n;
	return 0;
}

static int delta_predict(void *sequence, uint32_t layer, float *k, float *v)
{
	const struct delta_sequence *s = sequence;
	const struct delta_input *in = s->in;
	const uint16_t *from = in->guess + ((size_t)2 * layer * in->tokens + s->at) * in->width;

	for (size_t i = 0; i < s->n * in->width; i++) {
		k[i] = number(in, from[i]);
		v[i] = number(in, from[i + in->tokens * in->width]);
	}
	return 0;
}

static int delta_advance(void *sequence, uint32_t layer, const float *k, const float *v)
{
	(void)sequence, (void)layer, (void)k, (void)v;
	return 0;
}

static int delta_restart(void *sequence)
{
	(void)sequence;
	return 0;
}

static uint16_t *elements(const struct delta_input *in, const char *path)
{
	uint16_t *x = malloc(in->all * sizeof(*x));
	FILE *f = fopen(path, "rb");

	EXPECT(x && f && fread(x, sizeof(*x), in->all, f) == in->all);
	fclose(f);
	return x;
}

static void views_of(const struct delta_input *in, kvarc_view *views, void *cache, size_t element)
{
	for (size_t i = 0; i < 2 * in->layers; i++)
		views[i] =
			(kvarc_view){ .data = (char *)cache + i * in->tokens * in->width * element,
			              .token_stride = in->width * element,
			              .block_elems = (uint32_t)in->width,
			              .elem_stride = (uint32_t)element };
}

static kvarc_tensor *tensors_of(const struct delta_input *in, kvarc_dtype dtype)
{
	kvarc_tensor *t = calloc(2 * in->layers, sizeof(*t));

	EXPECT(t != NULL);
	for (size_t i = 0; i < 2 * in->layers; i++) {
		t[i].layer = (uint32_t)i / 2;
		t[i].kind = i % 2 ? KVARC_VALUE : KVARC_KEY;
		t[i].dtype = (uint8_t)dtype;
		t[i].heads = (uint32_t)in->heads;
		t[i].channels = (uint32_t)in->channels;
	}
	return t;
}

static kvarc_predictor *open_predictor(struct delta_input *in)
{
	kvarc_external engine = { .identity = { 0x6b, 0x76, 8 },
		                  .name = "another cache",
		                  .layers = (uint32_t)in->layers,
		                  .heads = (uint32_t)in->heads,
		                  .channels = (uint32_t)in->channels,
		                  .open = delta_open,
		                  .close = free,
		                  .segment = delta_segment,
		                  .predict = delta_predict,
		                  .advance = delta_advance,
		                  .restart = delta_restart,
		                  .opaque = in };
	kvarc_predictor *p;

	CHECK(kvarc_predictor_open_external(&p, &engine, NULL));
	return p;
}

/* How large the differences are, by channel. */
static kvarc_profile *profile_of(const struct delta_input *in, kvarc_geometry *g)
{
	float *rest = malloc(in->all * sizeof(*rest));
	kvarc_view *views = calloc(2 * in->layers, sizeof(*views));
	kvarc_tensor *tensors = tensors_of(in, KVARC_F32);
	const kvarc_tensor *were = g->tensors;
	kvarc_profile *p;

	EXPECT(rest && views);
	for (size_t i = 0; i < in->all; i++)
		rest[i] = RESIDUAL_PART * (number(in, in->file[i]) - number(in, in->guess[i]));
	views_of(in, views, rest, sizeof(*rest));
	g->tensors = tensors;
	CHECK(kvarc_profile_of_sizes(&p, 5, g, in->tokens, views, NULL));
	g->tensors = were;
	free(tensors);
	free(views);
	free(rest);
	return p;
}

static void measure(struct delta_input *in, kvarc_geometry *g)
{
	size_t capacity = kvarc_encode_bound(g, in->tokens), plain, written;
	uint16_t *back = calloc(in->all, sizeof(*back));
	kvarc_view *views = calloc(2 * in->layers, sizeof(*views));
	int32_t *ids = calloc(in->tokens, sizeof(*ids));
	uint8_t *archive = malloc(capacity);
	kvarc_writer_options wo = KVARC_WRITER_OPTIONS_INIT;
	kvarc_reader_options ro = { 0 };
	kvarc_profile *profile = profile_of(in, g);
	kvarc_predictor *predictor = open_predictor(in);

	EXPECT(back && views && ids && archive);
	views_of(in, views, in->file, sizeof(*in->file));
	CHECK(kvarc_encode_buffer(archive, capacity, &plain, g, in->tokens, ids, views, &wo));
	wo.level = 5;
	wo.flags = KVARC_WRITE_EMBED_PROFILE;
	wo.profile = profile;
	wo.predictor = ro.predictor = predictor;
	CHECK(kvarc_encode_buffer(archive, capacity, &written, g, in->tokens, ids, views, &wo));
	views_of(in, views, back, sizeof(*back));
	CHECK(kvarc_decode_buffer(archive, written, views, 2 * in->layers, &ro));
	EXPECT(memcmp(in->file, back, in->all * sizeof(*back)) == 0);
	printf("%.3f %.3f\n", (double)plain * 8 / (double)in->all,
	       (double)written * 8 / (double)in->all);
	kvarc_profile_close(&profile);
	kvarc_predictor_close(&predictor);
	free(archive);
	free(ids);
	free(views);
	free(back);
}

int main(int argc, char **argv)
{
	kvarc_track track = { 0 };
	kvarc_geometry g = { .n_tracks = 1, .tracks = &track };
	struct delta_input in = { 0 };
	kvarc_tensor *tensors;

	if (argc != 8) {
		fputs("delta TOKENS LAYERS HEADS CHANNELS bf16|f16 FILE GUESS\n", stderr);
		return 2;
	}
	in.tokens = strtoul(argv[1], NULL, 10);
	in.layers = strtoul(argv[2], NULL, 10);
	in.heads = strtoul(argv[3], NULL, 10);
	in.channels = strtoul(argv[4], NULL, 10);
	in.f16 = strcmp(argv[5], "f16") == 0;
	in.width = in.heads * in.channels;
	in.all = 2 * in.layers * in.tokens * in.width;
	in.file = elements(&in, argv[6]);
	in.guess = elements(&in, argv[7]);
	tensors = tensors_of(&in, in.f16 ? KVARC_F16 : KVARC_BF16);
	g.tensors = tensors;
	g.n_tensors = 2 * in.layers;
	measure(&in, &g);
	free(tensors);
	free(in.guess);
	free(in.file);
	return 0;
}
