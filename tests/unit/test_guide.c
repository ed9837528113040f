/* SPDX-License-Identifier: BSD-3-Clause */
/* test_guide.c - archives that a model predicts (spec model), through writer and reader */
#include "stream_util.h"

#include <stdio.h>

#include "exact/handle.h"
#include "model/profile.h"
#include "stream/profile_handle.h"

enum { TOKENS = 600, LAYERS = 2, CHANNELS = 8, WORDS = 5 };

static kvarc_predictor *open_model(const char *name)
{
	const char *dir = getenv("srcdir"); /* set by `make check' */
	char path[1024];
	kvarc_predictor *p;
	snprintf(path, sizeof path, "%s/tests/data/models/%s", dir ? dir : ".",
	         name);
	kvarc_ret ret = kvarc_predictor_open_model(&p, path, NULL);
	if (ret == KVARC_OPTIONS)
		skip(); /* folders need jansson */
	assert_int_equal(ret, KVARC_OK);
	return p;
}

/* ---- a cache that the model could have made ---- */

static uint16_t bf16(float x)
{
	uint32_t b;
	memcpy(&b, &x, sizeof b);
	return (uint16_t)((b + 0x8000) >> 16);
}

/* Half-split channels of a slot. */
static size_t channel(size_t slot)
{
	return slot / 2 + (slot & 1 ? CHANNELS / 2 : 0);
}

static void take_layer(struct cache *c, struct kvi_run *run, size_t layer,
                       size_t t0, size_t n, uint64_t *seed)
{
	struct kvi_predicted p = kvi_run_predict(run);
	float k[256 * CHANNELS], v[256 * CHANNELS];
	uint16_t *key = (uint16_t *)(void *)c->data[2 * layer];
	uint16_t *value = (uint16_t *)(void *)c->data[2 * layer + 1];
	for (size_t t = 0; t < n; t++)
		for (size_t i = 0; i < CHANNELS; i++) {
			uint64_t z = rand_next(seed);
			float noise = (float)(int8_t)z * 0x1p-14f;
			float other = (float)(int8_t)(z >> 8) * 0x1p-14f;
			k[t * CHANNELS + i] = p.k[t * p.stride + i] + noise;
			v[t * CHANNELS + i] = p.v[t * p.stride + i] + other;
		}
	kvi_run_rotate(run, k, CHANNELS);
	for (size_t t = 0; t < n; t++)
		for (size_t i = 0; i < CHANNELS; i++) {
			size_t at = (t0 + t) * CHANNELS;
			key[at + channel(i)] = bf16(k[t * CHANNELS + i]);
			value[at + i] = bf16(v[t * CHANNELS + i]);
		}
	assert_int_equal(kvi_run_advance(run, k, v, CHANNELS, false), KVARC_OK);
}

static void fill(struct cache *c, const kvarc_predictor *p)
{
	const struct kvi_alloc *alloc = kvi_predictor_alloc(p);
	const struct kvi_engine_level best = kvi_engine_level(7);
	struct kvi_run_options o = { .alloc = alloc };
	struct kvi_run *run;
	uint64_t seed = 3;
	assert_int_equal(kvi_predictor_engine(p, &best.arithmetic, 0,
	                                      &o.engine, NULL), KVARC_OK);
	assert_int_equal(kvi_pool_open(&o.pool, alloc, 1), KVARC_OK);
	assert_int_equal(kvi_run_open(&run, &o), KVARC_OK);
	for (size_t t = 0; t < TOKENS; t++) {
		c->ids[0][t] = (int32_t)(rand_next(&seed) % WORDS);
		c->positions[0][t] = (int32_t)t;
	}
	for (size_t t = 0; t < TOKENS; t += 256) {
		size_t n = TOKENS - t < 256 ? TOKENS - t : 256;
		assert_int_equal(kvi_run_segment(run, c->ids[0] + t,
		                                 c->positions[0] + t, n),
		                 KVARC_OK);
		for (size_t l = 0; l < LAYERS; l++)
			take_layer(c, run, l, t, n, &seed);
	}
	kvi_run_close(&run);
	kvi_pool_close(o.pool);
}

