/* SPDX-License-Identifier: BSD-3-Clause */
/* test_profile.c - contents of profiles: to bytes and back, rules, damage */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "profile/profile_io.h"
#include "profile_util.h"

enum { SEEDS = 40, FLIPS = 100 };

static struct kvi_alloc alloc;

static void begin(void)
{
	kvi_alloc_init(&alloc, NULL, 0);
}

static void end(void)
{
	assert_int_equal(alloc.used, 0);
}

/* ------------------------------------------------------------ round trips */

static void same(const void *a, const void *b, size_t bytes)
{
	assert_true(!bytes == !a && !bytes == !b);
	if (bytes)
		assert_memory_equal(a, b, bytes);
}

static void model_same(const struct kvi_model *a, const struct kvi_model *b)
{
	size_t n = a->C;
	assert_int_equal(kvi_model_compare(a, b), 0);
	assert_true(a->C == b->C && a->heads == b->heads && a->head_channels == b->head_channels &&
	            a->rope == b->rope && a->rotary == b->rotary && a->flags == b->flags &&
	            a->n_lower == b->n_lower && a->n_same == b->n_same && a->n0 == b->n0 &&
	            a->beta == b->beta && !a->scale_source == !b->scale_source &&
	            a->a_stride == b->a_stride && a->b_stride == b->b_stride &&
	            a->d_stride == b->d_stride && a->width == b->width && a->tshift == b->tshift &&
	            a->unknown == b->unknown && a->n_ids == b->n_ids);
	for (unsigned i = 0; i < a->n_lower; i++)
		assert_true(a->lower[i].delta == b->lower[i].delta &&
		            a->lower[i].scope == b->lower[i].scope &&
		            !kvi_model_compare(a->lower[i].model, b->lower[i].model));
	for (unsigned i = 0; i < a->n_same; i++)
		assert_true(a->same[i].scope == b->same[i].scope &&
		            !kvi_model_compare(a->same[i].model, b->same[i].model));
	same(a->step, b->step, n * sizeof *a->step);
	same(a->k, b->k, n * sizeof *a->k);
	same(a->mean, b->mean, n * sizeof *a->mean);
	same(a->qa, b->qa, a->a_stride ? n : 0);
	same(a->qb, b->qb, a->b_stride ? n : 0);
	same(a->a, b->a, n * a->a_stride * sizeof *a->a);
	same(a->b, b->b, n * a->b_stride * sizeof *a->b);
	same(a->e, b->e, a->d_stride ? a->width : 0);
	same(a->d, b->d, a->width * a->d_stride * sizeof *a->d);
	same(a->ids, b->ids, a->n_ids * sizeof *a->ids);
	same(a->table, b->table, a->n_ids * n);
}

static void profile_same(const struct kvi_profile *a, const struct kvi_profile *b)
{
	assert_true(a->digest.lo == b->digest.lo && a->digest.hi == b->digest.hi);
	assert_int_equal(a->identity.n, b->identity.n);
	for (size_t i = 0; i < a->identity.n; i++) {
		assert_string_equal(a->identity.pairs[i].key, b->identity.pairs[i].key);
		assert_string_equal(a->identity.pairs[i].value, b->identity.pairs[i].value);
	}
	assert_int_equal(a->n_ropes, b->n_ropes);
	for (size_t i = 0; i < a->n_ropes; i++) {
		assert_int_equal(a->ropes[i].rotary, b->ropes[i].rotary);
		same(a->ropes[i].freq, b->ropes[i].freq,
		     a->ropes[i].rotary / 2 * sizeof *a->ropes[i].freq);
	}
	assert_int_equal(a->n_models, b->n_models);
	for (size_t i = 0; i < a->n_models; i++)
		model_same(&a->models[i], &b->models[i]);
}

