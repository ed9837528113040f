/* SPDX-License-Identifier: BSD-3-Clause */
/* test_train_model.c - profiles of a transformer's residuals, fitted to caches of a small one */
#include <stdio.h>
#include <unistd.h>

#include "kvarc/tools.h"
#include "profile/profile_io.h"
#include "import_files.h"
#include "small_model.h"

enum { CACHES_MADE = 3 };

/* ---- training ---- */

struct train_model_way {
	int level; /* 2: without the model */
	unsigned threads;
	uint32_t isa;
	size_t n_without_ids;
	kvarc_arithmetic arithmetic;
	kvarc_loop loop;
	unsigned flags;
};

static kvarc_ret train(struct cache *c, const struct train_model_way *w, kvarc_trainer **t,
                       kvarc_error *e)
{
	kvarc_trainer_options o = KVARC_TRAINER_OPTIONS_INIT;
	o.common.error = e;
	o.common.threads = w->threads;
	o.common.isa_mask = w->isa;
	if (w->level > 3) {
		o.mode = KVARC_TRAIN_MODEL;
		o.model = (kvarc_train_model){ .path = folder,
			                       .level = w->level,
			                       .arithmetic = w->arithmetic,
			                       .loop = w->loop };
	} else {
		o.levels = 1u << w->level;
	}
	o.flags = w->flags;
	assert_int_equal(kvarc_trainer_open(t, &o), KVARC_OK);
	for (size_t i = 0; i < CACHES_MADE; i++)
		assert_int_equal(kvarc_trainer_add(*t, &c[i].g, 0, c[i].n[0],
		                                   i < w->n_without_ids ? NULL : c[i].ids[0],
		                                   c[i].positions[0], cache_fetch, &c[i]),
		                 KVARC_OK);
	return kvarc_trainer_run(*t);
}

static kvarc_profile *profile_of(struct cache *c, const struct train_model_way *w, double bits[8])
{
	kvarc_trainer *t;
	kvarc_profile *p;
	kvarc_error e = { 0 };
	kvarc_trained x;
	assert_int_equal(train(c, w, &t, &e), KVARC_OK);
	for (size_t i = 0; bits && !kvarc_trainer_report(t, i, &x); i++)
		for (int l = 0; l < 8; l++)
			bits[l] += x.bits[l] / (2 * LAYERS);
	assert_int_equal(kvarc_trainer_profile(t, &p), KVARC_OK);
	kvarc_trainer_close(&t);
	return p;
}

static struct cache caches[CACHES_MADE];

static int setup(void **state)
{
	(void)state;
	for (uint64_t i = 0; i < CACHES_MADE; i++)
		make(&caches[i], 100 + i, 0x1p-7f);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	for (size_t i = 0; i < CACHES_MADE; i++)
		cache_free(&caches[i]);
	return 0;
}

static void test_pays(void **state)
{
	double alone[8] = { 0 };
	(void)state;
	kvarc_profile_close((kvarc_profile *[]){
		profile_of(caches, &(struct train_model_way){ .level = 2 }, alone) });
	double last = alone[2];
	for (int level = 4; level <= 7; level++) {
		double bits[8] = { 0 };
		kvarc_profile *p = profile_of(caches, &(struct train_model_way){ .level = level },
		                              bits);
		print_message("level 2 %.3f; level %d %.3f, prediction alone "
		              "%.3f\n",
		              alone[2], level, bits[level], bits[1]);
		assert_true(bits[level] < bits[1]);
		/* the noise is about what level 6 leaves */
		assert_true(bits[level] < last - (level < 6 ? .3 : 0));
		last = bits[level];
		assert_true(bits[2] == 0);
		const struct kvi_profile *k = kvi_profile_of(p);
		assert_int_equal(k->n_models, 2 * LAYERS);
		assert_int_equal(k->models[0].level, level);
		assert_int_equal(strlen(kvi_identity_get(&k->identity, "weights")), 32);
		assert_non_null(kvi_identity_get(&k->identity, "model"));
		for (uint32_t i = 0; i < LAYERS; i++) {
			const struct kvi_model *m = kvi_profile_model(k, (unsigned)level, i,
			                                              KVARC_VALUE);
			assert_int_equal(m->width, level > 4 && i < LAYERS - 1 ? WIDTH : 0);
		}
		kvarc_profile_close(&p);
	}
}

