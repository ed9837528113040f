/* SPDX-License-Identifier: BSD-3-Clause */
/* test_token_blind.c - predictors that do not see the token (spec model 6): as defined, whatever
 * the cut, threads and kernels; and through archives */
#include <stdio.h>
#include <unistd.h>

#include "kvarc/tools.h"
#include "token_blind/token_blind.h"
#include "exact/engine_internal.h"
#include "predictor_handle.h"
#include "exact/head.h"
#include "small_model.h"
#include "predict/prediction.h"

enum { LAYER_ROWS = TOKENS * KV, ROWS = LAYERS * LAYER_ROWS };
static const unsigned kinds[] = { 1, 4, 16, KVARC_BLIND_EMBEDDING };
enum { KINDS = sizeof kinds / sizeof *kinds };

struct rows {
	float k[ROWS], v[ROWS];
};

struct text {
	int32_t ids[TOKENS], positions[TOKENS];
};

static void make_text(struct text *t)
{
	uint64_t seed = 11;
	for (int i = 0; i < TOKENS; i++) {
		t->ids[i] = (int32_t)(rand_next(&seed) % WORDS);
		t->positions[i] = i;
	}
}

static void open_with_head(struct engine *e)
{
	engine_open(e, 7, 0);
	assert_int_equal(kvi_engine_add_head(e->engine, e->pool, NULL), KVARC_OK);
}

struct blind_way {
	size_t n, cut;
	unsigned threads;
	uint32_t isa;
};

static void go(const struct engine *e, const struct text *t, unsigned kind,
               const struct blind_way *w, struct rows *out)
{
	struct kvi_run_options o = { .engine = e->engine, .alloc = &e->alloc, .isa_mask = w->isa };
	struct kvi_token_blind *b;
	assert_int_equal(kvi_pool_open(&o.pool, &e->alloc, w->threads), KVARC_OK);
	assert_int_equal(kvi_token_blind_open(&b, &o, kind), KVARC_OK);
	for (int again = 0; again < 2; again++)
		for (size_t at = 0; at < w->n; at += w->cut) {
			size_t n = w->n - at < w->cut ? w->n - at : w->cut;
			if (again && at > w->n / 4)
				break; /* restart comes in the middle */
			assert_int_equal(
				kvi_token_blind_segment(b, t->ids + at, t->positions + at, n),
				KVARC_OK);
			for (uint32_t l = 0; l < LAYERS; l++) {
				struct kvi_predicted p = kvi_token_blind_predict(b, l);
				size_t to = l * LAYER_ROWS + at * KV;
				memcpy(out->k + to, p.k, n * KV * sizeof(float));
				memcpy(out->v + to, p.v, n * KV * sizeof(float));
			}
			if (at + n == w->n)
				kvi_token_blind_restart(b);
		}
	kvi_token_blind_close(&b);
	kvi_pool_close(o.pool);
}

/* ---- the definition, by runs of their own ---- */

/* n tokens and a last one through a new run: what the last one has, and its logits. */
static void run_whole(const struct engine *e, const struct kvi_engine *engine, const struct text *t,
                      size_t n, int32_t last, float *k, float *v, float *z)
{
	const struct kvi_run_options o = {
		.engine = engine, .alloc = &e->alloc, .pool = e->pool, .whole = true
	};
	struct kvi_run *run;
	assert_int_equal(kvi_run_open(&run, &o), KVARC_OK);
	for (size_t at = 0, some; at <= n; at += some) {
		static float turned[256 * KV];
		int32_t id = last, position = (int32_t)n;
		some = n - at < 256 ? n - at : 256;
		bool is_last = some == 0;
		some += is_last;
		assert_int_equal(kvi_run_segment(run, is_last ? &id : t->ids + at,
		                                 is_last ? &position : t->positions + at, some),
		                 KVARC_OK);
		for (size_t l = 0; l < LAYERS; l++) {
			struct kvi_predicted p = kvi_run_predict(run);
			assert_int_equal(p.stride, KV);
			memcpy(turned, p.k, some * KV * sizeof *turned);
			memcpy(k + l * KV, p.k, KV * sizeof *k);
			memcpy(v + l * KV, p.v, KV * sizeof *v);
			kvi_run_rotate(run, turned, KV);
			assert_int_equal(kvi_run_advance(run, turned, p.v, KV, false), KVARC_OK);
		}
	}
	if (z) {
		struct kvi_head *head;
		struct kvi_hidden h = kvi_run_hidden(run);
		assert_int_equal(kvi_head_open(&head, &o), KVARC_OK);
		memcpy(z, kvi_head_logits(head, h.h, h.width, 1).z, WORDS * sizeof *z);
		kvi_head_close(&head);
	}
	kvi_run_close(&run);
}

