/* SPDX-License-Identifier: BSD-3-Clause */
/* test_workspace.c - folders as tars: hostile ones write nothing outside of their folder */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "kvarc.h"

enum { BLOCK = 512, CAPACITY = 1 << 20 };

/* A tar that is made by hand, and a folder for what comes out of it. */
struct made {
	uint8_t tar[CAPACITY];
	size_t n;
	char top[64], folder[80]; /* folder is in top */
	kvarc_error error;
};

static int setup(void **state)
{
	struct made *m = calloc(1, sizeof *m);
	strcpy(m->top, "/tmp/kvarc-workspace-XXXXXX");
	assert_non_null(mkdtemp(m->top));
	snprintf(m->folder, sizeof m->folder, "%s/out", m->top);
	*state = m;
	return 0;
}

static int teardown(void **state)
{
	struct made *m = *state;
	char command[128];
	snprintf(command, sizeof command, "rm -rf '%s'", m->top);
	int ret = system(command);
	free(m);
	return ret;
}

/* A number of a header: octal digits and a 0. */
static void put_octal(uint8_t *to, int digits, unsigned long long n)
{
	to[digits] = 0;
	while (digits-- > 0) {
		to[digits] = (uint8_t)('0' + (n & 7));
		n >>= 3;
	}
}

/* The checksum of a header. */
static void seal(uint8_t *h)
{
	unsigned sum = 0;
	memset(h + 148, ' ', 8);
	for (int i = 0; i < BLOCK; i++)
		sum += h[i];
	put_octal(h + 148, 6, sum);
}

/* An entry with a header of ustar; bytes: what the header says, n: what follows. */
static void add(struct made *m, const char *name, char type, const char *link,
                unsigned long long bytes, const char *data, size_t n)
{
	uint8_t *h = m->tar + m->n;
	memset(h, 0, BLOCK);
	memcpy(h, name, strlen(name));
	memcpy(h + 100, "0000644\0000000000\0000000000\000", 24);
	put_octal(h + 124, 11, bytes);
	memcpy(h + 136, "00000000000", 12);
	h[156] = (uint8_t)type;
	memcpy(h + 157, link, strlen(link));
	memcpy(h + 257, "ustar\00000", 8);
	seal(h);
	m->n += BLOCK;
	memset(m->tar + m->n, 0, (n + BLOCK - 1) / BLOCK * BLOCK);
	memcpy(m->tar + m->n, data, n);
	m->n += (n + BLOCK - 1) / BLOCK * BLOCK;
}

static void add_file(struct made *m, const char *name, const char *data)
{
	add(m, name, '0', "", strlen(data), data, strlen(data));
}

static int64_t read_tar(void *opaque, void *buf, size_t n, uint64_t offset)
{
	const struct made *m = opaque;
	if (n > m->n - offset)
		n = (size_t)(m->n - offset);
	memcpy(buf, m->tar + offset, n);
	return (int64_t)n;
}

static kvarc_ret extract_with(struct made *m, kvarc_workspace_options *o)
{
	const kvarc_source source = { .read = read_tar, .opaque = m, .size = m->n };
	o->common.error = &m->error;
	memset(&m->error, 0, sizeof m->error);
	kvarc_ret ret = kvarc_workspace_extract(&source, m->folder, o, NULL);
#ifndef HAVE_LIBARCHIVE
	if (ret == KVARC_OPTIONS)
		skip();
#endif
	return ret;
}

/* With the end of the tar. */
static kvarc_ret extract(struct made *m, int replace)
{
	kvarc_workspace_options o = KVARC_WORKSPACE_OPTIONS_INIT;
	o.replace = replace;
	memset(m->tar + m->n, 0, 2 * BLOCK);
	m->n += 2 * BLOCK;
	return extract_with(m, &o);
}

static int exists(const struct made *m, const char *name)
{
	char path[256];
	struct stat st;
	snprintf(path, sizeof path, "%s/%s", m->top, name);
	return lstat(path, &st) == 0;
}

