/* SPDX-License-Identifier: BSD-3-Clause */
/* test_import_model.c - imports that know the model: its rotary embeddings, layer by layer */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "predictor_handle.h"
#include "made_caches.h"
#include "stream_util.h"
#include "util/bytes.h"

enum { HEADER = 1024 };

/* A cache of transformers as a safetensors file in fp32, from position 0 on. */
static struct blob file_of(const struct made_cache *c, size_t heads)
{
	size_t rows = c->tokens * c->row * 4, at = c->tokens * 4;
	struct blob f = { .n = 8 + HEADER + at + 2 * LAYERS * rows, .fail_after = -1 };
	f.p = calloc(1, f.n);
	assert_non_null(f.p);
	char *text = (char *)f.p + 8, *end = text + HEADER;
	uint8_t *to = f.p + 8 + HEADER;
	kvi_store64(f.p, HEADER);
	memset(text, ' ', HEADER);
	text += snprintf(text, (size_t)(end - text),
	                 "{\"tokens\":{\"dtype\":"
	                 "\"I32\",\"shape\":[%zu],\"data_offsets\":[0,%zu]}",
	                 c->tokens, at);
	for (size_t t = 0; t < c->tokens; t++, to += 4)
		kvi_store32(to, (uint32_t)c->ids[t]);
	for (size_t i = 0; i < 2 * LAYERS; i++, at += rows) {
		text += snprintf(text, (size_t)(end - text),
		                 ",\"layers.%zu.%s\":{\"dtype\":\"F32\","
		                 "\"shape\":[%zu,%zu,%zu],\"data_offsets\":"
		                 "[%zu,%zu]}",
		                 i / 2, i % 2 ? "value" : "key", c->tokens, heads, c->row / heads,
		                 at, at + rows);
		for (size_t t = 0; t < c->tokens; t++, to += c->row * 4)
			made_row(c, i / 2, i % 2, t, (float *)(void *)to);
	}
	*text++ = '}';
	assert_true(text < end);
	*text = ' ';
	return f;
}

static kvarc_predictor *open_model(const char *name)
{
	char path[] = "import-model-XXXXXX";
	struct blob b = made_entry(name, "model.gguf");
	kvarc_predictor *p;
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, b.p, b.n), b.n);
	close(fd);
	assert_int_equal(kvarc_predictor_open_model(&p, path, NULL), KVARC_OK);
	assert_int_equal(unlink(path), 0); /* it stays mapped */
	return p;
}

static void check_rope(const kvarc_geometry *g, const kvarc_tensor *t,
                       const struct kvi_model_file *m)
{
	const struct kvi_model_rope *is = &m->ropes[m->layers[t->layer].rope];
	if (t->kind == KVARC_VALUE || !m->n_ropes) {
		assert_int_equal(t->rope, 0);
		return;
	}
	assert_in_range(t->rope, 1, g->n_ropes);
	const kvarc_rope *rope = &g->ropes[t->rope - 1];
	assert_int_equal(rope->pairing, KVARC_ROPE_HALF);
	assert_int_equal(rope->rotary, is->rotary);
	assert_memory_equal(rope->freq, is->freq, is->rotary / 2 * sizeof *is->freq);
}

static size_t write_at(int level, kvarc_import *im, const struct made_cache *c,
                       const kvarc_view *views, kvarc_predictor *p, const kvarc_profile *profile)
{
	struct memfile f = { .fail_at = -1 };
	kvarc_writer_options o = KVARC_WRITER_OPTIONS_INIT;
	kvarc_sink sink = memfile_sink(&f);
	kvarc_writer *w;
	o.level = KVARC_LEVEL(level);
	o.predictor = p;
	o.profile = profile;
	o.flags = KVARC_WRITE_VERIFY;
	assert_int_equal(kvarc_writer_open(&w, &sink, &o), KVARC_OK);
	assert_int_equal(kvarc_writer_set_geometry(w, kvarc_import_geometry(im)), KVARC_OK);
	assert_int_equal(kvarc_writer_append(w, 0, c->tokens, c->ids, c->positions, views),
	                 KVARC_OK);
	assert_int_equal(kvarc_writer_close(&w), KVARC_OK);
	size_t bytes = f.n;
	memfile_free(&f);
	return bytes;
}