/* ---- other arithmetics than the level's ---- */

static void write_and_read(struct cache *c, const kvarc_profile *p, const kvarc_writer_options *wo,
                           const char *text)
{
	struct memfile f = { .fail_at = -1 };
	kvarc_reader_options ro = KVARC_READER_OPTIONS_INIT;
	kvarc_predictor_info info;
	kvarc_reader *r;
	struct cache back;
	ro.profiles = &p;
	ro.n_profiles = 1;
	ro.predictor = wo->predictor;
	assert_int_equal(cache_write(c, &f, wo), KVARC_OK);
	cache_make_empty(&back, c);
	assert_int_equal(cache_read_seq(&back, &f, &ro, NULL), KVARC_OK);
	assert_true(cache_equal(c, &back));
	const kvarc_source source = memfile_source(&f);
	assert_int_equal(kvarc_reader_open(&r, &source, &ro), KVARC_OK);
	assert_int_equal(kvarc_reader_predictor(r, 0, &info), KVARC_OK);
	assert_string_equal(info.arithmetic, text);
	assert_int_equal(kvarc_reader_predictor(r, 1, &info), KVARC_END);
	kvarc_reader_close(&r);
	cache_free(&back);
	memfile_free(&f);
}

static void check_models(const struct kvi_profile *p, const struct train_model_way *w)
{
	const struct kvi_model *m = kvi_profile_model(p, (unsigned)w->level, 0, KVARC_VALUE);
	bool stages = !(w->flags & KVARC_TRAIN_NO_STAGES);
	bool corrects = stages && w->loop != KVARC_LOOP_OPEN;
	assert_true(stages ? m->flags & KVI_MODEL_SELF : !m->flags && !m->n_same && !m->beta);
	assert_int_equal(m->width, corrects ? WIDTH : 0);
}

/* The profile says what it is for; writers do that, or refuse another. */
static void test_arithmetics(void **state)
{
	static const struct {
		struct train_model_way w;
		const char *text;
		bool own;
	} all[] = {
		{ { .level = 4,
		    .arithmetic = KVARC_ARITHMETIC_FP8,
		    .loop = KVARC_LOOP_OPEN,
		    .flags = KVARC_TRAIN_NO_STAGES },
		  "fp8 open",
		  false },
		{ { .level = 5,
		    .arithmetic = KVARC_ARITHMETIC_FP8,
		    .flags = KVARC_TRAIN_NO_STAGES },
		  "fp8 closed",
		  false },
		{ { .level = 5, .arithmetic = KVARC_ARITHMETIC_FP8 }, "fp8 closed", false },
		{ { .level = 6, .loop = KVARC_LOOP_OPEN }, "w8a15 open", false },
		{ { .level = 6, .arithmetic = KVARC_ARITHMETIC_W8A15 }, "w8a15 closed", true },
	};
	kvarc_writer_options wo = KVARC_WRITER_OPTIONS_INIT;
	kvarc_predictor *model;
	kvarc_error e;
	(void)state;
	assert_int_equal(kvarc_predictor_open_model(&model, folder, NULL), KVARC_OK);
	wo.predictor = model;
	wo.common.error = &e;
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		const struct train_model_way *w = &all[i].w;
		struct memfile f = { .fail_at = -1 };
		char key[] = "arithmetic_N";
		key[sizeof key - 2] = (char)('0' + w->level);
		kvarc_profile *p = profile_of(caches, w, NULL);
		check_models(kvi_profile_of(p), w);
		const char *said = kvi_identity_get(&kvi_profile_of(p)->identity, key);
		assert_string_equal(said ? said : "", all[i].own ? "" : all[i].text);
		wo.level = KVARC_LEVEL(w->level);
		wo.profile = p;
		wo.arithmetic = KVARC_ARITHMETIC_LEVEL;
		wo.loop = KVARC_LOOP_LEVEL;
		write_and_read(&caches[0], p, &wo, all[i].text);
		wo.arithmetic = w->arithmetic;
		wo.loop = w->loop;
		write_and_read(&caches[0], p, &wo, all[i].text);
		wo.arithmetic = KVARC_ARITHMETIC_W8A8;
		assert_int_equal(cache_write(&caches[0], &f, &wo), KVARC_PREDICTOR);
		assert_non_null(strstr(e.text, all[i].text));
		memfile_free(&f);
		kvarc_profile_close(&p);
	}
	kvarc_predictor_close(&model);
}

