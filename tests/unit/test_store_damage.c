/* SPDX-License-Identifier: BSD-3-Clause */
/* test_store_damage.c - what is damaged, missing, removed or in the way in a store */
#include "config.h"

#include "store_util.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utime.h>

#include "store/store_gc.h"
#include "store/manifest.h"
#include "util/bytes.h"
#include "util/hash.h"

enum { NONE = UINT32_MAX };

/* ----- manifests ------------------------------------------------ */

static void test_manifest(void **state)
{
	struct kvi_manifest m = { .tokens = 5,
		                  .time = 7,
		                  .bytes = 9,
		                  .pack_bytes = 11,
		                  .has_chain = true },
			    n;
	char text[KVI_MANIFEST_MAX], other[KVI_MANIFEST_MAX];
	(void)state;
	memset(m.needs.pack, 0xab, 16);
	m.needs.encrypted = true;
	m.mode = 0777;
	m.needs.n = KVI_NEEDS_MAX;
	memset(m.needs.others, 0xcd, sizeof m.needs.others);
	memset(m.label, '\n', KVI_LABEL_MAX);
	memset(m.parent, 'a', KVI_SESSION_MAX);
	m.parent_number = KVI_NUMBER_MAX;
	size_t bytes = kvi_manifest_write(text, &m);
	kvi_manifest_digest(m.digest, text, bytes);
	assert_int_equal(kvi_manifest_parse(&n, text, bytes), KVARC_OK);
	assert_memory_equal(&m, &n, sizeof m);
	for (size_t i = 0; i < bytes; i++) {
		memcpy(other, text, bytes);
		other[i] ^= 1;
		assert_int_equal(kvi_manifest_parse(&n, other, bytes), KVARC_DATA);
		assert_int_equal(kvi_manifest_parse(&n, text, i), KVARC_DATA);
	}
}

/* Manifests whose check is right, but nothing else is. */
static kvarc_ret parse_lines(const char *lines)
{
	struct kvi_manifest m;
	char text[1000], hex[33];
	uint8_t sum[16];
	size_t n = (size_t)snprintf(text, sizeof text, "%s", lines);
	kvi_store_h128(sum, kvi_h128(text, n));
	kvi_hex(hex, sum);
	n += (size_t)sprintf(text + n, "check=%s\n", hex);
	return kvi_manifest_parse(&m, text, n);
}

static void test_manifest_lines(void **state)
{
#define PACK "pack=000102030405060708090a0b0c0d0e0f\n"
	(void)state;
	assert_int_equal(parse_lines("kvarc-session=1\n" PACK "tokens=1\ntime=0\nbytes=2\n"),
	                 KVARC_OK);
	assert_int_equal(parse_lines("kvarc-session=1\n" PACK "new=1\ntokens=1\ntime=0\nbytes=2\n"),
	                 KVARC_OK);
	assert_int_equal(parse_lines("kvarc-session=2\n" PACK "tokens=1\ntime=0\nbytes=2\n"),
	                 KVARC_OPTIONS);
	static const char *const bad[] = {
		"kvarc-session=1\n" PACK "tokens=1\ntime=0\n",
		"kvarc-session=1\n" PACK "tokens=1\ntokens=1\ntime=0\nbytes=2\n",
		"kvarc-session=1\n" PACK "tokens=01\ntime=0\nbytes=2\n",
		"kvarc-session=1\n" PACK "tokens=-1\ntime=0\nbytes=2\n",
		"kvarc-session=1\n" PACK "tokens=99999999999999999\ntime=0\nbytes=2\n",
		"kvarc-session=1\n" PACK "tokens=1\ntime=0\nbytes=2\nparent=a\n",
		"kvarc-session=1\n" PACK "tokens=1\ntime=0\nbytes=2\nparent-version=1\n",
		"kvarc-session=1\n" PACK
		"tokens=1\ntime=0\nbytes=2\nparent=../a\nparent-version=1\n",
		"kvarc-session=1\n" PACK "tokens=1\ntime=0\nbytes=2\nlabel=%0\n",
		"kvarc-session=1\n" PACK "tokens=1\ntime=0\nbytes=2\nlabel=%00\n",
		"kvarc-session=1\n" PACK "tokens=1\ntime=0\nbytes=2\nx\n",
		"kvarc-session=1\n" PACK "tokens=1\ntime=0\nbytes=2\nmode=512\n",
		"kvarc-session=1\n" PACK "tokens=1\ntime=0\nbytes=2",
		"pack=00\nkvarc-session=1\n",
	};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_int_equal(parse_lines(bad[i]), KVARC_DATA);
}

