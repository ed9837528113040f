/* SPDX-License-Identifier: BSD-3-Clause */
/* test_diverge.c - kernels that are wrong now and then: what a reader makes of it (spec model 4) */
#include <stdatomic.h>

#include "prediction_util.h"

#include "predictor_handle.h"

/* The self-test has fewer tokens, so it does not see what goes wrong with more than 16. */
enum { FEW = 16 };

static atomic_int calls, wrong_from;

static bool is_wrong(size_t rows)
{
	return rows > FEW && atomic_fetch_add(&calls, 1) >= wrong_from;
}

static void wrong_product(const struct kvi_product *p)
{
	kvi_exact_scalar.product(p);
	if (p->first == 0 && is_wrong(p->a->rows))
		p->y[p->y_stride] += 0.25f;
}

static struct kvi_exact_kernels wrong;

static void set_wrong(int from)
{
	wrong = kvi_exact_scalar;
	wrong.name = "wrong";
	wrong.product = wrong_product;
	calls = 0;
	wrong_from = from;
}

static uint64_t fallbacks(const kvarc_reader *r)
{
	kvarc_info info;
	assert_int_equal(kvarc_reader_get_info(r, &info), KVARC_OK);
	return info.fallbacks;
}

/* All tokens by range; how often the reader fell back. */
static kvarc_ret read_all(struct world *w, uint64_t *fell_back)
{
	const kvarc_range all = KVARC_RANGE_ALL(0);
	kvarc_source source = memfile_source(&w->f);
	kvarc_view views[16];
	kvarc_reader *r;
	world_empty(w);
	cache_views_at(&w->back, 0, views);
	calls = 0;
	assert_int_equal(kvarc_reader_open(&r, &source, &w->ro), KVARC_OK);
	kvarc_ret ret = kvarc_reader_read(r, &all, views);
	*fell_back = fallbacks(r);
	if (ret == KVARC_OK)
		assert_int_equal(kvarc_reader_read_tokens(r, 0, 0, TOKENS, w->back.ids[0],
		                                          w->back.positions[0]),
		                 KVARC_OK);
	kvarc_reader_close(&r);
	return ret;
}

/* Whichever product is the first to be wrong, the tokens are right; and the reader says so. Level
 * 8: elements as they are predicted. */
static void test_falls_back(void **state)
{
	(void)state;
	for (int level = 5; level <= 8; level++) {
		struct world w;
		uint64_t n, seen = 0, tries = 0;
		if (level == 8)
			world_open_exact(&w, level, KVARC_BF16);
		else
			world_open(&w, level);
		assert_int_equal(cache_write(&w.c, &w.f, &w.wo), KVARC_OK);
		kvi_predictor_use_kernels(w.model, &wrong);
		set_wrong(INT32_MAX);
		assert_int_equal(read_all(&w, &n), KVARC_OK);
		assert_int_equal(n, 0);
		int all = calls;
		assert_true(all > 20);
		for (int from = 0; from < all; from += 9, tries++) {
			set_wrong(from);
			w.ro.common.threads = (unsigned)from % 3 + 1;
			kvarc_ret ret = read_all(&w, &n);
			if (ret)
				print_message("%s\n", w.error.text);
			assert_int_equal(ret, KVARC_OK);
			assert_true(cache_equal(&w.c, &w.back));
			assert_true(n <= 1);
			seen += n;
		}
		assert_int_equal(seen, tries);
		world_close(&w);
	}
}

/* In an open loop attention may hold what was wrong: then an error, never other tokens. */
static void test_open_loop(void **state)
{
	struct world w;
	uint64_t n;
	int good = 0;
	(void)state;
	world_open(&w, 4);
	assert_int_equal(cache_write(&w.c, &w.f, &w.wo), KVARC_OK);
	kvi_predictor_use_kernels(w.model, &wrong);
	for (int from = 0; from < 40; from += 3) {
		set_wrong(from);
		kvarc_ret ret = read_all(&w, &n);
		if (ret == KVARC_OK)
			assert_true(cache_equal(&w.c, &w.back));
		else
			assert_int_equal(ret, KVARC_PREDICTOR);
		good += ret == KVARC_OK;
	}
	assert_true(good > 6); /* the rest: attention kept what was wrong */
	world_close(&w);
}

/* What was written by wrong kernels is not what scalar arithmetic expects. */
static void test_diverged(void **state)
{
	(void)state;
	for (int level = 4; level <= 7; level++) {
		struct world w;
		uint64_t n;
		world_open(&w, level);
		set_wrong(3);
		kvi_predictor_use_kernels(w.model, &wrong);
		assert_int_equal(cache_write(&w.c, &w.f, &w.wo), KVARC_OK);
		kvi_predictor_use_kernels(w.model, NULL);
		assert_int_equal(read_all(&w, &n), KVARC_PREDICTOR);
		assert_int_equal(n, 1);
		assert_non_null(strstr(w.error.text, "diverged at layer 1, "
		                                     "segment "));
		assert_non_null(strstr(w.error.text, "(from token 0)"));
		assert_non_null(strstr(w.error.text, "is not exact"));
		world_close(&w);
	}
}

static void always_wrong(const struct kvi_product *p)
{
	kvi_exact_scalar.product(p);
	p->y[0] += 0.25f;
}

/* Kernels that do not pass the self-test are not used. */
static void test_refused(void **state)
{
	struct world w;
	uint64_t n;
	(void)state;
	world_open(&w, 5);
	assert_int_equal(cache_write(&w.c, &w.f, &w.wo), KVARC_OK);
	kvarc_predictor *other = open_model("llama");
	set_wrong(0);
	wrong.product = always_wrong;
	kvi_predictor_use_kernels(other, &wrong);
	w.ro.predictor = w.wo.predictor = other;
	assert_int_equal(read_all(&w, &n), KVARC_PREDICTOR);
	assert_non_null(strstr(w.error.text, "self-test"));
	struct memfile f = { .fail_at = -1 };
	assert_int_equal(cache_write(&w.c, &f, &w.wo), KVARC_PREDICTOR);
	assert_non_null(strstr(w.error.text, "isa wrong"));
	memfile_free(&f);
	kvarc_predictor_close(&other);
	world_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_falls_back),
		cmocka_unit_test(test_open_loop),
		cmocka_unit_test(test_diverged),
		cmocka_unit_test(test_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
