/* SPDX-License-Identifier: BSD-3-Clause */
/* test_store_repack.c - archives that others need little of, and what happens meanwhile */
#include "config.h"

#include "store_util.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NONE = UINT32_MAX };

/* ----- what is left ------------------------------------------------ */

static uint64_t archive_bytes(struct test_store *t)
{
	kvarc_store_sizes n;
	assert_int_equal(kvarc_store_stat(t->s, &n), KVARC_OK);
	assert_int_equal(n.unreadable, 0);
	return n.archive_bytes;
}

/* A long session that is gone, of which a short one shares its first 600 tokens: two segments and
 * a part of the third one. */
static void make_long(struct test_store *t)
{
	store_new(t);
	store_save_slot(t->s, "long", test_slot(1800, NONE));
	assert_int_equal(store_save_slot(t->s, "b", test_slot(700, 600)).kept_tokens, 600);
	assert_int_equal(store_save_slot(t->s, "b", test_slot(720, 600)).kept_tokens, 700);
	assert_int_equal(kvarc_store_remove(t->s, "long", NULL), KVARC_OK);
}

static void check_long(struct test_store *t)
{
	store_check_slot(t->s, "b", 1, test_slot(700, 600));
	store_check_slot(t->s, "b", 2, test_slot(720, 600));
	assert_int_equal(store_losses(t->s), 0);
}

static void test_prefix(void **state)
{
	struct test_store t;
	(void)state;
	make_long(&t);
	const uint64_t before = archive_bytes(&t);
	kvarc_gc_result r = store_gc_now(t.s);
	assert_int_equal(r.repacked, 1);
	assert_int_equal(r.removed, 0);
	assert_int_equal(store_packs(&t), 3);
	assert_int_equal(archive_bytes(&t), before - r.repacked_bytes);
	/* 768 of 1800 tokens, and 120 of others */
	assert_in_range(archive_bytes(&t), before * 35 / 100, before * 55 / 100);
	for (int again = 0; again < 3; again++) {
		check_long(&t);
		r = store_gc_now(t.s);
		assert_int_equal(r.repacked + r.removed, 0);
		/* a handle that has seen nothing, and an index that has */
		if (again == 0)
			assert_int_equal(store_again(&t, NULL), KVARC_OK);
		else
			assert_int_equal(kvarc_store_rebuild(t.s, NULL, NULL), KVARC_OK);
	}
	/* what the copy holds is shared, and what it names is not there */
	assert_int_equal(store_save_slot(t.s, "c", test_slot(900, NONE)).kept_tokens, 768);
	store_check_slot(t.s, "c", 0, test_slot(900, NONE));
	assert_int_equal(store_save_slot(t.s, "b", test_slot(730, 600)).kept_tokens, 720);
	check_long(&t);
	store_remove(&t);
}

/* A copy of a copy, behind segments of other archives and a cut. */
static void test_again(void **state)
{
	struct test_store t;
	(void)state;
	store_new(&t);
	store_save_slot(t.s, "long", test_slot(300, NONE));
	store_save_slot(t.s, "long", test_slot(500, 290));
	/* behind the cut: 290, 210, then 256 each */
	store_save_slot(t.s, "long", test_slot(3000, 290));
	store_save_slot(t.s, "b", test_slot(1300, 290));
	store_save_slot(t.s, "c", test_slot(700, 290));
	assert_int_equal(kvarc_store_remove(t.s, "long", NULL), KVARC_OK);
	assert_int_equal(store_gc_now(t.s).repacked, 1);
	store_check_slot(t.s, "b", 0, test_slot(1300, 290));
	store_check_slot(t.s, "c", 0, test_slot(700, 290));
	assert_int_equal(kvarc_store_remove(t.s, "b", NULL), KVARC_OK);
	kvarc_gc_result r = store_gc_now(t.s);
	assert_int_equal(r.repacked, 1);
	assert_int_equal(r.removed, 1);
	assert_int_equal(store_again(&t, NULL), KVARC_OK);
	store_check_slot(t.s, "c", 0, test_slot(700, 290));
	assert_int_equal(store_losses(t.s), 0);
	r = store_gc_now(t.s);
	assert_int_equal(r.repacked + r.removed, 0);
	store_remove(&t);
}

