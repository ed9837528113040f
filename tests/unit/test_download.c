/* SPDX-License-Identifier: BSD-3-Clause */
/* test_download.c - files of a server into a sink: answers that are whole, and all others */
#include "config.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "http_stand_in.h"
#include "kvarc/exchange.h"

enum { BYTES = 100000 };

/* What came. */
struct downloaded {
	unsigned char bytes[BYTES];
	uint64_t n, fails_at;
};

static int take(void *opaque, const void *buf, size_t bytes, uint64_t offset)
{
	struct downloaded *t = opaque;
	errno = ENOSPC;
	if (offset != t->n || offset + bytes > sizeof t->bytes || offset + bytes > t->fails_at)
		return -1;
	memcpy(t->bytes + offset, buf, bytes);
	t->n += bytes;
	return 0;
}

static unsigned char file[BYTES];

static void answer(void *opaque, const struct http_request *r, struct http_answer *a)
{
	(void)opaque;
	a->body = file;
	a->bytes = sizeof file;
	a->cut = strcmp(r->path, "/cut") == 0;
	if (strcmp(r->path, "/none") == 0)
		a->status = 404;
}

static int stop(void *opaque, uint64_t done, uint64_t total)
{
	uint64_t *most = opaque;
	assert_int_equal(total, BYTES);
	return done > *most;
}

/* Downloads a path of the stand-in; progress ends it behind `until` bytes. */
static kvarc_ret get(const char *url, uint64_t most, uint64_t fails_at, uint64_t until,
                     struct downloaded *t, kvarc_error *error)
{
	const kvarc_sink sink = { .write = take, .opaque = t };
	const kvarc_common common = { .error = error, .progress = stop, .progress_opaque = &until };
	memset(t, 0, sizeof *t);
	t->fails_at = fails_at;
	return kvarc_download(url, most, &sink, &common);
}

static void test_answers(void **state)
{
	static struct downloaded t;
	struct http_stand_in http;
	kvarc_error e;
	char url[80];
	(void)state;
#ifndef HAVE_LIBCURL
	skip();
#endif
	for (size_t i = 0; i < sizeof file; i++)
		file[i] = (unsigned char)(i * 7 + i / 251);
	http_start(&http, answer, NULL);
	snprintf(url, sizeof url, "http://127.0.0.1:%u/file", http.port);
	assert_int_equal(get(url, BYTES, BYTES, BYTES, &t, &e), KVARC_OK);
	assert_int_equal(t.n, BYTES);
	assert_memory_equal(t.bytes, file, BYTES);
	assert_int_equal(get(url, BYTES - 1, BYTES, BYTES, &t, &e), KVARC_IO);
	assert_non_null(strstr(e.text, "longer than 99999 bytes"));
	assert_true(t.n < BYTES);
	assert_int_equal(get(url, BYTES, 100, BYTES, &t, &e), KVARC_IO);
	assert_non_null(strstr(e.text, "writing it failed"));
	assert_non_null(strstr(e.text, strerror(ENOSPC)));
	assert_int_equal(get(url, BYTES, BYTES, 10, &t, &e), KVARC_IO);
	assert_non_null(strstr(e.text, "stopped"));
	snprintf(url, sizeof url, "http://127.0.0.1:%u/cut", http.port);
	assert_int_equal(get(url, BYTES, BYTES, BYTES, &t, &e), KVARC_IO);
	assert_true(t.n < BYTES);
	snprintf(url, sizeof url, "http://me:word@127.0.0.1:%u/none", http.port);
	assert_int_equal(get(url, BYTES, BYTES, BYTES, &t, &e),
	                 KVARC_OPTIONS); /* not this host's */
	snprintf(url, sizeof url, "http://127.0.0.1:%u/none", http.port);
	assert_int_equal(get(url, BYTES, BYTES, BYTES, &t, &e), KVARC_IO);
	assert_non_null(strstr(e.text, "404"));
	assert_int_equal(t.n, 0);
	http_stop(&http);
	assert_int_equal(get(url, BYTES, BYTES, BYTES, &t, &e), KVARC_IO); /* nobody is there */
}

/* URLs that are not asked, and what messages show of others. */
static void test_urls(void **state)
{
	static struct downloaded t;
	static const char *const wrong[] = { "http://example.org/x",   "file:///etc/passwd",
		                             "ftp://127.0.0.1/x",      "127.0.0.1/x",
		                             "http://127.0.0.1.org/x", "" };
	const kvarc_sink sink = { .write = take, .opaque = &t };
	kvarc_error e;
	(void)state;
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		assert_int_equal(get(wrong[i], BYTES, BYTES, BYTES, &t, &e), KVARC_OPTIONS);
#ifdef HAVE_LIBCURL
	assert_int_equal(get("https://me:word@127.0.0.1:1/x", BYTES, BYTES, BYTES, &t, &e),
	                 KVARC_IO);
	assert_null(strstr(e.text, "word"));
	assert_non_null(strstr(e.text, "127.0.0.1:1/x"));
#endif
	assert_int_equal(kvarc_download(NULL, BYTES, &sink, NULL), KVARC_PROG);
	assert_int_equal(kvarc_download("https://127.0.0.1/x", BYTES, NULL, NULL), KVARC_PROG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_answers),
		cmocka_unit_test(test_urls),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