static void assert_refused(struct made *m, const char *text)
{
	assert_int_equal(extract(m, 0), KVARC_DATA);
	assert_non_null(strstr(m->error.text, text));
	assert_null(strchr(m->error.text, '\n'));
	assert_false(exists(m, "out"));
	m->n = 0;
}

static void test_good(void **state)
{
	struct made *m = *state;
	add(m, "a/", '5', "", 0, "", 0);
	add_file(m, "a/b", "words");
	add(m, "a/c", '2', "b", 0, "", 0);
	add_file(m, "d/e/f", "");
	assert_int_equal(extract(m, 0), KVARC_OK);
	assert_true(exists(m, "out/a/b") && exists(m, "out/a/c") && exists(m, "out/d/e/f"));
}

static void test_names(void **state)
{
	static const char *const names[] = { "../x", "/tmp/x",  "a/../../x", "a//b",
		                             "./x",  "a/./b",   "..",        "a\nb",
		                             "a/b/..", "\x7f" };
	struct made *m = *state;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		add_file(m, "first", "is not written either");
		add_file(m, names[i], "outside");
		assert_refused(m, "name");
		assert_false(exists(m, "x"));
	}
}

static void test_depth(void **state)
{
	struct made *m = *state;
	char name[101] = "";
	for (int i = 0; i < 48; i++)
		strcat(name, "d/");
	strcat(name, "x");
	add_file(m, name, "as deep as ustar can");
	assert_int_equal(extract(m, 0), KVARC_OK);
}

static void test_kinds(void **state)
{
	struct made *m = *state;
	static const char kinds[] = "346";
	for (size_t i = 0; kinds[i]; i++) {
		add_file(m, "first", "x");
		add(m, "device", kinds[i], "", 0, "", 0);
		assert_refused(m, "neither a file");
	}
	add_file(m, "first", "x");
	add(m, "hard", '1', "/etc/passwd", 0, "", 0);
	assert_refused(m, "hard link");
	add_file(m, "first", "x");
	add(m, "hard", '1', "first", 0, "", 0);
	assert_refused(m, "hard link");
}

static void test_sizes(void **state)
{
	struct made *m = *state;
	add_file(m, "first", "x");
	add(m, "huge", '0', "", 077777777777ULL, "x", 1);
	assert_refused(m, "more bytes than the tar");
	/* GNU: 4 bytes of data at an offset of 7 GiB */
	add_file(m, "first", "x");
	add(m, "sparse", 'S', "", 4, "data", 4);
	uint8_t *h = m->tar + m->n - 2 * BLOCK;
	memcpy(h + 257, "ustar  ", 8);
	memcpy(h + 386, "70000000000\00000000000004", 24);
	memcpy(h + 483, "70000000004", 12);
	seal(h);
	assert_refused(m, "more bytes than the tar");
}

static void test_cut(void **state)
{
	struct made *m = *state;
	kvarc_workspace_options o = KVARC_WORKSPACE_OPTIONS_INIT;
	add_file(m, "a", "some words");
	add(m, "b", '0', "", 1024, "cut", 3);
	m->n -= 200;
	assert_int_equal(extract_with(m, &o), KVARC_DATA);
	assert_false(exists(m, "out"));
	m->n = 3;
	assert_int_equal(extract_with(m, &o), KVARC_DATA);
}

/* A link that leads out, and files through it. */
static void test_through_link(void **state)
{
	struct made *m = *state;
	for (int replace = 0; replace < 2; replace++) {
		m->n = 0;
		add(m, "link", '2', "..", 0, "", 0);
		add_file(m, "link/x", "outside");
		assert_int_equal(extract(m, replace), KVARC_IO);
		assert_non_null(strstr(m->error.text, "link/x"));
		assert_false(exists(m, "x"));
		assert_int_equal(teardown(state), 0);
		setup(state);
		m = *state;
	}
	/* the last component, too: the link goes, not what it leads to */
	char victim[128];
	snprintf(victim, sizeof victim, "%s/victim", m->top);
	FILE *f = fopen(victim, "w");
	assert_non_null(f);
	fclose(f);
	add(m, "link", '2', "../victim", 0, "", 0);
	add_file(m, "link", "outside");
	assert_int_equal(extract(m, 1), KVARC_OK);
	struct stat st;
	assert_int_equal(stat(victim, &st), 0);
	assert_int_equal(st.st_size, 0);
}