static void make_cache(struct cache *c, const kvarc_predictor *p)
{
	memset(c, 0, sizeof *c);
	const struct kvi_model_rope *r = &kvi_predictor_file(p)->ropes[0];
	c->ropes[0] = (kvarc_rope){ KVARC_ROPE_HALF, r->rotary, r->freq };
	c->g.n_ropes = 1;
	c->g.n_tracks = 1;
	c->n[0] = TOKENS;
	for (uint32_t i = 0; i < 2 * LAYERS; i++) {
		bool key = i % 2 == 0;
		c->tensors[c->g.n_tensors++] = (kvarc_tensor){
			.layer = i / 2, .kind = key ? KVARC_KEY : KVARC_VALUE,
			.dtype = KVARC_BF16, .heads = 1, .channels = CHANNELS,
			.flags = key ? KVARC_TENSOR_POST_ROPE : 0, .rope = key
		};
	}
	cache_link(c);
	fill(c, p);
}

/* ---- a profile for it ---- */

static void fill_model(struct kvi_model *m, uint64_t *seed)
{
	for (size_t i = 0; i < CHANNELS; i++) {
		m->step[i] = -13;
		m->k[i] = -32;
		if (m->b_stride) {
			m->qb[i] = 8;
			m->b[i * m->b_stride] = (int16_t)(rand_next(seed) % 9);
		}
	}
	for (size_t i = 0; m->d_stride && i < m->width; i++) {
		m->e[i] = 20;
		for (size_t j = 0; j < m->d_stride; j++)
			m->d[i * m->d_stride + j] =
				(int16_t)(rand_next(seed) % 31);
	}
}

static kvarc_profile *make_profile(const struct cache *c, unsigned level,
                                   uint32_t width)
{
	const kvarc_common common = KVARC_COMMON_INIT;
	kvarc_profile *h;
	uint64_t seed = 5;
	assert_int_equal(kvi_profile_handle_new(&h, &common), KVARC_OK);
	assert_int_equal(kvi_profile_new(&h->profile, &h->alloc), KVARC_OK);
	struct kvi_profile *p = h->profile;
	p->ropes = kvi_calloc(p->alloc, 1, sizeof *p->ropes);
	p->models = kvi_calloc(p->alloc, 2 * LAYERS, sizeof *p->models);
	size_t freqs = CHANNELS / 2 * sizeof(uint64_t);
	p->ropes[0].rotary = CHANNELS;
	p->ropes[0].freq = kvi_malloc(p->alloc, freqs);
	memcpy(p->ropes[0].freq, c->ropes[0].freq, freqs);
	p->n_ropes = 1;
	for (uint32_t i = 0; i < 2 * LAYERS; i++) {
		struct kvi_model *m = &p->models[p->n_models++];
		bool key = i % 2 == 0;
		*m = (struct kvi_model){
			.level = (uint8_t)level, .layer = i / 2,
			.kind = key ? KVARC_KEY : KVARC_VALUE, .heads = 1,
			.head_channels = CHANNELS, .rope = key,
			.flags = KVI_MODEL_SCALE, .n0 = 8,
		};
		if (!key) {
			m->n_same = 1;
			m->same[0].kind = KVARC_KEY;
			m->flags |= level > 4 ? KVI_MODEL_CORRECTS : 0;
			m->width = width;
		}
		assert_int_equal(kvi_model_room(p, m), KVARC_OK);
		fill_model(m, &seed);
	}
	assert_int_equal(kvi_profile_finish(p), KVARC_OK);
	assert_int_equal(kvi_profile_handle_finish(h), KVARC_OK);
	return h;
}

/* ---- all of it ---- */

struct world {
	kvarc_predictor *model;
	kvarc_profile *profile;
	struct cache c, back;
	struct memfile f;
	kvarc_writer_options wo;
	kvarc_reader_options ro;
	kvarc_error error;
	const kvarc_profile *list[1];
};