static void test_round_trip(void **state)
{
	(void)state;
	begin();
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		struct kvi_profile *p = profile_make(&alloc, seed), *q;
		struct kvi_out out, again;
		kvi_out_init(&out, &alloc);
		kvi_out_init(&again, &alloc);
		assert_int_equal(kvi_profile_serialise(p, &out), KVARC_OK);
		assert_int_equal(kvi_profile_parse(&q, &alloc, out.p, out.n), KVARC_OK);
		profile_same(p, q);
		kvi_profile_put(q, &again);
		assert_int_equal(again.n, out.n);
		assert_memory_equal(again.p, out.p, out.n);
		kvi_profile_free(q);
		again.n = 0;
		assert_int_equal(kvi_profile_write_file(p, &again), KVARC_OK);
		assert_int_equal(kvi_profile_read_file(&q, &alloc, again.p, again.n), KVARC_OK);
		profile_same(p, q);
		kvi_profile_free(q);
		kvi_profile_free(p);
		kvi_out_free(&out);
		kvi_out_free(&again);
	}
	end();
}

/* Numbers of spec profile 3, by hand. */
static void test_layout(void **state)
{
	(void)state;
	begin();
	struct kvi_profile *p, *q;
	struct kvi_out out;
	assert_int_equal(kvi_profile_new(&p, &alloc), KVARC_OK);
	p->models = kvi_calloc(&alloc, 2, sizeof *p->models);
	p->n_models = 2;
	p->models[0] =
		(struct kvi_model){ .level = 2, .kind = KVARC_KEY, .heads = 1, .head_channels = 3 };
	p->models[1] = (struct kvi_model){ .level = 2,
		                           .kind = KVARC_VALUE,
		                           .heads = 2,
		                           .head_channels = 1,
		                           .flags = KVI_MODEL_SELF,
		                           .n_same = 1 };
	for (int i = 0; i < 2; i++)
		assert_int_equal(kvi_model_reserve(p, &p->models[i]), KVARC_OK);
	struct kvi_model *m = &p->models[1];
	/* 3 channels and one of padding, then two heads of 1 + 1 */
	assert_int_equal(m->b_stride, 8);
	const int16_t rows[2][8] = { { 1, -2, 3, 0, 0, 0, 0, 0 }, { 4, 5, 0x106, 0, 7, 0, 0, 0 } };
	memcpy(m->b, rows, sizeof rows);
	m->mean[1] = -2;
	assert_int_equal(kvi_profile_finish(p), KVARC_OK);
	assert_int_equal(kvi_model_coefficients(m), 7);
	kvi_out_init(&out, &alloc);
	assert_int_equal(kvi_profile_serialise(p, &out), KVARC_OK);
	static const uint8_t expect[] = {
		0, 0, 2,                                                 /* pairs, ropes, models */
		2, 0, 0, 1, 3,  0,  0,  0, 0,                            /* the key's head */
		0, 0, 0, 0, 0,  0,  0,  0, 0, 0, 0, 0,                   /* step, k */
		0, 0, 0, 0, 0,  0,  0,  0, 0, 0, 0, 0,                   /* mean */
		2, 0, 1, 2, 1,  0,  1,  0, 1, 0, 0,                      /* the value's */
		0, 0, 0, 0, 0,  0,  0,  0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, /* qb */
		2, 3, 6, 8, 10, 12, 14, 0, 0, 0, 0, 0, 2, 0              /* zigzag */
	};
	assert_int_equal(out.n, sizeof expect);
	assert_memory_equal(out.p, expect, sizeof expect);
	assert_int_equal(kvi_profile_parse(&q, &alloc, expect, sizeof expect), KVARC_OK);
	profile_same(p, q);
	kvi_profile_free(q);
	/* where nothing is stored nothing may be */
	for (size_t i = 0; i < 16; i++) {
		bool stored = (i % 8 < 3) || i == 12;
		m->b[i] += 1;
		assert_int_equal(kvi_profile_finish(p), stored ? KVARC_OK : KVARC_DATA);
		m->b[i] -= 1;
	}
	kvi_out_free(&out);
	kvi_profile_free(p);
	end();
}

/* ------------------------------------------------------------------ rules */

