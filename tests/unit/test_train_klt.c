/* SPDX-License-Identifier: BSD-3-Clause */
/* test_train_klt.c - caches of which no transform, or not every one, can be fitted */
#include <math.h>

#include "kvarc/tools.h"
#include "stream_util.h"

enum { CHANNELS = 16, LAYERS = 2, TENSORS = 2 * LAYERS, LONGEST = 80 };

/* Element i of a tensor. */
typedef float (*fill_fn)(size_t i);

static float vary(size_t i)
{
	uint64_t seed = i * 0x9e3779b97f4a7c15u + 1;
	return (float)(rand_next(&seed) >> 40) * 0x1p-24f - 0.5f;
}

static float zero(size_t i)
{
	return (void)i, 0;
}

static float same_rows(size_t i)
{
	return vary(i % CHANNELS);
}

static float tiny(size_t i)
{
	return vary(i) * 1e-30f;
}

static float huge(size_t i)
{
	return vary(i) * 1e30f;
}

static float not_a_number(size_t i)
{
	return (void)i, NAN;
}

static void make(struct cache *c, uint64_t tokens, unsigned kind)
{
	memset(c, 0, sizeof *c);
	c->g.n_tracks = 1;
	c->g.n_tensors = TENSORS;
	c->n[0] = tokens;
	for (uint32_t i = 0; i < TENSORS; i++)
		c->tensors[i] =
			(kvarc_tensor){ .layer = i / 2,
			                .kind = (uint8_t)(kind == KVARC_MLA_LATENT ? kind : i & 1),
			                .dtype = KVARC_F32,
			                .heads = 1,
			                .channels = CHANNELS };
	if (kind == KVARC_MLA_LATENT)
		c->g.n_tensors = 1;
	cache_link(c);
	for (uint64_t t = 0; t < tokens; t++)
		c->positions[0][t] = (int32_t)t;
}

static void fill(struct cache *c, uint32_t tensor, fill_fn value)
{
	for (size_t i = 0; i < c->n[0] * CHANNELS; i++) {
		float v = value(i);
		memcpy(c->data[tensor] + i * sizeof v, &v, sizeof v);
	}
}

static kvarc_trainer *open_trainer(kvarc_error *e, struct cache *c)
{
	kvarc_trainer_options o = KVARC_TRAINER_OPTIONS_INIT;
	kvarc_trainer *t;
	o.mode = KVARC_TRAIN_KLT;
	o.held_out = KVARC_TRAIN_NONE_HELD_OUT;
	o.common.error = e;
	assert_int_equal(kvarc_trainer_open(&t, &o), KVARC_OK);
	assert_int_equal(
		kvarc_trainer_add(t, &c->g, 0, c->n[0], NULL, c->positions[0], cache_fetch, c),
		KVARC_OK);
	return t;
}

/* No tensor has a transform; the message is about the first one. */
static void refused(struct cache *c, const char *wanted)
{
	kvarc_error e = { 0 };
	kvarc_profile *p = NULL;
	kvarc_trainer *t = open_trainer(&e, c);
	assert_int_equal(kvarc_trainer_run(t), KVARC_GEOMETRY);
	assert_string_equal(e.text, wanted);
	assert_int_equal(kvarc_trainer_profile(t, &p), KVARC_PROG);
	assert_null(p);
	kvarc_trainer_close(&t);
}

static void refused_all(uint64_t tokens, fill_fn value, const char *wanted)
{
	struct cache c;
	make(&c, tokens, KVARC_KEY);
	for (uint32_t i = 0; i < TENSORS; i++)
		fill(&c, i, value);
	refused(&c, wanted);
	cache_free(&c);
}

#define FEW(n)                                                                                     \
	"no transform can be fitted: layer 0: its keys have " n " tokens to fit for 16 channels: " \
	"at least 16 are needed; the first 4, and those with infinities or NaNs, do not count"
#define CONSTANT                                                                           \
	"no transform can be fitted: layer 0: its keys do not vary, or their numbers are " \
	"out of range"

static void test_few_tokens(void **state)
{
	(void)state;
	refused_all(1, vary, FEW("0"));
	refused_all(4, vary, FEW("0"));
	refused_all(17, vary, FEW("13"));
	refused_all(19, vary, FEW("15"));
	refused_all(LONGEST, not_a_number, FEW("0"));
}

static void test_no_variance(void **state)
{
	(void)state;
	refused_all(LONGEST, zero, CONSTANT);
	refused_all(LONGEST, tiny, CONSTANT);
	refused_all(LONGEST, huge, CONSTANT);
}

/* The least number of tokens, and caches that vary in some tensors alone. */
static void test_enough(void **state)
{
	(void)state;
	const uint64_t tokens[] = { 20, 33, LONGEST };
	for (size_t k = 0; k < sizeof tokens / sizeof *tokens; k++) {
		struct cache c;
		kvarc_error e = { 0 };
		kvarc_profile *p;
		make(&c, tokens[k], KVARC_KEY);
		fill(&c, 0, vary);
		fill(&c, 1, zero);
		fill(&c, 2, vary);
		fill(&c, 3, k ? vary : same_rows);
		kvarc_trainer *t = open_trainer(&e, &c);
		assert_int_equal(kvarc_trainer_run(t), KVARC_OK);
		assert_string_equal(kvarc_trainer_note(t, 0),
		                    "layer 0: no transform, its values "
		                    "do not vary, or their numbers are out of range");
		assert_int_equal(kvarc_trainer_profile(t, &p), KVARC_OK);
		kvarc_profile_close(&p);
		kvarc_trainer_close(&t);
		cache_free(&c);
	}
}

static void test_latents(void **state)
{
	struct cache c;
	(void)state;
	make(&c, LONGEST, KVARC_MLA_LATENT);
	fill(&c, 0, vary);
	refused(&c, "no transform can be fitted: transforms are for keys and values, and there "
	            "are none");
	cache_free(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_few_tokens),
		cmocka_unit_test(test_no_variance),
		cmocka_unit_test(test_enough),
		cmocka_unit_test(test_latents),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