/* The last segments of an archive are needed, not those before them: these differ elsewhere. */
static void test_tail(void **state)
{
	struct test_store t;
	kvarc_gc_options o = KVARC_GC_OPTIONS_INIT;
	kvarc_gc_result r;
	(void)state;
	store_new(&t);
	o.no_grace = 1;
	o.keep = 1;
	/* rows 0 .. 1279 of each are the same, and stored once; "b" adds to the end of "a" */
	store_save_slot(t.s, "a", test_slot(300, NONE));
	store_save_slot(t.s, "a", test_slot(2800, NONE));
	store_save_slot(t.s, "b", test_slot(900, 820));
	store_save_slot(t.s, "a", test_slot(100, 50));
	assert_int_equal(kvarc_store_gc(t.s, &o, &r), KVARC_OK);
	assert_int_equal(r.versions, 2);
	assert_int_equal(r.repacked, 1);
	store_check_slot(t.s, "a", 3, test_slot(100, 50));
	store_check_slot(t.s, "b", 1, test_slot(900, 820));
	assert_int_equal(kvarc_store_rebuild(t.s, NULL, NULL), KVARC_OK);
	store_check_slot(t.s, "a", 3, test_slot(100, 50));
	store_check_slot(t.s, "b", 1, test_slot(900, 820));
	assert_int_equal(store_losses(t.s), 0);
	store_remove(&t);
}

/* ----- what stays ------------------------------------------------ */

static void take_line(void *opaque, const char *text)
{
	snprintf(opaque, 300, "%s", text);
}

static void test_options(void **state)
{
	struct test_store t;
	kvarc_gc_options o = KVARC_GC_OPTIONS_INIT;
	kvarc_gc_result r, dry;
	char line[300] = "";
	(void)state;
	make_long(&t);
	o.report = take_line;
	o.opaque = line;
	/* too young */
	assert_int_equal(kvarc_store_gc(t.s, &o, &r), KVARC_OK);
	assert_int_equal(r.repacked, 0);
	o.no_grace = 1;
	o.no_repack = 1;
	assert_int_equal(kvarc_store_gc(t.s, &o, &r), KVARC_OK);
	assert_int_equal(r.repacked, 0);
	assert_string_equal(line, "");
	o.no_repack = 0;
	o.dry_run = 1;
	assert_int_equal(kvarc_store_gc(t.s, &o, &dry), KVARC_OK);
	assert_int_equal(dry.repacked, 1);
	assert_non_null(strstr(line, "a copy of what is needed takes"));
	assert_int_equal(store_packs(&t), 3);
	o.dry_run = 0;
	assert_int_equal(kvarc_store_gc(t.s, &o, &r), KVARC_OK);
	assert_int_equal(r.repacked, 1);
	assert_int_equal(r.repacked_bytes, dry.repacked_bytes);
	check_long(&t);
	store_remove(&t);
}

/* More than half of it, or all of it, is needed; or it is the archive of a version. */
static void test_whole(void **state)
{
	struct test_store t;
	(void)state;
	store_new(&t);
	store_save_slot(t.s, "a", test_slot(1280, NONE));
	store_save_slot(t.s, "b", test_slot(900, 770));
	assert_int_equal(kvarc_store_fork(t.s, "a", 0, "fork"), KVARC_OK);
	assert_int_equal(kvarc_store_remove(t.s, "a", NULL), KVARC_OK);
	assert_int_equal(store_gc_now(t.s).repacked, 0);
	assert_int_equal(kvarc_store_remove(t.s, "fork", NULL), KVARC_OK);
	/* 4 of 5 segments */
	assert_int_equal(store_gc_now(t.s).repacked, 0);
	store_save_slot(t.s, "c", test_slot(700, 500));
	assert_int_equal(kvarc_store_remove(t.s, "b", NULL), KVARC_OK);
	/* 2 of 5 */
	assert_int_equal(store_gc_now(t.s).repacked, 1);
	store_check_slot(t.s, "c", 0, test_slot(700, 500));
	store_remove(&t);
}

