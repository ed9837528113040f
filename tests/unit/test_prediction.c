/* SPDX-License-Identifier: BSD-3-Clause */
/* test_prediction.c - archives that a model predicts (spec model), through writer and reader */
#include "prediction_util.h"

#include "format/frame.h"
#include "format/superblock.h"

static void test_round_trip(void **state)
{
	(void)state;
	for (int level = 4; level <= 7; level++) {
		struct world w;
		struct memfile plain = { .fail_at = -1 };
		kvarc_writer_options one = KVARC_WRITER_OPTIONS_INIT;
		world_open(&w, level);
		assert_int_equal(cache_write(&w.c, &w.f, &w.wo), KVARC_OK);
		assert_int_equal(cache_write(&w.c, &plain, &one), KVARC_OK);
		print_message("level %d: %zu bytes, level 1: %zu\n", level, w.f.n, plain.n);
		assert_true(w.f.n < plain.n * 8 / 10);
		assert_int_equal(cache_read_seq(&w.back, &w.f, &w.ro, NULL), KVARC_OK);
		assert_true(cache_equal(&w.c, &w.back));
		world_empty(&w);
		assert_int_equal(cache_read_range(&w.back, &w.f, &w.ro), KVARC_OK);
		assert_true(cache_equal(&w.c, &w.back));
		assert_int_equal(cache_verify(&w.f, &w.ro), KVARC_OK);
		w.f.pipe = true;
		w.f.next = 0;
		world_empty(&w);
		assert_int_equal(cache_read_seq(&w.back, &w.f, &w.ro, NULL), KVARC_OK);
		assert_true(cache_equal(&w.c, &w.back));
		memfile_free(&plain);
		world_close(&w);
	}
}

static void test_same_bytes(void **state)
{
	static const uint32_t sets[] = { KVARC_ISA_SCALAR, KVARC_ISA_AVX2, KVARC_ISA_AVX512, 0 };
	struct world w;
	(void)state;
	world_open(&w, 5);
	assert_int_equal(cache_write(&w.c, &w.f, &w.wo), KVARC_OK);
	for (unsigned i = 0; i < 8; i++) {
		struct memfile f = { .fail_at = -1 };
		uint32_t set = sets[i % 4];
		if (set && !(kvarc_isa_available() & set))
			continue;
		w.wo.common.threads = w.ro.common.threads = i;
		w.wo.common.isa_mask = set;
		w.ro.common.isa_mask = sets[(i + 1) % 4];
		assert_int_equal(cache_write(&w.c, &f, &w.wo), KVARC_OK);
		assert_int_equal(f.n, w.f.n);
		assert_memory_equal(f.p, w.f.p, f.n);
		world_empty(&w);
		assert_int_equal(cache_read_seq(&w.back, &f, &w.ro, NULL), KVARC_OK);
		assert_true(cache_equal(&w.c, &w.back));
		memfile_free(&f);
	}
	world_close(&w);
}

/* Part of the tokens and layers, before and behind what was read last. */
static void test_ranges(void **state)
{
	static const kvarc_range ranges[] = { { .n_layers = 2, .t0 = 300, .n = 10 },
		                              { .n_layers = 1, .n = 600 },
		                              { .layer0 = 1, .n_layers = 1, .t0 = 520, .n = 80 },
		                              { .n_layers = 2, .t0 = 590, .n = 10 },
		                              { .n_layers = 1, .t0 = 10, .n = 300 },
		                              { .layer0 = 1, .n_layers = 1, .n = 5 } };
	struct world w;
	kvarc_reader *r;
	(void)state;
	world_open(&w, 6);
	assert_int_equal(cache_write(&w.c, &w.f, &w.wo), KVARC_OK);
	for (unsigned threads = 1; threads < 4; threads++) {
		kvarc_source source = memfile_source(&w.f);
		w.ro.common.threads = threads;
		assert_int_equal(kvarc_reader_open(&r, &source, &w.ro), KVARC_OK);
		for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
			const kvarc_range *g = &ranges[i];
			kvarc_view views[16];
			world_empty(&w);
			cache_views_at(&w.back, g->t0, views);
			assert_int_equal(kvarc_reader_read(r, g, views), KVARC_OK);
			for (size_t k = 0; k < 2 * LAYERS; k++) {
				size_t row = 2 * CHANNELS, at = g->t0 * row;
				bool in = k / 2 >= g->layer0 && k / 2 < g->layer0 + g->n_layers;
				if (in)
					assert_memory_equal(w.back.data[k] + at, w.c.data[k] + at,
					                    g->n * row);
				else
					assert_int_equal(w.back.data[k][at], 0xa5);
			}
		}
		kvarc_reader_close(&r);
	}
	world_close(&w);
}