/* A cache that is only measured changes nothing of the profile. */
static void test_measured(void **state)
{
	kvarc_trainer_options o = KVARC_TRAINER_OPTIONS_INIT;
	struct kvi_h128 digests[2];
	double bits[2] = { 0 };
	(void)state;
	o.mode = KVARC_TRAIN_MODEL;
	o.model = (kvarc_train_model){ .path = folder, .level = 5 };
	o.held_out = KVARC_TRAIN_NONE_HELD_OUT;
	for (size_t n = 0; n < 2; n++) {
		kvarc_trainer *t;
		kvarc_trained x;
		kvarc_profile *p;
		assert_int_equal(kvarc_trainer_open(&t, &o), KVARC_OK);
		assert_int_equal(kvarc_trainer_held_out(t, 99), KVARC_PROG);
		for (size_t i = 0; i < 2 + n; i++) {
			if (i == 2)
				assert_int_equal(kvarc_trainer_held_out(t, 100), KVARC_OK);
			assert_int_equal(kvarc_trainer_add(t, &caches[i].g, 0, TOKENS,
			                                   caches[i].ids[0], NULL, cache_fetch,
			                                   &caches[i]),
			                 KVARC_OK);
		}
		assert_int_equal(kvarc_trainer_tokens(t), 2 * TOKENS);
		assert_int_equal(kvarc_trainer_run(t), KVARC_OK);
		for (size_t i = 0; !kvarc_trainer_report(t, i, &x); i++) {
			bits[n] += x.bits[5];
			assert_int_equal(x.measured, n);
		}
		assert_int_equal(kvarc_trainer_profile(t, &p), KVARC_OK);
		digests[n] = kvi_profile_of(p)->digest;
		kvarc_profile_close(&p);
		kvarc_trainer_close(&t);
	}
	assert_memory_equal(&digests[0], &digests[1], sizeof digests[0]);
	assert_true(bits[1] > bits[0] && bits[1] < bits[0] * 1.1);
}

static void test_same_profile(void **state)
{
	static const uint32_t sets[] = { KVARC_ISA_SCALAR, KVARC_ISA_AVX2, KVARC_ISA_AVX512,
		                         KVARC_ISA_NEON };
	(void)state;
	kvarc_profile *p = profile_of(caches, &(struct train_model_way){ .level = 6 }, NULL);
	struct kvi_h128 d = kvi_profile_of(p)->digest;
	kvarc_profile_close(&p);
	for (unsigned i = 0; i < 6; i++) {
		struct train_model_way w = { .level = 6, .threads = i };
		if (i > 2 && !(kvarc_isa_available() & sets[i - 3]))
			continue;
		w.isa = i > 2 ? sets[i - 3] : 0;
		w.threads = i > 2 ? 2 : i + 1;
		p = profile_of(caches, &w, NULL);
		assert_memory_equal(&kvi_profile_of(p)->digest, &d, sizeof d);
		kvarc_profile_close(&p);
	}
}

/* ---- corrections ---- */

/* Variance of the residual of the last layer's values in a closed loop, where the state
 * is corrected by residuals in floating point. */