/* An engine whose word `word` has another row. */
static void open_other(const struct engine *e, struct kvi_model_file *m, float *rows, int32_t word,
                       const float *row, struct kvi_engine **other)
{
	const struct kvi_arithmetic a = kvi_engine_level(7).arithmetic;
	*m = *e->file;
	for (uint32_t i = 0; i < WORDS; i++)
		assert_true(kvi_matrix_row(&m->embedding, i, rows + i * WIDTH));
	memcpy(rows + word * WIDTH, row, WIDTH * sizeof *row);
	m->embedding.type = KVI_NUM_F32;
	m->embedding.data = (const uint8_t *)rows;
	assert_int_equal(kvi_engine_open(other, &e->alloc, m, &a, e->pool, NULL), KVARC_OK);
}

/* The word that no candidate is as often as those before it. */
static int32_t heaviest(const uint32_t *w, const bool *taken)
{
	int32_t best = -1;
	for (int32_t i = 0; i < WORDS; i++)
		if (w[i] && !taken[i] && (best < 0 || w[i] > w[best]))
			best = i;
	return best;
}

static void add(float *x, const float *of, float p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		x[i] += p * of[i];
}

static void define_top(const struct engine *e, const struct text *t, size_t at, unsigned k,
                       const uint32_t *w, float *key, float *value)
{
	float one_k[LAYERS * KV], one_v[LAYERS * KV];
	bool taken[WORDS] = { false };
	int32_t ids[16], n = 0;
	uint32_t sum = 0;
	while (n < (int32_t)k && (ids[n] = heaviest(w, taken)) >= 0) {
		sum += w[ids[n]];
		taken[ids[n++]] = true;
	}
	for (int32_t i = 0; i < n; i++) {
		run_whole(e, e->engine, t, at, ids[i], one_k, one_v, NULL);
		add(key, one_k, (float)w[ids[i]] / (float)sum, LAYERS * KV);
		add(value, one_v, (float)w[ids[i]] / (float)sum, LAYERS * KV);
	}
}

static void define_embedding(const struct engine *e, const struct text *t, size_t at,
                             const uint32_t *w, uint64_t sum, float *key, float *value)
{
	static float rows[WORDS * WIDTH];
	float row[WIDTH] = { 0 }, one[WIDTH];
	struct kvi_model_file m;
	struct kvi_engine *other;
	bool seen[WORDS] = { false };
	int32_t word = 0;
	for (uint32_t i = 0; i < WORDS; i++)
		if (w[i] && kvi_matrix_row(&e->file->embedding, i, one))
			add(row, one, (float)w[i] / (float)sum, WIDTH);
	for (size_t i = 0; i < at; i++)
		seen[t->ids[i]] = true;
	while (seen[word])
		word++;
	assert_true(word < WORDS - 1); /* the last one is never in the text */
	open_other(e, &m, rows, word, row, &other);
	run_whole(e, other, t, at, word, key, value, NULL);
	kvi_engine_close(&other);
}

static void check_token(const struct engine *e, const struct text *t, unsigned kind, size_t at,
                        const struct rows *got)
{
	float key[LAYERS * KV] = { 0 }, value[LAYERS * KV] = { 0 }, z[WORDS];
	uint32_t w[WORDS];
	if (at) {
		float k[LAYERS * KV], v[LAYERS * KV];
		run_whole(e, e->engine, t, at - 1, t->ids[at - 1], k, v, z);
		uint64_t sum = kvi_head_pick_weights(z, WORDS, w);
		if (kind == KVARC_BLIND_EMBEDDING)
			define_embedding(e, t, at, w, sum, key, value);
		else
			define_top(e, t, at, kind, w, key, value);
	}
	for (size_t l = 0; l < LAYERS; l++)
		for (size_t i = 0; i < KV; i++) {
			size_t from = l * LAYER_ROWS + at * KV + i;
			assert_true(got->k[from] == key[l * KV + i]);
			assert_true(got->v[from] == value[l * KV + i]);
		}
}