/* A profile with all of it: layers 0 and 1, level 3 over level 2. */
static struct kvi_profile *complete(void)
{
	struct kvi_profile *p;
	assert_int_equal(kvi_profile_new(&p, &alloc), KVARC_OK);
	p->models = kvi_calloc(&alloc, 7, sizeof *p->models);
	p->n_models = 7;
	p->ropes = kvi_calloc(&alloc, 1, sizeof *p->ropes);
	p->n_ropes = 1;
	p->ropes[0].rotary = 4;
	p->ropes[0].freq = kvi_calloc(&alloc, 2, sizeof(uint64_t));
	assert_int_equal(kvi_identity_set(&p->identity, &alloc, "a", "1"), 0);
	assert_int_equal(kvi_identity_set(&p->identity, &alloc, "b", "2"), 0);
	static const uint8_t keys[7][3] = { { 2, 0, 0 }, { 3, 0, 0 }, { 3, 0, 1 }, { 3, 1, 0 },
		                            { 3, 1, 1 }, { 6, 0, 0 }, { 6, 0, 1 } };
	for (size_t i = 0; i < 7; i++) {
		struct kvi_model *m = &p->models[i];
		*m = (struct kvi_model){ .level = keys[i][0],
			                 .layer = keys[i][1],
			                 .kind = keys[i][2],
			                 .heads = 2,
			                 .head_channels = 5 };
	}
	struct kvi_model *last = &p->models[4];
	last->heads = 4;
	last->rope = 1;
	last->flags = 15;
	last->n_lower = last->n_same = 1;
	last->lower[0] = (struct kvi_source){ .delta = 1, .scope = 1 };
	last->same[0].scope = 1;
	last->n0 = 1;
	last->beta = 1;
	last->n_ids = 2;
	/* 2 x (5 + 1) entries a row of the key's, 2 x 6 of the value's own */
	p->models[6].n_same = 1;
	p->models[6].same[0].scope = 1;
	p->models[6].flags = KVI_MODEL_CORRECTS;
	p->models[6].width = 3;
	for (size_t i = 0; i < 7; i++)
		assert_int_equal(kvi_model_reserve(p, &p->models[i]), KVARC_OK);
	last->ids[1] = 1;
	assert_int_equal(kvi_profile_finish(p), KVARC_OK);
	return p;
}

typedef void breaker(struct kvi_profile *p, struct kvi_model *m);
#define RULE(name, what)                                             \
	static void name(struct kvi_profile *p, struct kvi_model *m) \
	{                                                            \
		(void)p;                                             \
		(void)m;                                             \
		what;                                                \
	}

RULE(nothing, (void)0)
RULE(level_1, p->models[0].level = 1)
RULE(level_4, m->level = 4) /* it has lower sources and a table */
RULE(level_8, p->models[5].level = 8)
RULE(level_7, p->models[6].level = p->models[5].level = 7)
RULE(kind_2, m->kind = 2)
RULE(kind_9, m->kind = 9)
RULE(self_head_alone, p->models[0].flags = 2)
RULE(flags_unknown, p->models[0].flags = 32)
RULE(corrects_low, p->models[0].flags = 16)
RULE(table_high, p->models[5].flags |= 8)
RULE(e_63, p->models[6].e[2] = 63)
RULE(e_64, p->models[6].e[2] = 64)
RULE(d_most, p->models[6].d[0] = p->models[6].d[16] = -32768)
RULE(d_more, (d_most(p, m), p->models[6].d[6] = 1))
RULE(rope_unknown, m->rope = 2)
RULE(rope_odd, p->ropes[0].rotary = 5)
RULE(delta_0, m->lower[0].delta = 0)
RULE(delta_below, m->lower[0].delta = 2)
RULE(lower_missing, m->lower[0].kind = 3)
RULE(lower_scope, m->lower[0].scope = 2)
RULE(same_itself, m->same[0].kind = 1)
RULE(same_scope, m->same[0].scope = 2)
RULE(n0_0, m->n0 = 0)
RULE(beta_17, m->beta = 17)
RULE(scale_itself, m->scale_kind = 1)
RULE(step_low, m->step[4] = -101)
RULE(step_high, m->step[19] = 101)
RULE(step_pair, m->step[18] = 1)
RULE(step_not_pair, m->step[4] = 1)
RULE(k_low, m->k[0] = -401)
RULE(k_high, m->k[19] = 401)
RULE(mean_low, m->mean[0] = -32768)
RULE(mean_high, m->mean[19] = 32768)
RULE(mean_huge, m->mean[19] = INT32_MIN)
RULE(qa_17, m->qa[19] = 17)
RULE(qb_17, m->qb[19] = 17)
RULE(a_most, m->a[0] = m->a[1] = -32768)
RULE(a_more, (m->a[0] = m->a[1] = -32768, m->a[4] = 1))
RULE(b_most, m->b[19 * m->b_stride] = m->b[20 * m->b_stride - 3] = -32768)
RULE(b_more, (b_most(p, m), m->b[19 * m->b_stride + 1] = 1))
RULE(tshift_9, m->tshift = 9)
RULE(unknown_129, m->unknown = 129)
RULE(ids_same, m->ids[1] = m->ids[0])
RULE(ids_down, m->ids[1] = m->ids[0] - 1)
RULE(pairs_order, *p->identity.pairs[0].key = 'c')
RULE(pairs_same, *p->identity.pairs[0].key = 'b')

