/* SPDX-License-Identifier: BSD-3-Clause */
/* test_store_keys.c - encrypted archives in a store: what a key opens, shares and removes */
#include "config.h"

#include "store_util.h"

#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/store_transfer.h"
#include "util/bytes.h"
#include "util/hash.h"

enum { NONE = UINT32_MAX };

static uint8_t bytes_a[KVARC_KEY_BYTES], bytes_b[KVARC_KEY_BYTES];
static kvarc_key key_a = { .kind = KVARC_KEY_GIVEN, .bytes = bytes_a, .n = sizeof bytes_a };
static kvarc_key key_b = { .kind = KVARC_KEY_GIVEN, .bytes = bytes_b, .n = sizeof bytes_b };
static kvarc_key phrase = {
	.kind = KVARC_KEY_PASSPHRASE, .passes = 1, .memory_kib = 8, .bytes = "open sesame", .n = 11
};
static kvarc_key other_phrase = {
	.kind = KVARC_KEY_PASSPHRASE, .passes = 1, .memory_kib = 8, .bytes = "open rye", .n = 8
};
static const kvarc_keys a = { .list = &key_a, .n = 1 }, b = { .list = &key_b, .n = 1 };
static const kvarc_keys p = { .list = &phrase, .n = 1 }, q = { .list = &other_phrase, .n = 1 };

static int set_up(void **state)
{
	(void)state;
	memset(bytes_a, 0xa1, sizeof bytes_a);
	memset(bytes_b, 0xb2, sizeof bytes_b);
	return 0;
}

static void with(struct test_store *t, const kvarc_keys *keys)
{
	t->keys = keys;
	assert_int_equal(store_again(t, NULL), KVARC_OK);
}

/* Returns what the save does. */
static kvarc_ret try_save(struct test_store *t, const char *session, uint32_t n, int encrypt,
                          kvarc_saved *r)
{
	kvarc_save_options o = KVARC_SAVE_OPTIONS_INIT;
	struct slot_made slot = test_slot(n, NONE);
	o.encrypt = encrypt;
	kvarc_ret ret = store_save_bytes(t->s, session, &slot, &o, r);
	slot_free(&slot);
	return ret;
}

static kvarc_saved save(struct test_store *t, const char *session, uint32_t n, int encrypt)
{
	kvarc_saved r;
	kvarc_ret ret = try_save(t, session, n, encrypt, &r);
	if (ret)
		print_message("%s\n", t->s->error->text);
	assert_int_equal(ret, KVARC_OK);
	return r;
}

static void refused(struct test_store *t, const char *session, uint32_t n, kvarc_ret code,
                    const char *text)
{
	struct slot_made slot = test_slot(n, NONE);
	assert_int_equal(store_compare(t->s, session, 0, &slot), code);
	if (!strstr(t->error.text, text))
		print_message("%s\n", t->error.text);
	assert_non_null(strstr(t->error.text, text));
	slot_free(&slot);
}

/* ----- sharing ------------------------------------------------ */

static void test_grows(void **state)
{
	static const uint32_t turns[] = { 300, 301, 560, 900, 901, 1200 };
	struct test_store t;
	(void)state;
	store_new(&t);
	with(&t, &a);
	for (size_t i = 0; i < 6; i++) {
		/* the first one says so, the others stay as it was */
		kvarc_saved r = save(&t, "chat", turns[i], i ? 0 : KVARC_SAVE_ENCRYPT);
		assert_int_equal(r.kept_tokens, i ? turns[i - 1] : 0);
		with(&t, &a);
		assert_int_equal(t.notes, 0);
	}
	/* What the index had is made again from the archives. */
	for (int again = 0; again < 2; again++) {
		for (size_t i = 0; i < 6; i++)
			store_check_slot(t.s, "chat", i + 1, test_slot(turns[i], NONE));
		uint64_t packs, segments;
		assert_int_equal(kvarc_store_rebuild(t.s, &packs, &segments), KVARC_OK);
		assert_int_equal(packs, 6);
		assert_true(segments >= 6);
	}
	kvarc_saved r = save(&t, "chat", 1250, 0);
	assert_int_equal(r.kept_tokens, 1200);
	assert_int_equal(store_losses(t.s), 0);
	store_remove(&t);
}

