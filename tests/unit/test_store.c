/* SPDX-License-Identifier: BSD-3-Clause */
/* test_store.c - sessions in a store: versions, what they share, damage, and what is removed */
#include "config.h"

#include "store_util.h"

#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "import_files.h"

enum { NONE = UINT32_MAX };

/* ----- versions ------------------------------------------------ */

static void test_grows(void **state)
{
	static const uint32_t turns[] = { 300, 301, 560, 900, 901, 1200 };
	struct test_store t;
	(void)state;
	store_new(&t);
	for (size_t i = 0; i < 6; i++) {
		kvarc_saved r = store_save_slot(t.s, "chat/1", test_slot(turns[i], NONE));
		assert_int_equal(r.version, i + 1);
		assert_int_equal(r.tokens, turns[i]);
		assert_int_equal(r.kept_tokens, i ? turns[i - 1] : 0);
		assert_int_equal(r.not_written_bytes, r.kept_tokens * SLOT_TOKEN);
		assert_int_equal(r.tries, 1);
	}
	/* Also by a handle that has never seen them. */
	for (int again = 0; again < 2; again++) {
		for (size_t i = 0; i < 6; i++)
			store_check_slot(t.s, "chat/1", i + 1, test_slot(turns[i], NONE));
		store_check_slot(t.s, "chat/1", 0, test_slot(1200, NONE));
		assert_int_equal(store_again(&t, NULL), KVARC_OK);
		assert_int_equal(t.notes, 0);
	}
	struct slot_made x = test_slot(10, NONE);
	assert_int_equal(store_compare(t.s, "chat/1", 7, &x), KVARC_END);
	assert_int_equal(store_compare(t.s, "chat", 0, &x), KVARC_END);
	slot_free(&x);
	assert_int_equal(store_losses(t.s), 0);
	store_remove(&t);
}

/* The last version is the same file: it stays the last one, unless it has another label. */
static void test_unchanged(void **state)
{
	struct test_store t;
	kvarc_save_options o = KVARC_SAVE_OPTIONS_INIT;
	kvarc_saved r;
	(void)state;
	store_new(&t);
	struct slot_made s = test_slot(600, NONE);
	for (int again = 0; again < 3; again++) {
		assert_int_equal(store_save_bytes(t.s, "a", &s, NULL, &r), KVARC_OK);
		assert_int_equal(r.version, 1);
		assert_int_equal(r.unchanged, again > 0);
		assert_int_equal(r.written_bytes > 0, !again);
		assert_int_equal(r.kept_tokens + r.new_tokens, 600);
		assert_int_equal(store_again(&t, NULL), KVARC_OK);
	}
	assert_int_equal(store_packs(&t), 1);
	for (int again = 0; again < 2; again++) {
		o.label = "noon";
		assert_int_equal(store_save_bytes(t.s, "a", &s, &o, &r), KVARC_OK);
		assert_int_equal(r.version, 2);
		assert_int_equal(r.unchanged, again);
		assert_int_equal(r.kept_tokens, 600);
	}
	/* as many tokens, but not the same */
	r = store_save_slot(t.s, "a", test_slot(600, 599));
	assert_int_equal(r.version, 3);
	r = store_save_slot(t.s, "a", test_slot_changed(600, 599));
	assert_int_equal(r.version, 4);
	store_check_slot(t.s, "a", 2, test_slot(600, NONE));
	slot_free(&s);
	store_remove(&t);
}