static kvarc_ret parse_again(const struct kvi_profile *p)
{
	struct kvi_profile *q = NULL;
	struct kvi_out out;
	kvi_out_init(&out, &alloc);
	kvi_profile_put(p, &out);
	assert_false(out.failed);
	kvarc_ret ret = kvi_profile_parse(&q, &alloc, out.p, out.n);
	assert_true(ret ? !q : !!q);
	kvi_profile_free(q);
	kvi_out_free(&out);
	return ret;
}

static void test_rules(void **state)
{
	static const struct {
		breaker *f;
		kvarc_ret ret;
	} rules[] = {
		{ nothing, KVARC_OK },
		{ level_1, KVARC_DATA },
		{ level_4, KVARC_DATA },
		{ level_8, KVARC_DATA },
		{ level_7, KVARC_OK },
		{ kind_2, KVARC_OPTIONS },
		{ corrects_low, KVARC_DATA },
		{ table_high, KVARC_DATA },
		{ e_63, KVARC_OK },
		{ e_64, KVARC_DATA },
		{ d_most, KVARC_OK },
		{ d_more, KVARC_DATA },
		{ kind_9, KVARC_OPTIONS },
		{ self_head_alone, KVARC_DATA },
		{ flags_unknown, KVARC_DATA },
		{ rope_unknown, KVARC_DATA },
		{ rope_odd, KVARC_DATA },
		{ delta_0, KVARC_DATA },
		{ delta_below, KVARC_DATA },
		{ lower_missing, KVARC_DATA },
		{ lower_scope, KVARC_DATA },
		{ same_itself, KVARC_DATA },
		{ same_scope, KVARC_DATA },
		{ n0_0, KVARC_DATA },
		{ beta_17, KVARC_DATA },
		{ scale_itself, KVARC_DATA },
		{ step_low, KVARC_DATA },
		{ step_high, KVARC_DATA },
		{ step_pair, KVARC_DATA },
		{ step_not_pair, KVARC_OK },
		{ k_low, KVARC_DATA },
		{ k_high, KVARC_DATA },
		{ mean_low, KVARC_DATA },
		{ mean_high, KVARC_DATA },
		{ mean_huge, KVARC_DATA },
		{ qa_17, KVARC_DATA },
		{ qb_17, KVARC_DATA },
		{ a_most, KVARC_OK },
		{ a_more, KVARC_DATA },
		{ b_most, KVARC_OK },
		{ b_more, KVARC_DATA },
		{ tshift_9, KVARC_DATA },
		{ unknown_129, KVARC_DATA },
		{ ids_same, KVARC_DATA },
		{ ids_down, KVARC_DATA },
		{ pairs_order, KVARC_DATA },
		{ pairs_same, KVARC_DATA },
	};
	(void)state;
	begin();
	for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
		struct kvi_profile *p = complete();
		rules[i].f(p, &p->models[4]);
		if (parse_again(p) != rules[i].ret)
			fail_msg("rule %zu", i);
		/* a trainer gets the same answer */
		kvarc_ret ret = kvi_profile_finish(p);
		if (ret != rules[i].ret)
			fail_msg("rule %zu in finish", i);
		kvi_profile_free(p);
	}
	end();
}