/* As test_cuts of test_store.c: what is found behind a cut, too. */
static void test_cuts(void **state)
{
	struct test_store t;
	kvarc_save_options o = KVARC_SAVE_OPTIONS_INIT;
	kvarc_saved r;
	(void)state;
	store_new(&t);
	with(&t, &a);
	o.encrypt = KVARC_SAVE_ENCRYPT;
	static const struct {
		const char *session;
		uint32_t n, other, kept;
	} saves[] = { { "a", 700, NONE, 0 },  { "b", 750, 400, 400 },  { "b", 800, 400, 750 },
		      { "c", 820, 400, 800 }, { "a", 600, NONE, 599 }, { "a", 400, NONE, 399 },
		      { "d", 830, 400, 820 } };
	for (size_t i = 0; i < sizeof saves / sizeof *saves; i++) {
		struct slot_made slot = test_slot(saves[i].n, saves[i].other);
		assert_int_equal(store_save_bytes(t.s, saves[i].session, &slot, &o, &r), KVARC_OK);
		assert_int_equal(r.kept_tokens, saves[i].kept);
		assert_int_equal(store_compare(t.s, saves[i].session, 0, &slot), KVARC_OK);
		slot_free(&slot);
		if (i % 2)
			assert_int_equal(kvarc_store_rebuild(t.s, NULL, NULL), KVARC_OK);
	}
	assert_int_equal(store_losses(t.s), 0);
	store_remove(&t);
}

/* Nothing is shared between two keys, or with what has none. */
static void test_keys_apart(void **state)
{
	struct test_store t;
	(void)state;
	store_new(&t);
	assert_int_equal(save(&t, "plain", 700, 0).kept_tokens, 0);
	with(&t, &a);
	assert_int_equal(save(&t, "a", 700, KVARC_SAVE_ENCRYPT).kept_tokens, 0);
	with(&t, &b);
	assert_int_equal(save(&t, "b", 700, KVARC_SAVE_ENCRYPT).kept_tokens, 0);
	static kvarc_key two[2];
	static const kvarc_keys both = { .list = two, .n = 2 };
	two[0] = key_b;
	two[1] = key_a;
	with(&t, &both);
	assert_int_equal(save(&t, "b2", 750, KVARC_SAVE_ENCRYPT).kept_tokens, 700);
	assert_int_equal(save(&t, "plain", 750, KVARC_SAVE_PLAIN).kept_tokens, 700);
	assert_int_equal(kvarc_store_rebuild(t.s, NULL, NULL), KVARC_OK);
	assert_int_equal(save(&t, "b3", 760, KVARC_SAVE_ENCRYPT).kept_tokens, 750);
	for (int i = 0; i < 2; i++) {
		store_check_slot(t.s, "a", 0, test_slot(700, NONE));
		store_check_slot(t.s, "b", 0, test_slot(700, NONE));
		store_check_slot(t.s, "b2", 0, test_slot(750, NONE));
	}
	assert_int_equal(store_losses(t.s), 0);
	/* what b2 shares is b's, so that b alone opens it */
	with(&t, &b);
	store_check_slot(t.s, "b2", 0, test_slot(750, NONE));
	refused(&t, "a", 700, KVARC_AUTH, "no key or passphrase that was given opens it");
	assert_int_equal(try_save(&t, "a", 750, 0, NULL), KVARC_AUTH);
	with(&t, NULL);
	store_check_slot(t.s, "plain", 0, test_slot(750, NONE));
	refused(&t, "b2", 750, KVARC_AUTH, "no key was given");
	assert_int_equal(try_save(&t, "a", 750, 0, NULL), KVARC_AUTH);
	assert_int_equal(try_save(&t, "a", 750, KVARC_SAVE_ENCRYPT, NULL), KVARC_PROG);
	assert_int_equal(try_save(&t, "x", 750, 2, NULL), KVARC_PROG);
	/* on request, and then the next one as well */
	with(&t, &a);
	assert_int_equal(save(&t, "a", 760, KVARC_SAVE_PLAIN).kept_tokens, 750);
	with(&t, NULL);
	assert_int_equal(save(&t, "a", 770, 0).kept_tokens, 760);
	store_remove(&t);
}