static void test_definition(void **state)
{
	static const size_t tokens[] = { 0, 1, 2, 100, 255, 256, 257 };
	static struct rows got;
	struct engine e;
	struct text t;
	(void)state;
	if (!reads_folders())
		skip();
	open_with_head(&e);
	make_text(&t);
	for (int i = 0; i < TOKENS; i++)
		t.ids[i] %= WORDS - 2; /* define_embedding takes one of the others */
	for (int i = 0; i < KINDS; i++) {
		go(&e, &t, kinds[i], &(struct blind_way){ 300, 256, 1, 0 }, &got);
		for (size_t j = 0; j < sizeof tokens / sizeof *tokens; j++)
			check_token(&e, &t, kinds[i], tokens[j], &got);
	}
	engine_close(&e);
}

/* Words of the same weight: the output matrix has each row twice, embeddings differ. */
static void test_ties(void **state)
{
	static float rows[WORDS * WIDTH];
	static struct rows got;
	const struct kvi_arithmetic a = kvi_engine_level(7).arithmetic;
	struct engine e, twice;
	struct kvi_model_file m;
	struct text t;
	(void)state;
	if (!reads_folders())
		skip();
	engine_open(&e, 7, 0);
	make_text(&t);
	m = *e.file;
	for (uint32_t i = 0; i < WORDS; i++)
		assert_true(kvi_matrix_row(&m.embedding, i / 2 * 2, rows + i * WIDTH));
	m.output.type = KVI_NUM_F32;
	m.output.data = (const uint8_t *)rows;
	twice = e;
	twice.file = &m;
	assert_int_equal(kvi_engine_open(&twice.engine, &e.alloc, &m, &a, e.pool, NULL), KVARC_OK);
	assert_int_equal(kvi_engine_add_head(twice.engine, e.pool, NULL), KVARC_OK);
	for (unsigned kind = 1; kind < 4; kind += 2) {
		go(&twice, &t, kind, &(struct blind_way){ 8, 8, 1, 0 }, &got);
		for (size_t at = 1; at < 8; at++)
			check_token(&twice, &t, kind, at, &got);
	}
	kvi_engine_close(&twice.engine);
	engine_close(&e);
}

static void test_ways(void **state)
{
	enum { LONG = 270 };
	static const struct blind_way ways[] = {
		{ LONG, 256, 1, 0 },
		{ LONG, 100, 2, 0 },
		{ LONG, 1, 1, 0 },
		{ LONG, 37, 3, KVARC_ISA_SCALAR },
		{ LONG, 256, 2, KVARC_ISA_AVX2 },
		{ LONG, 200, 2, KVARC_ISA_AVX512 },
		{ LONG, 200, 2, KVARC_ISA_NEON },
	};
	static const uint64_t digests[KINDS] = { 0xe2ce3a467d10890e, 0x7b9ed9e9f7b5c804,
		                                 0x8f017875be719df8, 0x03485d269b2e8e0a };
	static struct rows got;
	struct engine e;
	struct text t;
	(void)state;
	if (!reads_folders())
		skip();
	open_with_head(&e);
	make_text(&t);
	for (size_t i = 0; i < KINDS; i++)
		for (size_t j = 0; j < sizeof ways / sizeof *ways; j++) {
			if (j > 0 && j != 3 && kinds[i] != 4)
				continue; /* no news */
			go(&e, &t, kinds[i], &ways[j], &got);
			uint64_t d = kvi_h64(&got, sizeof got);
			if (d != digests[i])
				fail_msg("kind %zu, way %zu: 0x%016llx", i, j,
				         (unsigned long long)d);
		}
	engine_close(&e);
}

/* ---- archives ---- */

struct blind_world {
	struct cache c, back;
	struct memfile f;
	kvarc_writer_options wo;
	kvarc_reader_options ro;
	kvarc_profile *profile;
	kvarc_error error;
};

static kvarc_predictor *open_kind(unsigned kind)
{
	kvarc_predictor *p;
	assert_int_equal(kind ? kvarc_predictor_open_blind(&p, folder, kind, NULL)
	                      : kvarc_predictor_open_model(&p, folder, NULL),
	                 KVARC_OK);
	return p;
}

