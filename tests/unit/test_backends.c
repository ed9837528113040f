/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_backends.c - the five calls on a folder, and on the services whose URLs are in
 * $KVARC_TEST_STORES, separated by blanks (tests/store_services.sh starts real ones)
 */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "kvarc/store.h"
#include "store/backend.h"
#include "store/backend_s3.h"
#include "store/url.h"
#include "util/hash.h"

enum { LARGE = (64 << 20) + 12345, SMALL = 5000 };

static uint8_t *bytes_of(size_t n, uint64_t seed)
{
	uint8_t *p = malloc(n);
	assert_non_null(p);
	for (size_t i = 0; i < n; i++)
		p[i] = i % 8 ? p[i - i % 8] + (uint8_t)i : (uint8_t)kvi_splitmix64(&seed);
	return p;
}

/* The bytes in a few short reads. */
struct slow_bytes {
	const uint8_t *p;
	size_t n;
};
static int64_t read_slowly(void *opaque, void *buf, size_t n, uint64_t offset)
{
	const struct slow_bytes *s = opaque;
	size_t left = s->n - (size_t)offset;
	n = n < left ? n : left;
	n = n > 100000 ? 100000 : n;
	memcpy(buf, s->p + offset, n);
	return (int64_t)n;
}
/* Ends in the middle. */
static int64_t read_half(void *opaque, void *buf, size_t n, uint64_t offset)
{
	const struct slow_bytes *s = opaque;
	return offset >= s->n / 2 ? -1 : read_slowly(opaque, buf, n, offset);
}

/* What is shown of URLs: no character of a user or a password. */
static void shown(void **state)
{
	static const struct {
		const char *url, *shown;
		bool plain;
	} cases[] = {
		{ "redis://:pw@host:1", "redis://host:1", true },
		{ "redis://user:pw@host/2?prefix=x", "redis://host/2?prefix=x", true },
		{ "redis://:p@w@host", "redis://host", false },
		{ "redis://:p/w@host", "redis://host", false },
		{ "redis://:p?w@host", "redis://host", false },
		{ "redis://:a://b@host", "redis://host", false },
		{ "redis:/:pw@host", "redis:/host", true },
		{ "redis::pw@host", "host", true },
		{ "http://user:pw@127.0.0.1:8080", "http://127.0.0.1:8080", true },
		{ "http://user:pw%40x@h", "http://h", true },
		{ "HTTPS://token@h/path", "HTTPS://h/path", true },
		{ "user:pw@127.0.0.1:8080", "127.0.0.1:8080", true },
		{ "s3://b/p?endpoint=http://u:pw@h:1&region=r",
		  "s3://b/p?endpoint=http://h:1&region=r", true },
		{ "s3://b?region=r&endpoint=https://u:p?w@h", "s3://b?region=r&endpoint=https://h",
		  false },
		{ "s3://b?endpoint=http%3A%2F%2Fu%3Apw%40h%3A1",
		  "s3://b?endpoint=http%3A%2F%2Fh%3A1", true },
		{ "s3://b?endpoint=http%3a%2f%2fu:pw@h", "s3://b?endpoint=http%3a%2f%2fh", true },
		{ "s3://b?endpoint=u:pw@h", "s3://b?endpoint=h", true },
		{ "s3://b?end=http://u:pw@h&endpoint=http://h2", "s3://b?h&endpoint=http://h2",
		  false },
		{ "s3://u:pw%40b?endpoint=http://u:pw@h", "s3://h", false },
		{ "s3://u:pw@b?endpoint=http://h", "s3://b?endpoint=http://h", true },
		{ "s3://u:pw@b?endpoint=http://u:pw@h", "s3://h", false },
		{ "rediss%3A%2F%2F:pw%40host", "rediss%3A%2F%2Fhost", true },
		{ "s3://bucket/prefix", "s3://bucket/prefix", true },
		{ "file:/home/a:b@c/store", "file:/home/a:b@c/store", true },
		{ "/home/a:b@c/store", "/home/a:b@c/store", true },
		{ "./a:b@c", "./a:b@c", true },
		{ "store@2", "store@2", true },
		{ "", "", true },
	};
	char text[128];
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		assert_string_equal(kvarc_store_shown(cases[i].url, text, sizeof text),
		                    cases[i].shown);
		assert_int_equal(kvi_url_secret_is_plain(cases[i].url), cases[i].plain);
		/* cut, it shows no more */
		kvarc_store_shown(cases[i].url, text, 4);
		assert_true(strlen(text) <= 3);
		assert_memory_equal(text, cases[i].shown, strlen(text));
	}
	assert_null(kvarc_store_shown(NULL, text, sizeof text));
	assert_null(kvarc_store_shown("redis://:pw@host", text, 0));
}