static void test_passphrases(void **state)
{
	struct test_store t;
	(void)state;
	store_new(&t);
	with(&t, &p);
	save(&t, "chat", 300, KVARC_SAVE_ENCRYPT);
	with(&t, &p);
	assert_int_equal(save(&t, "chat", 560, 0).kept_tokens, 300);
	with(&t, &q);
	refused(&t, "chat", 560, KVARC_AUTH, "opens it");
	assert_int_equal(save(&t, "other", 560, KVARC_SAVE_ENCRYPT).kept_tokens, 0);
	/* Less memory than Argon2id takes. */
	static kvarc_key large = { .kind = KVARC_KEY_PASSPHRASE, .bytes = "open sesame", .n = 11 };
	static const kvarc_keys needs_much = { .list = &large, .n = 1 };
	with(&t, &needs_much);
	t.s->options.common.memlimit = 64 << 20;
	refused(&t, "chat", 560, KVARC_MEMLIMIT, "the passphrase needs 128 MiB");
	/* Without the salt of the store archives have their own. */
	char path[128];
	snprintf(path, sizeof path, "%s/" KVI_SALT, t.folder);
	struct stat st;
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(unlink(path), 0);
	with(&t, &p);
	store_check_slot(t.s, "chat", 2, test_slot(560, NONE));
	assert_int_equal(save(&t, "chat", 580, 0).kept_tokens, 0);
	assert_int_equal(save(&t, "chat", 590, 0).kept_tokens, 580);
	for (int i = 1; i < 5; i++)
		store_check_slot(t.s, "chat", (uint64_t)i,
		                 test_slot(i == 1   ? 300
		                           : i == 2 ? 560
		                           : i == 3 ? 580
		                                    : 590,
		                           NONE));
	store_remove(&t);
}

/* ----- what shows ------------------------------------------------ */

/* Whether the bytes are anywhere in a file. */
static bool file_has(const char *path, const void *bytes, size_t n)
{
	FILE *f = fopen(path, "rb");
	uint8_t *all = malloc(1 << 24);
	bool found = false;
	assert_non_null(f);
	assert_non_null(all);
	size_t got = fread(all, 1, 1 << 24, f);
	fclose(f);
	for (size_t i = 0; i + n <= got && !found; i++)
		found = memcmp(all + i, bytes, n) == 0;
	free(all);
	return found;
}

static kvarc_ret take_row(void *opaque, const struct kvi_index_row *row)
{
	struct kvi_index_row *to = opaque;
	*to = *row;
	return KVARC_OK;
}

static kvarc_ret first_pack(void *opaque, const struct kvi_index_pack *pack)
{
	*(struct kvi_index_pack *)opaque = *pack;
	return KVARC_OK;
}

static void test_index_shows_nothing(void **state)
{
	struct kvi_index_pack pack = { 0 };
	struct kvi_index_row row = { 0 };
	kvarc_stored st;
	kvarc_reader *r;
	unsigned flags;
	struct test_store t;
	char path[128];
	(void)state;
	store_new(&t);
	for (int encrypt = 0; encrypt < 2; encrypt++) {
		with(&t, encrypt ? &a : NULL);
		save(&t, encrypt ? "a" : "plain", 700, encrypt ? KVARC_SAVE_ENCRYPT : 0);
		assert_int_equal(kvi_index_packs(t.s->index, false, first_pack, &pack), KVARC_OK);
		assert_int_equal(kvi_index_rows(t.s->index, pack.pack, take_row, &row), KVARC_OK);
		assert_int_equal(kvi_pack_reader(t.s, pack.id, false, &r), KVARC_OK);
		/* the last segment, as rows come in the order of tokens */
		for (uint64_t i = 0; kvarc_reader_segment_at(r, i, &st, &flags) == KVARC_OK; i++)
			;
		assert_true(row.has_chain && row.has_digest && row.has_first);
		assert_int_equal(memcmp(row.chain, st.chain, 16) != 0, encrypt);
		assert_int_equal(row.first != 100 + 512, encrypt);
		assert_int_equal(
			kvi_veil_equal(&kvi_pack_find(t.s, pack.id)->veil, row.chain, st.chain),
			true);
		store_end(&t);
		snprintf(path, sizeof path, "%s/index.sqlite", t.folder);
		assert_int_equal(file_has(path, st.chain, 16), !encrypt);
		assert_int_equal(file_has(path, row.chain, 16), true);
		if (!encrypt) {
			store_remove(&t);
			store_new(&t);
		}
	}
	store_remove(&t);
}

