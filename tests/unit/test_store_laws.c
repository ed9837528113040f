/* SPDX-License-Identifier: BSD-3-Clause */
/* test_store_laws.c - what a store promises whatever happens: numbers, removal, whole archives */
#include "store_util.h"

#include <string.h>

enum { NONE = UINT32_MAX };

/* Another handle of the same store, as another process has one. */
struct other {
	struct test_store t;
	uint64_t saved; /* the version that it has put */
};

static void other_open(struct other *x, const struct test_store *t)
{
	memset(x, 0, sizeof *x);
	strcpy(x->t.folder, t->folder);
	assert_int_equal(store_again(&x->t, NULL), KVARC_OK);
}

/* ----- numbers ------------------------------------------------ */

/* A number means one version, also behind a removal: by hand, by a budget, by a fork. */
static void test_numbers(void **state)
{
	struct test_store t;
	kvarc_gc_options o = KVARC_GC_OPTIONS_INIT;
	kvarc_gc_result r;
	(void)state;
	store_new(&t);
	for (uint32_t i = 1; i <= 3; i++)
		assert_int_equal(store_save_slot(t.s, "a", test_slot(100 * i, NONE)).version, i);
	assert_int_equal(kvarc_store_remove(t.s, "a", NULL), KVARC_OK);
	assert_int_equal(kvarc_store_remove(t.s, "a", NULL), KVARC_END);
	assert_int_equal(store_save_slot(t.s, "a", test_slot(400, NONE)).version, 4);
	assert_int_equal(store_save_slot(t.s, "a", test_slot(500, NONE)).version, 5);
	struct slot_made s = test_slot(300, NONE);
	assert_int_equal(store_compare(t.s, "a", 3, &s), KVARC_END);
	slot_free(&s);
	store_check_slot(t.s, "a", 4, test_slot(400, NONE));
	/* all of it goes, as nothing fits */
	o.budget = o.no_grace = 1;
	assert_int_equal(kvarc_store_gc(t.s, &o, &r), KVARC_OK);
	assert_int_equal(r.versions, 2);
	assert_int_equal(store_again(&t, NULL), KVARC_OK);
	assert_int_equal(store_save_slot(t.s, "a", test_slot(100, NONE)).version, 6);
	store_save_slot(t.s, "b", test_slot(120, NONE));
	assert_int_equal(kvarc_store_remove(t.s, "a", NULL), KVARC_OK);
	assert_int_equal(kvarc_store_fork(t.s, "b", 0, "a"), KVARC_OK);
	store_check_slot(t.s, "a", 7, test_slot(120, NONE));
	/* one mark says it for all of them; a session below is another one */
	char path[300];
	store_file(&t, "/sessions/a/=*", 0, path);
	assert_string_equal(strrchr(path, '/'), "/=6");
	assert_int_equal(store_save_slot(t.s, "a/b", test_slot(100, NONE)).version, 1);
	assert_int_equal(kvarc_store_remove(t.s, "a/b", NULL), KVARC_OK);
	assert_int_equal(store_save_slot(t.s, "a/b", test_slot(100, NONE)).version, 2);
	assert_int_equal(store_save_slot(t.s, "a", test_slot(100, NONE)).version, 8);
	store_remove(&t);
}

static void renew(void *opaque)
{
	struct other *x = opaque;
	kvarc_ret ret = kvarc_store_remove(x->t.s, "a", NULL);
	assert_true(ret == KVARC_OK || ret == KVARC_END);
	x->saved = store_save_slot(x->t.s, "a", test_slot(250, 0)).version;
}

/* What is done beside a session that is removed and saved anew at each of its calls. */
enum beside { GC_KEEP, GC_BUDGET, REMOVE, SAVE };

static kvarc_ret run_beside(kvarc_store *s, enum beside what)
{
	kvarc_gc_options o = KVARC_GC_OPTIONS_INIT;
	o.no_grace = 1;
	o.keep = what == GC_KEEP;
	o.budget = what == GC_BUDGET;
	if (what == REMOVE)
		return kvarc_store_remove(s, "a", NULL);
	if (what == SAVE)
		return store_save_slot(s, "a", test_slot(310, NONE)).version ? KVARC_OK : KVARC_IO;
	return kvarc_store_gc(s, &o, NULL);
}

/* Only what was read is removed: the new version stays, and its number is a new one. (A budget of
 * one byte may remove it, as there is no grace period: then it is gone whole.) */
static void beside(enum beside what)
{
	for (int at = 0, calls = 1; at < calls; at++) {
		struct test_store t;
		struct other x;
		struct test_hook hook;
		store_new(&t);
		for (uint32_t i = 1; i <= 3; i++)
			store_save_slot(t.s, "a", test_slot(100 * i, NONE));
		other_open(&x, &t);
		hook_start(&hook, t.s, at, renew, &x);
		kvarc_ret ret = run_beside(t.s, what);
		calls = hook.calls;
		hook_end(&hook, t.s);
		assert_true(ret == KVARC_OK || (what == REMOVE && ret == KVARC_END));
		if (x.saved) {
			struct slot_made s = test_slot(250, 0);
			assert_in_range(x.saved, 4, 5);
			assert_int_equal(store_again(&t, NULL), KVARC_OK);
			kvarc_ret found = store_compare(t.s, "a", x.saved, &s);
			/* before the first look of what removes all there is nothing to keep */
			const bool may_go = what == GC_BUDGET || (what == REMOVE && at == 0);
			assert_true(found == KVARC_OK || (may_go && found == KVARC_END));
			slot_free(&s);
		}
		assert_int_equal(store_losses(t.s), 0);
		store_end(&x.t);
		store_remove(&t);
	}
}

static void test_renewed(void **state)
{
	(void)state;
	beside(GC_KEEP);
	beside(GC_BUDGET);
	beside(REMOVE);
	beside(SAVE);
}

/* A fork that fails at any call takes nothing away from who saves the session meanwhile. */
static void save_target(void *opaque)
{
	struct other *x = opaque;
	x->saved = store_save_slot(x->t.s, "b", test_slot(250, 0)).version;
}

static void test_fork_fails(void **state)
{
	(void)state;
	for (int at = 0, done = 0; !done; at++) {
		struct test_store t;
		struct other x;
		struct test_hook hook;
		store_new(&t);
		store_save_slot(t.s, "a", test_slot(300, NONE));
		other_open(&x, &t);
		hook_start(&hook, t.s, at, save_target, &x);
		hook.fails = true;
		kvarc_ret ret = kvarc_store_fork(t.s, "a", 0, "b");
		done = hook.calls <= at;
		hook_end(&hook, t.s);
		assert_int_equal(ret, done ? KVARC_OK : KVARC_IO);
		if (x.saved)
			store_check_slot(t.s, "b", x.saved, test_slot(250, 0));
		assert_int_equal(store_losses(t.s), 0);
		store_end(&x.t);
		store_remove(&t);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_renewed),
		cmocka_unit_test(test_fork_fails),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
