/* SPDX-License-Identifier: BSD-3-Clause */
/* test_store_laws.c - what a store promises whatever happens: numbers, removal, whole archives */
#include "store_util.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

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
	/* old marks go; a session below is another one */
	char path[300];
	store_file(&t, "sessions/a/=6", 0, path);
	store_file(&t, "sessions/a/=3", 0, path);
	const struct timespec old[2] = { { .tv_sec = 1000 }, { .tv_sec = 1000 } };
	assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
	assert_int_equal(kvarc_store_remove(t.s, "a", NULL), KVARC_OK);
	assert_int_equal(kvarc_store_fork(t.s, "b", 0, "a"), KVARC_OK);
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(store_save_slot(t.s, "a/b", test_slot(100, NONE)).version, 1);
	assert_int_equal(kvarc_store_remove(t.s, "a/b", NULL), KVARC_OK);
	assert_int_equal(store_save_slot(t.s, "a/b", test_slot(100, NONE)).version, 2);
	assert_int_equal(store_save_slot(t.s, "a", test_slot(100, NONE)).version, 9);
	store_remove(&t);
}

/* A version is removed as what it was read as, and as nothing else. */
static void test_removal(void **state)
{
	struct test_store t;
	struct kvi_session_key k = { .name_space = "default", .name = "a", .number = 1 };
	struct kvi_manifest m;
	(void)state;
	store_new(&t);
	store_save_slot(t.s, "a", test_slot(100, NONE));
	assert_int_equal(kvi_version_read(t.s, "a", &k.number, &m), KVARC_OK);
	m.digest[15] ^= 1;
	assert_int_equal(kvi_version_remove(t.s, &k, m.digest), KVARC_END);
	store_check_slot(t.s, "a", 1, test_slot(100, NONE));
	m.digest[15] ^= 1;
	assert_int_equal(kvi_version_remove(t.s, &k, m.digest), KVARC_OK);
	assert_int_equal(kvi_version_remove(t.s, &k, m.digest), KVARC_END);
	store_remove(&t);
}

static void renew(void *opaque)
{
	struct other *x = opaque;
	kvarc_ret ret = kvarc_store_remove(x->t.s, "a", NULL);
	assert_true(ret == KVARC_OK || ret == KVARC_END);
	x->saved = store_save_slot(x->t.s, "a", test_slot(250, 0)).version;
}

/* What is done beside a session that is removed and saved again at each of its calls. */
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