/* ----- without the key ------------------------------------------------ */

static void test_gc_without_key(void **state)
{
	kvarc_store_sizes n;
	struct test_store t;
	(void)state;
	store_new(&t);
	save(&t, "plain", 300, 0);
	with(&t, &a);
	save(&t, "a", 300, KVARC_SAVE_ENCRYPT);
	save(&t, "a", 600, 0);
	save(&t, "gone", 900, KVARC_SAVE_ENCRYPT);
	assert_int_equal(kvarc_store_remove(t.s, "gone", NULL), KVARC_OK);
	for (int i = 0; i < 2; i++) {
		with(&t, i ? &b : NULL);
		/* all stay that a version needs, those of others, too */
		kvarc_gc_result r = store_gc_now(t.s);
		assert_int_equal(r.removed, i ? 0 : 1);
		assert_int_equal(r.unreadable, 0);
		assert_int_equal(store_packs(&t), 3);
		assert_int_equal(kvarc_store_rebuild(t.s, NULL, NULL), KVARC_OK);
		assert_int_equal(kvarc_store_stat(t.s, &n), KVARC_OK);
		assert_int_equal(n.archives, 3);
		assert_int_equal(n.encrypted, 2);
		assert_int_equal(n.unnamed, 0);
		assert_int_equal(store_losses(t.s), 2); /* that they are whole is not known */
		assert_int_equal(kvarc_store_fork(t.s, "a", 2, i ? "fork1" : "fork0"), KVARC_OK);
	}
	/* With the index of someone without the key, of whom the archives are locked in it. */
	with(&t, &a);
	store_check_slot(t.s, "a", 1, test_slot(300, NONE));
	store_check_slot(t.s, "a", 2, test_slot(600, NONE));
	store_check_slot(t.s, "fork1", 1, test_slot(600, NONE));
	assert_int_equal(save(&t, "a", 650, 0).kept_tokens, 600);
	assert_int_equal(store_losses(t.s), 0);
	/* The last one needs all three. */
	with(&t, NULL);
	kvarc_gc_options o = { .keep = 1, .no_grace = 1 };
	kvarc_gc_result r;
	assert_int_equal(kvarc_store_gc(t.s, &o, &r), KVARC_OK);
	assert_int_equal(r.removed, 0);
	with(&t, &a);
	store_check_slot(t.s, "a", 3, test_slot(650, NONE));
	store_remove(&t);
}

/* ----- changed archives ------------------------------------------------ */

static void pack_path(struct test_store *t, const char *session, char path[192])
{
	struct kvi_manifest m;
	char key[KVI_PACK_KEY];
	uint64_t number = 0;
	assert_int_equal(kvi_version_read(t->s, session, &number, &m), KVARC_OK);
	kvi_pack_key(key, m.needs.pack);
	snprintf(path, 192, "%s/%s", t->folder, key);
}

static void flip(const char *path, long at)
{
	FILE *f = fopen(path, "r+b");
	assert_non_null(f);
	assert_int_equal(fseek(f, at, SEEK_SET), 0);
	int c = fgetc(f);
	assert_int_equal(fseek(f, at, SEEK_SET), 0);
	assert_int_equal(fputc(c ^ 1, f), c ^ 1);
	assert_int_equal(fclose(f), 0);
}