/* Sessions that differ in the middle of a segment, and those that follow them. */
static void test_cuts(void **state)
{
	struct test_store t;
	(void)state;
	store_new(&t);
	store_save_slot(t.s, "a", test_slot(700, NONE));
	kvarc_saved r = store_save_slot(t.s, "b", test_slot(750, 400));
	assert_int_equal(r.kept_tokens, 400);
	/* behind the cut: its tokens are found there, too, by this handle and by new ones */
	r = store_save_slot(t.s, "b", test_slot(800, 400));
	assert_int_equal(r.kept_tokens, 750);
	assert_int_equal(store_again(&t, NULL), KVARC_OK);
	r = store_save_slot(t.s, "c", test_slot(820, 400));
	assert_int_equal(r.kept_tokens, 800);
	/* a shorter one, and one that ends with the cut: a token must follow it */
	r = store_save_slot(t.s, "a", test_slot(600, NONE));
	assert_int_equal(r.kept_tokens, 599);
	r = store_save_slot(t.s, "a", test_slot(400, NONE));
	assert_int_equal(r.kept_tokens, 399);
	r = store_save_slot(t.s, "a", test_slot(400, NONE));
	assert_int_equal(r.unchanged, 1);
	r = store_save_slot(t.s, "e", test_slot(400, NONE));
	assert_int_equal(r.kept_tokens, 399);
	for (int again = 0; again < 2; again++) {
		store_check_slot(t.s, "a", 1, test_slot(700, NONE));
		store_check_slot(t.s, "a", 2, test_slot(600, NONE));
		store_check_slot(t.s, "a", 3, test_slot(400, NONE));
		store_check_slot(t.s, "e", 1, test_slot(400, NONE));
		store_check_slot(t.s, "b", 1, test_slot(750, 400));
		store_check_slot(t.s, "b", 2, test_slot(800, 400));
		store_check_slot(t.s, "c", 1, test_slot(820, 400));
		uint64_t packs, segments;
		assert_int_equal(kvarc_store_rebuild(t.s, &packs, &segments), KVARC_OK);
		assert_int_equal(packs, 7);
	}
	/* what the index knows of cuts comes back with it */
	r = store_save_slot(t.s, "d", test_slot(830, 400));
	assert_int_equal(r.kept_tokens, 820);
	store_check_slot(t.s, "d", 0, test_slot(830, 400));
	assert_int_equal(store_losses(t.s), 0);
	store_remove(&t);
}

/* The same ids, other elements: never substituted. */
static void test_changed_rows(void **state)
{
	struct test_store t;
	(void)state;
	store_new(&t);
	store_save_slot(t.s, "a", test_slot(700, NONE));
	for (int i = 0; i < 2; i++) {
		/* from token 300 on the rows differ: 256 whole ones, 44 of a segment */
		kvarc_saved r = store_save_slot(t.s, "a", test_slot_changed(700, 300));
		assert_int_equal(r.kept_tokens, i ? 700 : 300);
		r = store_save_slot(t.s, "a", test_slot(700, NONE));
		assert_int_equal(r.kept_tokens, 700);
		assert_int_equal(kvarc_store_rebuild(t.s, NULL, NULL), KVARC_OK);
	}
	for (uint64_t i = 1; i <= 5; i++)
		store_check_slot(t.s, "a", i,
		                 i % 2 ? test_slot(700, NONE) : test_slot_changed(700, 300));
	assert_int_equal(store_losses(t.s), 0);
	store_remove(&t);
}

static int count_version(void *opaque, const kvarc_session_version *v)
{
	uint64_t *n = opaque;
	assert_int_equal(v->number, ++*n);
	return 0;
}

static int first_session(void *opaque, const kvarc_session_version *v)
{
	strcat(opaque, v->session);
	strcat(opaque, " ");
	return 0;
}