/* Sets the time of a manifest, which is that of its last load. */
static void used_before(struct test_store *t, const char *key, int seconds)
{
	char path[300];
	const time_t then = time(NULL) - seconds;
	const struct timespec times[2] = { { .tv_sec = then }, { .tv_sec = then } };
	store_file(t, key, 0, path);
	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* Clocks differ by up to an hour: what a machine with a late clock has just loaded was loaded an
 * hour ago for a gc, and stays whatever the budget is. */
static void test_clocks(void **state)
{
	struct test_store t;
	kvarc_gc_options o = KVARC_GC_OPTIONS_INIT;
	kvarc_gc_result r;
	(void)state;
	store_new(&t);
	store_save_slot(t.s, "a", test_slot(300, NONE));
	/* the gc is on another machine, whose index knows of no load */
	store_end(&t);
	char index[300];
	snprintf(index, sizeof index, "%s/index.sqlite", t.folder);
	assert_int_equal(unlink(index), 0);
	assert_int_equal(store_again(&t, NULL), KVARC_OK);
	o.budget = 1;
	used_before(&t, "sessions/a/1", 3600 + 600);
	assert_int_equal(kvarc_store_gc(t.s, &o, &r), KVARC_OK);
	assert_int_equal(r.versions, 0);
	used_before(&t, "sessions/a/1", 7200 + 600);
	assert_int_equal(kvarc_store_gc(t.s, &o, &r), KVARC_OK);
	assert_int_equal(r.versions, 1);
	store_remove(&t);
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

/* What removes versions fails at any call: the number of each that is gone is marked, so that
 * a save that has found it free before it was used does not take it. */
static void test_marks(void **state)
{
	(void)state;
	for (int what = 0; what < SAVE; what++)
		for (int at = 0, done = 0; !done; at++) {
			struct test_store t;
			struct test_hook hook;
			struct kvi_list numbers = { 0 };
			uint64_t marked = 0;
			store_new(&t);
			for (uint32_t i = 1; i <= 3; i++)
				store_save_slot(t.s, "a", test_slot(100 * i, NONE));
			hook_start(&hook, t.s, at, NULL, NULL);
			hook.fails = true;
			(void)run_beside(t.s, what);
			done = hook.calls <= at;
			hook_end(&hook, t.s);
			kvarc_ret ret = kvi_session_numbers(t.s, "a", &numbers, &marked);
			assert_true(ret == KVARC_OK || ret == KVARC_END);
			assert_true(numbers.n + marked >= 3);
			for (size_t i = 0; i < numbers.n; i++)
				assert_true(*KVI_LIST(uint64_t, numbers, numbers.n - 1 - i) ==
				            3 - i);
			kvi_free(&t.s->alloc, numbers.p);
			store_remove(&t);
		}
}

/* A save that is slow and then dies: `left` calls behind the one before which another process has
 * saved the session and removed it. */
struct slow_save {
	struct other x;
	struct test_hook hook;
	int left;
};

static void save_and_remove(void *opaque)
{
	struct slow_save *slow = opaque;
	slow->x.saved = store_save_slot(slow->x.t.s, "a", test_slot(250, 0)).version;
	assert_int_equal(kvarc_store_remove(slow->x.t.s, "a", NULL), KVARC_OK);
	slow->hook.fn = NULL;
	slow->hook.fails = true;
	slow->hook.at += slow->left;
}

/* The number of a version that was removed never shows another one, whatever a slow save does with
 * a number that it had found free, and wherever it dies. */
static void test_dies(void **state)
{
	(void)state;
	for (int left = 1; left < 8; left++)
		for (int at = 0, done = 0; !done; at++) {
			struct test_store t;
			struct slow_save slow = { .left = left };
			struct slot_made s = test_slot(310, NONE), other = test_slot(250, 0);
			kvarc_saved saved;
			store_new(&t);
			store_save_slot(t.s, "a", test_slot(100, NONE));
			other_open(&slow.x, &t);
			hook_start(&slow.hook, t.s, at, save_and_remove, &slow);
			(void)store_save_bytes(t.s, "a", &s, NULL, &saved);
			done = slow.hook.calls <= at;
			hook_end(&slow.hook, t.s);
			assert_int_equal(store_again(&t, NULL), KVARC_OK);
			if (!done)
				assert_int_equal(store_compare(t.s, "a", slow.x.saved, &other),
				                 KVARC_END);
			slot_free(&s);
			slot_free(&other);
			store_end(&slow.x.t);
			store_remove(&t);
		}
}

/* Seconds that a machine has slept in a save, which then continues. */
static time_t slept;

time_t time(time_t *t)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	if (t)
		*t = now.tv_sec + slept;
	return now.tv_sec + slept;
}

/* Meanwhile another machine uses the next number and removes its version, whose mark becomes old,
 * and goes with the next save. */
static void sleep_long(void *opaque)
{
	struct other *x = opaque;
	char key[40], path[300];
	const struct timespec old[2] = { { .tv_sec = 1000 }, { .tv_sec = 1000 } };
	x->saved = store_save_slot(x->t.s, "a", test_slot(250, 0)).version;
	assert_int_equal(kvarc_store_remove(x->t.s, "a", NULL), KVARC_OK);
	snprintf(key, sizeof key, "sessions/a/=%d", (int)x->saved);
	store_file(&x->t, key, 0, path);
	assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
	store_save_slot(x->t.s, "a", test_slot(260, 0));
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(kvarc_store_remove(x->t.s, "a", NULL), KVARC_OK);
	slept = 3 * 3600;
}

static void test_sleeps(void **state)
{
	(void)state;
	for (int at = 0, done = 0; !done; at++) {
		struct test_store t;
		struct other x;
		struct test_hook hook;
		store_new(&t);
		store_save_slot(t.s, "a", test_slot(100, NONE));
		other_open(&x, &t);
		hook_start(&hook, t.s, at, sleep_long, &x);
		const uint64_t version = store_save_slot(t.s, "a", test_slot(310, NONE)).version;
		done = hook.calls <= at;
		hook_end(&hook, t.s);
		slept = 0;
		assert_true(version != x.saved);
		store_end(&x.t);
		store_remove(&t);
	}
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

/* ----- whole archives ------------------------------------------------ */

/* What may happen to the file of an archive, or to the index. */
enum meddling {
	CUT_TAIL,
	CUT_HALF,
	CUT_HEAD,
	ZERO_TAIL,
	INSERT,
	EMPTY,
	SWAP,
	REMOVED_ROWS,
	CHANGES
};

static uint8_t *read_file(const char *path, size_t *n)
{
	FILE *f = fopen(path, "rb");
	assert_non_null(f);
	*n = (size_t)store_bytes(path);
	uint8_t *bytes = malloc(*n + 64);
	assert_non_null(bytes);
	assert_int_equal(fread(bytes, 1, *n, f), *n);
	fclose(f);
	return bytes;
}

static void write_file(const char *path, const uint8_t *p, size_t n)
{
	FILE *f = fopen(path, "wb");
	assert_non_null(f);
	assert_int_equal(fwrite(p, 1, n, f), n);
	assert_int_equal(fclose(f), 0);
}

/* Writes a file again, within a tick of the clock of its file system. */
static void write_at_once(const char *path, const uint8_t *p, size_t n)
{
	struct stat st;
	assert_int_equal(stat(path, &st), 0);
	write_file(path, p, n);
	const struct timespec times[2] = { st.st_atim, st.st_mtim };
	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* Runs SQL on the index of a store, behind its back. Returns how many rows were changed. */
static int change_index(struct test_store *t, const char *sql)
{
	char path[300];
	sqlite3 *db;
	snprintf(path, sizeof path, "%s/index.sqlite", t->folder);
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
	const int n = sqlite3_changes(db);
	sqlite3_close(db);
	return n;
}

static void change(struct test_store *t, enum meddling how, const char *path, const char *other)
{
	size_t n, k;
	uint8_t *bytes = read_file(path, &n);
	switch (how) {
	case CUT_TAIL:
		write_file(path, bytes, n - 32);
		break;
	case CUT_HALF:
		write_file(path, bytes, n / 2);
		break;
	case CUT_HEAD:
		write_file(path, bytes, 200);
		break;
	case ZERO_TAIL:
		memset(bytes + n - 300, 0, 300);
		write_file(path, bytes, n);
		break;
	case INSERT:
		memmove(bytes + n / 2 + 16, bytes + n / 2, n - n / 2);
		write_file(path, bytes, n + 16);
		break;
	case EMPTY:
		write_file(path, bytes, 0);
		break;
	case SWAP: {
		uint8_t *second = read_file(other, &k);
		write_file(path, second, k);
		write_file(other, bytes, n);
		free(second);
		break;
	}
	default:
		change_index(t, "DELETE FROM segments WHERE seg % 2 = 1");
	}
	free(bytes);
}

/* The path of the archive of a version. */
static void pack_of(struct test_store *t, const char *session, char path[300])
{
	struct kvi_manifest m;
	uint64_t number = 0;
	char key[KVI_PACK_KEY];
	assert_int_equal(kvi_version_read(t->s, session, &number, &m), KVARC_OK);
	kvi_pack_key(key, m.needs.pack);
	snprintf(path, 300, "%s/%s", t->folder, key);
}

/* Three sessions, which share their first tokens in the archive of the first one. */
static void make_sessions(struct test_store *t, char first[300], char last[300])
{
	store_new(t);
	store_save_slot(t->s, "a", test_slot(500, NONE));
	store_save_slot(t->s, "b", test_slot(600, NONE));
	store_save_slot(t->s, "c", test_slot(650, 520));
	pack_of(t, "a", first);
	pack_of(t, "c", last);
	/* a new handle: nothing is open */
	assert_int_equal(store_again(t, NULL), KVARC_OK);
}

static kvarc_ret gc_all(struct test_store *t)
{
	kvarc_gc_options o = KVARC_GC_OPTIONS_INIT;
	o.no_grace = 1;
	return kvarc_store_gc(t->s, &o, NULL);
}

/* Whatever happens to an archive: verify says so, gc removes nothing, and once the good one is put
 * back all is as it was. */
static void test_put_back(void **state)
{
	(void)state;
	for (int what = 0; what < CHANGES; what++) {
		struct test_store t;
		char first[300], last[300];
		size_t n, k;
		make_sessions(&t, first, last);
		uint8_t *good = read_file(first, &n), *good_last = read_file(last, &k);
		change(&t, what, first, last);
		const bool index_alone = what == REMOVED_ROWS;
		assert_true(index_alone == (store_losses(t.s) == 0));
		assert_int_equal(gc_all(&t), index_alone ? KVARC_OK : KVARC_DATA);
		assert_int_equal(store_packs(&t), 3);
		write_file(first, good, n);
		write_file(last, good_last, k);
		store_check_slot(t.s, "a", 0, test_slot(500, NONE));
		store_check_slot(t.s, "b", 0, test_slot(600, NONE));
		store_check_slot(t.s, "c", 0, test_slot(650, 520));
		assert_int_equal(store_losses(t.s), 0);
		assert_int_equal(gc_all(&t), KVARC_OK);
		assert_int_equal(store_packs(&t), 3);
		free(good);
		free(good_last);
		store_remove(&t);
	}
}

/* Whatever happens to an archive, found or not, with the store's index or a new one: a save that is
 * acknowledged loads. */
static void test_next_save(void **state)
{
	(void)state;
	for (int what = 0; what < CHANGES; what++)
		for (int how = 0; how < 4; how++) {
			struct test_store t;
			char first[300], last[300], index[300];
			make_sessions(&t, first, last);
			change(&t, what, first, last);
			if (how & 1) {
				store_end(&t);
				snprintf(index, sizeof index, "%s/index.sqlite", t.folder);
				assert_int_equal(unlink(index), 0);
				assert_int_equal(store_again(&t, NULL), KVARC_OK);
			}
			if (how & 2)
				(void)store_losses(t.s);
			store_save_slot(t.s, "a", test_slot(510, NONE));
			store_check_slot(t.s, "a", 0, test_slot(510, NONE));
			store_save_slot(t.s, "b", test_slot(610, NONE));
			store_check_slot(t.s, "b", 0, test_slot(610, NONE));
			store_save_slot(t.s, "c", test_slot(660, 520));
			store_check_slot(t.s, "c", 0, test_slot(660, 520));
			store_remove(&t);
		}
}

/* Of an archive that has lost its FOOTER alone a load reads what is there, and says so; saves
 * do not count on it. */
static void test_footer(void **state)
{
	struct test_store t;
	char first[300], last[300];
	(void)state;
	make_sessions(&t, first, last);
	change(&t, CUT_TAIL, first, NULL);
	for (int i = 0; i < 2; i++) {
		store_check_slot(t.s, "a", 0, test_slot(500, NONE));
		store_check_slot(t.s, "b", 0, test_slot(600, NONE));
		assert_true(store_load_nowhere(t.s, "a").not_whole);
		assert_true(store_load_nowhere(t.s, "b").not_whole);
		assert_true(store_load_nowhere(t.s, "c").not_whole);
		assert_int_equal(kvarc_store_rebuild(t.s, NULL, NULL), KVARC_OK);
	}
	assert_true(store_losses(t.s) > 0);
	assert_int_equal(store_save_slot(t.s, "d", test_slot(500, NONE)).kept_tokens, 0);
	store_remove(&t);
}

/* ----- the index ------------------------------------------------ */

static uint64_t segments(struct test_store *t)
{
	uint64_t packs = 0, n = 0;
	assert_int_equal(kvi_index_counts(t->s->index, &packs, &n), KVARC_OK);
	assert_int_equal(packs, 3);
	return n;
}

/* An index that was made while an archive was damaged, or that lacks rows, learns of the good
 * one by itself: by a list of what is there, or by a load. */
static void test_copied_back(void **state)
{
	(void)state;
	for (int what = 0; what < CHANGES; what++) {
		struct test_store t;
		char first[300], last[300];
		size_t n, k;
		uint64_t unreadable;
		make_sessions(&t, first, last);
		uint8_t *good = read_file(first, &n), *good_last = read_file(last, &k);
		const uint64_t all = segments(&t);
		change(&t, what, first, last);
		if (what != REMOVED_ROWS)
			assert_int_equal(kvarc_store_rebuild(t.s, NULL, NULL), KVARC_OK);
		write_at_once(first, good, n);
		write_at_once(last, good_last, k);
		if (what != CUT_TAIL) {
			assert_int_equal(
				kvi_index_refresh(t.s, t.s->index, NULL, NULL, &unreadable),
				KVARC_OK);
			assert_int_equal(unreadable, 0);
			assert_int_equal(segments(&t), all);
		}
		store_check_slot(t.s, "b", 0, test_slot(600, NONE));
		store_check_slot(t.s, "c", 0, test_slot(650, 520));
		store_check_slot(t.s, "a", 0, test_slot(500, NONE));
		free(good);
		free(good_last);
		store_remove(&t);
	}
}

/* Whatever value of the index has changed: what is saved then loads, and so does all before it. */
static void test_changed_rows(void **state)
{
	static const char *const numbers[] = {
		"segments.ns",    "segments.key", "segments.parent", "segments.first",
		"segments.track", "segments.n",   "segments.t0",     "segments.wn",
		"refs.pack",      "refs.ns",      "refs.track",      "refs.t0",
		"refs.n",         "refs.left",    "refs.chained"
	};
	static const char *const hashes[] = { "segments.chain",  "segments.digest",
		                              "segments.wchain", "segments.wdigest",
		                              "segments.id",     "refs.key",
		                              "refs.digest" };
	enum {
		NUMBERS = sizeof numbers / sizeof *numbers,
		HASHES = sizeof hashes / sizeof *hashes
	};
	int changed = 0;
	(void)state;
	for (int i = 0; i < NUMBERS + HASHES; i++) {
		struct test_store t;
		char first[300], last[300], table[20], sql[300];
		const char *name = i < NUMBERS ? numbers[i] : hashes[i - NUMBERS];
		const char *column = strchr(name, '.') + 1;
		snprintf(table, sizeof table, "%.*s", (int)(column - 1 - name), name);
		snprintf(sql, sizeof sql,
		         i < NUMBERS ? "UPDATE %s SET %s = coalesce(%s, 0) + 1"
		                     : "UPDATE %s SET %s = substr(%s, 2) || x'00'"
		                       " WHERE rowid %% 2 = 1",
		         table, column, column);
		make_sessions(&t, first, last);
		store_end(&t);
		changed += change_index(&t, sql) != 0;
		assert_int_equal(store_again(&t, NULL), KVARC_OK);
		store_save_slot(t.s, "d", test_slot(700, 520));
		store_check_slot(t.s, "d", 0, test_slot(700, 520));
		store_check_slot(t.s, "a", 0, test_slot(500, NONE));
		store_check_slot(t.s, "b", 0, test_slot(600, NONE));
		store_check_slot(t.s, "c", 0, test_slot(650, 520));
		assert_int_equal(store_losses(t.s), 0);
		store_remove(&t);
	}
	assert_int_equal(changed, NUMBERS + HASHES);
}

/* ----- what comes from elsewhere ------------------------------------------------ */

/* Sends the last version of a session to a new one of another store. */
static kvarc_ret transfer(kvarc_store *from, kvarc_store *to, const char *session,
                          kvarc_received *n)
{
	kvarc_memory *memory = NULL;
	kvarc_sink sink;
	kvarc_source source;
	assert_int_equal(kvarc_memory_open(&memory, NULL), KVARC_OK);
	assert_int_equal(kvarc_memory_sink(memory, &sink), KVARC_OK);
	assert_int_equal(kvarc_store_send(from, session, 0, &sink, NULL, NULL, NULL), KVARC_OK);
	assert_int_equal(kvarc_memory_source(memory, &source), KVARC_OK);
	kvarc_ret ret = kvarc_store_receive(to, session, &source, n);
	kvarc_memory_close(&memory);
	return ret;
}

static int count_pack(void *opaque, const uint8_t id[16])
{
	(void)id;
	++*(int *)opaque;
	return 0;
}

/* What comes replaces what is damaged here. */
static void test_received(void **state)
{
	(void)state;
	for (int what = 0; what < REMOVED_ROWS; what++) {
		struct test_store t, u;
		char first[300], last[300];
		kvarc_received n;
		int packs = 0;
		make_sessions(&t, first, last);
		store_new(&u);
		assert_int_equal(transfer(t.s, u.s, "b", &n), KVARC_OK);
		assert_int_equal(n.archives, 2);
		assert_int_equal(transfer(t.s, u.s, "b", &n), KVARC_OK);
		assert_int_equal(n.left_out, 2);
		assert_int_equal(n.was_here, 1);
		change(&t, what, first, last);
		/* and back: the version is here already, and loads */
		assert_int_equal(transfer(u.s, t.s, "b", &n), KVARC_OK);
		assert_int_equal(n.was_here, 1);
		assert_int_equal(n.archives, 1);
		assert_int_equal(n.left_out, 1);
		store_check_slot(t.s, "b", 0, test_slot(600, NONE));
		store_check_slot(t.s, "a", 0, test_slot(500, NONE));
		assert_int_equal(store_losses(t.s), what == SWAP ? 2 : 0);
		/* archives that are known to be damaged are not in the list of those that are
		 * here */
		change(&t, what, first, last);
		assert_true(store_losses(t.s) > 0);
		assert_int_equal(kvarc_store_have(t.s, count_pack, &packs), KVARC_OK);
		assert_in_range(packs, 1, 2);
		store_remove(&u);
		store_remove(&t);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_numbers),      cmocka_unit_test(test_clocks),
		cmocka_unit_test(test_removal),      cmocka_unit_test(test_renewed),
		cmocka_unit_test(test_marks),        cmocka_unit_test(test_dies),
		cmocka_unit_test(test_sleeps),       cmocka_unit_test(test_fork_fails),
		cmocka_unit_test(test_put_back),     cmocka_unit_test(test_next_save),
		cmocka_unit_test(test_footer),       cmocka_unit_test(test_copied_back),
		cmocka_unit_test(test_changed_rows), cmocka_unit_test(test_received),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