/* Each byte, of a step, of both archives that a version needs. */
static void test_tamper(void **state)
{
	struct test_store t;
	char paths[2][192];
	struct slot_made slot = test_slot(330, NONE);
	struct stat st;
	int same = 0, cases = 0;
	(void)state;
	store_new(&t);
	with(&t, &a);
	save(&t, "x", 300, KVARC_SAVE_ENCRYPT);
	pack_path(&t, "x", paths[0]);
	save(&t, "x", 330, 0);
	pack_path(&t, "x", paths[1]);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(stat(paths[i], &st), 0);
		assert_int_equal(chmod(paths[i], 0600), 0);
		for (long at = 0; at < st.st_size; at += 997 - 900 * i) {
			flip(paths[i], at);
			with(&t, &a);
			/* that the bytes are right is checked there */
			kvarc_ret ret = store_compare(t.s, "x", 0, &slot);
			assert_int_equal(store_losses(t.s) != 0, 1);
			same += ret == KVARC_OK;
			cases++;
			flip(paths[i], at);
		}
	}
	with(&t, &a);
	assert_int_equal(store_compare(t.s, "x", 0, &slot), KVARC_OK);
	/* FOOTER, copies of KEY and what a load has no use for. */
	print_message("%d of %d changes have no effect on a load\n", same, cases);
	assert_true(cases > 50 && same * 4 < cases);
	slot_free(&slot);
	store_remove(&t);
}

/* An archive that is not encrypted, exchanged for one that is. */
static void test_exchanged(void **state)
{
	struct test_store t;
	char from[192], to[192], command[512];
	(void)state;
	store_new(&t);
	save(&t, "plain", 300, 0);
	pack_path(&t, "plain", from);
	with(&t, &a);
	save(&t, "a", 300, KVARC_SAVE_ENCRYPT);
	pack_path(&t, "a", to);
	snprintf(command, sizeof command, "cp '%s' '%s'", from, to);
	assert_int_equal(system(command), 0);
	with(&t, &a);
	refused(&t, "a", 300, KVARC_DATA, "was exchanged");
	store_remove(&t);
}

/* What the text of a manifest has between two lines is removed, and its check is made again. */
static void strip_line(struct test_store *t, const char *name, const char *from)
{
	char path[192], text[KVI_MANIFEST_MAX], hex[33];
	uint8_t sum[16];
	snprintf(path, sizeof path, "%s/sessions/%s", t->folder, name);
	FILE *f = fopen(path, "rb");
	assert_non_null(f);
	text[fread(text, 1, sizeof text - 1, f)] = 0;
	fclose(f);
	char *line = strstr(text, from), *check = strstr(text, "check=");
	assert_non_null(line);
	assert_non_null(check);
	memmove(line, strchr(line, '\n') + 1, (size_t)(check - strchr(line, '\n')));
	check = strstr(text, "check=");
	kvi_store_h128(sum, kvi_h128(text, (size_t)(check - text)));
	kvi_hex(hex, sum);
	assert_int_equal(chmod(path, 0600), 0);
	f = fopen(path, "wb");
	assert_non_null(f);
	assert_true(fprintf(f, "%.*scheck=%s\n", (int)(check - text), text, hex) > 0);
	assert_int_equal(fclose(f), 0);
}

static void save_refused(struct test_store *t, uint32_t n, kvarc_ret code, const char *text)
{
	assert_int_equal(try_save(t, "a", n, 0, NULL), code);
	if (!strstr(t->error.text, text))
		print_message("%s\n", t->error.text);
	assert_non_null(strstr(t->error.text, text));
}

static uint64_t is_encrypted(struct test_store *t, uint64_t number)
{
	struct kvi_manifest m;
	kvarc_reader *r;
	assert_int_equal(kvi_version_read(t->s, "a", &number, &m), KVARC_OK);
	assert_int_equal(kvi_pack_reader(t->s, m.needs.pack, false, &r), KVARC_OK);
	assert_int_equal(kvi_pack_find(t->s, m.needs.pack)->veil.on, m.needs.encrypted);
	return m.needs.encrypted;
}