/* What a trainer alone can do: change the shape after the buffer was allocated. */
static void test_finish(void **state)
{
	(void)state;
	begin();
	for (int i = 0; i < 4; i++) {
		struct kvi_profile *p = complete();
		if (i == 0)
			p->models[4].lower[0].scope = 0;
		else if (i == 1)
			p->models[4].same[0].scope = 0;
		else if (i == 2)
			p->ropes[0].rotary = 6;
		else
			p->n_models = 0;
		assert_int_equal(kvi_profile_finish(p), KVARC_DATA);
		p->n_models = 7;
		p->ropes[0].rotary = 4;
		kvi_profile_free(p);
	}
	end();
}

/* One model of a small profile: its level, layer and kind, heads x channels, one source. */
enum {
	LEVEL,
	LAYER,
	KIND,
	HEADS,
	CHANNELS,
	DELTA,
	SOURCE,
	SCOPE, /* DELTA: NONE, 0 (same layer) or more */
	BETA,
	SCALE, /* with BETA: the scale's source */
	SMALL
};
enum { NONE = 0xff };

/* Models of which all arrays are zero, with no more checks than a writer of nonsense. */
static kvarc_ret parse_small(const uint8_t (*models)[SMALL], uint8_t n)
{
	const uint8_t head[] = { 0, 0, n };
	struct kvi_profile *p;
	struct kvi_out out;
	kvi_out_init(&out, &alloc);
	kvi_put_bytes(&out, head, sizeof head);
	for (uint8_t i = 0; i < n; i++) {
		const uint8_t *m = models[i];
		const uint8_t flags[] = { 0, m[BETA] ? 4 : 0 };
		bool lower = m[DELTA] && m[DELTA] != NONE, same = !m[DELTA];
		size_t C = (size_t)m[HEADS] * m[CHANNELS], rows = 0;
		kvi_put_bytes(&out, m, DELTA);
		kvi_put_bytes(&out, flags, sizeof flags);
		kvi_put8(&out, lower);
		kvi_put_bytes(&out, m + DELTA, lower ? 3 : 0);
		kvi_put8(&out, same);
		kvi_put_bytes(&out, m + SOURCE, same ? 2 : 0);
		if (m[BETA]) {
			kvi_put8(&out, 1);
			kvi_put_bytes(&out, m + BETA, 2);
		}
		/* sources are like the first model */
		if (lower || same)
			rows = C + 2 * C * models[0][CHANNELS] * (m[SCOPE] ? 1 : models[0][HEADS]);
		for (size_t b = 0; b < 8 * C + rows; b++)
			kvi_put8(&out, 0);
	}
	kvarc_ret ret = kvi_profile_parse(&p, &alloc, out.p, out.n);
	kvi_profile_free(p);
	kvi_out_free(&out);
	return ret;
}

