/* SPDX-License-Identifier: BSD-3-Clause */
/* test_profile.c - profiles: to bytes and back, rules, damage, the public calls */
#include "stream_util.h"

#include "geometry/geometry.h"
#include "model/profile_internal.h"
#include "profile_util.h"

enum { SEEDS = 40, FLIPS = 100, SET_FREQS = KVI_GRID_TABLES * KVI_GRID_SYMBOLS };

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
	assert_true(a->C == b->C && a->heads == b->heads &&
	            a->head_channels == b->head_channels &&
	            a->rope == b->rope && a->rotary == b->rotary &&
	            a->set == b->set && a->flags == b->flags &&
	            a->n_lower == b->n_lower && a->n_same == b->n_same &&
	            a->n0 == b->n0 && a->beta == b->beta &&
	            !a->scale_source == !b->scale_source &&
	            a->a_stride == b->a_stride && a->b_stride == b->b_stride &&
	            a->tshift == b->tshift && a->unknown == b->unknown &&
	            a->n_ids == b->n_ids);
	for (unsigned i = 0; i < a->n_lower; i++)
		assert_true(a->lower[i].delta == b->lower[i].delta &&
		            a->lower[i].scope == b->lower[i].scope &&
		            !kvi_model_compare(a->lower[i].model,
		                               b->lower[i].model));
	for (unsigned i = 0; i < a->n_same; i++)
		assert_true(a->same[i].scope == b->same[i].scope &&
		            !kvi_model_compare(a->same[i].model,
		                               b->same[i].model));
	same(a->step, b->step, n * sizeof *a->step);
	same(a->k, b->k, n * sizeof *a->k);
	same(a->mean, b->mean, n * sizeof *a->mean);
	same(a->qa, b->qa, a->a_stride ? n : 0);
	same(a->qb, b->qb, a->b_stride ? n : 0);
	same(a->a, b->a, n * a->a_stride * sizeof *a->a);
	same(a->b, b->b, n * a->b_stride * sizeof *a->b);
	same(a->ids, b->ids, a->n_ids * sizeof *a->ids);
	same(a->table, b->table, a->n_ids * n);
}