static void world_open(struct world *w, int level)
{
	memset(w, 0, sizeof *w);
	w->f.fail_at = -1;
	w->model = open_model("llama");
	make_cache(&w->c, w->model);
	w->profile = make_profile(&w->c, (unsigned)level,
	                          kvi_predictor_file(w->model)->width);
	w->list[0] = w->profile;
	w->wo = (kvarc_writer_options)KVARC_WRITER_OPTIONS_INIT;
	w->wo.level = level;
	w->wo.flags = KVARC_WRITE_FILE_ID;
	w->wo.profile = w->profile;
	w->wo.predictor = w->model;
	w->wo.predictor_name = "tiny";
	w->wo.common.error = &w->error;
	w->ro.common.error = &w->error;
	w->ro.profiles = w->list;
	w->ro.n_profiles = 1;
	w->ro.predictor = w->model;
	cache_make_empty(&w->back, &w->c);
}

static void world_close(struct world *w)
{
	memfile_free(&w->f);
	cache_free(&w->c);
	cache_free(&w->back);
	kvarc_profile_close(&w->profile);
	kvarc_predictor_close(&w->model);
}

static void empty(struct world *w)
{
	cache_free(&w->back);
	cache_make_empty(&w->back, &w->c);
}

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
		print_message("level %d: %zu bytes, level 1: %zu\n", level,
		              w.f.n, plain.n);
		assert_true(w.f.n < plain.n * 8 / 10);
		assert_int_equal(cache_read_seq(&w.back, &w.f, &w.ro, NULL),
		                 KVARC_OK);
		assert_true(cache_equal(&w.c, &w.back));
		empty(&w);
		assert_int_equal(cache_read_range(&w.back, &w.f, &w.ro),
		                 KVARC_OK);
		assert_true(cache_equal(&w.c, &w.back));
		assert_int_equal(cache_verify(&w.f, &w.ro), KVARC_OK);
		w.f.pipe = true;
		w.f.next = 0;
		empty(&w);
		assert_int_equal(cache_read_seq(&w.back, &w.f, &w.ro, NULL),
		                 KVARC_OK);
		assert_true(cache_equal(&w.c, &w.back));
		memfile_free(&plain);
		world_close(&w);
	}
}

static void test_same_bytes(void **state)
{
	static const uint32_t sets[] = {
		KVARC_ISA_SCALAR, KVARC_ISA_AVX2, KVARC_ISA_AVX512, 0
	};
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
		empty(&w);
		assert_int_equal(cache_read_seq(&w.back, &f, &w.ro, NULL),
		                 KVARC_OK);
		assert_true(cache_equal(&w.c, &w.back));
		memfile_free(&f);
	}
	world_close(&w);
}

