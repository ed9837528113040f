/* SPDX-License-Identifier: BSD-3-Clause */
/* test_scores.c - scores of tokens by a model, and evaluations of tiers that drop tokens by them */
#include <math.h>
#include <stdio.h>

#include "eval/eval_state.h"
#include "numeric/formats.h"
#include "small_model.h"

enum { PREFIX = 300, CONTINUED = 20, ALL = PREFIX + CONTINUED };

static int32_t ids[ALL], positions[ALL];

static void make_ids(int words)
{
	uint64_t seed = 5;
	for (int i = 0; i < ALL; i++) {
		ids[i] = (int32_t)(rand_next(&seed) % (unsigned)words);
		positions[i] = i;
	}
}

static kvarc_predictor *open_data(const char *name)
{
	const char *dir = getenv("srcdir"); /* set by `make check' */
	kvarc_predictor *p;
	char path[1024];
	snprintf(path, sizeof path, "%s/tests/data/models/%s", dir ? dir : ".", name);
	assert_int_equal(kvarc_predictor_open_model(&p, path, NULL), KVARC_OK);
	make_ids(5);
	return p;
}

static kvarc_eval_options options_of(const kvarc_predictor *p, kvarc_error *error)
{
	kvarc_eval_options o = KVARC_EVAL_OPTIONS_INIT;
	o.common.error = error;
	o.predictor = p;
	o.prefix = PREFIX;
	o.continuation = CONTINUED;
	return o;
}

/* ---- the same slowly, in double, from what the model shows ---- */

struct slow {
	struct kvi_teacher_forced *f;
	const kvarc_view *views;
	const struct kvi_model_file *m;
	double h2o[PREFIX], surprisal[PREFIX];
};

static kvarc_ret slow_queries(void *opaque, size_t layer, const struct kvi_queries *q, size_t t0,
                              size_t n)
{
	static float k[PREFIX][256];
	struct slow *s = opaque;
	const size_t hd = s->m->head_channels, C = hd * s->m->kv_heads;
	const size_t window = s->m->layers[layer].window;
	assert_true(C <= 256);
	for (size_t t = 0; t < t0 + n; t++)
		kvi_teacher_forced_keys(s->f, layer, s->views, t, 1, k[t]);
	for (size_t i = 0; i < n * s->m->heads; i++) {
		size_t token = t0 + i / s->m->heads, head = i % s->m->heads;
		const float *x = q->q + i / s->m->heads * q->stride + head * hd;
		size_t kv = head * s->m->kv_heads / s->m->heads;
		double p[PREFIX] = { 0 }, sum = 0;
		for (size_t t = 0; t <= token; t++) {
			double z = 0;
			if (window && t + window <= token)
				continue;
			for (size_t c = 0; c < hd; c++)
				z += (double)x[c] * (double)k[t][kv * hd + c];
			p[t] = exp(z * (double)s->m->attention_scale);
			sum += p[t];
		}
		for (size_t t = 0; t <= token; t++)
			s->h2o[t] += p[t] / sum / s->m->heads / s->m->n_layers;
	}
	return KVARC_OK;
}

static kvarc_ret slow_logits(void *opaque, const struct kvi_logits *z, size_t t0, size_t n)
{
	struct slow *s = opaque;
	for (size_t i = 0; i < n && t0 + i + 1 < PREFIX; i++) {
		const float *x = z->z + i * z->stride;
		double sum = 0;
		for (size_t w = 0; w < s->m->vocabulary; w++)
			sum += exp((double)x[w]);
		s->surprisal[t0 + i + 1] = log(sum) - (double)x[ids[t0 + i + 1]];
	}
	return KVARC_OK;
}

static void slowly(struct slow *s, kvarc_eval *e)
{
	const struct kvi_teacher_forced_observer watch = { .opaque = s,
		                                           .queries = slow_queries,
		                                           .logits = slow_logits };
	const struct kvi_teacher_forced_text text = { ids, positions, PREFIX };
	memset(s, 0, sizeof *s);
	s->f = e->runs;
	s->views = e->exact.views;
	s->m = kvi_predictor_file(e->o.predictor);
	s->surprisal[0] = log((double)s->m->vocabulary);
	assert_int_equal(kvi_teacher_forced_observed(e->runs, &text, e->exact.views, &watch),
	                 KVARC_OK);
}

