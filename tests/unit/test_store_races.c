/* SPDX-License-Identifier: BSD-3-Clause */
/* test_store_races.c - others at each step of a save, a fork or a gc, and calls that fail there */
#include "config.h"

#include "store_util.h"

#include <string.h>

#include "store/store_gc.h"

enum { NONE = UINT32_MAX };

/* ----- others at the same time ------------------------------------------------ */

/* A gc that is run step by step, by another program. */
struct stepped {
	struct test_store t;
	struct kvi_gc g;
	kvarc_gc_options o;
	kvarc_gc_result result;
	int done, until;
};

static void gc_begin(struct stepped *x)
{
	assert_int_equal(kvi_fresh_index(x->g.s, &x->g.own), KVARC_OK);
	assert_int_equal(kvi_map_make(&x->g.map, x->g.s, x->g.own, NULL, NULL, NULL), KVARC_OK);
}

static void gc_step(struct stepped *x)
{
	switch (x->done++) {
	case 0:
		x->g = (struct kvi_gc){
			.s = x->t.s, .o = &x->o, .result = &x->result, .now = kvi_store_now()
		};
		gc_begin(x);
		break;
	case 1:
		for (size_t i = 0; i < x->g.map.packs.n; i++) {
			struct kvi_map_pack *p = KVI_LIST(struct kvi_map_pack, x->g.map.packs, i);
			if (!p->needed)
				assert_int_equal(kvi_gc_retire(&x->g, p), KVARC_OK);
		}
		break;
	case 2:
		assert_int_equal(kvi_gc_look_again(&x->g), KVARC_OK);
		break;
	case 3:
		assert_int_equal(kvi_gc_delete(&x->g), KVARC_OK);
		assert_int_equal(kvi_gc_undo(&x->g), KVARC_OK);
		break;
	default:
		kvi_gc_free(&x->g);
		kvi_own_index(x->g.s, &x->g.own);
	}
}

enum { STEPS = 5 };

static void gc_steps(void *opaque)
{
	struct stepped *x = opaque;
	while (x->done < x->until)
		gc_step(x);
}

/* Steps of gc before call `at` of a save, up to `until`; the others before it and behind it. */
static int race(int first, int at, int until, bool fork)
{
	struct test_store t;
	struct stepped x = { .o = { .no_grace = 1 } };
	struct test_hook hook;
	store_new(&t);
	store_save_slot(t.s, "old", test_slot(300, NONE));
	if (!fork)
		assert_int_equal(kvarc_store_remove(t.s, "old", NULL), KVARC_OK);
	strcpy(x.t.folder, t.folder);
	assert_int_equal(store_again(&x.t, NULL), KVARC_OK);
	x.until = fork ? 0 : first;
	gc_steps(&x);
	x.until = until;
	hook_start(&hook, t.s, at, gc_steps, &x);
	kvarc_ret ret = KVARC_OK;
	if (fork) {
		/* The version that is forked goes while it is. */
		assert_int_equal(kvarc_store_remove(x.t.s, "old", NULL), KVARC_OK);
		ret = kvarc_store_fork(t.s, "old", 0, "new");
	} else {
		store_save_slot(t.s, "new", test_slot(400, NONE));
	}
	const int calls = hook.calls;
	hook_end(&hook, t.s);
	x.until = STEPS;
	gc_steps(&x);
	if (!fork)
		store_check_slot(t.s, "new", 0, test_slot(400, NONE));
	else
		assert_int_equal(ret, KVARC_END);
	assert_int_equal(store_losses(t.s), 0);
	assert_int_equal(store_again(&t, NULL), KVARC_OK);
	if (!fork)
		store_check_slot(t.s, "new", 0, test_slot(400, NONE));
	store_end(&x.t);
	store_remove(&t);
	return calls;
}

static void test_race(void **state)
{
	int most = 1;
	(void)state;
	for (int first = 0; first < STEPS; first++)
		for (int until = first + 1; until <= STEPS; until++)
			for (int at = 0; at < most; at++) {
				int calls = race(first, at, until, false);
				most = calls > most ? calls : most;
			}
	assert_true(most > 8);
}

/*
 * A save dies at call `from`, and before its call `at` gc has retired what it shares and
 * looked again. late: gc lists no manifests any more before it deletes. *incomplete counts
 * versions that a load passes over. Returns the calls that the save came to.
 */
static int die(int at, int from, bool late, int *incomplete)
{
	struct test_store t;
	struct stepped x = { .o = { .no_grace = 1 }, .until = 3 };
	struct test_hook gc, dead;
	kvarc_saved r;
	store_new(&t);
	store_save_slot(t.s, "a", test_slot(200, 0));
	store_save_slot(t.s, "old", test_slot(300, NONE));
	assert_int_equal(kvarc_store_remove(t.s, "old", NULL), KVARC_OK);
	strcpy(x.t.folder, t.folder);
	assert_int_equal(store_again(&x.t, NULL), KVARC_OK);
	struct slot_made s = test_slot(450, NONE);
	hook_start(&gc, t.s, at, gc_steps, &x);
	hook_start(&dead, t.s, from, NULL, NULL);
	dead.fails = true;
	const bool saved = store_save_bytes(t.s, "a", &s, NULL, &r) == KVARC_OK;
	hook_end(&dead, t.s);
	hook_end(&gc, t.s);
	x.until = 3;
	gc_steps(&x);
	x.g.looked = late ? INT64_MAX / 2 : 0;
	x.until = STEPS;
	gc_steps(&x);
	assert_int_equal(store_again(&t, NULL), KVARC_OK);
	const kvarc_session_version v = store_load_nowhere(t.s, "a");
	assert_true(!saved || v.number == r.version);
	assert_true(!v.passed_over || v.number == 1);
	*incomplete += v.passed_over != 0;
	if (v.number == 1)
		store_check_slot(t.s, "a", 0, test_slot(200, 0));
	else
		store_check_slot(t.s, "a", 0, test_slot(450, NONE));
	/* and the next save is good */
	store_save_slot(t.s, "a", test_slot(460, NONE));
	store_check_slot(t.s, "a", 0, test_slot(460, NONE));
	slot_free(&s);
	store_end(&x.t);
	store_remove(&t);
	return dead.calls;
}

