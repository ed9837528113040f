/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_blocks.c - blocks of engines in a folder, and in the services whose URLs are in
 * $KVARC_TEST_STORES (test_backends.c); services that do not answer; blocks beside sessions
 */
#include "config.h"

#include "store_util.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <utime.h>

#include "kvarc/blocks.h"

#define A "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define B "0011223344556677889900bbccddeeff00112233445566778899aabbccddeeff"
#define C "ff112233445566778899aabbccddeeff00112233445566778899aabbccddee00"

static kvarc_error error;

static kvarc_blocks *open_blocks(const char *url)
{
	kvarc_blocks *b;
	kvarc_blocks_options o = { .common = { .error = &error },
		                   .flags = KVARC_STORE_CREATE,
		                   .access_key = getenv("AWS_ACCESS_KEY_ID"),
		                   .secret_key = getenv("AWS_SECRET_ACCESS_KEY") };
	kvarc_ret ret = kvarc_blocks_open(&b, url, &o);
	if (ret)
		print_message("%s: %s\n", url, error.text);
	assert_int_equal(ret, KVARC_OK);
	return b;
}

static void assert_block(kvarc_blocks *b, const char *name, const char *text)
{
	char got[100];
	size_t n;
	kvarc_block block;
	assert_int_equal(kvarc_blocks_stat(b, name, &block), KVARC_OK);
	assert_int_equal(block.bytes, strlen(text));
	assert_string_equal(block.name, name);
	assert_true(block.time > 1700000000);
	assert_int_equal(kvarc_blocks_get(b, name, 0, got, sizeof got, &n), KVARC_OK);
	assert_int_equal(n, strlen(text));
	assert_memory_equal(got, text, n);
	assert_int_equal(kvarc_blocks_get(b, name, 1, got, 2, &n), KVARC_OK);
	assert_int_equal(n, 2);
	assert_memory_equal(got, text + 1, 2);
}

struct listed {
	unsigned n;
	uint64_t bytes;
	int ends;
};
static int see(void *opaque, const kvarc_block *block)
{
	struct listed *l = opaque;
	assert_true(strcmp(block->name, A) == 0 || strcmp(block->name, B) == 0 ||
	            strcmp(block->name, C) == 0);
	l->n++;
	l->bytes += block->bytes;
	return l->ends;
}

/* ----- the calls ------------------------------------------------ */

static void check_calls(const char *url)
{
	kvarc_blocks *b = open_blocks(url), *other = open_blocks(url);
	struct listed l = { 0 };
	char byte;
	size_t n = 1;
	print_message("%s\n", url);
	assert_int_equal(kvarc_blocks_stat(b, A, NULL), KVARC_END);
	assert_int_equal(kvarc_blocks_touch(b, A), KVARC_END);
	assert_int_equal(kvarc_blocks_get(b, A, 0, &byte, 1, &n), KVARC_END);
	assert_int_equal(n, 0);
	assert_int_equal(kvarc_blocks_remove(b, A), KVARC_OK);
	assert_int_equal(kvarc_blocks_put(b, A, "one block", 9), KVARC_OK);
	assert_int_equal(kvarc_blocks_put(other, A, "another", 7), KVARC_END);
	assert_int_equal(kvarc_blocks_put(other, B, "two", 3), KVARC_OK);
	assert_int_equal(kvarc_blocks_put(b, C, "three", 5), KVARC_OK);
	assert_block(b, A, "one block");
	assert_block(other, A, "one block");
	assert_block(b, B, "two");
	assert_int_equal(kvarc_blocks_touch(b, A), KVARC_OK);
	assert_int_equal(kvarc_blocks_list(b, see, &l), KVARC_OK);
	assert_int_equal(l.n, 3);
	assert_int_equal(l.bytes, 17);
	l = (struct listed){ .ends = 1 };
	assert_int_equal(kvarc_blocks_list(b, see, &l), KVARC_IO);
	assert_int_equal(l.n, 1);
	/* removed and put again by another one: what is there now is read */
	assert_block(b, A, "one block");
	assert_int_equal(kvarc_blocks_remove(other, A), KVARC_OK);
	assert_int_equal(kvarc_blocks_put(other, A, "once more, longer", 17), KVARC_OK);
	char got[100];
	assert_int_equal(kvarc_blocks_get(b, A, 0, got, sizeof got, &n), KVARC_OK);
	assert_int_equal(n, 17);
	assert_memory_equal(got, "once more, longer", n);
	assert_block(b, A, "once more, longer");
	assert_int_equal(kvarc_blocks_remove(b, A), KVARC_OK);
	assert_int_equal(kvarc_blocks_remove(b, B), KVARC_OK);
	assert_int_equal(kvarc_blocks_remove(b, C), KVARC_OK);
	assert_int_equal(kvarc_blocks_get(other, A, 0, &byte, 1, &n), KVARC_END);
	l = (struct listed){ 0 };
	assert_int_equal(kvarc_blocks_list(b, see, &l), KVARC_OK);
	assert_int_equal(l.n, 0);
	kvarc_blocks_close(&b);
	kvarc_blocks_close(&other);
	assert_null(other);
}