/* Damage: an archive that cannot be read as a whole stays, at whatever byte it is. */
static void test_damage(void **state)
{
	int stayed = 0;
	char path[300];
	(void)state;
	for (int k = 0; k < 40; k++) {
		struct test_store t;
		store_new(&t);
		store_save_slot(t.s, "long", test_slot(1600, NONE));
		store_file(&t, "packs/*/*.kva", 0, path);
		store_save_slot(t.s, "b", test_slot(550, 500));
		assert_int_equal(kvarc_store_remove(t.s, "long", NULL), KVARC_OK);
		const long at = store_bytes(path) / 40 * k + 7;
		store_flip(path, at);
		kvarc_gc_options o = KVARC_GC_OPTIONS_INIT;
		kvarc_gc_result r;
		o.no_grace = 1;
		kvarc_ret ret = kvarc_store_gc(t.s, &o, &r);
		assert_true(ret == KVARC_OK || ret == KVARC_DATA);
		if (access(path, F_OK) == 0) {
			stayed++;
			/* and there is no copy beside it */
			assert_int_equal(store_packs(&t), 2);
			store_flip(path, at);
			assert_int_equal(kvarc_store_rebuild(t.s, NULL, NULL), KVARC_OK);
		}
		store_check_slot(t.s, "b", 0, test_slot(550, 500));
		store_remove(&t);
	}
	/* all that is needed, and what is looked at of the rest */
	assert_in_range(stayed, 13, 40);
}

/* ----- at every step ------------------------------------------------ */

/* A crash of gc behind each call: all versions load, and the next gc comes to the same end. */
static void test_crash(void **state)
{
	int failed = 0;
	(void)state;
	for (int at = 0, calls = 1; at < calls; at++) {
		struct test_store t;
		struct test_hook hook;
		kvarc_gc_options o = KVARC_GC_OPTIONS_INIT;
		kvarc_gc_result r;
		o.no_grace = 1;
		make_long(&t);
		hook_start(&hook, t.s, at, NULL, NULL);
		hook.fails = true;
		kvarc_ret ret = kvarc_store_gc(t.s, &o, &r);
		calls = hook.calls > at ? at + 2 : at;
		hook_end(&hook, t.s);
		failed += ret != KVARC_OK;
		check_long(&t);
		assert_int_equal(store_again(&t, NULL), KVARC_OK);
		assert_int_equal(kvarc_store_rebuild(t.s, NULL, NULL), KVARC_OK);
		check_long(&t);
		/* its tombstone may be there, and is that of another gc until it is old */
		char path[300];
		snprintf(path, sizeof path, "rm -rf %s/retired", t.folder);
		assert_int_equal(system(path), 0);
		store_gc_now(t.s);
		assert_int_equal(store_packs(&t), 3);
		const uint64_t bytes = archive_bytes(&t);
		r = store_gc_now(t.s);
		assert_int_equal(r.repacked + r.removed, 0);
		assert_int_equal(archive_bytes(&t), bytes);
		assert_in_range(bytes, 1, 800 * SLOT_TOKEN * 3 / 2);
		check_long(&t);
		store_remove(&t);
	}
	assert_true(failed > 20);
}

/* What another program does at a call of this one. */
struct other_program {
	struct test_store t;
	int what;
};

enum { GC, SAVE, LOAD, FORK, SEND, OTHERS };

static int give_up(void *opaque, const void *buf, size_t bytes, uint64_t offset)
{
	(void)opaque, (void)buf, (void)bytes, (void)offset;
	return 0;
}

/* A save shares more of the archive that goes than the other versions need. */
static void act(void *opaque)
{
	struct other_program *x = opaque;
	const kvarc_sink sink = { .write = give_up };
	switch (x->what) {
	case GC:
		store_gc_now(x->t.s);
		break;
	case SAVE:
		store_save_slot(x->t.s, "c", test_slot(1500, 1400));
		store_check_slot(x->t.s, "c", 0, test_slot(1500, 1400));
		break;
	case LOAD:
		store_check_slot(x->t.s, "b", 1, test_slot(700, 600));
		store_check_slot(x->t.s, "b", 2, test_slot(720, 600));
		break;
	case FORK:
		assert_int_equal(kvarc_store_fork(x->t.s, "b", 1, "fork"), KVARC_OK);
		store_check_slot(x->t.s, "fork", 0, test_slot(700, 600));
		break;
	default:
		(void)!kvarc_store_send(x->t.s, "b", 2, &sink, NULL, NULL, NULL);
	}
}

/* `first` runs, and `second` before its call `at`, on this machine, or (far) on another one, which
 * has an index of its own. Returns how many calls there were. */
