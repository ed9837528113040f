/* SPDX-License-Identifier: BSD-3-Clause */
/* test_pickle_links.c - files of torch.save whose pickle is short, and has no end to walk */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "kvarc.h"

enum { PAIRS = 100000, TIMES = 200000, SPACE = 1 << 20, SECONDS = 60 };

struct pickle_made {
	uint8_t *p;
	size_t n;
};

static void put(struct pickle_made *m, const char *p, size_t n)
{
	assert_true(m->n + n <= SPACE);
	memcpy(m->p + m->n, p, n);
	m->n += n;
}

static void put_number(struct pickle_made *m, uint64_t v, unsigned bytes)
{
	for (unsigned i = 0; i < bytes; i++) {
		const char byte = (char)(v >> (8 * i));
		put(m, &byte, 1);
	}
}

/* The header of the only member, which is stored, at the start of the file or in the directory. */
static void put_head(struct pickle_made *m, bool central, size_t bytes)
{
	static const char name[] = "a/data.pkl";
	put_number(m, central ? 0x02014b50 : 0x04034b50, 4);
	put_number(m, 0, 8);
	put_number(m, 0, central ? 8 : 6);
	put_number(m, bytes, 4);
	put_number(m, bytes, 4);
	put_number(m, sizeof name - 1, 2);
	put_number(m, 0, 2);
	put_number(m, 0, central ? 8 : 0);
	put_number(m, 0, central ? 6 : 0);
	put(m, name, sizeof name - 1);
}

/* A list that has one thing many times: a dictionary of pairs of None, or a list of None. */
static struct pickle_made make_pickle(bool dictionary)
{
	struct pickle_made m = { malloc(SPACE), 0 };
	assert_non_null(m.p);
	put(&m, "\x80\x02](", 4);
	put(&m, dictionary ? "}q\0(" : "]q\0(", 4);
	for (size_t i = 0; i < PAIRS; i++)
		put(&m, "NN", 2);
	put(&m, dictionary ? "u" : "e", 1);
	for (size_t i = 0; i < TIMES; i++)
		put(&m, "h\0", 2);
	put(&m, "e.", 2);
	return m;
}

static int64_t read_memory(void *opaque, void *buf, size_t bytes, uint64_t offset)
{
	memcpy(buf, (uint8_t *)opaque + offset, bytes);
	return (int64_t)bytes;
}

static void check_ends(bool dictionary)
{
	kvarc_import_options o = KVARC_IMPORT_OPTIONS_INIT;
	struct pickle_made pickle = make_pickle(dictionary);
	struct pickle_made file = { malloc(SPACE), 0 };
	kvarc_import *im;
	uint64_t tensors;
	assert_non_null(file.p);
	put_head(&file, false, pickle.n);
	put(&file, (const char *)pickle.p, pickle.n);
	const size_t directory = file.n;
	put_head(&file, true, pickle.n);
	const size_t bytes = file.n - directory;
	put_number(&file, 0x06054b50, 4);
	put_number(&file, 0, 4);
	put_number(&file, 1, 2);
	put_number(&file, 1, 2);
	put_number(&file, bytes, 4);
	put_number(&file, directory, 4);
	put_number(&file, 0, 2);
	const kvarc_source source = { .read = read_memory, .opaque = file.p, .size = file.n };
	o.rope = "none";
	alarm(SECONDS);
	assert_int_equal(kvarc_import_open(&im, &source, "a.pt", &o), KVARC_OK);
	alarm(0);
	kvarc_import_sizes(im, NULL, &tensors);
	assert_int_equal(tensors, 0);
	kvarc_import_close(&im);
	free(file.p);
	free(pickle.p);
}

static void test_dictionary(void **state)
{
	(void)state;
	check_ends(true);
}

static void test_list(void **state)
{
	(void)state;
	check_ends(false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_dictionary),
		cmocka_unit_test(test_list),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