static void test_models(void **state)
{
	static const char *const names[] = { "llama.gguf", "gemma3.gguf", "qwen2.gguf" };
	(void)state;
	for (size_t i = 0; i < 3; i++) {
		static struct slow s;
		kvarc_predictor *p = open_data(names[i]);
		kvarc_error error;
		kvarc_eval_options eo = options_of(p, &error);
		kvarc_eval *e;
		assert_int_equal(kvarc_eval_open(&e, &eo), KVARC_OK);
		slowly(&s, e);
		for (unsigned kind = KVARC_SCORE_H2O; kind <= KVARC_SCORE_SURPRISAL; kind++) {
			float score[3][PREFIX];
			double sum = 0;
			for (unsigned way = 0; way < 3; way++) {
				kvarc_scores_options o = KVARC_SCORES_OPTIONS_INIT;
				o.common.threads = way + 1;
				o.common.isa_mask = way == 1 ? KVARC_ISA_SCALAR : 0;
				o.predictor = p;
				o.kind = (kvarc_score)kind;
				/* What comes later does not change surprisal. */
				uint64_t n = way == 2 && kind == KVARC_SCORE_SURPRISAL ? 270
				                                                       : PREFIX;
				memcpy(score[way], score[0], sizeof score[0]);
				assert_int_equal(kvarc_scores_make(&o, ids, n, score[way]),
				                 KVARC_OK);
				assert_memory_equal(score[way], score[0], sizeof score[0]);
			}
			for (size_t t = 0; t < PREFIX; t++) {
				double want = kind == KVARC_SCORE_H2O ? s.h2o[t] : s.surprisal[t];
				sum += (double)score[0][t];
				assert_true(fabs((double)score[0][t] - want) <
				            1e-5 * (1 + fabs(want)));
			}
			if (kind == KVARC_SCORE_H2O) /* each query gives 1 */
				assert_true(fabs(sum - PREFIX) < 1e-3);
		}
		kvarc_eval_close(&e);
		kvarc_predictor_close(&p);
	}
}

static int stop(void *opaque, uint64_t done, uint64_t total)
{
	assert_int_equal(total, PREFIX);
	assert_true(done <= total);
	return ++*(int *)opaque == 2;
}

static void test_wrong(void **state)
{
	kvarc_predictor *p = open_data("llama.gguf");
	kvarc_scores_options o = KVARC_SCORES_OPTIONS_INIT;
	kvarc_error error;
	float score[PREFIX];
	int32_t bad[3] = { 1, 2, 1 << 20 };
	int calls = 0;
	(void)state;
	assert_int_equal(kvarc_scores_make(NULL, ids, 1, score), KVARC_PROG);
	assert_int_equal(kvarc_scores_make(&o, ids, 1, score), KVARC_PROG);
	o.predictor = p;
	o.common.error = &error;
	assert_int_equal(kvarc_scores_make(&o, ids, 0, score), KVARC_PROG);
	assert_int_equal(kvarc_scores_make(&o, NULL, 1, score), KVARC_PROG);
	o.kind = KVARC_SCORE_SURPRISAL + 1;
	assert_int_equal(kvarc_scores_make(&o, ids, 1, score), KVARC_PROG);
	for (o.kind = KVARC_SCORE_H2O; o.kind <= KVARC_SCORE_SURPRISAL; o.kind++) {
		assert_int_equal(kvarc_scores_make(&o, bad, 3, score), KVARC_DATA);
		assert_int_equal(kvarc_scores_make(&o, bad, 1, score), KVARC_OK);
	}
	bad[0] = -1;
	o.kind = KVARC_SCORE_SURPRISAL;
	assert_int_equal(kvarc_scores_make(&o, bad, 1, score), KVARC_DATA);
	o.common.progress = stop;
	o.common.progress_opaque = &calls;
	assert_int_equal(kvarc_scores_make(&o, ids, PREFIX, score), KVARC_IO);
	assert_int_equal(calls, 2);
	kvarc_predictor_close(&p);
}

static void test_no_memory(void **state)
{
	kvarc_predictor *p = open_data("llama.gguf");
	(void)state;
	for (unsigned kind = KVARC_SCORE_H2O; kind <= KVARC_SCORE_SURPRISAL; kind++) {
		struct counting c = { .fail_at = -1 };
		kvarc_allocator a = counting_allocator(&c);
		kvarc_scores_options o = KVARC_SCORES_OPTIONS_INIT;
		float score[PREFIX];
		kvarc_ret ret = KVARC_MEM;
		o.predictor = p;
		o.kind = (kvarc_score)kind;
		o.common.allocator = &a;
		o.common.threads = 2;
		for (c.fail_at = 0; ret == KVARC_MEM; c.fail_at++) {
			c.calls = 0;
			ret = kvarc_scores_make(&o, ids, PREFIX, score);
			assert_int_equal(c.held, 0);
		}
		assert_int_equal(ret, KVARC_OK);
		assert_true(c.fail_at > 10);
	}
	kvarc_predictor_close(&p);
}

/* ---- evaluations ---- */

/* Of bf16. */
static bool same_row(const uint8_t *a, const uint8_t *b, size_t n)
{
	float x[256], y[256], d = 0;
	assert_true(n <= 256);
	kvi_floats_exact(KVARC_BF16, a, n, x);
	kvi_floats_exact(KVARC_BF16, b, n, y);
	for (size_t i = 0; i < n; i++)
		d = fabsf(x[i] - y[i]) > d ? fabsf(x[i] - y[i]) : d;
	return d < 1e-5f;
}