static void test_twice(void **state)
{
	struct made *m = *state;
	add_file(m, "a", "first");
	add_file(m, "a", "second");
	assert_int_equal(extract(m, 0), KVARC_IO);
	assert_non_null(strstr(m->error.text, "'a'"));
}

static void test_target(void **state)
{
	struct made *m = *state;
	add_file(m, "a", "first");
	assert_int_equal(extract(m, 0), KVARC_OK);
	assert_int_equal(extract(m, 0), KVARC_OPTIONS);
	assert_non_null(strstr(m->error.text, "not empty"));
	assert_int_equal(extract(m, 1), KVARC_OK);
}

static int put_tar(void *opaque, const void *p, size_t n, uint64_t offset)
{
	struct made *m = opaque;
	assert_true(offset == m->n && n <= sizeof m->tar - m->n);
	memcpy(m->tar + m->n, p, n);
	m->n += n;
	return 0;
}

/* Names ascend, whatever order the file system has, and what is left out is left out. */
static void test_order(void **state)
{
	static const char *const names[] = { "m", "b", "zz", "a", "a-", "Z", "x", "c" };
	struct made *m = *state;
	kvarc_workspace_options o = KVARC_WORKSPACE_OPTIONS_INIT;
	const kvarc_sink sink = { .write = put_tar, .opaque = m };
	char path[256], last[101] = "";
	const char *excluded = path;
	kvarc_workspace_result result;
	assert_int_equal(mkdir(m->folder, 0700), 0);
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		snprintf(path, sizeof path, "%s/%s", m->folder, names[i]);
		FILE *f = fopen(path, "w");
		assert_non_null(f);
		fclose(f);
	}
	o.common.error = &m->error;
	o.exclude = &excluded; /* "c" */
	o.n_exclude = 1;
	kvarc_ret ret = kvarc_workspace_pack(m->folder, &sink, &o, &result);
#ifndef HAVE_LIBARCHIVE
	if (ret == KVARC_OPTIONS)
		skip();
#endif
	assert_int_equal(ret, KVARC_OK);
	assert_int_equal(result.files, 7);
	for (size_t at = 0; at + BLOCK <= m->n; at += BLOCK) {
		const char *h = (const char *)m->tar + at;
		if (memcmp(h + 257, "ustar", 5) != 0 || h[156] != '0')
			continue;
		assert_true(strcmp(last, h) < 0);
		assert_string_not_equal(h, "c");
		snprintf(last, sizeof last, "%.100s", h);
	}
	assert_string_equal(last, "zz");
}

static void test_arguments(void **state)
{
	struct made *m = *state;
	kvarc_workspace_options o = KVARC_WORKSPACE_OPTIONS_INIT;
	add_file(m, "a", "first");
	o.reserved[1] = 1;
	assert_int_equal(extract_with(m, &o), KVARC_PROG);
	o.reserved[1] = 0;
	o.common.memlimit = 1 << 16;
	assert_int_equal(extract_with(m, &o), KVARC_MEMLIMIT);
	assert_false(exists(m, "out"));
	assert_int_equal(kvarc_import_attach(NULL, NULL, 8, "x"), KVARC_PROG);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		CASE(test_good), CASE(test_names),        CASE(test_depth),
		CASE(test_kinds), CASE(test_sizes),       CASE(test_cut),
		CASE(test_twice), CASE(test_through_link), CASE(test_target),
		CASE(test_arguments), CASE(test_order),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