static double last_left(struct cache *c, const struct kvi_profile *p)
{
	static float k[256 * KV], v[256 * KV];
	struct engine e;
	double sum = 0;
	engine_open(&e, 5, 0);
	size_t n = 256;
	assert_int_equal(kvi_run_segment(e.run, c->ids[0], c->positions[0], n), KVARC_OK);
	for (uint32_t l = 0; l < LAYERS; l++) {
		const struct kvi_model *m = p ? kvi_profile_model(p, 5, l, KVARC_VALUE) : NULL;
		const struct kvi_model *key = p ? kvi_profile_model(p, 5, l, KVARC_KEY) : NULL;
		struct kvi_predicted x = kvi_run_predict(e.run);
		struct kvi_hidden h = kvi_run_hidden(e.run);
		static float turned[256 * KV];
		for (size_t t = 0; t < n; t++) {
			memcpy(turned + t * KV, x.k + t * x.stride, KV * sizeof *turned);
			for (size_t i = 0; i < KV; i++) {
				size_t row = t * KV;
				k[row + i] = get(c->data[2 * l] + 2 * (row + channel(i)));
				v[row + i] = get(c->data[2 * l + 1] + 2 * (row + i));
				double d = (double)v[row + i] - x.v[t * x.stride + i];
				sum += l + 1 == LAYERS ? d * d : 0;
			}
		}
		/* residuals of keys: apply RoPE, subtract, remove RoPE by its pairs */
		kvi_run_rotate(e.run, turned, KV);
		for (size_t t = 0; m && m->d && t < n; t++) {
			double r[2 * KV];
			for (size_t i = 0; i < KV; i += 2) {
				const uint64_t f = c->ropes[0].freq[i % CHANNELS / 2];
				double turn = (double)(int64_t)(f * t) * 0x1p-64 *
				              6.283185307179586;
				double a = (double)k[t * KV + i] - turned[t * KV + i];
				double b = (double)k[t * KV + i + 1] - turned[t * KV + i + 1];
				double cs = __builtin_cos(turn);
				double sn = __builtin_sin(turn);
				r[i] = a * cs + b * sn;
				r[i + 1] = b * cs - a * sn;
				for (size_t q = 0; q < 2; q++)
					r[i + q] = r[i + q] *
					                   __builtin_ldexp(1, -key->step[i + q]) -
					           key->mean[i + q];
			}
			for (size_t i = 0; i < KV; i++)
				r[KV + i] = ((double)v[t * KV + i] - x.v[t * x.stride + i]) *
				                    __builtin_ldexp(1, -m->step[i]) -
				            m->mean[i];
			for (size_t i = 0; i < WIDTH; i++) {
				double s = 0;
				for (size_t q = 0; q < 2 * KV; q++)
					s += m->d[i * m->d_stride + q] * r[q];
				h.h[t * h.width + i] +=
					(float)((double)h.root[t] * __builtin_ldexp(s, -m->e[i]));
			}
		}
		assert_int_equal(kvi_run_advance(e.run, k, v, KV, true), KVARC_OK);
	}
	engine_close(&e);
	return sum / (double)(n * KV);
}

static void test_corrections(void **state)
{
	(void)state;
	kvarc_profile *p = profile_of(caches, &(struct train_model_way){ .level = 5 }, NULL);
	double without = last_left(&caches[0], NULL);
	double with = last_left(&caches[0], kvi_profile_of(p));
	print_message("left of the last layer: %.3g without, %.3g with "
	              "corrections\n",
	              without, with);
	assert_true(with < .7 * without);
	kvarc_profile_close(&p);
}

/* ---- caches that the model makes itself ---- */

static struct kvi_h128 digest_of(kvarc_trainer **t)
{
	kvarc_profile *p;
	assert_int_equal(kvarc_trainer_run(*t), KVARC_OK);
	assert_int_equal(kvarc_trainer_profile(*t, &p), KVARC_OK);
	struct kvi_h128 d = kvi_profile_of(p)->digest;
	kvarc_profile_close(&p);
	kvarc_trainer_close(t);
	return d;
}