/* Rows of the exact cache without those tokens are what comes back, and the model sees just
 * these. */
static void test_eval_drops(void **state)
{
	static int16_t rate[PREFIX];
	kvarc_predictor *p = open_data("llama.gguf");
	kvarc_error error;
	kvarc_eval_options o = options_of(p, &error);
	kvarc_eval_result r = { 0 }, checks[KVARC_EVAL_CHECKS] = { { 0 } }, again = { 0 };
	kvarc_writer_options tier = KVARC_WRITER_OPTIONS_INIT;
	kvarc_lossy lossy;
	kvarc_eval *e;
	size_t kept = 0;
	(void)state;
	/* So near that hardly anything changes, while tokens differ. */
	assert_int_equal(kvarc_lossy_parse(&lossy, "near:0.000001", NULL), KVARC_OK);
	for (size_t t = 0; t < PREFIX; t++)
		rate[t] = t % 5 == 4 || (t > 100 && t < 160) ? KVARC_LOSSY_DROP : 0;
	lossy.token_rate = rate;
	lossy.n_token_rates = PREFIX;
	tier.lossy = &lossy;
	assert_int_equal(kvarc_eval_open(&e, &o), KVARC_OK);
	assert_int_equal(kvarc_eval_sequence(e, ids, 1, &tier, &r, checks), KVARC_OK);
	for (size_t t = 0; t < PREFIX; t++) {
		if (rate[t])
			continue;
		for (size_t i = 0; i < e->geometry->n_tensors; i++) {
			const kvarc_view *from = &e->exact.views[i], *to = &e->back.views[i];
			assert_true(same_row((const uint8_t *)to->data + kept * to->token_stride,
			                     (const uint8_t *)from->data + t * from->token_stride,
			                     from->token_stride / 2));
			memmove((uint8_t *)from->data + kept * from->token_stride,
			        (const uint8_t *)from->data + t * from->token_stride,
			        from->token_stride);
		}
		kept++;
	}
	assert_int_equal(r.kept_tokens, kept);
	assert_int_equal(r.cache_tokens, PREFIX);
	assert_int_equal(r.elements, checks[0].elements);
	assert_true(r.mean_kl > 0);
	assert_int_equal(kvi_eval_compare(e, e->exact.views, kept, &again), KVARC_OK);
	assert_true(fabs(again.mean_kl / r.mean_kl - 1) < 0.001);
	assert_int_equal(kvi_eval_compare(e, e->exact.views, kept / 2, &again), KVARC_OK);
	assert_true(fabs(again.mean_kl / r.mean_kl - 1) > 0.001);
	kvarc_eval_close(&e);
	kvarc_predictor_close(&p);
}

/* Tiers that need scores get those of each sequence if the evaluation makes some. */
static void test_eval_scores(void **state)
{
	kvarc_predictor *p = open_data("llama.gguf");
	kvarc_error error;
	kvarc_writer_options tier = KVARC_WRITER_OPTIONS_INIT;
	kvarc_lossy lossy;
	(void)state;
	assert_int_equal(kvarc_lossy_parse(&lossy, "near:0.000001,keep=0.5", NULL), KVARC_OK);
	tier.lossy = &lossy;
	for (unsigned kind = KVARC_SCORE_NONE; kind <= KVARC_SCORE_SURPRISAL; kind++) {
		kvarc_eval_options o = options_of(p, &error);
		kvarc_eval_result r = { 0 }, checks[KVARC_EVAL_CHECKS] = { { 0 } };
		kvarc_scores_options so = KVARC_SCORES_OPTIONS_INIT;
		float score[PREFIX];
		kvarc_eval *e;
		o.scores = (kvarc_score)kind;
		assert_int_equal(kvarc_eval_open(&e, &o), KVARC_OK);
		kvarc_ret ret = kvarc_eval_sequence(e, ids, 1, &tier, &r, checks);
		assert_int_equal(ret, kind ? KVARC_OK : KVARC_OPTIONS);
		if (kind) {
			so.predictor = p;
			so.kind = (kvarc_score)kind;
			assert_int_equal(kvarc_scores_make(&so, ids, PREFIX, score), KVARC_OK);
			assert_memory_equal(score, e->score, sizeof score);
			assert_int_equal(r.kept_tokens, PREFIX / 2);
		} else {
			assert_non_null(strstr(error.text, "scores"));
		}
		kvarc_eval_close(&e);
	}
	kvarc_eval_options o = options_of(p, &error);
	kvarc_eval *e;
	o.scores = (kvarc_score)3;
	assert_int_equal(kvarc_eval_open(&e, &o), KVARC_PROG);
	kvarc_predictor_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_models),      cmocka_unit_test(test_wrong),
		cmocka_unit_test(test_no_memory),   cmocka_unit_test(test_eval_drops),
		cmocka_unit_test(test_eval_scores),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