static struct kvi_backend *open_backend(const char *url)
{
	struct kvi_backend *b;
	kvarc_error e;
	struct kvi_backend_options options = { .create = 1,
		                               .access_key = getenv("AWS_ACCESS_KEY_ID"),
		                               .secret_key = getenv("AWS_SECRET_ACCESS_KEY") };
	kvarc_ret ret = kvi_backend_open(&b, url, &options, &e);
	if (ret)
		print_message("%s: %s\n", url, e.text);
	assert_int_equal(ret, KVARC_OK);
	return b;
}

static kvarc_ret put(struct kvi_backend *b, const char *key, const void *p, size_t n)
{
	kvarc_error e = { .text = "" };
	kvarc_source source = { .memory = p, .size = n };
	kvarc_ret ret = b->calls->put(b, key, &source, &e);
	if (ret && ret != KVARC_END)
		print_message("put %s: %s\n", key, e.text);
	return ret;
}

static void assert_holds(struct kvi_backend *b, const char *key, const uint8_t *p, size_t n,
                         uint64_t offset, size_t want)
{
	kvarc_error e = { .text = "" };
	uint8_t *got = malloc(want + 1);
	size_t k, left = offset < n ? n - (size_t)offset : 0;
	assert_non_null(got);
	kvarc_ret ret = b->calls->get(b, key, offset, got, want, &k, &e);
	if (ret)
		print_message("get %s: %s\n", key, e.text);
	assert_int_equal(ret, KVARC_OK);
	assert_int_equal(k, want < left ? want : left);
	if (k)
		assert_memory_equal(got, p + offset, k);
	free(got);
}

struct seen {
	unsigned n;
	uint64_t bytes;
	char last[KVI_KEY_MAX + 1];
};
static int see(void *opaque, const struct kvi_object *object)
{
	struct seen *s = opaque;
	s->n++;
	s->bytes += object->bytes;
	snprintf(s->last, sizeof s->last, "%s", object->key);
	return 0;
}
static int end_list(void *opaque, const struct kvi_object *object)
{
	(void)opaque;
	(void)object;
	return 1;
}
static struct seen list(struct kvi_backend *b, const char *prefix)
{
	struct seen s = { 0, 0, "" };
	assert_int_equal(b->calls->list(b, prefix, see, &s, NULL), KVARC_OK);
	return s;
}

static void check_small(struct kvi_backend *b)
{
	struct kvi_object object;
	size_t got;
	uint8_t byte;
	uint8_t *p = bytes_of(SMALL, 1);
	assert_int_equal(b->calls->stat(b, "a/none", &object, NULL), KVARC_END);
	assert_int_equal(b->calls->get(b, "a/none", 0, &byte, 1, &got, NULL), KVARC_END);
	assert_int_equal(b->calls->remove(b, "a/none", NULL), KVARC_OK);
	assert_int_equal(put(b, "a/one", p, SMALL), KVARC_OK);
	assert_int_equal(put(b, "a/one", p, 10), KVARC_END);
	assert_int_equal(put(b, "a/empty", p, 0), KVARC_OK);
	assert_int_equal(b->calls->stat(b, "a/one", &object, NULL), KVARC_OK);
	assert_int_equal(object.bytes, SMALL);
	assert_true(object.time > 1700000000);
	assert_holds(b, "a/one", p, SMALL, 0, SMALL);
	assert_holds(b, "a/one", p, SMALL, 100, 17);
	assert_holds(b, "a/one", p, SMALL, SMALL - 5, 100);
	assert_holds(b, "a/one", p, SMALL, SMALL + 5, 100);
	assert_holds(b, "a/empty", p, 0, 0, 10);
	assert_int_equal(b->calls->remove(b, "a/one", NULL), KVARC_OK);
	assert_int_equal(b->calls->get(b, "a/one", 0, &byte, 1, &got, NULL), KVARC_END);
	assert_int_equal(put(b, "a/one", p + 1, SMALL - 1), KVARC_OK);
	assert_holds(b, "a/one", p + 1, SMALL - 1, 0, SMALL);
	free(p);
}