static kvarc_trainer *trainer(unsigned level, unsigned threads)
{
	kvarc_trainer_options o = KVARC_TRAINER_OPTIONS_INIT;
	kvarc_trainer *t;
	o.mode = KVARC_TRAIN_MODEL;
	o.model = (kvarc_train_model){ .path = folder, .level = (int)level };
	o.common.threads = threads;
	assert_int_equal(kvarc_trainer_open(&t, &o), KVARC_OK);
	return t;
}

/* From ids alone comes the profile that the caches of an engine give which computes as the
 * teacher does, in a closed loop or an open one, alone or beside caches that are given. */
static void test_from_ids(void **state)
{
	static struct cache made[2];
	(void)state;
	for (uint64_t i = 0; i < 2; i++)
		make(&made[i], 200 + i, 0);
	for (unsigned level = 4; level < 8; level++) {
		struct kvi_h128 d[3];
		for (unsigned own = 0; own < 3; own++) {
			kvarc_trainer *t = trainer(level, 2);
			for (unsigned i = 0; i < 2; i++)
				assert_int_equal(
					i < own ? kvarc_trainer_add_ids(t, TOKENS, made[i].ids[0],
				                                        KVARC_BF16)
						: kvarc_trainer_add(t, &made[i].g, 0, TOKENS,
				                                    made[i].ids[0], NULL,
				                                    cache_fetch, &made[i]),
					KVARC_OK);
			assert_int_equal(kvarc_trainer_tokens(t), 2 * TOKENS);
			d[own] = digest_of(&t);
		}
		assert_memory_equal(&d[0], &d[1], sizeof *d);
		assert_memory_equal(&d[0], &d[2], sizeof *d);
	}
}

/* The same text with the same seed, whatever the threads; other words with another. */
static void test_written(void **state)
{
	struct kvi_h128 d[4];
	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		kvarc_trainer *t = trainer(5, i == 1 ? 3 : 1);
		assert_int_equal(
			kvarc_trainer_write(t, 1100, i == 3 ? 2 : 1, i == 2 ? 8 : 7, KVARC_BF16),
			KVARC_OK);
		assert_int_equal(kvarc_trainer_tokens(t), 1100);
		d[i] = digest_of(&t);
	}
	assert_memory_equal(&d[0], &d[1], sizeof *d);
	assert_memory_not_equal(&d[0], &d[2], sizeof *d);
	assert_memory_not_equal(&d[0], &d[3], sizeof *d);
}

static void test_bad_ids(void **state)
{
	const int32_t ids[3] = { 1, WORDS, 2 };
	kvarc_trainer *t = trainer(5, 1);
	(void)state;
	assert_int_equal(kvarc_trainer_add_ids(t, 3, ids, KVARC_BF16), KVARC_GEOMETRY);
	assert_int_equal(kvarc_trainer_add_ids(t, 0, ids, KVARC_BF16), KVARC_PROG);
	assert_int_equal(kvarc_trainer_add_ids(t, 1, ids, KVARC_E4M3), KVARC_PROG);
	assert_int_equal(kvarc_trainer_write(t, 9, -1, 0, KVARC_F16),
	                 KVARC_OPTIONS); /* the model names no first token */
	assert_int_equal(kvarc_trainer_write(t, 9, WORDS, 0, KVARC_F16), KVARC_OPTIONS);
	kvarc_trainer_close(&t);
	kvarc_trainer_options o = KVARC_TRAINER_OPTIONS_INIT;
	assert_int_equal(kvarc_trainer_open(&t, &o), KVARC_OK);
	assert_int_equal(kvarc_trainer_add_ids(t, 1, ids, KVARC_BF16), KVARC_PROG);
	assert_int_equal(kvarc_trainer_write(t, 9, 1, 0, KVARC_F16), KVARC_PROG);
	kvarc_trainer_close(&t);
}

/* ---- for one file ---- */