/* A session of two versions, encrypted; number 2 is damaged in one of several ways, and the next
 * save says nothing of encryption. */
static void test_stays_encrypted(void **state)
{
	struct test_store t;
	struct test_hook h;
	char path[192];
	(void)state;
	for (int how = 0; how < 6; how++) {
		store_new(&t);
		with(&t, &a);
		save(&t, "a", 300, KVARC_SAVE_ENCRYPT);
		save(&t, "a", 330, 0);
		snprintf(path, sizeof path, "%s/sessions/a/2", t.folder);
		assert_int_equal(chmod(path, 0600), 0);
		if (how == 0) /* damage */
			flip(path, 20);
		else if (how == 1) /* another version of the format */
			flip(path, 14);
		else if (how == 3) /* says that it is not encrypted */
			strip_line(&t, "a/2", "needs=");
		else if (how == 4) /* a version that is not, behind it */
			save(&t, "a", 340, KVARC_SAVE_PLAIN);
		else if (how == 5) { /* as 3, and its archive is gone */
			pack_path(&t, "a", path);
			strip_line(&t, "a/2", "needs=");
			assert_int_equal(unlink(path), 0);
		}
		with(&t, &a);
		if (how < 2)
			save_refused(&t, 350, KVARC_OPTIONS, "--encrypt or --decrypt");
		else if (how == 2) { /* it cannot be read now: nothing is tried behind that */
			hook_start(&h, t.s, 1, NULL, NULL);
			h.fails = true;
			assert_int_equal(try_save(&t, "a", 350, 0, NULL), KVARC_IO);
			assert_int_equal(h.calls, 2);
			hook_end(&h, t.s);
		} else if (how == 4)
			save_refused(&t, 350, KVARC_OPTIONS, "is not encrypted");
		else
			save(&t, "a", 350, 0);
		/* with what is asked for */
		save(&t, "a", 360, KVARC_SAVE_ENCRYPT);
		assert_int_equal(is_encrypted(&t, 0), 1);
		if (how == 3 || how == 5)
			assert_int_equal(is_encrypted(&t, 3), 1);
		with(&t, NULL);
		if (how == 3)
			assert_int_equal(try_save(&t, "a", 370, 0, NULL), KVARC_AUTH);
		store_remove(&t);
	}
}

/* Versions and archives that somebody without the key has put. */
static void test_forged(void **state)
{
	struct test_store t;
	char from[192], to[192], command[512];
	(void)state;
	store_new(&t);
	save(&t, "a", 300, 0);
	with(&t, &a);
	refused(&t, "a", 300, KVARC_STORE, "the version is not encrypted");
	save(&t, "b", 310, KVARC_SAVE_ENCRYPT);
	save(&t, "c", 320, KVARC_SAVE_ENCRYPT);
	pack_path(&t, "b", from);
	pack_path(&t, "c", to);
	snprintf(command, sizeof command, "cp -f '%s' '%s'", from, to);
	assert_int_equal(system(command), 0);
	with(&t, &a);
	refused(&t, "c", 310, KVARC_DATA, "is another archive");
	with(&t, NULL);
	store_check_slot(t.s, "a", 1, test_slot(300, NONE));
	/* manifests that come, and that are not of their archives */
	struct kvi_manifest m;
	kvarc_received n = { 0 };
	for (int i = 0; i < 2; i++) {
		char text[KVI_MANIFEST_MAX];
		uint64_t number = 1;
		assert_int_equal(kvi_version_read(t.s, i ? "b" : "a", &number, &m), KVARC_OK);
		m.needs.encrypted = !i;
		assert_int_equal(kvi_arrive_version(t.s, "d", text, kvi_manifest_write(text, &m),
		                                    &n),
		                 KVARC_DATA);
		assert_int_equal(n.version, 0);
		assert_non_null(strstr(t.error.text, "that its archive is"));
	}
	store_remove(&t);
}

static int count_version(void *opaque, const kvarc_session_version *v)
{
	assert_int_equal(v->encrypted, 1);
	++*(int *)opaque;
	return 0;
}