static void test_missing(void **state)
{
	struct world w;
	(void)state;
	world_open(&w, 5);
	assert_int_equal(cache_write(&w.c, &w.f, &w.wo), KVARC_OK);
	w.ro.predictor = NULL;
	assert_int_equal(cache_read_seq(&w.back, &w.f, &w.ro, NULL), KVARC_PREDICTOR);
	assert_non_null(strstr(w.error.text, "the model that"));
	assert_non_null(strstr(w.error.text, "tiny"));
	kvarc_predictor *other = open_model("qwen3.gguf");
	w.ro.predictor = other;
	assert_int_equal(cache_read_range(&w.back, &w.f, &w.ro), KVARC_PREDICTOR);
	assert_non_null(strstr(w.error.text, "other weights"));
	w.wo.predictor = other; /* its heads are not the cache's */
	struct memfile f = { .fail_at = -1 };
	assert_int_equal(cache_write(&w.c, &f, &w.wo), KVARC_PREDICTOR);
	assert_non_null(strstr(w.error.text, "does not predict this cache"));
	kvarc_predictor_close(&other);
	w.wo.predictor = NULL;
	assert_int_equal(cache_write(&w.c, &f, &w.wo), KVARC_PREDICTOR);
	w.ro.predictor = w.model;
	w.ro.n_profiles = 0;
	assert_int_equal(cache_read_seq(&w.back, &w.f, &w.ro, NULL), KVARC_PREDICTOR);
	assert_non_null(strstr(w.error.text, "the profile that"));
	memfile_free(&f);
	world_close(&w);
}

/* The cache's own RoPE counts, not the model's: what a search found, with a little error. */
static void test_rope(void **state)
{
	struct world w;
	size_t as_it_is;
	(void)state;
	world_open(&w, 7);
	assert_int_equal(cache_write(&w.c, &w.f, &w.wo), KVARC_OK);
	as_it_is = w.f.n;
	uint64_t freq[CHANNELS / 2];
	memcpy(freq, w.c.ropes[0].freq, sizeof freq);
	for (size_t i = 0; i < CHANNELS / 2; i++)
		freq[i] += freq[i] / 50;
	w.c.ropes[0].freq = freq;
	memfile_free(&w.f);
	w.f = (struct memfile){ .fail_at = -1 };
	assert_int_equal(cache_write(&w.c, &w.f, &w.wo), KVARC_OK);
	assert_true(w.f.n > as_it_is); /* another rotation of the queries */
	world_empty(&w);
	assert_int_equal(cache_read_seq(&w.back, &w.f, &w.ro, NULL), KVARC_OK);
	assert_true(cache_equal(&w.c, &w.back));
	w.c.ropes[0].rotary -= 2;
	assert_int_equal(cache_write(&w.c, &w.f, &w.wo), KVARC_PREDICTOR);
	world_close(&w);
}

/* The model has 5 words. */
static void test_tokens(void **state)
{
	struct world w;
	struct memfile f = { .fail_at = -1 };
	(void)state;
	world_open(&w, 5);
	w.c.ids[0][400] = WORDS;
	assert_int_equal(cache_write(&w.c, &f, &w.wo), KVARC_PREDICTOR);
	assert_non_null(strstr(w.error.text, "token 256"));
	memfile_free(&f);
	w.c.ids[0][400] = 0;
	int32_t *ids = w.c.ids[0];
	w.c.ids[0] = NULL;
	f = (struct memfile){ .fail_at = -1 };
	assert_int_equal(cache_write(&w.c, &f, &w.wo), KVARC_PREDICTOR);
	assert_non_null(strstr(w.error.text, "without ids"));
	w.c.ids[0] = ids;
	memfile_free(&f);
	world_close(&w);
}

static _Atomic int fetches;