static void test_models(void **state)
{
	static const struct {
		uint8_t m[2][SMALL];
		uint8_t n;
		kvarc_ret ret;
	} cases[] = {
		{ { { 2, 0, 0, 2, 3, NONE } }, 1, KVARC_OK },
		{ { { 2, 0, 0, 1, 3, NONE }, { 2, 0, 1, 1, 3, 0, 0, 0 } }, 2, KVARC_OK },
		/* the value before its key; twice; level, layer, kind */
		{ { { 2, 0, 1, 1, 3, NONE }, { 2, 0, 0, 1, 3, NONE } }, 2, KVARC_DATA },
		{ { { 2, 0, 0, 1, 3, NONE }, { 2, 0, 0, 1, 3, NONE } }, 2, KVARC_DATA },
		{ { { 3, 0, 0, 1, 3, NONE }, { 2, 1, 1, 1, 3, NONE } }, 2, KVARC_DATA },
		{ { { 2, 1, 0, 1, 3, NONE }, { 2, 0, 1, 1, 3, NONE } }, 2, KVARC_DATA },
		/* levels 2 and 4 have no lower sources, level 3 none of level 2 */
		{ { { 3, 0, 0, 1, 3, NONE }, { 3, 1, 0, 1, 3, 1, 0, 0 } }, 2, KVARC_OK },
		{ { { 2, 0, 0, 1, 3, NONE }, { 2, 1, 0, 1, 3, 1, 0, 0 } }, 2, KVARC_DATA },
		{ { { 2, 0, 0, 1, 3, NONE }, { 3, 1, 0, 1, 3, 1, 0, 0 } }, 2, KVARC_DATA },
		{ { { 4, 0, 0, 1, 3, NONE }, { 4, 1, 0, 1, 3, 1, 0, 0 } }, 2, KVARC_DATA },
		/* heads of the own head's scope */
		{ { { 2, 0, 0, 2, 3, NONE }, { 2, 0, 1, 4, 2, 0, 0, 1 } }, 2, KVARC_OK },
		{ { { 2, 0, 0, 2, 3, NONE }, { 2, 0, 1, 3, 2, 0, 0, 0 } }, 2, KVARC_OK },
		{ { { 2, 0, 0, 2, 3, NONE }, { 2, 0, 1, 3, 2, 0, 0, 1 } }, 2, KVARC_DATA },
		{ { { 2, 0, 0, 4, 3, NONE }, { 2, 0, 1, 2, 2, 0, 0, 1 } }, 2, KVARC_DATA },
		/* the scale's source is there, and of the same layer */
		{ { { 2, 0, 0, 2, 3, NONE }, { 2, 0, 1, 3, 2, NONE, 0, 0, 16, 0 } }, 2, KVARC_OK },
		{ { { 2, 0, 0, 2, 3, NONE }, { 2, 1, 1, 3, 2, NONE, 0, 0, 16, 0 } },
		  2,
		  KVARC_DATA },
		{ { { 2, 0, 0, 2, 3, NONE }, { 2, 0, 3, 3, 2, NONE, 0, 0, 16, 1 } },
		  2,
		  KVARC_DATA },
		{ { { 2, 0, 0, 2, 3, NONE }, { 2, 0, 3, 3, 2, NONE, 0, 0, 16, 3 } },
		  2,
		  KVARC_DATA },
	};
	(void)state;
	begin();
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		if (parse_small(cases[i].m, cases[i].n) != cases[i].ret)
			fail_msg("case %zu", i);
	end();
}

/* 1000 x 1049 channels: every byte of it is there, but it is too wide. */
static void test_wide(void **state)
{
	static const uint8_t head[] = { 0, 0, 1, 2, 0, 0, 0xe8, 7 };
	struct kvi_profile *p;
	(void)state;
	begin();
	for (size_t channels = 1048; channels <= 1049; channels++) {
		size_t n = sizeof head + 6 + 8 * 1000 * channels;
		uint8_t *b = kvi_calloc(&alloc, n, 1);
		memcpy(b, head, sizeof head);
		b[sizeof head] = (uint8_t)(channels | 0x80);
		b[sizeof head + 1] = (uint8_t)(channels >> 7);
		assert_int_equal(kvi_profile_parse(&p, &alloc, b, n),
		                 channels == 1048 ? KVARC_OK : KVARC_DATA);
		kvi_profile_free(p);
		kvi_free(&alloc, b);
	}
	end();
}

