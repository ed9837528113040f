/* SPDX-License-Identifier: BSD-3-Clause */
/* test_stored_model.c - what a model predicts behind segments in a store: ranges and token ids,
 * each in a reader of its own, are those of reading in order */

#include "../../fuzz/fuzz_store.h"
#include "stream_util.h"

/* A reader of a vector, with its model and store. */
struct vector_reader {
	kvarc_source source;
	struct fuzz_store store;
	kvarc_error error;
	kvarc_predictor *model;
	kvarc_reader *r;
};

static void path_of(char *path, size_t bytes, const char *name)
{
	const char *srcdir = getenv("srcdir");
	snprintf(path, bytes, "%s/spec/vectors/%s", srcdir ? srcdir : ".", name);
}

static void open_vector(struct vector_reader *x, const char *name, const char *model)
{
	kvarc_reader_options o = KVARC_READER_OPTIONS_INIT;
	char path[4096];
	memset(x, 0, sizeof *x);
	path_of(path, sizeof path, model);
	assert_int_equal(kvarc_predictor_open_model(&x->model, path, NULL), KVARC_OK);
	path_of(path, sizeof path, name);
	assert_int_equal(kvarc_source_open_path(&x->source, path, NULL), KVARC_OK);
	fuzz_store_use(&x->store, &o);
	o.predictor = x->model;
	o.common.error = &x->error;
	assert_int_equal(kvarc_reader_open(&x->r, &x->source, &o), KVARC_OK);
	x->store.vectors.geometry = kvarc_reader_geometry(x->r);
}

static void close_vector(struct vector_reader *x)
{
	kvarc_reader_close(&x->r);
	kvarc_predictor_close(&x->model);
	kvarc_source_close(&x->source);
}

/* Memory for the first n tokens. */
static void make(struct cache *c, const kvarc_geometry *g, uint64_t n)
{
	memset(c, 0, sizeof *c);
	assert_true(g->n_tensors <= 16 && g->n_tracks == 1);
	memcpy(c->tensors, g->tensors, g->n_tensors * sizeof *g->tensors);
	c->g.n_tensors = g->n_tensors;
	c->g.n_tracks = 1;
	c->n[0] = n;
	cache_link(c);
}

static void check_range(const char *name, const char *model, const struct cache *all, uint64_t t0,
                        uint32_t layer)
{
	const kvarc_range range = { .layer0 = layer, .n_layers = 1, .t0 = t0, .n = 3 };
	struct vector_reader x;
	struct cache part;
	int32_t ids[3];
	open_vector(&x, name, model);
	make(&part, &all->g, 3);
	const kvarc_ret ret = kvarc_reader_read(x.r, &range, part.views);
	if (ret)
		fail_msg("%s, token %d: %s", name, (int)t0, x.error.text);
	for (size_t i = 0; i < all->g.n_tensors; i++) {
		const size_t row = (size_t)all->views[i].token_stride;
		if (all->tensors[i].layer == layer)
			assert_memory_equal(part.data[i], all->data[i] + t0 * row, 3 * row);
	}
	close_vector(&x);
	open_vector(&x, name, model);
	assert_int_equal(kvarc_reader_read_tokens(x.r, 0, t0, 3, ids, NULL), KVARC_OK);
	assert_memory_equal(ids, all->ids[0] + t0, sizeof ids);
	close_vector(&x);
	cache_free(&part);
}

static void check(const char *name, const char *model, uint64_t tokens)
{
	struct vector_reader x;
	struct cache all;
	kvarc_segment segment;
	kvarc_ret ret;
	open_vector(&x, name, model);
	assert_int_equal(kvarc_reader_tokens(x.r, 0), tokens);
	make(&all, kvarc_reader_geometry(x.r), tokens);
	while ((ret = kvarc_reader_next_segment(x.r, &segment)) == KVARC_OK) {
		assert_non_null(segment.ids);
		memcpy(all.ids[0] + segment.t0, segment.ids, 4 * segment.n);
		assert_int_equal(kvarc_reader_segment_deliver(x.r, cache_deliver, &all), KVARC_OK);
	}
	assert_int_equal(ret, KVARC_END);
	close_vector(&x);
	for (uint64_t t0 = 0; t0 + 3 <= tokens; t0 += 4)
		for (uint32_t layer = 0; layer < 2; layer++)
			check_range(name, model, &all, t0, layer);
	cache_free(&all);
}

static void test_predicted(void **state)
{
	(void)state;
	check("good-storeref-transformer-5.kva", "transformer.gguf", 33);
}

static void test_coded_ids(void **state)
{
	(void)state;
	check("good-storeref-transformer-tokens-7.kva", "tokens.gguf", 25);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_predicted),
		cmocka_unit_test(test_coded_ids),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