/* The first tokens of a cache, as a safetensors file. */
static void export(struct cache *c, uint64_t n, struct blob *f)
{
	struct memfile archive = { .fail_at = -1 };
	kvarc_range range = KVARC_RANGE_ALL(0);
	kvarc_writer_options wo = KVARC_WRITER_OPTIONS_INIT;
	kvarc_reader_options ro = KVARC_READER_OPTIONS_INIT;
	kvarc_reader *r;
	assert_int_equal(cache_write(c, &archive, &wo), KVARC_OK);
	kvarc_source source = memfile_source(&archive);
	kvarc_sink sink = blob_sink(f);
	range.n = n;
	assert_int_equal(kvarc_reader_open(&r, &source, &ro), KVARC_OK);
	assert_int_equal(kvarc_export_safetensors(r, &range, &sink), KVARC_OK);
	kvarc_reader_close(&r);
	memfile_free(&archive);
}

/* Bytes of its archive, with a profile that was fitted to it at a level above 1; *highest: what
 * that has. */
static size_t pack_fitted(struct blob *f, int level, kvarc_predictor *model, int *highest)
{
	struct memfile archive = { .fail_at = -1 };
	kvarc_import_options io = { .rope = "10000,half" };
	kvarc_writer_options wo = KVARC_WRITER_OPTIONS_INIT;
	kvarc_source source = blob_source(f);
	kvarc_sink sink = memfile_sink(&archive);
	kvarc_profile *p = NULL;
	kvarc_profile_info info;
	kvarc_import *im;
	assert_int_equal(kvarc_import_open(&im, &source, NULL, &io), KVARC_OK);
	if (level > 1)
		assert_int_equal(
			kvarc_train_import(&p, im, level, level > 3 ? folder : NULL, 0, NULL),
			KVARC_OK);
	*highest = 1;
	wo.flags |= KVARC_WRITE_VERIFY | KVARC_WRITE_EMBED_PROFILE;
	wo.profile = p;
	wo.predictor = model;
	if (p) {
		assert_int_equal(kvarc_profile_get_info(p, &info), KVARC_OK);
		while (info.levels >> (*highest + 1))
			++*highest;
	} else {
		wo.flags &= ~(unsigned)KVARC_WRITE_EMBED_PROFILE;
	}
	wo.level = KVARC_LEVEL(*highest);
	assert_int_equal(kvarc_pack(im, &sink, &wo, NULL), KVARC_OK);
	kvarc_import_close(&im);
	kvarc_profile_close(&p);
	size_t bytes = archive.n;
	memfile_free(&archive);
	return bytes;
}

/* Levels without a profile: of many tokens they are smaller than level 1, of few they are
 * left. */
static void test_one_file(void **state)
{
	struct blob f = { .fail_after = -1 };
	kvarc_predictor *model;
	int highest;
	(void)state;
	assert_int_equal(kvarc_predictor_open_model(&model, folder, NULL), KVARC_OK);
	export(&caches[0], TOKENS, &f);
	size_t last = pack_fitted(&f, 1, NULL, &highest);
	for (int level = 4; level < 8; level++) {
		size_t bytes = pack_fitted(&f, level, model, &highest);
		print_message("level %d: %zu bytes, one below %zu\n", level, bytes, last);
		assert_int_equal(highest, level);
		assert_true(bytes < last);
		last = level == 4 ? bytes : last;
	}
	blob_free(&f);
	f = (struct blob){ .fail_after = -1 };
	export(&caches[0], 3, &f);
	pack_fitted(&f, 5, model, &highest);
	assert_int_equal(highest, 1);
	blob_free(&f);
	kvarc_predictor_close(&model);
}

/* ---- what cannot be ---- */