static void profile_same(const struct kvi_profile *a,
                         const struct kvi_profile *b)
{
	assert_true(a->digest.lo == b->digest.lo &&
	            a->digest.hi == b->digest.hi);
	assert_int_equal(a->identity.n, b->identity.n);
	for (size_t i = 0; i < a->identity.n; i++) {
		assert_string_equal(a->identity.pairs[i].key,
		                    b->identity.pairs[i].key);
		assert_string_equal(a->identity.pairs[i].value,
		                    b->identity.pairs[i].value);
	}
	assert_int_equal(a->n_ropes, b->n_ropes);
	for (size_t i = 0; i < a->n_ropes; i++) {
		assert_int_equal(a->ropes[i].rotary, b->ropes[i].rotary);
		same(a->ropes[i].freq, b->ropes[i].freq,
		     a->ropes[i].rotary / 2 * sizeof *a->ropes[i].freq);
	}
	assert_int_equal(a->n_sets, b->n_sets);
	same(a->set_freq, b->set_freq,
	     a->n_sets * SET_FREQS * sizeof *a->set_freq);
	for (unsigned i = 0; i < a->n_sets; i++) {
		const struct kvi_tables *x = &a->sets[i], *y = &b->sets[i];
		same(x->lut, y->lut, x->n_tables * KVI_PROB_TOTAL * 4);
		same(x->enc, y->enc, x->n_tables * x->stride * 4);
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
		assert_int_equal(kvi_profile_parse(&q, &alloc, out.p, out.n),
		                 KVARC_OK);
		profile_same(p, q);
		kvi_profile_put(q, &again);
		assert_int_equal(again.n, out.n);
		assert_memory_equal(again.p, out.p, out.n);
		kvi_profile_free(q);
		again.n = 0;
		assert_int_equal(kvi_profile_write_file(p, &again), KVARC_OK);
		assert_int_equal(kvi_profile_read_file(&q, &alloc, again.p,
		                                       again.n), KVARC_OK);
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
	p->models[0] = (struct kvi_model){ .level = 2, .kind = KVARC_KEY,
		.heads = 1, .head_channels = 3 };
	p->models[1] = (struct kvi_model){ .level = 2, .kind = KVARC_VALUE,
		.heads = 2, .head_channels = 1, .flags = KVI_MODEL_SELF,
		.n_same = 1 };
	for (int i = 0; i < 2; i++)
		assert_int_equal(kvi_model_room(p, &p->models[i]), KVARC_OK);
	struct kvi_model *m = &p->models[1];
	/* 3 channels and one of padding, then two heads of 1 + 1 */
	assert_int_equal(m->b_stride, 8);
	const int16_t rows[2][8] = { { 1, -2, 3, 0, 0, 0, 0, 0 },
		                     { 4, 5, 0x106, 0, 7, 0, 0, 0 } };
	memcpy(m->b, rows, sizeof rows);
	m->mean[1] = -2;
	assert_int_equal(kvi_profile_finish(p), KVARC_OK);
	assert_int_equal(kvi_model_coefficients(m), 7);
	kvi_out_init(&out, &alloc);
	assert_int_equal(kvi_profile_serialise(p, &out), KVARC_OK);
	static const uint8_t expect[] = {
		0, 0, 0, 2, /* pairs, ropes, sets, models */
		2, 0, 0, 1, 3, 0, 0, 0, 0, 0, /* the key's head */
		0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, /* step, k */
		0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, /* mean */
		2, 0, 1, 2, 1, 0, 0, 1, 0, 1, 0, 0, /* the value's */
		0, 0, 0, 0, 0, 0, 0, 0,
		0, 0xfe, 0, 0xff, 0, 0xff, 0, 0xff,
		0, 0, /* qb */
		1, 0xfe, 3, 4, 5, 6, 7, 0, 0xff, 0, 0, 0, 1, 0
	};
	assert_int_equal(out.n, sizeof expect);
	assert_memory_equal(out.p, expect, sizeof expect);
	assert_int_equal(kvi_profile_parse(&q, &alloc, expect, sizeof expect),
	                 KVARC_OK);
	profile_same(p, q);
	kvi_profile_free(q);
	/* where nothing is stored nothing may be */
	for (size_t i = 0; i < 16; i++) {
		bool stored = (i % 8 < 3) || i == 12;
		m->b[i] += 1;
		assert_int_equal(kvi_profile_finish(p),
		                 stored ? KVARC_OK : KVARC_DATA);
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
	p->models = kvi_calloc(&alloc, 5, sizeof *p->models);
	p->n_models = 5;
	p->ropes = kvi_calloc(&alloc, 1, sizeof *p->ropes);
	p->n_ropes = 1;
	p->ropes[0].rotary = 4;
	p->ropes[0].freq = kvi_calloc(&alloc, 2, sizeof(uint64_t));
	p->set_freq = kvi_array(&alloc, SET_FREQS, sizeof *p->set_freq);
	p->n_sets = 1;
	for (size_t i = 0; i < SET_FREQS; i++)
		p->set_freq[i] = i % 41 ? 1 : 2008;
	assert_int_equal(kvi_identity_set(&p->identity, &alloc, "a", "1"), 0);
	assert_int_equal(kvi_identity_set(&p->identity, &alloc, "b", "2"), 0);
	static const uint8_t places[5][3] = { { 2, 0, 0 }, { 3, 0, 0 },
		{ 3, 0, 1 }, { 3, 1, 0 }, { 3, 1, 1 } };
	for (size_t i = 0; i < 5; i++) {
		struct kvi_model *m = &p->models[i];
		*m = (struct kvi_model){ .level = places[i][0],
			.layer = places[i][1], .kind = places[i][2],
			.heads = 2, .head_channels = 5 };
	}
	struct kvi_model *last = &p->models[4];
	last->heads = 4;
	last->rope = 1;
	last->set = 1;
	last->flags = 15;
	last->n_lower = last->n_same = 1;
	last->lower[0] = (struct kvi_source){ .delta = 1, .scope = 1 };
	last->n0 = 1;
	last->beta = 1;
	last->n_ids = 2;
	for (size_t i = 0; i < 5; i++)
		assert_int_equal(kvi_model_room(p, &p->models[i]), KVARC_OK);
	last->ids[1] = 1;
	assert_int_equal(kvi_profile_finish(p), KVARC_OK);
	return p;
}

typedef void breaker(struct kvi_profile *p, struct kvi_model *m);
#define RULE(name, what)                                                      \
	static void name(struct kvi_profile *p, struct kvi_model *m)          \
	{                                                                     \
		(void)p;                                                      \
		(void)m;                                                      \
		what;                                                         \
	}

RULE(nothing, (void)0)
RULE(level_1, p->models[0].level = 1)
RULE(level_4, m->level = 4)
RULE(kind_2, m->kind = 2)
RULE(kind_9, m->kind = 9)
RULE(self_head_alone, p->models[0].flags = 2)
RULE(flags_unknown, p->models[0].flags = 16)
RULE(rope_unknown, m->rope = 2)
RULE(rope_wide, p->ropes[0].rotary = 6)
RULE(set_unknown, m->set = 2)
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
RULE(freq_0, (p->set_freq[1] = 0, p->set_freq[0]++))
RULE(freq_sum, p->set_freq[SET_FREQS - 1]++)
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
		{ nothing, KVARC_OK }, { level_1, KVARC_DATA },
		{ level_4, KVARC_DATA }, { kind_2, KVARC_OPTIONS },
		{ kind_9, KVARC_OPTIONS }, { self_head_alone, KVARC_DATA },
		{ flags_unknown, KVARC_DATA }, { rope_unknown, KVARC_DATA },
		{ set_unknown, KVARC_DATA }, { delta_0, KVARC_DATA },
		{ delta_below, KVARC_DATA }, { lower_missing, KVARC_DATA },
		{ lower_scope, KVARC_DATA }, { same_itself, KVARC_DATA },
		{ same_scope, KVARC_DATA }, { n0_0, KVARC_DATA },
		{ beta_17, KVARC_DATA }, { scale_itself, KVARC_DATA },
		{ step_low, KVARC_DATA }, { step_high, KVARC_DATA },
		{ step_pair, KVARC_DATA }, { step_not_pair, KVARC_OK },
		{ k_low, KVARC_DATA }, { k_high, KVARC_DATA },
		{ mean_low, KVARC_DATA }, { mean_high, KVARC_DATA },
		{ mean_huge, KVARC_DATA }, { qa_17, KVARC_DATA },
		{ qb_17, KVARC_DATA }, { a_most, KVARC_OK },
		{ a_more, KVARC_DATA }, { b_most, KVARC_OK },
		{ b_more, KVARC_DATA }, { tshift_9, KVARC_DATA },
		{ unknown_129, KVARC_DATA }, { ids_same, KVARC_DATA },
		{ ids_down, KVARC_DATA }, { freq_0, KVARC_DATA },
		{ freq_sum, KVARC_DATA }, { pairs_order, KVARC_DATA },
		{ pairs_same, KVARC_DATA },
	};
	(void)state;
	begin();
	for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
		struct kvi_profile *p = complete();
		rules[i].f(p, &p->models[4]);
		if (parse_again(p) != rules[i].ret)
			fail_msg("rule %zu", i);
		/* a trainer is told the same */
		kvarc_ret ret = kvi_profile_finish(p);
		if (ret != rules[i].ret)
			fail_msg("rule %zu in finish", i);
		kvi_profile_free(p);
	}
	/* a rope of 6 channels has one frequency more than there is room for */
	struct kvi_profile *p = complete();
	rope_wide(p, NULL);
	assert_int_equal(kvi_profile_finish(p), KVARC_DATA);
	kvi_profile_free(p);
	end();
}