struct stamps {
	const char *key;
	uint64_t listed;
};
static int see_stamp(void *opaque, const struct kvi_object *object)
{
	struct stamps *s = opaque;
	if (strcmp(object->key, s->key) == 0)
		s->listed = object->stamp;
	return 0;
}

/* The stamp of an object, which a list gives, too. */
static uint64_t stamp(struct kvi_backend *b, const char *key)
{
	struct stamps s = { key, 0 };
	struct kvi_object object;
	assert_int_equal(b->calls->stat(b, key, &object, NULL), KVARC_OK);
	assert_int_equal(b->calls->list(b, key, see_stamp, &s, NULL), KVARC_OK);
	assert_true(object.stamp == s.listed);
	assert_true(object.stamp != 0);
	return object.stamp;
}

/* An object is removed as what it was read as, and in no other case. */
static void check_conditions(struct kvi_backend *b)
{
	static const char key[] = "c/one";
	struct kvi_object object;
	assert_int_equal(b->calls->remove_if(b, key, "abc", 3, NULL), KVARC_END);
	assert_int_equal(put(b, key, "abc", 3), KVARC_OK);
	const uint64_t first = stamp(b, key);
	assert_int_equal(b->calls->remove_if(b, key, "abd", 3, NULL), KVARC_END);
	assert_int_equal(b->calls->remove_if(b, key, "ab", 2, NULL), KVARC_END);
	assert_int_equal(b->calls->remove_if(b, key, "abcd", 4, NULL), KVARC_END);
	assert_int_equal(b->calls->remove_if(b, key, "", 0, NULL), KVARC_END);
	assert_int_equal(b->calls->stat(b, key, &object, NULL), KVARC_OK);
	assert_true(object.stamp == first);
	assert_int_equal(b->calls->remove_if(b, key, "abc", 3, NULL), KVARC_OK);
	assert_int_equal(b->calls->stat(b, key, &object, NULL), KVARC_END);
	assert_int_equal(put(b, key, "abd", 3), KVARC_OK);
	assert_true(stamp(b, key) != first);
	assert_int_equal(b->calls->remove(b, key, NULL), KVARC_OK);
	assert_int_equal(list(b, "c/").n, 0);
}

static void check_lists(struct kvi_backend *b)
{
	struct seen s;
	char key[64];
	for (int i = 0; i < 30; i++) {
		snprintf(key, sizeof key, "l/x%%2F=_-.%d/%d", i % 3, i);
		assert_int_equal(put(b, key, "abc", 3), KVARC_OK);
	}
	s = list(b, "l/");
	assert_int_equal(s.n, 30);
	assert_int_equal(s.bytes, 90);
	s = list(b, "l/x%2F=_-.1/");
	assert_int_equal(s.n, 10);
	assert_memory_equal(s.last, "l/x%2F=_-.1/", 12);
	assert_int_equal(list(b, "l/x%2F=_-.1/1").n, 5); /* 1, 10, 13, 16, 19 */
	assert_int_equal(list(b, "l").n, 30);
	assert_int_equal(list(b, "nothing/").n, 0);
	assert_int_equal(b->calls->list(b, "l/", end_list, NULL, NULL), KVARC_IO);
	for (int i = 0; i < 30; i++) {
		snprintf(key, sizeof key, "l/x%%2F=_-.%d/%d", i % 3, i);
		assert_int_equal(b->calls->remove(b, key, NULL), KVARC_OK);
	}
	assert_int_equal(list(b, "l/").n, 0);
}