/* What a struct cannot hold: bytes of test_layout's kind, changed in one place. */
static void test_bytes(void **state)
{
	static const uint8_t good[] = { 0, 1, 2, 9, 9, 9, 9, 9, 9, 9, 9, 1, /* a rope, one model */
		                        2, 0, 0, 1, 2, 1, 0, 0, 0, 0, 0, 0, 0,
		                        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 };
	static const struct {
		uint8_t at, value;
	} bad[] = {
		{ 0, 1 },  { 1, 0 },  { 1, 2 },  { 2, 0 },   { 2, 1 },   { 2, 3 },
		{ 2, 4 },  { 11, 0 }, { 11, 2 }, { 12, 1 },  { 12, 8 },  { 13, 0x80 },
		{ 15, 0 }, { 15, 2 }, { 16, 0 }, { 16, 1 },  { 16, 3 },  { 17, 2 },
		{ 18, 2 }, { 18, 4 }, { 18, 8 }, { 18, 16 }, { 18, 32 }, { 18, 0x80 },
		{ 19, 1 }, { 19, 9 }, { 20, 1 }, { 20, 5 },  { 21, 1 },  { 22, 1 },
	};
	uint8_t b[sizeof good + 1];
	struct kvi_profile *p;
	(void)state;
	begin();
	memcpy(b, good, sizeof good);
	b[sizeof good] = 0;
	assert_int_equal(kvi_profile_parse(&p, &alloc, b, sizeof good), KVARC_OK);
	kvi_profile_free(p);
	/* something follows */
	assert_int_equal(kvi_profile_parse(&p, &alloc, b, sizeof b), KVARC_DATA);
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		memcpy(b, good, sizeof good);
		b[bad[i].at] = bad[i].value;
		if (kvi_profile_parse(&p, &alloc, b, sizeof good) != KVARC_DATA)
			fail_msg("%u at %u", bad[i].value, bad[i].at);
		assert_null(p);
	}
	memcpy(b, good, sizeof good);
	b[14] = 2; /* key and value packed */
	assert_int_equal(kvi_profile_parse(&p, &alloc, b, sizeof good), KVARC_OPTIONS);
	end();
}

/* Counts that nothing stands behind cost no memory. */
static void test_bounds(void **state)
{
	static const uint8_t models[] = { 0, 0, 0x80, 0x80, 4, 2, 0, 0, 1, 1 };
	/* 65535 x 16 channels, whole layer: 2^40 bytes, and 2^20 ids */
	static const uint8_t wide[99] = { 0, 0, 1, 2, 0, 0, 0xff, 0xff, 3, 16, 0, 1, 0, 0 };
	static const uint8_t no_channels[] = { 0, 0, 1, 2, 0, 0, 1, 0, 0, 8, 0, 0,
		                               0, 0, 2, 0, 1, 0, 0, 0, 0, 0, 0 };
	uint8_t table[70] = { 0, 0, 1, 2, 0, 0, 1, 1, 0, 8, 0, 0 };
	struct kvi_profile *p;
	(void)state;
	begin();
	table[22] = 0x80; /* n_ids 2^20 */
	table[23] = 0x80;
	table[24] = 0x40;
	assert_int_equal(kvi_profile_parse(&p, &alloc, models, sizeof models), KVARC_DATA);
	assert_int_equal(kvi_profile_parse(&p, &alloc, wide, sizeof wide), KVARC_DATA);
	assert_int_equal(kvi_profile_parse(&p, &alloc, no_channels, sizeof no_channels),
	                 KVARC_DATA);
	assert_int_equal(kvi_profile_parse(&p, &alloc, table, sizeof table), KVARC_DATA);
	assert_true(alloc.peak < 4096);
	table[22] = 8; /* 8 ids, all 0 */
	table[23] = table[24] = 0;
	assert_int_equal(kvi_profile_parse(&p, &alloc, table, 23 + 5 * 8), KVARC_DATA);
	table[22] = 1;
	assert_int_equal(kvi_profile_parse(&p, &alloc, table, 23 + 5), KVARC_OK);
	kvi_profile_free(p);
	end();
}

/* ----------------------------------------------------------------- damage */

/* What kernels count on, in every profile that is accepted. */
static void check_bounds(const struct kvi_profile *p)
{
	for (size_t i = 0; i < p->n_models; i++) {
		const struct kvi_model *m = &p->models[i];
		for (size_t c = 0; c < m->C; c++) {
			int64_t a = 0, b = 0;
			for (size_t j = 0; j < m->a_stride; j++)
				a += labs(m->a[c * m->a_stride + j]);
			for (size_t j = 0; j < m->b_stride; j++)
				b += labs(m->b[c * m->b_stride + j]);
			assert_true(a <= 65536 && b <= 65536);
			assert_true(labs(m->mean[c]) <= 32767);
			assert_true(m->step[c] >= -100 && m->step[c] <= 100);
			assert_true(m->k[c] >= -400 && m->k[c] <= 400);
			assert_true(!m->qa || m->qa[c] <= 16);
			assert_true(!m->qb || m->qb[c] <= 16);
		}
		for (size_t c = 0; m->d_stride && c < m->width; c++) {
			int64_t d = 0;
			for (size_t j = 0; j < m->d_stride; j++)
				d += labs(m->d[c * m->d_stride + j]);
			assert_true(d <= 65536 && m->e[c] <= 63);
		}
		assert_true(m->a_stride % 2 == 0 && m->b_stride % 2 == 0);
	}
}