static void test_forks(void **state)
{
	struct test_store t;
	uint64_t n = 0;
	char names[100] = "";
	kvarc_save_options o = KVARC_SAVE_OPTIONS_INIT;
	kvarc_saved r;
	(void)state;
	store_new(&t);
	struct slot_made s = test_slot(500, NONE);
	o.label = "50 % \n of it";
	o.time = 1764000000123;
	assert_int_equal(store_save_bytes(t.s, "a", &s, &o, &r), KVARC_OK);
	slot_free(&s);
	store_save_slot(t.s, "a", test_slot(600, NONE));
	assert_int_equal(kvarc_store_fork(t.s, "a", 1, "b"), KVARC_OK);
	assert_int_equal(kvarc_store_fork(t.s, "a", 0, "b/1"), KVARC_OK);
	assert_int_equal(kvarc_store_fork(t.s, "a", 0, "b"), KVARC_OPTIONS);
	assert_int_equal(kvarc_store_fork(t.s, "a", 3, "x"), KVARC_END);
	assert_int_equal(store_packs(&t), 2);
	store_check_slot(t.s, "b", 1, test_slot(500, NONE));
	store_check_slot(t.s, "b/1", 1, test_slot(600, NONE));
	assert_string_equal(t.s->version.parent, "a");
	store_save_slot(t.s, "b", test_slot(510, NONE));
	assert_int_equal(kvarc_store_log(t.s, "b", count_version, &n), KVARC_OK);
	assert_int_equal(n, 2);
	assert_int_equal(kvarc_store_list(t.s, first_session, names), KVARC_OK);
	assert_string_equal(names, "a b b/1 ");
	assert_int_equal(kvarc_store_remove(t.s, "b", &n), KVARC_OK);
	assert_int_equal(n, 2);
	assert_int_equal(kvarc_store_remove(t.s, "b", &n), KVARC_END);
	assert_int_equal(kvarc_store_log(t.s, "b", count_version, &n), KVARC_END);
	store_check_slot(t.s, "b/1", 1, test_slot(600, NONE));
	store_check_slot(t.s, "a", 1, test_slot(500, NONE));
	assert_string_equal(t.s->version.label, o.label);
	assert_int_equal(t.s->version.time, o.time);
	store_remove(&t);
}

static void test_name_spaces(void **state)
{
	struct test_store t;
	char names[100] = "";
	(void)state;
	store_new(&t);
	store_save_slot(t.s, "a", test_slot(600, NONE));
	assert_int_equal(store_again(&t, "other/../people"), KVARC_OK);
	struct slot_made s = test_slot(600, NONE);
	assert_int_equal(store_compare(t.s, "a", 0, &s), KVARC_END);
	slot_free(&s);
	kvarc_saved r = store_save_slot(t.s, "a", test_slot(600, NONE));
	assert_int_equal(r.version, 1);
	assert_int_equal(r.kept_tokens, 0);
	assert_int_equal(kvarc_store_list(t.s, first_session, names), KVARC_OK);
	assert_string_equal(names, "a ");
	r = store_save_slot(t.s, "b", test_slot(620, NONE));
	assert_int_equal(r.kept_tokens, 600);
	assert_int_equal(store_again(&t, NULL), KVARC_OK);
	store_check_slot(t.s, "a", 1, test_slot(600, NONE));
	assert_int_equal(kvarc_store_remove(t.s, "b", NULL), KVARC_END);
	/* all of them count for gc */
	assert_int_equal(store_gc_now(t.s).removed, 0);
	assert_int_equal(store_again(&t, ""), KVARC_PROG);
	store_remove(&t);
}

static void test_names(void **state)
{
	static const char *const bad[] = { "",      ".",  "..",   "a/..",  "../a",
		                           "/a",    "a/", "a//b", "a/./b", "a\nb",
		                           "a\x7f", "-a", "a@1",  "\x01",  "b/a@77" };
	static const char *const good[] = { "a",   "1",   "a/1", "a/1/2",    "\xc3\xa4",
		                            ".x",  "...", "a b", "a%2fb",    "a=b",
		                            "a@b", "@",   "a@",  "=default", "a\\b" };
	struct test_store t;
	char long_name[4097];
	(void)state;
	store_new(&t);
	memset(long_name, 'a', 4096);
	long_name[4096] = 0;
	struct slot_made s = test_slot(3, NONE);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		assert_int_equal(store_save_bytes(t.s, bad[i], &s, NULL, NULL), KVARC_PROG);
		assert_int_equal(store_compare(t.s, bad[i], 0, &s), KVARC_PROG);
		assert_int_equal(kvarc_store_remove(t.s, bad[i], NULL), KVARC_PROG);
	}
	assert_int_equal(store_save_bytes(t.s, long_name, &s, NULL, NULL), KVARC_PROG);
	long_name[200] = 0;
	assert_int_equal(store_save_bytes(t.s, long_name, &s, NULL, NULL), KVARC_OK);
	memset(long_name, 0xc3, 200);
	assert_int_equal(store_save_bytes(t.s, long_name, &s, NULL, NULL), KVARC_PROG);
	for (uint32_t i = 0; i < sizeof good / sizeof *good; i++)
		store_save_slot(t.s, good[i], test_slot(3 + i, NONE));
	for (uint32_t i = 0; i < sizeof good / sizeof *good; i++) {
		kvarc_saved r = store_save_slot(t.s, good[i], test_slot(4 + i, NONE));
		assert_int_equal(r.version, 2);
		store_check_slot(t.s, good[i], 1, test_slot(3 + i, NONE));
	}
	slot_free(&s);
	store_remove(&t);
}