/* Rows of the index that lead to an archive without a key, which has the same tokens: that one
 * is not read, and the index is made right. */
static void test_index_forged(void **state)
{
	struct test_store t;
	struct kvi_manifest m[2];
	struct kvi_index_row row = { 0 };
	int64_t pack, plain;
	uint64_t number = 0;
	(void)state;
	store_new(&t);
	save(&t, "plain", 250, 0);
	assert_int_equal(kvi_version_read(t.s, "plain", &number, &m[0]), KVARC_OK);
	with(&t, &a);
	save(&t, "a", 250, KVARC_SAVE_ENCRYPT);
	save(&t, "a", 300, 0);
	number = 1;
	assert_int_equal(kvi_version_read(t.s, "a", &number, &m[1]), KVARC_OK);
	for (int i = 0; i < 2; i++) {
		struct slot_made slot = test_slot(300, NONE);
		kvi_pack_forget(t.s, m[1].needs.pack);
		assert_int_equal(kvi_index_find_pack(t.s->index, m[0].needs.pack, &plain),
		                 KVARC_OK);
		assert_int_equal(kvi_index_find_pack(t.s->index, m[1].needs.pack, &pack), KVARC_OK);
		assert_int_equal(kvi_index_rows(t.s->index, pack, take_row, &row), KVARC_OK);
		assert_int_equal(row.n, 250);
		if (i) {
			assert_int_equal(kvi_index_remove_pack(t.s->index, row.id), KVARC_OK);
			const struct kvi_index_pack there = { .bytes = 1 };
			struct kvi_index_pack again = there;
			memcpy(again.id, row.id, 16);
			assert_int_equal(kvi_index_add_pack(t.s->index, &again), KVARC_OK);
			row.pack = plain;
			memcpy(row.id, m[0].needs.pack, 16);
			assert_int_equal(kvi_index_add_row(t.s->index, &row), KVARC_OK);
		}
		assert_int_equal(store_compare(t.s, "a", 2, &slot), KVARC_OK);
		assert_int_equal(kvi_index_find_pack(t.s->index, m[1].needs.pack, &pack), KVARC_OK);
		assert_int_equal(kvi_index_rows(t.s->index, pack, take_row, &row), KVARC_OK);
		assert_memory_equal(row.id, m[1].needs.pack, 16);
		slot_free(&slot);
	}
	store_remove(&t);
}

/* More archives than a manifest names: all is stored again, and from then on shared again. */
static void test_many_archives(void **state)
{
	struct test_store t;
	int alone = 0;
	(void)state;
	store_new(&t);
	with(&t, &a);
	for (uint32_t i = 0; i < KVI_NEEDS_MAX + 3; i++) {
		kvarc_saved r = save(&t, "a", 40 + i, i ? 0 : KVARC_SAVE_ENCRYPT);
		assert_int_equal(r.kept_tokens, !i || i == KVI_NEEDS_MAX + 1 ? 0 : 39 + i);
		alone += i && !r.kept_tokens;
	}
	assert_int_equal(alone, 1);
	for (uint32_t i = KVI_NEEDS_MAX - 1; i < KVI_NEEDS_MAX + 3; i++)
		store_check_slot(t.s, "a", i + 1, test_slot(40 + i, NONE));
	assert_int_equal(kvarc_store_log(t.s, "a", count_version, &alone), KVARC_OK);
	assert_int_equal(alone, 1 + KVI_NEEDS_MAX + 3);
	store_remove(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_grows),
		cmocka_unit_test(test_cuts),
		cmocka_unit_test(test_keys_apart),
		cmocka_unit_test(test_passphrases),
		cmocka_unit_test(test_index_shows_nothing),
		cmocka_unit_test(test_gc_without_key),
		cmocka_unit_test(test_tamper),
		cmocka_unit_test(test_exchanged),
		cmocka_unit_test(test_stays_encrypted),
		cmocka_unit_test(test_forged),
		cmocka_unit_test(test_index_forged),
		cmocka_unit_test(test_many_archives),
	};
	return cmocka_run_group_tests(tests, set_up, NULL);
}