static int meet(int first, int second, int at, bool far)
{
	struct other_program x = { .what = second }, y = { .what = first };
	struct test_hook hook;
	char index[100];
	make_long(&y.t);
	strcpy(x.t.folder, y.t.folder);
	snprintf(index, sizeof index, "%s/far.sqlite", y.t.folder);
	x.t.index = far ? index : NULL;
	assert_int_equal(store_again(&x.t, NULL), KVARC_OK);
	hook_start(&hook, y.t.s, at, act, &x);
	act(&y);
	const int calls = hook.calls;
	hook_end(&hook, y.t.s);
	if (calls <= at) /* there were fewer than before */
		act(&x);
	for (int again = 0; again < 2; again++) {
		struct test_store *t = again ? &x.t : &y.t;
		check_long(t);
		if (first == SAVE || second == SAVE)
			store_check_slot(t->s, "c", 0, test_slot(1500, 1400));
		if (first == FORK || second == FORK)
			store_check_slot(t->s, "fork", 0, test_slot(700, 600));
		assert_int_equal(kvarc_store_rebuild(t->s, NULL, NULL), KVARC_OK);
	}
	store_gc_now(x.t.s);
	store_gc_now(x.t.s);
	check_long(&y.t);
	const kvarc_gc_result r = store_gc_now(y.t.s);
	assert_int_equal(r.repacked + r.removed, 0);
	store_end(&x.t);
	store_remove(&y.t);
	return calls;
}

/* At every third call, or at every $MEET_STEP-th: an odd number, so that both indexes are met. */
static void meet_all(int first, int second)
{
	const char *given = getenv("MEET_STEP");
	const int step = given ? atoi(given) | 1 : 3;
	int calls = 1;
	for (int at = 0; at < calls; at += step) {
		calls = meet(first, second, at, at % 2);
		if (second == GC)
			calls = meet(first, second, at, !(at % 2));
	}
	assert_true(calls > 2);
}

/* Others in the middle of a gc, and a gc in the middle of what others do. */
static void test_others(void **state)
{
	(void)state;
	for (int what = GC; what < OTHERS; what++)
		meet_all(GC, what);
	for (int what = SAVE; what < OTHERS; what++)
		meet_all(what, GC);
}

/* Two collections of another program at calls of a load: each moves what a version needs. */
struct two_moves {
	struct test_store t;
	struct test_hook hook;
	int second, moves; /* second: the call of the second one */
};

static void move(void *opaque)
{
	struct two_moves *x = opaque;
	if (x->moves > 1)
		return;
	const char *session = x->moves++ ? "b" : "long";
	assert_int_equal(kvarc_store_remove(x->t.s, session, NULL), KVARC_OK);
	assert_int_equal(store_gc_now(x->t.s).repacked, 1);
	x->hook.at = x->second;
}

/* Returns how many calls there were. */
static int load_while_moving(int first, int second)
{
	struct two_moves x = { .second = second };
	struct test_store y;
	char index[100];
	store_new(&y); /* its index knows no archive of what follows */
	strcpy(x.t.folder, y.folder);
	snprintf(index, sizeof index, "%s/far.sqlite", y.folder);
	x.t.index = index;
	assert_int_equal(store_again(&x.t, NULL), KVARC_OK);
	store_save_slot(x.t.s, "c", test_slot(100, NONE));
	store_save_slot(x.t.s, "long", test_slot(300, NONE));
	store_save_slot(x.t.s, "long", test_slot(500, 290));
	store_save_slot(x.t.s, "long", test_slot(3000, 290));
	store_save_slot(x.t.s, "b", test_slot(1300, 290));
	store_save_slot(x.t.s, "c", test_slot(700, 290));
	hook_start(&x.hook, y.s, first, move, &x);
	const kvarc_session_version v = store_load_nowhere(y.s, "c");
	const int calls = x.hook.calls;
	hook_end(&x.hook, y.s);
	assert_int_equal(v.number, 2);
	assert_int_equal(v.passed_over, 0);
	store_end(&x.t);
	store_remove(&y);
	return calls;
}

/* The last version is loaded, not the one before, whenever its parts move: at every third call, or
 * at every $MEET_STEP-th. */
static void test_moving(void **state)
{
	const char *given = getenv("MEET_STEP");
	const int step = given ? atoi(given) : 3;
	int calls = 1;
	(void)state;
	for (int first = 0; first < calls; first += step)
		for (int second = first + 1; second <= calls; second += step)
			calls = load_while_moving(first, second);
	assert_true(calls > 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_prefix), cmocka_unit_test(test_again),
		cmocka_unit_test(test_tail),   cmocka_unit_test(test_options),
		cmocka_unit_test(test_whole),  cmocka_unit_test(test_damage),
		cmocka_unit_test(test_crash),  cmocka_unit_test(test_others),
		cmocka_unit_test(test_moving),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
