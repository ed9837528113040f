/* SPDX-License-Identifier: BSD-3-Clause */
/* target_index.c - fuzz target: open with index or scan, at a checkpoint; lists, tokens, verify */
#include "fuzz_common.h"

const size_t fuzz_parameters = 0;

static void count_damage(void *opaque, const kvarc_damage *damage)
{
	unsigned *count = opaque;
	FUZZ_CHECK(damage->what && damage->what[0]);
	++*count;
}

static void tokens_of(kvarc_reader *r)
{
	uint64_t n = kvarc_reader_tokens(r, 0);
	if (n == 0 || n > 1 << 20)
		return;
	int32_t *ids = calloc((size_t)n, 2 * sizeof *ids);
	FUZZ_CHECK(ids);
	if (kvarc_reader_read_tokens(r, 0, 0, n, ids, ids + n) == KVARC_OPTIONS)
		FUZZ_CHECK(kvarc_reader_read_tokens(r, 0, n / 2, n - n / 2, NULL, ids) !=
		           KVARC_PROG);
	free(ids);
}

void fuzz_one(const uint8_t *data, size_t n, struct fuzz_env *env)
{
	struct fuzz_input in = { .p = data, .n = n };
	kvarc_source source = fuzz_input_source(&in);
	kvarc_reader_options opt = { .common = env->common };
	kvarc_reader *r = NULL;
	opt.checkpoint = env->mode >> 4;
	if (kvarc_reader_open(&r, &source, &opt) != KVARC_OK)
		return;
	fuzz_ask_all(r);
	if (env->mode & 1)
		tokens_of(r);
	unsigned damaged = 0;
	kvarc_ret ret = kvarc_reader_verify(r, env->mode & 2 ? count_damage : NULL, &damaged);
	if (damaged)
		FUZZ_CHECK(ret == KVARC_DATA || env->failing);
	kvarc_reader_close(&r);
}