static kvarc_profile *train(struct cache *c, unsigned kind, int level)
{
	kvarc_trainer_options o = KVARC_TRAINER_OPTIONS_INIT;
	kvarc_trainer *t;
	kvarc_profile *p;
	o.mode = KVARC_TRAIN_MODEL;
	o.model.path = folder;
	o.model.level = level;
	o.model.blind = kind;
	assert_int_equal(kvarc_trainer_open(&t, &o), KVARC_OK);
	assert_int_equal(kvarc_trainer_add(t, &c->g, 0, TOKENS, c->ids[0], NULL, cache_fetch, c),
	                 KVARC_OK);
	assert_int_equal(kvarc_trainer_run(t), KVARC_OK);
	assert_int_equal(kvarc_trainer_profile(t, &p), KVARC_OK);
	kvarc_trainer_close(&t);
	return p;
}

static void begin(struct blind_world *w, int level)
{
	memset(w, 0, sizeof *w);
	make(&w->c, 5, 0);
	cache_make_empty(&w->back, &w->c);
	w->wo = (kvarc_writer_options)KVARC_WRITER_OPTIONS_INIT;
	w->f.fail_at = -1;
	w->wo.level = KVARC_LEVEL(level);
	w->wo.flags = KVARC_WRITE_EMBED_PROFILE | KVARC_WRITE_VERIFY;
	w->wo.common.error = w->ro.common.error = &w->error;
}

static void write_with(struct blind_world *w, unsigned kind, kvarc_profile *profile)
{
	kvarc_predictor *p = open_kind(kind);
	memfile_free(&w->f);
	w->f = (struct memfile){ .fail_at = -1 };
	kvarc_profile_close(&w->profile);
	w->profile = profile;
	w->wo.profile = profile;
	w->wo.predictor = p;
	if (cache_write(&w->c, &w->f, &w->wo))
		fail_msg("%s", w->error.text);
	kvarc_predictor_close(&p);
}

static void write_it(struct blind_world *w, unsigned kind)
{
	write_with(w, kind, train(&w->c, kind, w->wo.level));
}

static void empty(struct blind_world *w)
{
	cache_free(&w->back);
	cache_make_empty(&w->back, &w->c);
}

static void end(struct blind_world *w)
{
	kvarc_profile_close(&w->profile);
	memfile_free(&w->f);
	cache_free(&w->c);
	cache_free(&w->back);
}

static double bits_each(const struct blind_world *w)
{
	return 8.0 * (double)w->f.n / (TOKENS * KV * 2 * LAYERS);
}

static kvarc_ret read_all(struct blind_world *w, unsigned kind)
{
	kvarc_predictor *p = open_kind(kind);
	w->ro.predictor = p;
	empty(w);
	kvarc_ret ret = cache_read_seq(&w->back, &w->f, &w->ro, NULL);
	if (!ret) {
		assert_true(cache_equal(&w->c, &w->back));
		empty(w);
		assert_int_equal(cache_read_range(&w->back, &w->f, &w->ro), KVARC_OK);
		assert_true(cache_equal(&w->c, &w->back));
	}
	w->ro.predictor = NULL;
	kvarc_predictor_close(&p);
	return ret;
}

static void test_round_trip(void **state)
{
	struct blind_world w;
	(void)state;
	if (!reads_folders())
		skip();
	for (int i = 1; i < KINDS; i += 2) { /* one of each sort */
		begin(&w, 4 + i);
		w.wo.common.threads = w.ro.common.threads = (unsigned)i;
		write_it(&w, kinds[i]);
		print_message("kind %u: %.3f bits\n", kinds[i], bits_each(&w));
		assert_true(bits_each(&w) < 10.6);
		assert_int_equal(read_all(&w, kinds[i]), KVARC_OK);
		end(&w);
	}
}

/* A range in the middle, then one before it; also where nothing is predicted after all: of a
 * profile that knows sizes alone level 1 is smaller. */