/* Parses a content that may be damaged; an accepted one is written the same. */
static void parse_any(const uint8_t *content, size_t n, unsigned *accepted)
{
	struct kvi_profile *p;
	struct kvi_out out;
	kvarc_ret ret = kvi_profile_parse(&p, &alloc, content, n);
	assert_true(ret == KVARC_OK || ret == KVARC_DATA || ret == KVARC_OPTIONS);
	assert_true(ret ? !p : !!p);
	if (ret)
		return;
	++*accepted;
	check_bounds(p);
	kvi_out_init(&out, &alloc);
	kvi_profile_put(p, &out);
	assert_int_equal(out.n, n);
	assert_memory_equal(out.p, content, n);
	kvi_out_free(&out);
	kvi_profile_free(p);
}

/* Every length near the ends of a content, samples between. */
static size_t next_length(size_t n, size_t all)
{
	return n < 400 || n + 400 > all ? n + 1 : n + 1 + n % 97;
}

static void test_truncation(void **state)
{
	(void)state;
	begin();
	for (uint64_t seed = 0; seed < 7; seed++) {
		struct kvi_profile *p = profile_make(&alloc, seed), *q;
		struct kvi_out out;
		kvi_out_init(&out, &alloc);
		kvi_profile_put(p, &out);
		for (size_t n = 0; n < out.n; n = next_length(n, out.n)) {
			/* an exact block, for the sanitizer */
			uint8_t *cut = malloc(n ? n : 1);
			memcpy(cut, out.p, n);
			assert_int_equal(kvi_profile_parse(&q, &alloc, cut, n), KVARC_DATA);
			free(cut);
		}
		out.n = 0;
		assert_int_equal(kvi_profile_write_file(p, &out), KVARC_OK);
		for (size_t n = 0; n < out.n; n = next_length(n, out.n)) {
			kvarc_ret ret = kvi_profile_read_file(&q, &alloc, out.p, n);
			assert_int_equal(ret, n < 8 ? KVARC_FORMAT : KVARC_DATA);
		}
		kvi_out_free(&out);
		kvi_profile_free(p);
	}
	end();
}

static void test_flips(void **state)
{
	unsigned accepted = 0;
	uint64_t rng = 1;
	(void)state;
	begin();
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		struct kvi_profile *p = profile_make(&alloc, seed);
		struct kvi_out out;
		kvi_out_init(&out, &alloc);
		kvi_profile_put(p, &out);
		for (int i = 0; i < FLIPS; i++) {
			uint64_t r = profile_random(&rng);
			/* half of them in the first bytes, where the counts are */
			size_t most = i % 2 && out.n > 150 ? 150 : out.n;
			size_t at = (size_t)(r >> 16) % most;
			uint8_t was = out.p[at];
			out.p[at] = i % 4 < 2 ? (uint8_t)(was ^ 1 << r % 8) : (uint8_t)r;
			parse_any(out.p, out.n, &accepted);
			out.p[at] = was;
		}
		kvi_out_free(&out);
		kvi_profile_free(p);
	}
	/* the test would show nothing if all were refused at once */
	assert_in_range(accepted, SEEDS * FLIPS / 10, SEEDS * FLIPS * 9 / 10);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip), cmocka_unit_test(test_layout),
		cmocka_unit_test(test_rules),      cmocka_unit_test(test_finish),
		cmocka_unit_test(test_models),     cmocka_unit_test(test_wide),
		cmocka_unit_test(test_bytes),      cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_truncation), cmocka_unit_test(test_flips),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
