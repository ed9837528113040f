/* SPDX-License-Identifier: BSD-3-Clause */
/* test_token_ids.c - token ids by what a model says of each next one (spec tokens) */
#include <stdatomic.h>

#include "prediction_util.h"

#include "kernels/range_coder.h"
#include "predictor_handle.h"
#include "random.h"

/* ---- the coder ---- */

enum { SYMBOLS = 256 };

/* Totals and weights at their ends, and anything in between. */
static struct kvi_range_part any_part(unsigned kind)
{
	struct kvi_range_part p = { .total = ((uint64_t)1 << 45) - 1 };
	if (kind % 3)
		p.total = 1 + rnd() % (kind % 3 == 1 ? 5 : 1 << 20);
	p.below = kind % 4 == 0   ? 0
	          : kind % 4 == 1 ? p.total - 1
	                          : ((uint64_t)rnd() << 20 | rnd()) % p.total;
	p.weight = kind % 5 ? 1 : p.total - p.below;
	return p;
}

static void test_range(void **state)
{
	enum { CAPACITY = KVI_RANGE_SYMBOL_BYTES * SYMBOLS + KVI_RANGE_END_BYTES };
	(void)state;
	for (unsigned round = 0; round < 3000; round++) {
		struct kvi_range_part parts[SYMBOLS];
		struct kvi_range_encoder e;
		struct kvi_range_decoder d;
		uint8_t code[CAPACITY + 1];
		size_t n = 1 + rnd() % SYMBOLS;
		kvi_range_begin(&e, code);
		for (size_t i = 0; i < n; i++) {
			parts[i] = any_part(round % 7 ? rnd() : round / 7);
			kvi_range_put(&e, &parts[i]);
		}
		size_t bytes = kvi_range_end(&e);
		assert_true(bytes <= KVI_RANGE_SYMBOL_BYTES * n + KVI_RANGE_END_BYTES);
		kvi_range_open(&d, code, bytes);
		for (size_t i = 0; i < n; i++) {
			uint64_t at = kvi_range_get(&d, parts[i].total);
			assert_true(at >= parts[i].below && at - parts[i].below < parts[i].weight);
			kvi_range_take(&d, &parts[i]);
		}
		assert_true(kvi_range_done(&d));
		code[bytes] = 0;
		d.n = bytes + 1;
		assert_false(kvi_range_done(&d));
	}
}

/* Symbols whose carry goes through all bytes before, to the first one. */
static void test_carry(void **state)
{
	const struct kvi_range_part middle = { 127, 2, 255 },
				    last = { ((uint64_t)1 << 44) - 1, 1, (uint64_t)1 << 44 };
	struct kvi_range_encoder e;
	struct kvi_range_decoder d;
	uint8_t code[64 * 8];
	(void)state;
	for (unsigned n = 1; n < 60; n++) {
		kvi_range_begin(&e, code);
		kvi_range_put(&e, &middle);
		for (unsigned i = 0; i < n; i++)
			kvi_range_put(&e, &last);
		kvi_range_open(&d, code, kvi_range_end(&e));
		assert_in_range(kvi_range_get(&d, middle.total), 127, 128);
		kvi_range_take(&d, &middle);
		for (unsigned i = 0; i < n; i++) {
			assert_true(kvi_range_get(&d, last.total) == last.below);
			kvi_range_take(&d, &last);
		}
	}
}

/* ---- archives ---- */

static void open_coded(struct world *w, int level)
{
	world_open(w, level);
	w->wo.token_ids = KVARC_TOKEN_IDS_MODEL;
	world_write(w);
}

static void coded(struct world *w, uint64_t *tokens, uint64_t *bytes)
{
	kvarc_source source = memfile_source(&w->f);
	kvarc_reader *r;
	assert_int_equal(kvarc_reader_open(&r, &source, &w->ro), KVARC_OK);
	assert_int_equal(kvarc_reader_coded_ids(r, tokens, bytes), KVARC_OK);
	kvarc_reader_close(&r);
}