static void read_ranges(bool useless)
{
	static const kvarc_range ranges[] = { { .layer0 = 1, .n_layers = 1, .t0 = 300, .n = 100 },
		                              { .n_layers = 1, .t0 = 10, .n = 5 },
		                              { .layer0 = 2, .n_layers = 1, .t0 = 600, .n = 100 } };
	struct blind_world w;
	kvarc_predictor *p;
	kvarc_profile *sizes;
	kvarc_reader *r;
	begin(&w, 5);
	assert_int_equal(kvarc_profile_of_sizes(&sizes, 5, &w.c.g, 256, w.c.views, NULL), KVARC_OK);
	if (useless)
		write_with(&w, 4, sizes);
	else
		write_it(&w, 4);
	p = open_kind(4);
	w.ro.predictor = p;
	kvarc_source source = memfile_source(&w.f);
	assert_int_equal(kvarc_reader_open(&r, &source, &w.ro), KVARC_OK);
	for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
		const kvarc_range *g = &ranges[i];
		size_t at = g->t0 * 2 * KV;
		kvarc_view views[16];
		empty(&w);
		cache_views_at(&w.back, g->t0, views);
		assert_int_equal(kvarc_reader_read(r, g, views), KVARC_OK);
		assert_memory_equal(w.back.data[2 * g->layer0] + at, w.c.data[2 * g->layer0] + at,
		                    g->n * 2 * KV);
	}
	kvarc_reader_close(&r);
	kvarc_predictor_close(&p);
	if (!useless)
		kvarc_profile_close(&sizes);
	end(&w);
}

static void test_ranges(void **state)
{
	(void)state;
	if (!reads_folders())
		skip();
	read_ranges(false);
	read_ranges(true);
}

/* Another predictor, or one that sees the token, is another model. */
static void test_others(void **state)
{
	static const unsigned others[] = { 0, 1, KVARC_BLIND_EMBEDDING };
	struct blind_world w;
	(void)state;
	if (!reads_folders())
		skip();
	begin(&w, 4);
	w.wo.predictor_name = "small top-4";
	write_it(&w, 4);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(read_all(&w, others[i]), KVARC_PREDICTOR);
		assert_non_null(strstr(w.error.text, "small top-4"));
	}
	write_it(&w, 0);
	assert_int_equal(read_all(&w, 4), KVARC_PREDICTOR);
	w.wo.loop = KVARC_LOOP_CLOSED;
	kvarc_predictor *p = open_kind(4);
	w.wo.predictor = p;
	memfile_free(&w.f);
	w.f = (struct memfile){ .fail_at = -1 };
	assert_int_equal(cache_write(&w.c, &w.f, &w.wo), KVARC_PREDICTOR);
	assert_non_null(strstr(w.error.text, "open"));
	const struct kvi_predictor closed = { .closed = true };
	const struct kvi_prediction_options o = { .predictor = p, .description = &closed };
	assert_int_equal(kvi_prediction_fits(&o, &w.error), KVARC_PREDICTOR);
	assert_non_null(strstr(w.error.text, "no closed loop"));
	kvarc_predictor_close(&p);
	end(&w);
}

static void write_config(const char *text)
{
	char path[80];
	snprintf(path, sizeof path, "%s/config.json", folder);
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
}

static void test_wrong(void **state)
{
	static const unsigned wrong[] = { 0, 17, 255, 257 };
	char path[80], text[1000] = "";
	uint8_t digest[16];
	kvarc_predictor *p;
	kvarc_error error;
	const kvarc_common common = { .error = &error };
	(void)state;
	if (!reads_folders())
		skip();
	for (int i = 0; i < 4; i++) {
		assert_int_equal(kvarc_predictor_open_blind(&p, folder, wrong[i], NULL),
		                 KVARC_PROG);
		assert_null(p);
	}
	assert_int_equal(kvarc_predictor_open_blind(&p, folder, KVARC_BLIND_TOP_MAX, NULL),
	                 KVARC_OK);
	kvarc_predictor_close(&p);
	snprintf(path, sizeof path, "%s/config.json", folder);
	FILE *f = fopen(path, "r");
	assert_non_null(f);
	assert_true(fread(text, 1, sizeof text - 2, f) > 0);
	fclose(f);
	char *tied = strstr(text, "\"tie_word_embeddings\":true");
	char without[1001];
	assert_non_null(tied);
	snprintf(without, sizeof without, "%.*s\"tie_word_embeddings\":false%s", (int)(tied - text),
	         text, tied + 26);
	write_config(without);
	assert_int_equal(kvarc_predictor_open_blind(&p, folder, 4, &common), KVARC_OK);
	assert_int_equal(kvarc_predictor_digest(p, digest), KVARC_OPTIONS);
	assert_non_null(strstr(error.text, "output"));
	kvarc_predictor_close(&p);
	write_config(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_definition), cmocka_unit_test(test_ties),
		cmocka_unit_test(test_ways),       cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_ranges),     cmocka_unit_test(test_others),
		cmocka_unit_test(test_wrong),
	};
	if (make_folder())
		return 1;
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	remove_folder();
	return failed;
}