/* What a struct cannot hold: bytes of test_layout's kind, changed in one place. */
static void test_bytes(void **state)
{
	static const uint8_t good[] = {
		0, 1, 2, 9, 9, 9, 9, 9, 9, 9, 9, 0, 1, /* a rope, one model */
		2, 0, 0, 1, 2, 1, 0, 0, 0, 0,
		0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
	};
	static const struct {
		uint8_t at, value;
	} bad[] = {
		{ 0, 1 }, { 1, 0 }, { 1, 2 }, { 2, 0 }, { 2, 1 }, { 2, 3 },
		{ 2, 4 }, { 11, 1 }, { 11, 8 }, { 12, 0 }, { 12, 2 }, { 13, 1 },
		{ 13, 4 }, { 14, 0x80 }, { 16, 0 }, { 16, 2 }, { 17, 0 },
		{ 17, 1 }, { 17, 3 }, { 18, 2 }, { 19, 1 }, { 20, 2 },
		{ 20, 4 }, { 20, 8 }, { 20, 16 }, { 20, 0x80 }, { 21, 1 },
		{ 21, 9 }, { 22, 1 }, { 22, 5 }, { 23, 1 }, { 24, 1 },
	};
	uint8_t b[sizeof good + 1];
	struct kvi_profile *p;
	(void)state;
	begin();
	memcpy(b, good, sizeof good);
	b[sizeof good] = 0;
	assert_int_equal(kvi_profile_parse(&p, &alloc, b, sizeof good),
	                 KVARC_OK);
	kvi_profile_free(p);
	/* something follows */
	assert_int_equal(kvi_profile_parse(&p, &alloc, b, sizeof b),
	                 KVARC_DATA);
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		memcpy(b, good, sizeof good);
		b[bad[i].at] = bad[i].value;
		if (kvi_profile_parse(&p, &alloc, b, sizeof good) != KVARC_DATA)
			fail_msg("%u at %u", bad[i].value, bad[i].at);
		assert_null(p);
	}
	memcpy(b, good, sizeof good);
	b[15] = 2; /* key and value packed */
	assert_int_equal(kvi_profile_parse(&p, &alloc, b, sizeof good),
	                 KVARC_OPTIONS);
	end();
}