/* Files of every kind come back; those without token ids share whole segments. */
static void test_files(void **state)
{
	struct test_store t;
	kvarc_save_options o = KVARC_SAVE_OPTIONS_INIT;
	(void)state;
	store_new(&t);
	for (size_t i = 0; i < n_import_files; i++) {
		struct blob b = blob_load(import_files[i].name);
		struct slot_made s = { b.p, b.n };
		kvarc_saved r;
		for (int again = 0; again < 2; again++) {
			o.label = again ? "again" : NULL;
			kvarc_ret ret = store_save_bytes(t.s, import_files[i].name, &s, &o, &r);
			if (ret)
				print_message("%s: %s\n", import_files[i].name, t.error.text);
			assert_int_equal(ret, KVARC_OK);
			if (again)
				assert_int_equal(r.kept_tokens, r.tokens);
			assert_int_equal(store_compare(t.s, import_files[i].name, 0, &s), KVARC_OK);
		}
		o.label = NULL;
		o.writer.flags = KVARC_WRITE_VERIFY;
		assert_int_equal(store_save_bytes(t.s, import_files[i].name, &s, &o, &r), KVARC_OK);
		assert_int_equal(r.unchanged, 1);
		assert_int_equal(r.version, 2);
		o.writer.flags = 0;
		blob_free(&b);
	}
	assert_int_equal(kvarc_store_rebuild(t.s, NULL, NULL), KVARC_OK);
	for (size_t i = 0; i < n_import_files; i++) {
		struct blob b = blob_load(import_files[i].name);
		struct slot_made s = { b.p, b.n };
		assert_int_equal(store_compare(t.s, import_files[i].name, 2, &s), KVARC_OK);
		blob_free(&b);
	}
	assert_int_equal(store_losses(t.s), 0);
	store_remove(&t);
}

/*
 * States without token ids lie under the digest of their content. An equal one of a cache with
 * other tensors serves nobody: saves do not count on it, and gc keeps the one that does serve.
 */
static void test_equal_states(void **state)
{
	struct test_store t;
	const char *const names[2] = { "mlx-0.32-hybrid.safetensors",
		                       "mlx-0.32-list.safetensors" };
	(void)state;
	store_new(&t);
	for (int i = 0; i < 2; i++) {
		struct blob b = blob_load(names[i]);
		struct slot_made s = { b.p, b.n };
		assert_int_equal(store_save_bytes(t.s, names[i], &s, NULL, NULL), KVARC_OK);
		assert_int_equal(store_compare(t.s, names[i], 0, &s), KVARC_OK);
		blob_free(&b);
	}
	struct blob b = blob_load(names[1]);
	struct slot_made s = { b.p, b.n };
	kvarc_saved r;
	/* all tensors but the state of 128 bytes become others */
	static const size_t others[] = { 0, 230, 390, 900, 1060 };
	for (size_t i = 0; i < sizeof others / sizeof *others; i++)
		b.p[8 + (size_t)(b.p[0] | b.p[1] << 8) + others[i]] ^= 1;
	assert_int_equal(store_save_bytes(t.s, "last", &s, NULL, &r), KVARC_OK);
	assert_int_equal(r.kept_tokens, 0); /* its rows are no tokens */
	assert_int_equal(r.not_written_bytes, 128);
	assert_int_equal(kvarc_store_remove(t.s, names[1], 0), KVARC_OK);
	(void)store_gc_now(t.s);
	assert_int_equal(store_compare(t.s, "last", 0, &s), KVARC_OK);
	assert_int_equal(store_losses(t.s), 0);
	blob_free(&b);
	store_remove(&t);
}