static void services(void **state)
{
	const char *urls = getenv("KVARC_TEST_STORES");
	(void)state;
	if (!urls || !*urls)
		skip();
	char *copy = strdup(urls);
	for (char *url = strtok(copy, " "); url; url = strtok(NULL, " "))
		check_calls(url);
	free(copy);
}

static void folder(void **state)
{
	struct test_store t;
	char path[200];
	kvarc_block block;
	(void)state;
	store_new(&t);
	check_calls(t.folder);
	kvarc_blocks *b = open_blocks(t.folder);
	assert_int_equal(kvarc_blocks_put(b, A, "abc", 3), KVARC_OK);
	snprintf(path, sizeof path, "%s/blocks/00/" A ".kva", t.folder);
	struct utimbuf old = { 1000000000, 1000000000 };
	assert_int_equal(utime(path, &old), 0);
	assert_int_equal(kvarc_blocks_stat(b, A, &block), KVARC_OK);
	assert_int_equal(block.time, 1000000000);
	assert_int_equal(kvarc_blocks_touch(b, A), KVARC_OK);
	assert_int_equal(kvarc_blocks_stat(b, A, &block), KVARC_OK);
	assert_true(block.time >= (uint64_t)time(NULL) - 5);
	kvarc_blocks_close(&b);
	store_remove(&t);
}

static void wrong_arguments(void **state)
{
	static const char *const names[] = { NULL,
		                             "",
		                             "00",
		                             A "0",
		                             "../../../../../etc/passwd",
		                             "00112233445566778899AABBCCDDEEFF00112233445566778899"
		                             "aabbccddeeff" };
	struct test_store t;
	kvarc_blocks *b = (kvarc_blocks *)1;
	kvarc_blocks_options o = { .common = { .error = &error }, .flags = 0x100 };
	char byte = 0;
	size_t n;
	(void)state;
	assert_int_equal(kvarc_blocks_open(NULL, "x", NULL), KVARC_PROG);
	assert_int_equal(kvarc_blocks_open(&b, "x", &o), KVARC_PROG);
	assert_null(b);
	o = (kvarc_blocks_options){ .common = { .error = &error }, .reserved = { 1 } };
	assert_int_equal(kvarc_blocks_open(&b, "x", &o), KVARC_PROG);
	assert_int_equal(kvarc_blocks_open(&b, "", NULL), KVARC_PROG);
	assert_int_equal(kvarc_blocks_open(&b, "/nonexistent/store", NULL), KVARC_OPTIONS);
	assert_null(b);
	store_new(&t);
	b = open_blocks(t.folder);
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		assert_int_equal(kvarc_blocks_put(b, names[i], &byte, 1), KVARC_PROG);
		assert_int_equal(kvarc_blocks_get(b, names[i], 0, &byte, 1, &n), KVARC_PROG);
		assert_int_equal(kvarc_blocks_stat(b, names[i], NULL), KVARC_PROG);
		assert_int_equal(kvarc_blocks_touch(b, names[i]), KVARC_PROG);
		assert_int_equal(kvarc_blocks_remove(b, names[i]), KVARC_PROG);
	}
	assert_int_equal(kvarc_blocks_put(b, A, NULL, 0), KVARC_PROG);
	assert_int_equal(kvarc_blocks_get(b, A, 0, NULL, 1, &n), KVARC_PROG);
	assert_int_equal(kvarc_blocks_list(b, NULL, NULL), KVARC_PROG);
	assert_int_equal(kvarc_blocks_list(NULL, see, NULL), KVARC_PROG);
	kvarc_blocks_close(&b);
	kvarc_blocks_close(&b);
	store_remove(&t);
}

/* ----- services that do not answer ------------------------------------------------ */

/* A server that takes connections and sends a text, a byte each 20 ms, and its last byte until the
 * connection ends; text NULL: nothing at all. */
static pid_t start_server(int *port, const char *text)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	socklen_t bytes = sizeof at;
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	int s = socket(AF_INET, SOCK_STREAM, 0);
	assert_true(s >= 0 && bind(s, (struct sockaddr *)&at, sizeof at) == 0 && listen(s, 8) == 0);
	assert_int_equal(getsockname(s, (struct sockaddr *)&at, &bytes), 0);
	*port = ntohs(at.sin_port);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		signal(SIGPIPE, SIG_IGN);
		for (;;) {
			int c = accept(s, NULL, NULL);
			for (size_t i = 0; c >= 0 && text;) {
				if (send(c, text + i, 1, 0) != 1)
					break;
				i += text[i + 1] != 0;
				usleep(20000);
			}
			if (text)
				close(c);
		}
	}
	close(s);
	return child;
}