static int see_version(void *opaque, const kvarc_session_version *v)
{
	*(uint64_t *)opaque += v->number;
	return 0;
}

static void test_damaged_manifest(void **state)
{
	struct test_store t;
	char path[300];
	uint64_t sum = 0;
	(void)state;
	store_new(&t);
	store_save_slot(t.s, "a", test_slot(300, NONE));
	store_save_slot(t.s, "a", test_slot(400, NONE));
	store_save_slot(t.s, "b", test_slot(500, NONE));
	store_file(&t, "sessions/a/2", 0, path);
	store_flip(path, 20);
	struct slot_made s = test_slot(400, NONE);
	assert_int_equal(store_compare(t.s, "a", 0, &s), KVARC_DATA);
	slot_free(&s);
	store_check_slot(t.s, "a", 1, test_slot(300, NONE));
	store_check_slot(t.s, "b", 0, test_slot(500, NONE));
	assert_int_equal(kvarc_store_log(t.s, "a", see_version, &sum), KVARC_DATA);
	assert_int_equal(sum, 1);
	assert_int_equal(kvarc_store_list(t.s, see_version, &sum), KVARC_DATA);
	assert_int_equal(sum, 3);
	assert_int_equal(store_losses(t.s), 1);
	/* what it names is not known: nothing is removed */
	kvarc_gc_options o = KVARC_GC_OPTIONS_INIT;
	kvarc_gc_result r;
	o.no_grace = 1;
	assert_int_equal(kvarc_store_remove(t.s, "b", NULL), KVARC_OK);
	assert_int_equal(kvarc_store_gc(t.s, &o, &r), KVARC_DATA);
	assert_int_equal(store_packs(&t), 3);
	/* nor a version for a budget */
	o.budget = 1;
	assert_int_equal(kvarc_store_gc(t.s, &o, &r), KVARC_DATA);
	assert_int_equal(r.versions, 0);
	store_check_slot(t.s, "a", 1, test_slot(300, NONE));
	/* whether it was encrypted has to be said; the next version is behind it */
	kvarc_save_options so = KVARC_SAVE_OPTIONS_INIT;
	struct slot_made slot = test_slot(410, 290);
	kvarc_saved saved;
	assert_int_equal(store_save_bytes(t.s, "a", &slot, &so, &saved), KVARC_OPTIONS);
	so.encrypt = KVARC_SAVE_PLAIN;
	assert_int_equal(store_save_bytes(t.s, "a", &slot, &so, &saved), KVARC_OK);
	assert_int_equal(saved.version, 3);
	slot_free(&slot);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(store_gc_now(t.s).removed, 2);
	store_check_slot(t.s, "a", 3, test_slot(410, 290));
	store_remove(&t);
}

/* ----- archives ------------------------------------------------ */

/* Every part of an archive: what loads are the bytes that were saved, or it does not load. */
static void test_damaged_archive(void **state)
{
	struct test_store t;
	char path[300];
	int lost = 0;
	(void)state;
	store_new(&t);
	store_save_slot(t.s, "a", test_slot(300, NONE));
	store_save_slot(t.s, "b", test_slot(310, 0));
	store_file(&t, "packs/*/*.kva", 0, path);
	const long bytes = store_bytes(path), step = bytes / 61 + 1;
	for (long at = 3; at < bytes; at += step) {
		struct slot_made x[2] = { test_slot(300, NONE), test_slot(310, 0) };
		store_flip(path, at);
		assert_int_equal(store_again(&t, NULL), KVARC_OK);
		int now = (store_compare(t.s, "a", 0, &x[0]) != KVARC_OK) +
		          (store_compare(t.s, "b", 0, &x[1]) != KVARC_OK);
		assert_in_range(now, 0, 1);
		/* one for the archive, one for the version; of the index frame perhaps the first */
		assert_in_range(store_losses(t.s), now ? 2 : 1, 2);
		lost += now;
		store_flip(path, at);
		slot_free(&x[0]);
		slot_free(&x[1]);
	}
	assert_true(lost > 40);
	assert_int_equal(store_again(&t, NULL), KVARC_OK);
	assert_int_equal(store_losses(t.s), 0);
	store_remove(&t);
}