/* Written and read with any kernels and threads, in order, by range, from a pipe. */
static void test_round_trip(void **state)
{
	static const uint32_t sets[] = { KVARC_ISA_SCALAR, KVARC_ISA_AVX2, KVARC_ISA_AVX512, 0 };
	struct memfile first = { .fail_at = -1 };
	struct world w;
	(void)state;
	open_coded(&w, 7);
	first = w.f;
	w.f = (struct memfile){ .fail_at = -1 };
	for (unsigned i = 0; i < 8; i++) {
		uint64_t tokens, bytes;
		uint32_t set = sets[i % 4], other = sets[(i + 1) % 4];
		if ((set && !(kvarc_isa_available() & set)) ||
		    (other && !(kvarc_isa_available() & other)))
			continue;
		w.wo.common.threads = i % 3;
		w.ro.common.threads = (i + 1) % 3;
		w.wo.common.isa_mask = set;
		w.ro.common.isa_mask = other;
		world_write(&w);
		assert_int_equal(w.f.n, first.n);
		assert_memory_equal(w.f.p, first.p, first.n);
		world_read(&w);
		world_empty(&w);
		assert_int_equal(cache_read_range(&w.back, &w.f, &w.ro), KVARC_OK);
		assert_true(cache_equal(&w.c, &w.back));
		assert_int_equal(cache_verify(&w.f, &w.ro), KVARC_OK);
		coded(&w, &tokens, &bytes);
		assert_int_equal(tokens, TOKENS);
		/* five words at random: 2.3 bits each, and three checks */
		assert_in_range(bytes, TOKENS * 2 / 8, TOKENS * 4 / 8 + 30);
		w.f.pipe = true;
		world_read(&w);
	}
	memfile_free(&first);
	world_close(&w);
}

/* Ids in any order of segments; their model is not gone through twice. */
static void test_ranges(void **state)
{
	static const uint64_t at[][2] = {
		{ 300, 10 }, { 0, 600 }, { 520, 80 }, { 0, 1 }, { 599, 1 }
	};
	struct world w;
	kvarc_reader *r;
	(void)state;
	open_coded(&w, 5);
	for (unsigned from = 0; from < 3; from++) {
		kvarc_source source = memfile_source(&w.f);
		assert_int_equal(kvarc_reader_open(&r, &source, &w.ro), KVARC_OK);
		for (unsigned i = from; i < 5; i++) {
			int32_t ids[TOKENS];
			assert_int_equal(
				kvarc_reader_read_tokens(r, 0, at[i][0], at[i][1], ids, NULL),
				KVARC_OK);
			assert_memory_equal(ids, w.c.ids[0] + at[i][0], at[i][1] * sizeof *ids);
		}
		kvarc_reader_close(&r);
	}
	world_close(&w);
}

/* What can be read without the model, and what is said of the rest. */
static void test_missing(void **state)
{
	struct world w;
	kvarc_reader *r;
	kvarc_segment s;
	int32_t id;
	(void)state;
	open_coded(&w, 5);
	kvarc_predictor *other = open_model("qwen3.gguf");
	for (int i = 0; i < 2; i++) {
		uint64_t tokens, bytes;
		kvarc_source source = memfile_source(&w.f);
		w.ro.predictor = i ? other : NULL;
		assert_int_equal(kvarc_reader_open(&r, &source, &w.ro), KVARC_OK);
		assert_int_equal(kvarc_reader_read_tokens(r, 0, 0, 1, &id, NULL), KVARC_PREDICTOR);
		assert_non_null(strstr(w.error.text, "the model that"));
		assert_int_equal(kvarc_reader_read_tokens(r, 0, 0, 1, NULL, &id), KVARC_OK);
		assert_int_equal(kvarc_reader_next_segment(r, &s), KVARC_OK);
		assert_null(s.ids);
		assert_true(s.ids_coded);
		assert_non_null(s.positions);
		kvarc_reader_close(&r);
		coded(&w, &tokens, &bytes);
		assert_int_equal(tokens, TOKENS);
		assert_int_equal(cache_verify(&w.f, &w.ro), KVARC_PREDICTOR);
	}
	kvarc_predictor_close(&other);
	world_close(&w);
}

static struct kvi_exact_kernels wrong;
static atomic_int calls, wrong_from;

/* Wrong from some call on, by so much that another word is picked now and then. The self-test has
 * been passed before. */
static void wrong_product(const struct kvi_product *p)
{
	kvi_exact_scalar.product(p);
	if (atomic_fetch_add(&calls, 1) >= wrong_from)
		p->y[0] += 0.75f;
}

static uint64_t fallbacks(struct world *w, kvarc_ret expected)
{
	kvarc_source source = memfile_source(&w->f);
	int32_t ids[TOKENS];
	kvarc_info info;
	kvarc_reader *r;
	calls = 0;
	assert_int_equal(kvarc_reader_open(&r, &source, &w->ro), KVARC_OK);
	assert_int_equal(kvarc_reader_read_tokens(r, 0, 0, TOKENS, ids, NULL), expected);
	if (!expected)
		assert_memory_equal(ids, w->c.ids[0], sizeof ids);
	assert_int_equal(kvarc_reader_get_info(r, &info), KVARC_OK);
	kvarc_reader_close(&r);
	return info.fallbacks;
}