/* Counts that nothing stands behind cost no memory. */
static void test_bounds(void **state)
{
	static const uint8_t models[] = { 0, 0, 0, 0x80, 0x80, 4, 2, 0, 0, 1, 1 };
	/* 65535 x 16 channels, whole layer: 2^40 bytes, and 2^20 ids */
	static const uint8_t wide[] = { 0, 0, 0, 1, 2, 0, 0, 0xff, 0xff, 3, 16,
		0, 0, 1, 0, 0 };
	uint8_t table[72] = { 0, 0, 0, 1, 2, 0, 0, 1, 1, 0, 0, 8, 0, 0 };
	struct kvi_profile *p;
	(void)state;
	begin();
	table[24] = 0x80; /* n_ids 2^20 */
	table[25] = 0x80;
	table[26] = 0x40;
	assert_int_equal(kvi_profile_parse(&p, &alloc, models, sizeof models),
	                 KVARC_DATA);
	assert_int_equal(kvi_profile_parse(&p, &alloc, wide, sizeof wide),
	                 KVARC_DATA);
	assert_int_equal(kvi_profile_parse(&p, &alloc, table, sizeof table),
	                 KVARC_DATA);
	assert_true(alloc.peak < 4096);
	table[24] = 8; /* 8 ids, all 0 */
	table[25] = table[26] = 0;
	assert_int_equal(kvi_profile_parse(&p, &alloc, table, 25 + 5 * 8),
	                 KVARC_DATA);
	table[24] = 1;
	assert_int_equal(kvi_profile_parse(&p, &alloc, table, 25 + 5),
	                 KVARC_OK);
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
		assert_true(m->a_stride % 2 == 0 && m->b_stride % 2 == 0);
		assert_true(m->set <= p->n_sets);
	}
}