static void test_options(void **state)
{
	struct test_store t;
	kvarc_save_options o = KVARC_SAVE_OPTIONS_INIT;
	kvarc_saved r;
	char label[1002];
	(void)state;
	store_new(&t);
	struct slot_made s = test_slot(300, NONE);
	o.writer.level = 4;
	assert_int_equal(store_save_bytes(t.s, "a", &s, &o, &r), KVARC_OPTIONS);
	o.writer.level = KVARC_LEVEL(0);
	o.writer.flags = KVARC_WRITE_STREAMABLE;
	assert_int_equal(store_save_bytes(t.s, "a", &s, &o, &r), KVARC_OPTIONS);
	o.writer.flags = KVARC_WRITE_VERIFY;
	o.writer.segment_tokens = 64;
	memset(label, 'x', 1001);
	label[1001] = 0;
	o.label = label;
	assert_int_equal(store_save_bytes(t.s, "a", &s, &o, &r), KVARC_PROG);
	label[1000] = 0;
	assert_int_equal(store_save_bytes(t.s, "a", &s, &o, &r), KVARC_OK);
	assert_int_equal(store_compare(t.s, "a", 0, &s), KVARC_OK);
	o.writer.segment_tokens = 0;
	assert_int_equal(store_save_bytes(t.s, "b", &s, &o, &r), KVARC_OK);
	assert_int_equal(r.kept_tokens, 300);
	o.reserved[0] = 1;
	assert_int_equal(store_save_bytes(t.s, "a", &s, &o, &r), KVARC_PROG);
	assert_int_equal(kvarc_store_save(NULL, "a", NULL, NULL, NULL), KVARC_PROG);
	assert_int_equal(kvarc_store_save(t.s, "a", NULL, NULL, NULL), KVARC_PROG);
	slot_free(&s);
	store_remove(&t);
}

static int find_one(void *opaque, const kvarc_found *f)
{
	char *text = opaque;
	sprintf(text + strlen(text), "%s@%d:%d ", f->session, (int)f->number,
	        (int)f->common_tokens);
	return 0;
}

static void test_find(void **state)
{
	struct test_store t;
	char text[200];
	(void)state;
	store_new(&t);
	store_save_slot(t.s, "a", test_slot(700, NONE));
	store_save_slot(t.s, "b", test_slot(700, 400));
	store_save_slot(t.s, "b", test_slot(800, 400));
	store_save_slot(t.s, "c", test_slot(900, 100));
	store_save_slot(t.s, "d", test_slot(900, 0));
	for (int again = 0; again < 2; again++) {
		struct slot_made s = test_slot(750, 400);
		kvarc_source source = slot_source(&s);
		kvarc_import_options io = KVARC_IMPORT_OPTIONS_INIT;
		kvarc_import *im;
		text[0] = 0;
		io.rope = "none";
		assert_int_equal(kvarc_import_open(&im, &source, NULL, &io), KVARC_OK);
		assert_int_equal(kvarc_store_find(t.s, im, find_one, text), KVARC_OK);
		assert_string_equal(text, "b@2:750 a@1:400 c@1:100 ");
		kvarc_import_close(&im);
		slot_free(&s);
		assert_int_equal(kvarc_store_rebuild(t.s, NULL, NULL), KVARC_OK);
	}
	store_remove(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_grows),
		cmocka_unit_test(test_unchanged),        cmocka_unit_test(test_cuts),
		cmocka_unit_test(test_changed_rows), cmocka_unit_test(test_forks),
		cmocka_unit_test(test_name_spaces),  cmocka_unit_test(test_names),
		cmocka_unit_test(test_files),        cmocka_unit_test(test_equal_states),
		cmocka_unit_test(test_options),      cmocka_unit_test(test_find),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