/* Kernels that go wrong at any token: scalar arithmetic takes over, from the first token on. */
static void test_falls_back(void **state)
{
	uint64_t seen = 0;
	struct world w;
	(void)state;
	open_coded(&w, 5);
	wrong = kvi_exact_scalar;
	wrong.name = "wrong";
	wrong_from = INT32_MAX;
	kvi_predictor_use_kernels(w.model, &wrong);
	assert_int_equal(fallbacks(&w, KVARC_OK), 0);
	wrong.product = wrong_product;
	assert_int_equal(fallbacks(&w, KVARC_OK), 0);
	int all = calls;
	for (int i = 0; i < 5; i++) {
		wrong_from = all / 6 * i;
		seen += fallbacks(&w, KVARC_OK);
	}
	assert_true(seen >= 4);
	/* What was written so is not what scalar arithmetic comes to. */
	calls = 0;
	wrong_from = all / 100;
	world_write(&w);
	kvi_predictor_use_kernels(w.model, NULL);
	assert_int_equal(fallbacks(&w, KVARC_PREDICTOR), 1);
	assert_non_null(strstr(w.error.text, "token ids diverged"));
	world_close(&w);
}

static int stop_at(void *opaque, uint64_t done, uint64_t total)
{
	int *left = opaque;
	(void)done, (void)total;
	return (*left)-- <= 0;
}

/* Between any two tokens, on both sides; and what stopped can begin again. */
static void test_stops(void **state)
{
	struct world w;
	int left = INT32_MAX, all;
	(void)state;
	open_coded(&w, 5);
	w.ro.common.progress = w.wo.common.progress = stop_at;
	w.ro.common.progress_opaque = w.wo.common.progress_opaque = &left;
	(void)fallbacks(&w, KVARC_OK);
	all = INT32_MAX - left;
	assert_true(all >= TOKENS);
	for (int i = 0; i < all; i += 150) {
		left = i;
		(void)fallbacks(&w, KVARC_IO);
		assert_non_null(strstr(w.error.text, "stopped"));
	}
	left = 2;
	struct memfile f = { .fail_at = -1 };
	assert_int_equal(cache_write(&w.c, &f, &w.wo), KVARC_IO);
	memfile_free(&f);
	world_close(&w);
}

/* A lost SEGMENT costs its ids and those behind it, and nothing before it. */
static void test_salvage(void **state)
{
	struct world w;
	kvarc_segment s;
	kvarc_reader *r;
	(void)state;
	open_coded(&w, 5);
	uint8_t whole[32];
	size_t at = world_chunk(&w, 0, 256) - 32; /* in the SEGMENT before it */
	memcpy(whole, w.f.p + at, sizeof whole);
	memset(w.f.p + at, 0, sizeof whole);
	kvarc_source source = memfile_source(&w.f);
	w.ro.flags = KVARC_READ_SALVAGE;
	assert_int_equal(kvarc_reader_open(&r, &source, &w.ro), KVARC_OK);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(kvarc_reader_next_segment(r, &s), KVARC_OK);
		assert_int_equal(s.t0, 256 * i);
		assert_int_equal(s.ids != NULL, i == 0);
		assert_int_equal(s.ids_coded, i != 1);
		if (i == 0)
			assert_memory_equal(s.ids, w.c.ids[0], 256 * sizeof *s.ids);
	}
	assert_true(kvarc_reader_damage(r, NULL, NULL) >= 2);
	kvarc_reader_close(&r);
	world_close(&w);
}

/* Options that cannot be. */
static void test_options(void **state)
{
	struct memfile f = { .fail_at = -1 };
	struct world w;
	(void)state;
	world_open(&w, 5);
	w.wo.token_ids = KVARC_TOKEN_IDS_MODEL;
	w.c.ids[0][300] = WORDS;
	assert_int_equal(cache_write(&w.c, &f, &w.wo), KVARC_PREDICTOR);
	assert_non_null(strstr(w.error.text, "not one of the model"));
	w.wo.level = 1;
	assert_int_equal(cache_write(&w.c, &f, &w.wo), KVARC_OPTIONS);
	assert_non_null(strstr(w.error.text, "levels 4 to 8"));
	w.wo.token_ids = 2;
	assert_int_equal(cache_write(&w.c, &f, &w.wo), KVARC_PROG);
	memfile_free(&f);
	world_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_range),      cmocka_unit_test(test_carry),
		cmocka_unit_test(test_round_trip), cmocka_unit_test(test_ranges),
		cmocka_unit_test(test_missing),    cmocka_unit_test(test_falls_back),
		cmocka_unit_test(test_stops),      cmocka_unit_test(test_salvage),
		cmocka_unit_test(test_options),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