static int fail_late(void *cache, uint32_t tensor, uint32_t head, uint32_t heads, uint64_t t0,
                     uint32_t n, void *dst)
{
	return ++fetches == 6 ? 1 : cache_fetch(cache, tensor, head, heads, t0, n, dst);
}

/* A fetch fails in the second segment, with chunks of the third on their way: an error, no hang. */
static void test_failing_fetch(void **state)
{
	struct world w;
	(void)state;
	world_open(&w, 5);
	for (unsigned threads = 1; threads < 5; threads++) {
		kvarc_sink sink = memfile_sink(&w.f);
		kvarc_writer *o;
		w.wo.common.threads = threads;
		w.wo.segment_tokens = 64;
		fetches = 0;
		assert_int_equal(kvarc_writer_open(&o, &sink, &w.wo), KVARC_OK);
		assert_int_equal(kvarc_writer_set_geometry(o, &w.c.g), KVARC_OK);
		assert_int_equal(
			kvarc_writer_append_fetch(o, 0, TOKENS, w.c.ids[0], NULL, fail_late, &w.c),
			KVARC_IO);
		kvarc_writer_abort(&o);
		memfile_free(&w.f);
		w.f = (struct memfile){ .fail_at = -1 };
	}
	world_close(&w);
}

/* Constant rows and values that are not finite are coded otherwise; the model continues. */
static void test_odd_values(void **state)
{
	struct world w;
	(void)state;
	world_open(&w, 5);
	uint16_t *key = (uint16_t *)(void *)w.c.data[0];
	uint16_t *value = (uint16_t *)(void *)w.c.data[3];
	key[17] = 0x7fc1;
	key[300 * CHANNELS] = 0xff80;
	for (size_t i = 256 * CHANNELS; i < 512 * CHANNELS; i++)
		value[i] = 0x3f80;
	for (unsigned threads = 1; threads < 4; threads += 2) {
		w.wo.common.threads = w.ro.common.threads = threads;
		memfile_free(&w.f);
		w.f = (struct memfile){ .fail_at = -1 };
		assert_int_equal(cache_write(&w.c, &w.f, &w.wo), KVARC_OK);
		world_empty(&w);
		assert_int_equal(cache_read_seq(&w.back, &w.f, &w.ro, NULL), KVARC_OK);
		assert_true(cache_equal(&w.c, &w.back));
		world_empty(&w);
		assert_int_equal(cache_read_range(&w.back, &w.f, &w.ro), KVARC_OK);
		assert_true(cache_equal(&w.c, &w.back));
	}
	world_close(&w);
}

/* A flip in any byte of the second segment: no wrong tokens, and those before it are saved. */
static void test_damage(void **state)
{
	struct world w;
	size_t silent = 0;
	(void)state;
	world_open(&w, 5);
	assert_int_equal(cache_write(&w.c, &w.f, &w.wo), KVARC_OK);
	for (size_t at = w.f.n / 3; at < w.f.n; at += 97) {
		w.f.p[at] ^= 0x10;
		w.ro.flags = 0;
		w.ro.common.threads = 1 + (unsigned)(at % 3);
		world_empty(&w);
		kvarc_ret ret = cache_read_seq(&w.back, &w.f, &w.ro, NULL);
		silent += ret == KVARC_OK && !cache_equal(&w.c, &w.back);
		w.ro.flags = KVARC_READ_SALVAGE;
		world_empty(&w);
		assert_int_equal(cache_read_seq(&w.back, &w.f, &w.ro, NULL), KVARC_OK);
		for (size_t k = 0; k < 2 * LAYERS; k++)
			for (size_t i = 0; i < 2 * TOKENS * CHANNELS; i++)
				silent += w.back.data[k][i] != 0xa5 &&
				          w.back.data[k][i] != w.c.data[k][i];
		w.f.p[at] ^= 0x10;
	}
	assert_int_equal(silent, 0);
	world_close(&w);
}