/* The tokens of `a`, 600 of them, in one archive, which is damaged; its index is as it was. */
static void damage(struct test_store *t, char path[300])
{
	store_new(t);
	store_save_slot(t->s, "a", test_slot(600, NONE));
	store_file(t, "packs/*/*.kva", 0, path);
	store_flip(path, store_bytes(path) / 2);
	assert_int_equal(store_again(t, NULL), KVARC_OK);
}

/* An archive gets the time of change that the index has of it, so that only reading it shows what
 * was done to it. */
static void hide_change(struct test_store *t, const char *path)
{
	struct kvi_index_pack known;
	uint8_t id[16];
	assert_true(kvi_unhex(id, strrchr(path, '/') + 1));
	assert_int_equal(kvi_index_get_pack(t->s->index, id, &known), KVARC_OK);
	const struct timespec times[2] = { { .tv_nsec = UTIME_OMIT },
		                           { (time_t)(known.stamp / 1000000000),
		                             (long)(known.stamp % 1000000000) } };
	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* Whatever finds the damage: the next save stores again what is lost, and loads. */
static void test_heals(void **state)
{
	for (int how = 0; how < 5; how++) {
		struct test_store t;
		char path[300];
		struct slot_made s = test_slot(700, NONE);
		kvarc_save_options o = KVARC_SAVE_OPTIONS_INIT;
		kvarc_saved r;
		(void)state;
		damage(&t, path);
		if (how == 0) {
			/* a save counts on the index, as far as the object is the same */
			hide_change(&t, path);
			r = store_save_slot(t.s, "a", test_slot(650, NONE));
			assert_int_equal(r.kept_tokens, 600);
			assert_int_equal(store_compare(t.s, "a", 0, &s), KVARC_STORE);
			assert_non_null(strstr(t.error.text, "is damaged: 'kvarc store verify'"));
			assert_int_equal(store_compare(t.s, "a", 0, &s), KVARC_STORE);
			assert_non_null(strstr(t.error.text, "is damaged: 'kvarc store verify'"));
		} else if (how == 1) {
			assert_true(store_losses(t.s) > 0);
		} else if (how == 2) {
			assert_int_equal(store_compare(t.s, "a", 0, &s), KVARC_DATA);
			assert_non_null(strstr(t.error.text, "'kvarc store verify'"));
		} else if (how == 3) {
			hide_change(&t, path);
			o.writer.flags = KVARC_WRITE_VERIFY;
		} /* how == 4: the save itself sees that the object was changed */
		assert_int_equal(store_again(&t, NULL), KVARC_OK);
		assert_int_equal(store_save_bytes(t.s, "a", &s, &o, &r), KVARC_OK);
		assert_true(r.kept_tokens < 600);
		store_check_slot(t.s, "a", 0, test_slot(700, NONE));
		/* an archive that is whole again is believed */
		store_flip(path, store_bytes(path) / 2);
		store_check_slot(t.s, "a", 1, test_slot(600, NONE));
		assert_int_equal(store_losses(t.s), 0);
		slot_free(&s);
		store_remove(&t);
	}
}

/* The same file again: what it was saved to is not counted on when it is damaged. */
static void test_unchanged_damaged(void **state)
{
	struct test_store t;
	char path[300];
	(void)state;
	damage(&t, path);
	kvarc_saved r = store_save_slot(t.s, "a", test_slot(600, NONE));
	assert_int_equal(r.version, 2);
	assert_int_equal(r.unchanged, 0);
	store_check_slot(t.s, "a", 0, test_slot(600, NONE));
	store_remove(&t);
}

/* Of two archives that hold a segment the one that is whole is used. */
static void test_held_twice(void **state)
{
	struct test_store t;
	char path[300];
	(void)state;
	damage(&t, path);
	assert_true(store_losses(t.s) > 0);
	store_save_slot(t.s, "b", test_slot(600, NONE));
	store_flip(path, store_bytes(path) / 2);
	assert_int_equal(store_losses(t.s), 0);
	store_save_slot(t.s, "c", test_slot(650, NONE));
	for (int i = 0; i < 2; i++) {
		store_file(&t, "packs/*/*.kva", (size_t)i, path);
		if (store_bytes(path) < 100000)
			continue;
		store_flip(path, store_bytes(path) / 2);
		assert_int_equal(store_again(&t, NULL), KVARC_OK);
		store_check_slot(t.s, "c", 0, test_slot(650, NONE));
		store_flip(path, store_bytes(path) / 2);
	}
	store_remove(&t);
}

static void test_missing_archive(void **state)
{
	struct test_store t;
	char first[300], path[300];
	(void)state;
	store_new(&t);
	store_save_slot(t.s, "a", test_slot(300, NONE));
	store_file(&t, "packs/*/*.kva", 0, first);
	store_save_slot(t.s, "a", test_slot(400, NONE));
	store_save_slot(t.s, "b", test_slot(400, 0));
	assert_int_equal(unlink(first), 0);
	for (int again = 0; again < 2; again++) {
		struct slot_made s = test_slot(400, NONE);
		assert_int_equal(store_compare(t.s, "a", 1, &s), KVARC_STORE);
		assert_int_equal(store_compare(t.s, "a", 2, &s), KVARC_STORE);
		store_check_slot(t.s, "b", 0, test_slot(400, 0));
		assert_int_equal(store_losses(t.s), 2);
		assert_int_equal(kvarc_store_fork(t.s, "a", 2, "c"), KVARC_STORE);
		assert_int_equal(kvarc_store_fork(t.s, "a", 1, "c"), KVARC_STORE);
		slot_free(&s);
		assert_int_equal(kvarc_store_rebuild(t.s, NULL, NULL), KVARC_OK);
	}
	/* what is lost is no reason to remove the rest, or not to save again */
	assert_int_equal(store_gc_now(t.s).removed, 0);
	kvarc_saved r = store_save_slot(t.s, "a", test_slot(400, NONE));
	assert_int_equal(r.version, 3);
	store_check_slot(t.s, "a", 3, test_slot(400, NONE));
	/* a file that is no archive, and one that is cut */
	store_file(&t, "packs/*/*.kva", 0, path);
	assert_int_equal(truncate(path, 100), 0);
	assert_int_equal(store_again(&t, NULL), KVARC_OK);
	assert_true(store_losses(t.s) >= 3);
	store_remove(&t);
}

/* ----- the index ------------------------------------------------ */

static void write_text(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void test_index(void **state)
{
	struct test_store t;
	char path[300];
	struct stat st;
	(void)state;
	store_new(&t);
	store_save_slot(t.s, "a", test_slot(600, NONE));
	store_save_slot(t.s, "b", test_slot(700, 400));
	store_file(&t, "index.sqlite", 0, path);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	for (int kind = 0; kind < 4; kind++) {
		store_end(&t);
		if (kind == 0)
			unlink(path);
		else if (kind == 1)
			write_text(path, "no database at all, but a text that is long enough");
		else if (kind == 2)
			for (long at = 100; at < store_bytes(path); at += 97)
				store_flip(path, at);
		else {
			/* the version that SQLite keeps at byte 60 */
			store_flip(path, 63);
		}
		assert_int_equal(store_again(&t, NULL), KVARC_OK);
		kvarc_saved r = store_save_slot(t.s, "b", test_slot(710 + (uint32_t)kind, 400));
		assert_int_equal(r.kept_tokens, kind ? 709 + kind : 700);
		assert_int_equal(t.notes, 1);
		store_check_slot(t.s, "a", 0, test_slot(600, NONE));
		assert_int_equal(store_losses(t.s), 0);
	}
	/* the same while it is open */
	for (long at = 100; at < store_bytes(path); at += 97)
		store_flip(path, at);
	for (uint32_t i = 0; i < 3; i++)
		store_save_slot(t.s, "b", test_slot(720 + i, 400));
	store_check_slot(t.s, "b", 0, test_slot(722, 400));
	assert_int_equal(store_again(&t, NULL), KVARC_OK);
	store_check_slot(t.s, "b", 0, test_slot(722, 400));
	assert_int_equal(store_losses(t.s), 0);
	store_remove(&t);
}

/* ----- gc ------------------------------------------------ */

static void test_gc(void **state)
{
	struct test_store t;
	kvarc_gc_options o = KVARC_GC_OPTIONS_INIT;
	kvarc_gc_result r;
	kvarc_store_sizes n;
	(void)state;
	store_new(&t);
	store_save_slot(t.s, "a", test_slot(600, NONE));
	store_save_slot(t.s, "b", test_slot(700, NONE));
	store_save_slot(t.s, "c", test_slot(300, 0));
	assert_int_equal(store_gc_now(t.s).removed, 0);
	/* its tokens are needed by b */
	assert_int_equal(kvarc_store_remove(t.s, "a", NULL), KVARC_OK);
	assert_int_equal(store_gc_now(t.s).removed, 0);
	assert_int_equal(kvarc_store_remove(t.s, "c", NULL), KVARC_OK);
	assert_int_equal(kvarc_store_stat(t.s, &n), KVARC_OK);
	assert_int_equal(n.sessions, 1);
	assert_int_equal(n.archives, 3);
	assert_int_equal(n.unnamed, 1);
	/* too young, and a dry run */
	assert_int_equal(kvarc_store_gc(t.s, NULL, &r), KVARC_OK);
	assert_int_equal(r.young, 1);
	assert_int_equal(r.removed, 0);
	o.no_grace = o.dry_run = 1;
	assert_int_equal(kvarc_store_gc(t.s, &o, &r), KVARC_OK);
	assert_int_equal(r.removed, 1);
	assert_int_equal(store_packs(&t), 3);
	r = store_gc_now(t.s);
	assert_int_equal(r.removed, 1);
	assert_int_equal(r.removed_bytes, n.unnamed_bytes);
	assert_int_equal(store_packs(&t), 2);
	store_check_slot(t.s, "b", 0, test_slot(700, NONE));
	/* what was removed is not named any more */
	assert_int_equal(store_save_slot(t.s, "c", test_slot(300, 0)).kept_tokens, 0);
	store_check_slot(t.s, "c", 0, test_slot(300, 0));
	assert_int_equal(store_losses(t.s), 0);
	store_remove(&t);
}

static uint64_t needed_bytes(struct test_store *t)
{
	kvarc_store_sizes n;
	assert_int_equal(kvarc_store_stat(t->s, &n), KVARC_OK);
	return n.archive_bytes;
}

static void test_budget(void **state)
{
	struct test_store t;
	kvarc_gc_options o = KVARC_GC_OPTIONS_INIT;
	kvarc_gc_result r;
	kvarc_save_options so = KVARC_SAVE_OPTIONS_INIT;
	(void)state;
	store_new(&t);
	/* Three sessions of two versions that share nothing; c was used last, then a, then b. */
	for (uint32_t i = 0; i < 6; i++) {
		static const char *const names[] = { "a", "b", "c" };
		static const uint64_t times[] = { 2000000, 1000000, 3000000 };
		struct slot_made s = test_slot(300 + i, i < 3 ? i + 1 : 0);
		so.time = times[i % 3] + i;
		assert_int_equal(store_save_bytes(t.s, names[i % 3], &s, &so, NULL), KVARC_OK);
		slot_free(&s);
	}
	o.no_grace = 1;
	o.keep = 1;
	o.dry_run = 1;
	assert_int_equal(kvarc_store_gc(t.s, &o, &r), KVARC_OK);
	assert_int_equal(r.versions, 3);
	o.keep = 0;
	o.budget = 1;
	assert_int_equal(kvarc_store_gc(t.s, &o, &r), KVARC_OK);
	assert_int_equal(r.versions, 6);
	/* a budget that is met removes nothing */
	o.dry_run = 0;
	o.budget = needed_bytes(&t);
	assert_int_equal(kvarc_store_gc(t.s, &o, &r), KVARC_OK);
	assert_int_equal(r.versions, 0);
	o.budget = 0;
	o.keep = 1;
	assert_int_equal(kvarc_store_gc(t.s, &o, &r), KVARC_OK);
	assert_int_equal(r.versions, 3);
	for (uint32_t i = 3; i < 6; i++)
		store_check_slot(t.s, i == 3 ? "a" : i == 4 ? "b" : "c", 2, test_slot(300 + i, 0));
	assert_int_equal(store_losses(t.s), 0);
	store_remove(&t);
}

/* The time of a manifest, which is that of its last load by any host. */
static void set_time(struct test_store *t, const char *key, int64_t seconds)
{
	char path[300];
	const struct timespec times[2] = { { .tv_sec = (time_t)seconds },
		                           { .tv_sec = (time_t)seconds } };
	store_file(t, key, 0, path);
	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* What another host has loaded lately stays, although the index of this one knows nothing of it. */
static void test_budget_hosts(void **state)
{
	struct test_store t, other = { .s = NULL };
	char index[100];
	kvarc_gc_options o = KVARC_GC_OPTIONS_INIT;
	kvarc_gc_result r;
	(void)state;
	store_new(&t);
	snprintf(index, sizeof index, "%s/of-another-host", t.folder);
	t.index = index;
	assert_int_equal(store_again(&t, NULL), KVARC_OK);
	store_save_slot(t.s, "a", test_slot(300, NONE));
	store_save_slot(t.s, "a", test_slot(310, 0));
	store_save_slot(t.s, "b", test_slot(320, 1));
	strcpy(other.folder, t.folder);
	set_time(&t, "sessions/a/1", 1000);
	set_time(&t, "sessions/a/2", 1000);
	set_time(&t, "sessions/b/1", 1000);
	store_check_slot(t.s, "a", 1, test_slot(300, NONE));
	assert_int_equal(store_again(&other, NULL), KVARC_OK);
	o.budget = 1;
	assert_int_equal(kvarc_store_gc(other.s, &o, &r), KVARC_OK);
	assert_int_equal(r.versions, 2);
	store_check_slot(other.s, "a", 1, test_slot(300, NONE));
	store_end(&other);
	store_remove(&t);
}

static void note_line(void *opaque, const char *text)
{
	snprintf(opaque, 64, "%.63s", text);
}

/* A budget that one version is too much for takes the one whose last use is longest ago, the last
 * of a session behind all others. */
static void test_budget_order(void **state)
{
	struct test_store t;
	kvarc_gc_options o = KVARC_GC_OPTIONS_INIT;
	kvarc_gc_result r;
	kvarc_save_options so = KVARC_SAVE_OPTIONS_INIT;
	char line[64], path[300];
	(void)state;
	store_new(&t);
	static const char *const names[] = { "a", "b", "c" };
	so.time = 1;
	for (uint32_t i = 0; i < 6; i++) {
		struct slot_made s;
		int32_t ids[300];
		for (int32_t k = 0; k < 300; k++)
			ids[k] = 1000 * (int32_t)i + k; /* they share nothing */
		slot_make(&s, ids, 300, UINT32_MAX, 0);
		assert_int_equal(store_save_bytes(t.s, names[i % 3], &s, &so, NULL), KVARC_OK);
		slot_free(&s);
	}
	/* a new index knows of no use */
	store_end(&t);
	store_file(&t, "index.sqlite", 0, path);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(store_again(&t, NULL), KVARC_OK);
	for (uint32_t i = 0; i < 6; i++) {
		static const int64_t used[] = { 2000, 1000, 3000 };
		char key[KVI_KEY_MAX + 1];
		assert_true(kvi_version_key(key, t.s->name_space, names[i % 3], 1 + i / 3));
		assert_int_equal(kvi_index_use(t.s->index, key, used[i % 3]), KVARC_OK);
		set_time(&t, key, used[i % 3]);
	}
	o.no_grace = 1;
	o.report = note_line;
	o.opaque = line;
	static const char *const order[] = { "b@1", "a@1", "c@1", "b@2", "a@2", "c@2" };
	for (size_t i = 0; i < 6; i++) {
		char want[32];
		o.budget = needed_bytes(&t) - 1;
		assert_int_equal(kvarc_store_gc(t.s, &o, &r), KVARC_OK);
		assert_int_equal(r.versions, 1);
		snprintf(want, sizeof want, "removed %s", order[i]);
		assert_string_equal(line, want);
	}
	store_remove(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_manifest),
		cmocka_unit_test(test_manifest_lines),
		cmocka_unit_test(test_damaged_manifest),
		cmocka_unit_test(test_damaged_archive),
		cmocka_unit_test(test_heals),
		cmocka_unit_test(test_unchanged_damaged),
		cmocka_unit_test(test_held_twice),
		cmocka_unit_test(test_missing_archive),
		cmocka_unit_test(test_index),
		cmocka_unit_test(test_gc),
		cmocka_unit_test(test_budget),
		cmocka_unit_test(test_budget_order),
		cmocka_unit_test(test_budget_hosts),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