static void check_sources(struct kvi_backend *b)
{
	kvarc_source out;
	struct kvi_object object;
	uint8_t buffer[100];
	struct slow_bytes s = { bytes_of(LARGE, 2), LARGE };
	kvarc_source in = { .read = read_slowly, .opaque = &s, .size = LARGE };
	assert_int_equal(b->calls->put(b, "big/slow", &in, NULL), KVARC_OK);
	assert_int_equal(b->calls->put(b, "big/slow", &in, NULL), KVARC_END);
	assert_int_equal(put(b, "big/memory", s.p, LARGE), KVARC_OK);
	assert_int_equal(b->calls->stat(b, "big/slow", &object, NULL), KVARC_OK);
	assert_int_equal(object.bytes, LARGE);
	assert_holds(b, "big/slow", s.p, LARGE, 0, LARGE);
	assert_holds(b, "big/memory", s.p, LARGE, (64 << 20) - 50, 100); /* across parts */
	assert_holds(b, "big/slow", s.p, LARGE, LARGE - 50, 100);
	in.read = read_half;
	assert_int_equal(b->calls->put(b, "big/half", &in, NULL), KVARC_IO);
	assert_int_equal(b->calls->stat(b, "big/half", &object, NULL), KVARC_END);
	assert_int_equal(kvi_object_source(&out, b, "big/none", NULL), KVARC_END);
	assert_int_equal(kvi_object_source(&out, b, "big/memory", NULL), KVARC_OK);
	assert_int_equal(out.size, LARGE);
	assert_int_equal(out.read(out.opaque, buffer, sizeof buffer, 777), sizeof buffer);
	assert_memory_equal(buffer, s.p + 777, sizeof buffer);
	kvi_object_source_close(&out);
	assert_int_equal(list(b, "big/").n, 2);
	assert_int_equal(b->calls->remove(b, "big/slow", NULL), KVARC_OK);
	assert_int_equal(b->calls->remove(b, "big/memory", NULL), KVARC_OK);
	free((void *)s.p);
}

/* Of many puts of one key by several processes one wins, and all read what it has put. */
static void check_race(const char *url)
{
	enum { PROCESSES = 4, KEYS = 25 };
	pid_t pids[PROCESSES];
	unsigned won = 0;
	char key[32];
	for (unsigned i = 0; i < PROCESSES; i++) {
		pids[i] = fork();
		assert_true(pids[i] >= 0);
		if (pids[i] > 0)
			continue;
		unsigned mine = 0;
		struct kvi_backend *b = open_backend(url);
		for (unsigned k = 0; k < KEYS; k++) {
			char text[2] = { (char)('a' + i), 0 };
			snprintf(key, sizeof key, "race/%u", k);
			mine += put(b, key, text, 1) == KVARC_OK;
		}
		_exit((int)mine);
	}
	for (unsigned i = 0; i < PROCESSES; i++) {
		int status;
		assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
		assert_true(WIFEXITED(status));
		won += (unsigned)WEXITSTATUS(status);
	}
	assert_int_equal(won, KEYS);
	struct kvi_backend *b = open_backend(url);
	for (unsigned k = 0; k < KEYS; k++) {
		snprintf(key, sizeof key, "race/%u", k);
		assert_int_equal(b->calls->remove(b, key, NULL), KVARC_OK);
	}
	kvi_backend_close(&b);
}

static void check_all(const char *url)
{
	struct kvi_backend *b = open_backend(url);
	print_message("%s\n", url);
	check_small(b);
	check_conditions(b);
	check_lists(b);
	check_sources(b);
	check_race(url);
	kvi_backend_close(&b);
	/* another handle sees the same */
	b = open_backend(url);
	assert_int_equal(list(b, "a/").n, 2);
	assert_int_equal(b->calls->remove(b, "a/one", NULL), KVARC_OK);
	assert_int_equal(b->calls->remove(b, "a/empty", NULL), KVARC_OK);
	kvi_backend_close(&b);
}