/* Parses a content that may be damaged; an accepted one is written the same. */
static void parse_any(const uint8_t *content, size_t n, unsigned *accepted)
{
	struct kvi_profile *p;
	struct kvi_out out;
	kvarc_ret ret = kvi_profile_parse(&p, &alloc, content, n);
	assert_true(ret == KVARC_OK || ret == KVARC_DATA ||
	            ret == KVARC_OPTIONS);
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
			assert_int_equal(kvi_profile_parse(&q, &alloc, cut, n),
			                 KVARC_DATA);
			free(cut);
		}
		out.n = 0;
		assert_int_equal(kvi_profile_write_file(p, &out), KVARC_OK);
		for (size_t n = 0; n < out.n; n = next_length(n, out.n)) {
			kvarc_ret ret = kvi_profile_read_file(&q, &alloc, out.p,
			                                      n);
			assert_int_equal(ret, n < 8 ? KVARC_FORMAT
			                            : KVARC_DATA);
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
			out.p[at] = i % 4 < 2 ? (uint8_t)(was ^ 1 << r % 8)
			                      : (uint8_t)r;
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

/* ------------------------------------------------------------------- files */

static void reseal(uint8_t *file)
{
	kvi_store64(file + 56, kvi_h64(file, 56));
}

static void test_header(void **state)
{
	static const struct {
		unsigned at;
		uint8_t value;
		kvarc_ret ret;
	} fields[] = {
		{ 8, 2, KVARC_OPTIONS }, { 10, 7, KVARC_OK },
		{ 12, 1, KVARC_OPTIONS }, { 15, 1, KVARC_OPTIONS },
		{ 16, 0, KVARC_DATA }, { 20, 5, KVARC_DATA },
		{ 24, 0, KVARC_DATA }, { 31, 1, KVARC_DATA },
		{ 32, 1, KVARC_DATA }, { 47, 1, KVARC_DATA },
		{ 48, 1, KVARC_DATA }, { 55, 1, KVARC_DATA },
		{ 64, 2, KVARC_OPTIONS }, /* method */
	};
	struct kvi_profile *p, *q;
	struct kvi_out out;
	(void)state;
	begin();
	p = profile_make(&alloc, 1);
	kvi_out_init(&out, &alloc);
	assert_int_equal(kvi_profile_write_file(p, &out), KVARC_OK);
	for (unsigned bit = 0; bit < 64 * 8; bit++) {
		out.p[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_equal(kvi_profile_read_file(&q, &alloc, out.p, out.n),
		                 bit < 64 ? KVARC_FORMAT : KVARC_DATA);
		out.p[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
		uint8_t was = out.p[fields[i].at];
		out.p[fields[i].at] = fields[i].value;
		reseal(out.p);
		kvarc_ret ret = kvi_profile_read_file(&q, &alloc, out.p, out.n);
		if (ret != fields[i].ret)
			fail_msg("byte %u: %d", fields[i].at, ret);
		kvi_profile_free(q);
		out.p[fields[i].at] = was;
	}
	reseal(out.p);
	/* one byte more */
	kvi_put8(&out, 0);
	assert_int_equal(kvi_profile_read_file(&q, &alloc, out.p, out.n),
	                 KVARC_DATA);
	kvi_out_free(&out);
	kvi_profile_free(p);
	end();
}

/* A large compressed size is refused by the limit, not tried. */
static void test_limit(void **state)
{
	struct kvi_profile *p, *q;
	struct kvi_out out;
	struct kvi_alloc small;
	(void)state;
	begin();
	p = profile_make(&alloc, 7);
	kvi_out_init(&out, &alloc);
	assert_int_equal(kvi_profile_write_file(p, &out), KVARC_OK);
	for (uint64_t limit = 1000; limit < 4 << 20; limit += limit / 8) {
		kvi_alloc_init(&small, NULL, limit);
		kvarc_ret ret = kvi_profile_read_file(&q, &small, out.p, out.n);
		assert_true(ret == KVARC_MEMLIMIT || ret == KVARC_OK);
		assert_true(limit > 100000 || ret == KVARC_MEMLIMIT);
		assert_true(limit < 3 << 20 || ret == KVARC_OK);
		kvi_profile_free(q);
		assert_int_equal(small.used, 0);
	}
	kvi_out_free(&out);
	kvi_profile_free(p);
	end();
}

/* -------------------------------------------------------------- public calls */

static void file_of(struct memfile *f, uint64_t seed)
{
	struct kvi_profile *p = profile_make(&alloc, seed);
	struct kvi_out out;
	*f = (struct memfile){ .fail_at = -1 };
	kvi_out_init(&out, &alloc);
	assert_int_equal(kvi_profile_write_file(p, &out), KVARC_OK);
	kvarc_sink sink = memfile_sink(f);
	assert_int_equal(sink.write(sink.opaque, out.p, out.n, 0), 0);
	kvi_out_free(&out);
	kvi_profile_free(p);
}

static kvarc_ret open_file(kvarc_profile **p, struct memfile *f)
{
	kvarc_source source = memfile_source(f);
	f->calls = 0;
	f->next = 0;
	return kvarc_profile_open(p, &source, NULL);
}

static void test_open(void **state)
{
	struct memfile f, copy = { .fail_at = -1 };
	kvarc_profile *p;
	(void)state;
	begin();
	for (int how = 0; how < 4; how++) {
		file_of(&f, 13);
		f.pipe = how & 1;
		f.short_max = how & 2 ? 7 : 0;
		assert_int_equal(open_file(&p, &f), KVARC_OK);
		kvarc_sink sink = memfile_sink(&copy);
		copy.n = 0;
		assert_int_equal(kvarc_profile_write(p, &sink), KVARC_OK);
		assert_int_equal(copy.n, f.n);
		assert_memory_equal(copy.p, f.p, f.n);
		kvarc_profile_close(&p);
		assert_null(p);
		f.n--; /* cut */
		assert_int_equal(open_file(&p, &f), KVARC_DATA);
		assert_null(p);
		f.n += 2; /* something follows */
		f.p = realloc(f.p, f.n);
		f.p[f.n - 1] = 0;
		assert_int_equal(open_file(&p, &f), KVARC_DATA);
		for (f.fail_at = 0; f.fail_at < 3; f.fail_at++)
			assert_int_equal(open_file(&p, &f), KVARC_IO);
		f.fail_at = -1;
		f.n = 5;
		assert_int_equal(open_file(&p, &f), KVARC_FORMAT);
		f.n = 0;
		assert_int_equal(open_file(&p, &f), KVARC_FORMAT);
		memfile_free(&f);
	}
	memfile_free(&copy);
	end();
}

static void test_open_errors(void **state)
{
	struct memfile f;
	kvarc_error error = { 0 };
	kvarc_common common = { .error = &error };
	kvarc_profile *p = NULL;
	(void)state;
	begin();
	file_of(&f, 7);
	kvarc_source source = memfile_source(&f);
	struct counting c = { .fail_at = -1 };
	kvarc_allocator counted = counting_allocator(&c);
	common.allocator = &counted;
	kvarc_ret ret = KVARC_MEM;
	for (long at = 0; ret == KVARC_MEM; at++) {
		c.calls = 0;
		c.fail_at = at;
		ret = kvarc_profile_open(&p, &source, &common);
		assert_true(ret == KVARC_MEM || (ret == KVARC_OK && at > 20));
		if (ret == KVARC_MEM) {
			assert_int_equal(error.code, KVARC_MEM);
			assert_null(p);
			assert_int_equal(c.held, 0);
		}
	}
	c.fail_at = c.calls; /* writing needs memory, too */
	struct memfile to = { .fail_at = -1 };
	kvarc_sink sink = memfile_sink(&to);
	assert_int_equal(kvarc_profile_write(p, &sink), KVARC_MEM);
	c.fail_at = -1;
	to.fail_at = 0;
	assert_int_equal(kvarc_profile_write(p, &sink), KVARC_IO);
	kvarc_profile_close(&p);
	assert_int_equal(c.held, 0);
	common.memlimit = 100000;
	assert_int_equal(kvarc_profile_open(&p, &source, &common),
	                 KVARC_MEMLIMIT);
	assert_int_equal(error.code, KVARC_MEMLIMIT);
	assert_int_equal(kvarc_profile_open(&p, NULL, &common), KVARC_PROG);
	assert_int_equal(kvarc_profile_open(NULL, &source, &common),
	                 KVARC_PROG);
	memfile_free(&to);
	memfile_free(&f);
	end();
}

static void test_questions(void **state)
{
	kvarc_profile_info info;
	kvarc_model_info model;
	kvarc_rope rope;
	const char *key, *value;
	struct memfile f;
	kvarc_profile *p;
	(void)state;
	begin();
	file_of(&f, 5); /* 2 heads of 8 channels, 2 turn */
	assert_int_equal(open_file(&p, &f), KVARC_OK);
	assert_int_equal(kvarc_profile_get_info(p, &info), KVARC_OK);
	assert_int_equal(info.file_bytes, f.n);
	assert_memory_equal(info.digest, f.p + 32, 16);
	assert_int_equal(info.levels, 1 << 2 | 1 << 3);
	assert_true(info.n_models == 12 && info.n_pairs == 2 &&
	            info.n_ropes == 1);
	uint64_t coefficients = 0;
	for (size_t i = 0; i < info.n_models; i++) {
		assert_int_equal(kvarc_profile_model(p, i, &model), KVARC_OK);
		coefficients += model.coefficients;
		assert_int_equal(model.level, 2 + i / 6);
		assert_int_equal(model.layer, i / 2 % 3);
		assert_int_equal(model.kind, i % 2);
		assert_int_equal(model.heads, i % 2 ? 4 : 2);
		assert_int_equal(model.channels, 8);
		assert_int_equal(model.rotary, i % 2 ? 0 : 2);
	}
	assert_int_equal(info.coefficients, coefficients);
	assert_int_equal(kvarc_profile_model(p, 12, &model), KVARC_END);
	assert_int_equal(kvarc_profile_identity_at(p, 1, &key, &value),
	                 KVARC_OK);
	assert_string_equal(key, "model");
	assert_string_equal(value, "M");
	assert_int_equal(kvarc_profile_identity_at(p, 2, &key, &value),
	                 KVARC_END);
	assert_int_equal(kvarc_profile_rope(p, 0, &rope), KVARC_OK);
	assert_int_equal(rope.rotary, 2);
	assert_int_equal(kvarc_profile_rope(p, 1, &rope), KVARC_END);
	assert_int_equal(kvarc_profile_get_info(NULL, &info), KVARC_PROG);
	assert_int_equal(kvarc_profile_model(p, 0, NULL), KVARC_PROG);
	assert_int_equal(kvarc_profile_write(p, NULL), KVARC_PROG);
	kvarc_profile_close(&p);
	kvarc_profile_close(&p);
	kvarc_profile_close(NULL);
	memfile_free(&f);
	end();
}

static void test_fits(void **state)
{
	const kvarc_tensor good = { .layer = 2, .kind = KVARC_KEY,
		.dtype = KVARC_BF16, .heads = 2, .channels = 8 };
	const uint64_t freq[4] = { 0 };
	kvarc_rope rope = { KVARC_ROPE_INTERLEAVED, 2, freq };
	struct memfile f;
	kvarc_profile *p;
	kvarc_tensor t;
	(void)state;
	begin();
	file_of(&f, 5);
	assert_int_equal(open_file(&p, &f), KVARC_OK);
#define FITS(yes, rope, change)                                               \
	do {                                                                  \
		t = good;                                                     \
		change;                                                       \
		assert_int_equal(kvarc_profile_fits(p, 3, &t, rope), yes);    \
	} while (0)
	FITS(1, &rope, (void)0);
	FITS(1, &rope, t.total_heads = 2);
	FITS(0, &rope, t.total_heads = 4);
	FITS(0, &rope, t.first_head = 2);
	FITS(1, &rope, t.dtype = KVARC_E5M2);
	FITS(0, &rope, t.dtype = KVARC_I8);
	FITS(0, &rope, t.role = KVARC_PAYLOAD);
	FITS(0, &rope, t.heads = 4);
	FITS(0, &rope, t.channels = 4);
	FITS(0, &rope, t.layer = 3);
	FITS(0, &rope, t.kind = KVARC_MLA_LATENT);
	FITS(0, NULL, (void)0);
	FITS(1, NULL, (t.kind = KVARC_VALUE, t.heads = 4));
	FITS(0, &rope, (t.kind = KVARC_VALUE, t.heads = 4));
	rope.rotary = 8;
	FITS(0, &rope, (void)0);
	rope.rotary = 2;
	assert_int_equal(kvarc_profile_fits(p, 1, &good, &rope), 0);
	assert_int_equal(kvarc_profile_fits(p, 258, &good, &rope), 0);
	assert_int_equal(kvarc_profile_fits(NULL, 2, &good, &rope), 0);
	kvarc_profile_close(&p);
	memfile_free(&f);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_layout),
		cmocka_unit_test(test_rules),
		cmocka_unit_test(test_bytes),
		cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_truncation),
		cmocka_unit_test(test_flips),
		cmocka_unit_test(test_header),
		cmocka_unit_test(test_limit),
		cmocka_unit_test(test_open),
		cmocka_unit_test(test_open_errors),
		cmocka_unit_test(test_questions),
		cmocka_unit_test(test_fits),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