static void test_dead_saver(void **state)
{
	(void)state;
	for (int late = 0; late < 2; late++) {
		int incomplete = 0;
		/* The last calls: archive, look, manifest, look. */
		const int all = die(1000, 1000, false, &incomplete);
		for (int from = all > 12 ? all - 12 : 1; from < all; from++)
			for (int at = from > 6 ? from - 6 : 0; at <= from; at++)
				(void)die(at, from, late, &incomplete);
		assert_true(late ? incomplete > 0 : incomplete == 0);
	}
}

/* The same while a version is forked, and removed behind its back at each call. */
struct remover {
	struct test_store t;
};

static void remove_old(void *opaque)
{
	struct remover *x = opaque;
	kvarc_ret ret = kvarc_store_remove(x->t.s, "old", NULL);
	assert_true(ret == KVARC_OK || ret == KVARC_END);
	store_gc_now(x->t.s);
}

static void test_fork_race(void **state)
{
	(void)state;
	for (int at = 0, calls = 1; at < calls; at++) {
		struct test_store t;
		struct remover x = { .t = { .s = NULL } };
		struct test_hook hook;
		store_new(&t);
		store_save_slot(t.s, "old", test_slot(300, NONE));
		strcpy(x.t.folder, t.folder);
		assert_int_equal(store_again(&x.t, NULL), KVARC_OK);
		hook_start(&hook, t.s, at, remove_old, &x);
		kvarc_ret ret = kvarc_store_fork(t.s, "old", 0, "new");
		calls = hook.calls;
		hook_end(&hook, t.s);
		struct slot_made s = test_slot(300, NONE);
		assert_int_equal(store_compare(t.s, "new", 0, &s), ret ? KVARC_END : KVARC_OK);
		slot_free(&s);
		store_end(&x.t);
		store_remove(&t);
	}
}

static void save_between(void *opaque)
{
	struct remover *x = opaque;
	assert_in_range(store_save_slot(x->t.s, "a", test_slot(320, NONE)).version, 2, 3);
}

/* Two programs save the same session: both versions are there. */
static void test_two_savers(void **state)
{
	(void)state;
	for (int at = 0, calls = 1; at < calls; at++) {
		struct test_store t;
		struct remover x = { .t = { .s = NULL } };
		struct test_hook hook;
		store_new(&t);
		store_save_slot(t.s, "a", test_slot(300, NONE));
		strcpy(x.t.folder, t.folder);
		assert_int_equal(store_again(&x.t, NULL), KVARC_OK);
		hook_start(&hook, t.s, at, save_between, &x);
		kvarc_saved r = store_save_slot(t.s, "a", test_slot(310, NONE));
		calls = hook.calls;
		hook_end(&hook, t.s);
		if (r.version == 3)
			store_check_slot(t.s, "a", 2, test_slot(320, NONE));
		store_check_slot(t.s, "a", r.version, test_slot(310, NONE));
		store_end(&x.t);
		store_remove(&t);
	}
}

/* A store that fails at each call: the session is as it was, and the next save is good. */
static void test_failures(void **state)
{
	int failed = 0;
	(void)state;
	for (int at = 0, calls = 1; at < calls; at++) {
		struct test_store t;
		struct test_hook hook;
		kvarc_saved r;
		store_new(&t);
		store_save_slot(t.s, "a", test_slot(300, NONE));
		struct slot_made s = test_slot(410, 280);
		hook_start(&hook, t.s, at, NULL, NULL);
		hook.fails = true;
		kvarc_ret ret = store_save_bytes(t.s, "a", &s, NULL, &r);
		calls = hook.calls > at ? at + 2 : at;
		hook_end(&hook, t.s);
		failed += ret != KVARC_OK;
		if (ret)
			assert_int_equal(ret, KVARC_IO);
		store_check_slot(t.s, "a", 1, test_slot(300, NONE));
		if (ret) /* at most the version that could not be taken back */
			assert_in_range(store_save_slot(t.s, "a", test_slot(410, 280)).version, 2,
			                3);
		assert_int_equal(store_compare(t.s, "a", 0, &s), KVARC_OK);
		assert_int_equal(store_losses(t.s), 0);
		slot_free(&s);
		store_remove(&t);
	}
	assert_true(failed > 5);
}

static int stop(void *opaque)
{
	++*(int *)opaque;
	return 1;
}

static void test_confirm(void **state)
{
	struct test_store t;
	kvarc_save_options o = KVARC_SAVE_OPTIONS_INIT;
	int n = 0;
	(void)state;
	store_new(&t);
	struct slot_made s = test_slot(300, NONE);
	o.confirm = stop;
	o.confirm_opaque = &n;
	assert_int_equal(store_save_bytes(t.s, "a", &s, &o, NULL), KVARC_IO);
	assert_int_equal(n, 1);
	assert_int_equal(store_packs(&t), 0);
	assert_int_equal(store_compare(t.s, "a", 0, &s), KVARC_END);
	slot_free(&s);
	store_remove(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_race),      cmocka_unit_test(test_dead_saver),
		cmocka_unit_test(test_fork_race), cmocka_unit_test(test_two_savers),
		cmocka_unit_test(test_failures),  cmocka_unit_test(test_confirm),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