static void folder(void **state)
{
	char path[] = "backends-XXXXXX", url[64], command[80];
	struct stat st;
	(void)state;
	assert_non_null(mkdtemp(path));
	snprintf(url, sizeof url, "file:%s/new/one", path);
	umask(0);
	check_all(url);
	snprintf(url, sizeof url, "%s/new/one", path);
	assert_int_equal(stat(url, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	/* nothing is left of the failed put */
	snprintf(command, sizeof command, "exit $(find %s -type f | wc -l)", path);
	assert_int_equal(system(command), 0);
	snprintf(command, sizeof command, "rm -r %s", path);
	assert_int_equal(system(command), 0);
}

static void services(void **state)
{
	const char *urls = getenv("KVARC_TEST_STORES");
	(void)state;
	if (!urls || !*urls)
		skip();
	char *copy = strdup(urls);
	for (char *url = strtok(copy, " "); url; url = strtok(NULL, " "))
		check_all(url);
	free(copy);
}

static void urls(void **state)
{
	static const char *const bad[] = {
		"ftp://x",
		"s3://",
		"s3:///x",
		"s3://b?region",
		"s3://user:pw@b",
		"s3://b?colour=red",
		"s3://b/../x",
		"s3://b/a b",
		"redis://",
		"redis://h:0",
		"redis://h:70000",
		"redis://h/x",
		"redis://u@h",
		"redis:/:pw@h",
		"s3://b?endpoint=h:1",
		"s3://b?endpoint=http://u:p/w@h:1",
		"redis://h?prefix=a*",
		"/nonexistent/store",
	};
	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct kvi_backend_options options = { 0 };
		struct kvi_backend *b = (void *)1;
		kvarc_error e = { .text = "" };
		kvarc_ret ret = kvi_backend_open(&b, bad[i], &options, &e);
		if (ret != KVARC_OPTIONS)
			print_message("%s: %d %s\n", bad[i], (int)ret, e.text);
		assert_int_equal(ret, KVARC_OPTIONS);
		assert_null(b);
		assert_true(strlen(e.text) > 10);
	}
}

static void keys(void **state)
{
	char key[KVI_KEY_MAX + 2];
	(void)state;
	assert_true(kvi_key_valid("a") && kvi_key_valid("a/b.c/%2F=_-"));
	assert_false(kvi_key_valid("") || kvi_key_valid("/a") || kvi_key_valid("a/") ||
	             kvi_key_valid("a//b") || kvi_key_valid("a/../b") || kvi_key_valid(".a") ||
	             kvi_key_valid("a b") || kvi_key_valid("a\n") || kvi_key_valid("\xc3\xa4"));
	memset(key, 'k', sizeof key);
	key[KVI_KEY_MAX + 1] = 0;
	assert_false(kvi_key_valid(key));
	key[KVI_KEY_MAX] = 0;
	assert_true(kvi_key_valid(key));
}

static void pages(void **state)
{
	static const char page[] =
		"<?xml version=\"1.0\"?><ListBucketResult xmlns=\"x\"><IsTruncated>true"
		"</IsTruncated>"
		"<NextContinuationToken>t/1</NextContinuationToken><Contents><Key>p/a</Key><Size>12"
		"</Size><LastModified>2026-11-24T09:55:12.000Z</LastModified></Contents><Contents>"
		"<Size>0</Size><Key>p/b</Key></Contents></ListBucketResult>";
	static const char *const bad[] = { "", "<Error>", "<ListBucketResult>",
		                           "<ListBucketResult><IsTruncated>true</IsTruncated>" };
	struct kvi_s3_page p;
	struct kvi_s3_object o;
	(void)state;
	assert_int_equal(kvi_s3_page_begin(&p, page, sizeof page - 1), 0);
	assert_string_equal(p.next, "t/1");
	assert_int_equal(kvi_s3_page_next(&p, &o), 1);
	assert_string_equal(o.key, "p/a");
	assert_int_equal(o.bytes, 12);
	assert_int_equal(o.time, 1795514112);
	assert_int_equal(kvi_s3_page_next(&p, &o), 1);
	assert_string_equal(o.key, "p/b");
	assert_int_equal(o.time, 0);
	assert_int_equal(kvi_s3_page_next(&p, &o), 0);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_int_equal(kvi_s3_page_begin(&p, bad[i], strlen(bad[i])), -1);
	/* cut anywhere: no object that is not there */
	for (size_t n = 0; n < sizeof page - 1; n++) {
		if (kvi_s3_page_begin(&p, page, n) == 0) {
			while (kvi_s3_page_next(&p, &o) > 0)
				assert_memory_equal(o.key, "p/", 2);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keys),   cmocka_unit_test(urls),     cmocka_unit_test(pages),
		cmocka_unit_test(folder), cmocka_unit_test(services), cmocka_unit_test(shown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