/* A chunk of layer 1 is damaged: layer 0 of its segment is saved all the same. */
static void test_layers_below(void **state)
{
	struct world w;
	(void)state;
	world_open(&w, 5);
	assert_int_equal(cache_write(&w.c, &w.f, &w.wo), KVARC_OK);
	w.f.p[world_chunk(&w, 2, 256) + 100] ^= 1;
	w.ro.flags = KVARC_READ_SALVAGE;
	for (unsigned threads = 1; threads < 4; threads++) {
		w.ro.common.threads = threads;
		world_empty(&w);
		assert_int_equal(cache_read_seq(&w.back, &w.f, &w.ro, NULL), KVARC_OK);
		for (size_t k = 0; k < 2; k++)
			assert_memory_equal(w.back.data[k], w.c.data[k], 512 * CHANNELS * 2);
		assert_memory_equal(w.back.data[2], w.c.data[2], 256 * CHANNELS * 2);
		assert_int_equal(w.back.data[2][256 * CHANNELS * 2], 0xa5);
		assert_int_equal(w.back.data[0][512 * CHANNELS * 2], 0xa5);
	}
	world_close(&w);
}

/* Adds a tensor that no model predicts, in chunks of one head each. */
static void add_indexer(struct world *w)
{
	enum { HEADS = 4, HEAD_CHANNELS = 128, WIDTH = HEADS * HEAD_CHANNELS };
	struct cache *c = &w->c;
	uint64_t seed = 9;
	cache_free(&w->back);
	c->tensors[c->g.n_tensors] = (kvarc_tensor){ .layer = 1,
		                                     .kind = KVARC_INDEXER_KEY,
		                                     .dtype = KVARC_BF16,
		                                     .heads = HEADS,
		                                     .channels = HEAD_CHANNELS };
	size_t i = c->g.n_tensors++;
	uint16_t *p = malloc(cache_bytes(c, i));
	assert_non_null(p);
	for (size_t k = 0; k < TOKENS * WIDTH; k++)
		p[k] = (uint16_t)(0x3f80 + rand_next(&seed) % 64 + 16 * (k % 16));
	c->data[i] = (uint8_t *)p;
	c->views[i] = (kvarc_view){
		.data = p, .block_elems = WIDTH, .elem_stride = 2, .token_stride = 2 * WIDTH
	};
	cache_make_empty(&w->back, c);
	w->wo.chunk_bytes = 256 * HEAD_CHANNELS * 2;
}

/* Damages all PARAMS frames, or repairs them. Returns their number. */
static size_t flip_params(struct memfile *f)
{
	const uint8_t id[16] = { 0 };
	const uint64_t sync = kvi_frame_sync(id);
	struct kvi_frame_head h;
	size_t n = 0;
	for (size_t o = KVI_SUPERBLOCK_BYTES; o < f->n; o += kvi_frame_bytes(h.payload_bytes)) {
		assert_true(kvi_frame_head_parse(&h, f->p + o, sync, o));
		if (h.type == KVI_FRAME_PARAMS) {
			f->p[o + KVI_FRAME_HEAD_BYTES] ^= 0x40;
			n++;
		}
	}
	return n;
}

/* Chunks of single heads whose PARAMS are lost, beside those that a model predicts. */
static void test_lost_params_of_heads(void **state)
{
	struct world w;
	(void)state;
	world_open(&w, 5);
	add_indexer(&w);
	world_write(&w);
	world_read(&w);
	assert_true(flip_params(&w.f) >= 4);
	w.ro.flags = KVARC_READ_SALVAGE;
	for (unsigned threads = 1; threads < 4; threads++) {
		w.ro.common.threads = threads;
		world_empty(&w);
		assert_int_equal(cache_read_seq(&w.back, &w.f, &w.ro, NULL), KVARC_OK);
		for (size_t k = 0; k < 2 * LAYERS; k++)
			assert_memory_equal(w.back.data[k], w.c.data[k], cache_bytes(&w.c, k));
		for (size_t i = 0; i < cache_bytes(&w.c, 2 * LAYERS); i++)
			assert_int_equal(w.back.data[2 * LAYERS][i], 0xa5);
	}
	world_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_same_bytes),
		cmocka_unit_test(test_ranges),
		cmocka_unit_test(test_missing),
		cmocka_unit_test(test_rope),
		cmocka_unit_test(test_tokens),
		cmocka_unit_test(test_failing_fetch),
		cmocka_unit_test(test_odd_values),
		cmocka_unit_test(test_damage),
		cmocka_unit_test(test_layers_below),
		cmocka_unit_test(test_lost_params_of_heads),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
