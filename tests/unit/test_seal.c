/* SPDX-License-Identifier: BSD-3-Clause */
/* test_seal.c - the fuzzers' fuzz_seal makes mutated archives right: chain values and INDEX, too */
#include <stdio.h>

#include "../../fuzz/seal.h"
#include "stream_util.h"
#include "util/bytes.h"

enum { TOKENS = 5, SUPERBLOCK = 64, MINOR = 10, SEGMENT = 6 };

/* What verify says of an archive, and the chain value of its last token. */
static kvarc_ret verified_with(uint8_t *p, size_t n, uint8_t chain[16], const kvarc_keys *keys)
{
	struct memfile f = { .p = p, .n = n, .fail_at = -1 };
	kvarc_source source = memfile_source(&f);
	kvarc_reader *r;
	kvarc_info info;
	const kvarc_reader_options o = { .keys = keys };
	assert_int_equal(kvarc_reader_open(&r, &source, &o), KVARC_OK);
	kvarc_ret ret = kvarc_reader_verify(r, NULL, NULL);
	if (ret == KVARC_OK || keys) {
		assert_int_equal(kvarc_reader_get_info(r, &info), KVARC_OK);
		assert_int_equal(info.state, KVARC_STATE_CLOSED);
		assert_int_equal(kvarc_reader_chain(r, 0, TOKENS, chain), KVARC_OK);
	}
	kvarc_reader_close(&r);
	return ret;
}

static kvarc_ret verified(uint8_t *p, size_t n, uint8_t chain[16])
{
	return verified_with(p, n, chain, NULL);
}

/* The last byte of the payload of the first SEGMENT, which is one of an id. */
static uint8_t *last_id(uint8_t *p, size_t n)
{
	for (size_t at = SUPERBLOCK; at < n;) {
		size_t bytes = kvi_load32(p + at + 12);
		if (kvi_load16(p + at + 8) == SEGMENT)
			return p + at + 32 + bytes - 1;
		at += 32 + ((bytes + 15) & ~(size_t)15) + 16;
	}
	fail();
	return NULL;
}

/* Segments of the vector are packed by turns; one that is repaired is stored, so frames move. */
static void test_chain_values(void **state)
{
	const char *srcdir = getenv("srcdir");
	static uint8_t p[1 << 16];
	uint8_t chain[3][16], *sealed;
	char path[4096];
	size_t n, sealed_n;
	(void)state;
	snprintf(path, sizeof path, "%s/spec/vectors/good-rewind.kva", srcdir ? srcdir : ".");
	FILE *file = fopen(path, "rb");
	assert_non_null(file);
	n = fread(p, 1, sizeof p, file);
	fclose(file);
	assert_true(n < sizeof p);
	assert_int_equal(verified(p, n, chain[0]), KVARC_OK);
	for (int i = 1; i < 3; i++) {
		sealed = fuzz_seal(p, n, &sealed_n);
		assert_int_equal(verified(sealed, sealed_n, chain[i]), KVARC_OK);
		free(sealed);
		*last_id(p, n) ^= 1;
	}
	assert_memory_equal(chain[1], chain[0], 16);
	/* Encrypted it is opened by its index, and all segments are there. */
	sealed = fuzz_seal_encrypted(p, n, &sealed_n);
	verified_with(sealed, sealed_n, chain[2], &fuzz_keys);
	free(sealed);
	p[MINOR] = 1; /* contents stay */
	sealed = fuzz_seal(p, n, &sealed_n);
	assert_int_equal(verified(sealed, sealed_n, chain[1]), KVARC_OK);
	free(sealed);
	*last_id(p, n) ^= 1;
	sealed = fuzz_seal(p, n, &sealed_n);
	assert_int_equal(verified(sealed, sealed_n, chain[1]), KVARC_DATA);
	free(sealed);
}

/* Chain values behind forks depend on ids of another track. */
static void test_forks(void **state)
{
	const char *srcdir = getenv("srcdir");
	static uint8_t p[1 << 16];
	char path[4096];
	size_t sealed_n;
	(void)state;
	snprintf(path, sizeof path, "%s/spec/vectors/good-fork.kva", srcdir ? srcdir : ".");
	FILE *file = fopen(path, "rb");
	assert_non_null(file);
	const size_t n = fread(p, 1, sizeof p, file);
	fclose(file);
	*last_id(p, n) ^= 1;
	uint8_t *sealed = fuzz_seal(p, n, &sealed_n);
	struct memfile f = { .p = sealed, .n = sealed_n, .fail_at = -1 };
	assert_int_equal(cache_verify(&f, NULL), KVARC_OK);
	free(sealed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_chain_values),
		cmocka_unit_test(test_forks),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