/* Part of the tokens and layers, before and behind what was read last. */
static void test_ranges(void **state)
{
	static const kvarc_range ranges[] = {
		{ 0, 0, 2, 300, 10 }, { 0, 0, 1, 0, 600 }, { 0, 1, 1, 520, 80 },
		{ 0, 0, 2, 590, 10 }, { 0, 0, 1, 10, 300 }, { 0, 1, 1, 0, 5 },
	};
	struct world w;
	kvarc_reader *r;
	(void)state;
	world_open(&w, 6);
	assert_int_equal(cache_write(&w.c, &w.f, &w.wo), KVARC_OK);
	for (unsigned threads = 1; threads < 4; threads++) {
		kvarc_source source = memfile_source(&w.f);
		w.ro.common.threads = threads;
		assert_int_equal(kvarc_reader_open(&r, &source, &w.ro),
		                 KVARC_OK);
		for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
			const kvarc_range *g = &ranges[i];
			kvarc_view views[16];
			empty(&w);
			cache_views_at(&w.back, g->t0, views);
			assert_int_equal(kvarc_reader_read(r, g, views),
			                 KVARC_OK);
			for (size_t k = 0; k < 2 * LAYERS; k++) {
				size_t row = 2 * CHANNELS, at = g->t0 * row;
				bool in = k / 2 >= g->layer0 &&
					k / 2 < g->layer0 + g->n_layers;
				if (in)
					assert_memory_equal(
						w.back.data[k] + at,
						w.c.data[k] + at, g->n * row);
				else
					assert_int_equal(w.back.data[k][at],
					                 0xa5);
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
	assert_int_equal(cache_read_seq(&w.back, &w.f, &w.ro, NULL),
	                 KVARC_PREDICTOR);
	assert_non_null(strstr(w.error.text, "the model that"));
	assert_non_null(strstr(w.error.text, "tiny"));
	kvarc_predictor *other = open_model("qwen3.gguf");
	w.ro.predictor = other;
	assert_int_equal(cache_read_range(&w.back, &w.f, &w.ro),
	                 KVARC_PREDICTOR);
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
	assert_int_equal(cache_read_seq(&w.back, &w.f, &w.ro, NULL),
	                 KVARC_PREDICTOR);
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
	empty(&w);
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

static int fail_late(void *cache, uint32_t tensor, uint32_t head, uint32_t heads,
                     uint64_t t0, uint32_t n, void *dst)
{
	return ++fetches == 6 ? 1
	                      : cache_fetch(cache, tensor, head, heads, t0, n, dst);
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
		assert_int_equal(kvarc_writer_append_fetch(o, 0, TOKENS,
			w.c.ids[0], NULL, fail_late, &w.c), KVARC_IO);
		kvarc_writer_abort(&o);
		memfile_free(&w.f);
		w.f = (struct memfile){ .fail_at = -1 };
	}
	world_close(&w);
}

/* What is not finite, and what is constant, is coded otherwise; the model goes on. */
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
		empty(&w);
		assert_int_equal(cache_read_seq(&w.back, &w.f, &w.ro, NULL),
		                 KVARC_OK);
		assert_true(cache_equal(&w.c, &w.back));
		empty(&w);
		assert_int_equal(cache_read_range(&w.back, &w.f, &w.ro),
		                 KVARC_OK);
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
		empty(&w);
		kvarc_ret ret = cache_read_seq(&w.back, &w.f, &w.ro, NULL);
		silent += ret == KVARC_OK && !cache_equal(&w.c, &w.back);
		w.ro.flags = KVARC_READ_SALVAGE;
		empty(&w);
		assert_int_equal(cache_read_seq(&w.back, &w.f, &w.ro, NULL),
		                 KVARC_OK);
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
	kvarc_reader *r;
	kvarc_chunk_info chunk;
	(void)state;
	world_open(&w, 5);
	assert_int_equal(cache_write(&w.c, &w.f, &w.wo), KVARC_OK);
	kvarc_source source = memfile_source(&w.f);
	assert_int_equal(kvarc_reader_open(&r, &source, &w.ro), KVARC_OK);
	for (uint64_t i = 0;; i++) {
		assert_int_equal(kvarc_reader_chunk(r, i, &chunk), KVARC_OK);
		if (chunk.tensor == 2 && chunk.t0 == 256)
			break;
	}
	kvarc_reader_close(&r);
	w.f.p[chunk.offset + 100] ^= 1;
	w.ro.flags = KVARC_READ_SALVAGE;
	for (unsigned threads = 1; threads < 4; threads++) {
		w.ro.common.threads = threads;
		empty(&w);
		assert_int_equal(cache_read_seq(&w.back, &w.f, &w.ro, NULL),
		                 KVARC_OK);
		for (size_t k = 0; k < 2; k++)
			assert_memory_equal(w.back.data[k], w.c.data[k],
			                    512 * CHANNELS * 2);
		assert_memory_equal(w.back.data[2], w.c.data[2],
		                    256 * CHANNELS * 2);
		assert_int_equal(w.back.data[2][256 * CHANNELS * 2], 0xa5);
		assert_int_equal(w.back.data[0][512 * CHANNELS * 2], 0xa5);
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
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