/* With ropes of its own the model predicts the cache: profiles that say nothing but sizes. */
static void write_both(kvarc_import *im, const struct made_cache *c, kvarc_predictor *p)
{
	const kvarc_geometry *g = kvarc_import_geometry(im);
	const uint32_t row = (uint32_t)c->row * 4, n = (uint32_t)c->tokens;
	kvarc_view views[2 * LAYERS];
	kvarc_profile *profile;
	for (uint32_t i = 0; i < 2 * LAYERS; i++) {
		void *data = malloc((size_t)n * row);
		assert_non_null(data);
		assert_int_equal(kvarc_import_fetch(im, i, 0, g->tensors[i].heads, 0, n, data), 0);
		views[i] = (kvarc_view){
			.data = data, .token_stride = row, .block_elems = row / 4, .elem_stride = 4
		};
	}
	assert_int_equal(kvarc_profile_of_sizes(&profile, 7, g, n, views, NULL), KVARC_OK);
	size_t without = write_at(1, im, c, views, NULL, NULL);
	size_t with = write_at(7, im, c, views, p, profile);
	print_message("level 1: %zu bytes, 7: %zu\n", without, with);
	assert_true(with < without);
	for (size_t i = 0; i < 2 * LAYERS; i++)
		free(views[i].data);
	kvarc_profile_close(&profile);
}

/* Scaled frequencies (llama 3, linear), two ropes (gemma3), none (gpt2). */
static void test_ropes(void **state)
{
	static const char *const names[] = { "llama", "qwen2", "qwen3", "gemma3", "gpt2" };
	(void)state;
	if (!reads_safetensors())
		skip();
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		const struct made_cache c = made_cache(names[i]);
		kvarc_predictor *p = open_model(names[i]);
		const struct kvi_model_file *m = kvi_predictor_file(p);
		struct blob f = file_of(&c, m->kv_heads);
		kvarc_source source = blob_source(&f);
		const kvarc_import_options o = { .axes = "thc", .predictor = p };
		kvarc_import *im;
		assert_int_equal(c.first, 0);
		assert_int_equal(kvarc_import_open(&im, &source, NULL, &o), KVARC_OK);
		const kvarc_geometry *g = kvarc_import_geometry(im);
		assert_int_equal(g->n_tensors, 2 * LAYERS);
		assert_int_equal(g->n_ropes, m->n_ropes);
		for (size_t k = 0; k < g->n_tensors; k++)
			check_rope(g, &g->tensors[k], m);
		write_both(im, &c, p);
		kvarc_import_close(&im);
		kvarc_predictor_close(&p);
		blob_free(&f);
	}
}

/* The model of another cache says nothing. */
static void test_other(void **state)
{
	const struct made_cache c = made_cache("qwen2");
	struct blob f;
	kvarc_predictor *p;
	kvarc_import *im;
	(void)state;
	if (!reads_safetensors())
		skip();
	f = file_of(&c, 2);
	p = open_model("qwen3"); /* keys of this width, and of other heads */
	kvarc_source source = blob_source(&f);
	const kvarc_import_options o = { .axes = "thc", .predictor = p };
	assert_int_equal(kvarc_import_open(&im, &source, NULL, &o), KVARC_OK);
	const kvarc_geometry *g = kvarc_import_geometry(im);
	assert_int_equal(g->tensors[0].heads, 2);
	for (size_t k = 0; k < g->n_ropes; k++)
		assert_int_not_equal(g->ropes[k].freq[1], kvi_predictor_file(p)->ropes[0].freq[1]);
	kvarc_import_close(&im);
	kvarc_predictor_close(&p);
	blob_free(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_ropes),
		                            cmocka_unit_test(test_other) };
	return cmocka_run_group_tests(tests, made_load, made_free);
}