static void test_ids(void **state)
{
	kvarc_trainer *t;
	kvarc_error e = { 0 };
	(void)state;
	assert_int_equal(
		train(caches, &(struct train_model_way){ .level = 5, .n_without_ids = 1 }, &t, &e),
		KVARC_OK);
	assert_int_equal(kvarc_trainer_tokens(t), 2 * TOKENS);
	bool noted = false;
	const char *note;
	for (size_t i = 0; (note = kvarc_trainer_note(t, i)); i++)
		noted |= strstr(note, "1 caches were skipped") != NULL;
	assert_true(noted);
	kvarc_trainer_close(&t);
	assert_int_equal(
		train(caches, &(struct train_model_way){ .level = 5, .n_without_ids = 3 }, &t, &e),
		KVARC_GEOMETRY);
	assert_non_null(strstr(e.text, "token ids"));
	kvarc_trainer_close(&t);
	caches[1].positions[0][3]++;
	assert_int_equal(train(caches, &(struct train_model_way){ .level = 5 }, &t, &e), KVARC_OK);
	assert_int_equal(kvarc_trainer_tokens(t), 2 * TOKENS);
	kvarc_trainer_close(&t);
	caches[1].positions[0][3]--;
	caches[1].ids[0][5] = WORDS;
	assert_int_equal(train(caches, &(struct train_model_way){ .level = 5 }, &t, &e),
	                 KVARC_GEOMETRY);
	kvarc_trainer_close(&t);
	caches[1].ids[0][5] = 1;
}

static void test_other_model(void **state)
{
	kvarc_trainer *t;
	kvarc_error e = { 0 };
	struct cache c[CACHES_MADE];
	(void)state;
	memcpy(c, caches, sizeof c);
	for (size_t i = 0; i < CACHES_MADE; i++)
		c[i].g.n_tensors -= 2;
	assert_int_equal(train(c, &(struct train_model_way){ .level = 5 }, &t, &e), KVARC_GEOMETRY);
	assert_non_null(strstr(e.text, "number of layers"));
	kvarc_trainer_close(&t);

	kvarc_trainer_options o = KVARC_TRAINER_OPTIONS_INIT;
	o.mode = KVARC_TRAIN_MODEL;
	o.model.level = 5;
	assert_int_equal(kvarc_trainer_open(&t, &o), KVARC_PROG);
	o.model.path = "/nowhere";
	o.model.level = 3;
	assert_int_equal(kvarc_trainer_open(&t, &o), KVARC_PROG);
	o.model.level = 8;
	assert_int_equal(kvarc_trainer_open(&t, &o), KVARC_PROG);
	o.model.level = 5;
	o.levels = 1u << 3;
	assert_int_equal(kvarc_trainer_open(&t, &o), KVARC_PROG);
	o.levels = 0;
	o.klt.group = 2;
	assert_int_equal(kvarc_trainer_open(&t, &o), KVARC_PROG);
	o.klt.group = 0;
	o.model.loop = KVARC_LOOP_CLOSED + 1;
	assert_int_equal(kvarc_trainer_open(&t, &o), KVARC_PROG);
	o.model.loop = KVARC_LOOP_CLOSED;
	assert_int_equal(kvarc_trainer_open(&t, &o), KVARC_IO);
	o.mode = KVARC_TRAIN_LINEAR;
	assert_int_equal(kvarc_trainer_open(&t, &o), KVARC_PROG);
	o.model = (kvarc_train_model)KVARC_ZERO;
	o.flags = KVARC_TRAIN_NO_STAGES;
	assert_int_equal(kvarc_trainer_open(&t, &o), KVARC_PROG);
	assert_null(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pays),        cmocka_unit_test(test_arithmetics),
		cmocka_unit_test(test_measured),    cmocka_unit_test(test_same_profile),
		cmocka_unit_test(test_corrections), cmocka_unit_test(test_from_ids),
		cmocka_unit_test(test_written),     cmocka_unit_test(test_bad_ids),
		cmocka_unit_test(test_one_file),    cmocka_unit_test(test_ids),
		cmocka_unit_test(test_other_model),
	};
	int ret = make_folder();
	bool reads = ret == 0 && reads_folders();
	if (ret == 0 && reads)
		ret = cmocka_run_group_tests(tests, setup, teardown);
	remove_folder();
	return ret == 0 && !reads ? 77 : ret;
}