static void check_slow(const char *url)
{
	kvarc_blocks *b;
	struct timespec from, to;
	kvarc_blocks_options o = { .common = { .error = &error }, .timeout_ms = 300 };
	char byte;
	size_t n;
	kvarc_ret ret = kvarc_blocks_open(&b, url, &o);
	if (ret == KVARC_OPTIONS && strstr(error.text, "built without"))
		return;
	assert_int_equal(ret, KVARC_OK);
	for (int i = 0; i < 3; i++) {
		clock_gettime(CLOCK_MONOTONIC, &from);
		ret = i == 0   ? kvarc_blocks_get(b, A, 0, &byte, 1, &n)
		      : i == 1 ? kvarc_blocks_put(b, A, "abc", 3)
		               : kvarc_blocks_stat(b, A, NULL);
		clock_gettime(CLOCK_MONOTONIC, &to);
		assert_int_equal(ret, KVARC_IO);
		assert_true(strlen(error.text) > 10);
		const long ms = (to.tv_sec - from.tv_sec) * 1000 +
		                (to.tv_nsec - from.tv_nsec) / 1000000;
		print_message("%ld ms: %s\n", ms, error.text);
		assert_true(ms >= 200 && ms < 3000);
	}
	kvarc_blocks_close(&b);
}

static void slow_services(void **state)
{
	/* an answer without end: a string of Redis, a header of HTTP */
	static const char *const texts[] = { NULL, "$9999999\r\nx",
		                             "HTTP/1.1 200 OK\r\nX-Header: x" };
	char url[100];
	int port;
	(void)state;
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		pid_t server = start_server(&port, texts[i]);
		snprintf(url, sizeof url, "redis://127.0.0.1:%d", port);
		if (i != 2)
			check_slow(url);
		snprintf(url, sizeof url, "s3://bucket?endpoint=http://127.0.0.1:%d", port);
		if (i != 1)
			check_slow(url);
		kill(server, SIGKILL);
		assert_int_equal(waitpid(server, NULL, 0), server);
	}
}

/* ----- beside sessions ------------------------------------------------ */

/* Puts the only archive of the store as a block. */
static void put_archive(const struct test_store *t, kvarc_blocks *b, const char *name)
{
	char command[200], path[64] = "block-XXXXXX";
	static char bytes[1 << 20];
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	snprintf(command, sizeof command, "cat %s/packs/*/*.kva > %s", t->folder, path);
	assert_int_equal(system(command), 0);
	ssize_t n = read(fd, bytes, sizeof bytes);
	assert_true(n > 0 && n < (ssize_t)sizeof bytes);
	assert_int_equal(kvarc_blocks_put(b, name, bytes, (size_t)n), KVARC_OK);
	close(fd);
	unlink(path);
}

static kvarc_store_sizes sizes_of(kvarc_store *s)
{
	kvarc_store_sizes n;
	assert_int_equal(kvarc_store_stat(s, &n), KVARC_OK);
	return n;
}

static void beside_sessions(void **state)
{
	struct test_store t;
	char command[300];
	(void)state;
	store_new(&t);
	store_save_slot(t.s, "chat", test_slot(100, 100));
	kvarc_blocks *b = open_blocks(t.folder);
	assert_int_equal(sizes_of(t.s).blocks, 0);
	put_archive(&t, b, A);
	put_archive(&t, b, B);
	/* no blocks: other names, another place */
	snprintf(command, sizeof command,
	         "cd %s/blocks/00 && cp %s.kva x.kva && mkdir ../11 && cp %s.kva ../11", t.folder,
	         A, A);
	assert_int_equal(system(command), 0);
	kvarc_store_sizes n = sizes_of(t.s);
	assert_int_equal(n.blocks, 2);
	assert_int_equal(n.archives, 1);
	assert_int_equal(n.block_bytes, 2 * n.archive_bytes);
	assert_int_equal(n.unnamed, 0);
	assert_int_equal(store_losses(t.s), 0);
	/* no gc takes them, and they do not count to its budget */
	kvarc_gc_options o = { .budget = n.archive_bytes, .no_grace = 1 };
	kvarc_gc_result result;
	assert_int_equal(kvarc_store_gc(t.s, &o, &result), KVARC_OK);
	assert_int_equal(result.removed, 0);
	assert_int_equal(result.versions, 0);
	assert_int_equal(sizes_of(t.s).blocks, 2);

	snprintf(command, sizeof command,
	         "cd %s/blocks/00 && printf x | dd of=%s.kva bs=1 seek=300 conv=notrunc 2> dd.log",
	         t.folder, B);
	assert_int_equal(system(command), 0);
	assert_int_equal(store_losses(t.s), 1);
	store_check_slot(t.s, "chat", 1, test_slot(100, 100));
	assert_int_equal(kvarc_blocks_remove(b, B), KVARC_OK);
	assert_int_equal(store_losses(t.s), 0);
	assert_int_equal(kvarc_blocks_put(b, B, "not an archive", 14), KVARC_OK);
	assert_int_equal(store_losses(t.s), 1);
	kvarc_blocks_close(&b);
	store_remove(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(folder),          cmocka_unit_test(services),
		cmocka_unit_test(wrong_arguments), cmocka_unit_test(slow_services),
		cmocka_unit_test(beside_sessions),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
