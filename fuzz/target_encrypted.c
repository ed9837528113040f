/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * target_encrypted.c - fuzz target: encrypted archives, as they are, behind their checks, and plain
 * ones that are encrypted first, so that their contents are behind right tags (seal.h)
 */
#include "fuzz_common.h"
#include "seal.h"

const size_t fuzz_parameters = 0;

static void read_one(const uint8_t *data, size_t n, struct fuzz_env *env, unsigned how)
{
	struct fuzz_input in = { .p = data, .n = n, .pipe = how == 0 };
	kvarc_source source = fuzz_input_source(&in);
	kvarc_reader_options opt = { .common = env->common };
	kvarc_reader *r = NULL;
	opt.keys = env->mode & 0x40 ? NULL : &fuzz_keys;
	opt.flags = KVARC_READ_ALLOW_LOSSY | (how == 3 ? KVARC_READ_SALVAGE : 0);
	if (how == 2)
		source.memory = data;
	if (kvarc_reader_open(&r, &source, &opt) != KVARC_OK)
		return;
	struct fuzz_sum sum = { kvarc_reader_geometry(r), 0 };
	const kvarc_range range = KVARC_RANGE_ALL(0);
	kvarc_ret ret = KVARC_OK;
	if (how == 1)
		ret = kvarc_reader_read_deliver(r, &range, fuzz_deliver, &sum);
	else if (how == 2)
		ret = kvarc_reader_verify(r, NULL, NULL);
	else
		ret = fuzz_read_all(r);
	if (how == 1)
		fuzz_ask_all(r);
	FUZZ_CHECK(ret != KVARC_FORMAT && ret != KVARC_PROG && ret != KVARC_AUTH);
	kvarc_reader_close(&r);
}

/* What was opened can be continued, or there is an answer. */
static void append(const uint8_t *data, size_t n, struct fuzz_env *env)
{
	struct fuzz_input in = { .p = data, .n = n };
	kvarc_source source = fuzz_input_source(&in);
	struct fuzz_file out = { 0 };
	kvarc_sink sink = fuzz_file_sink(&out);
	kvarc_writer_options opt = KVARC_WRITER_OPTIONS_INIT;
	kvarc_writer *w;
	opt.common = env->common;
	opt.keys = &fuzz_keys;
	/* the sink is no copy of the archive: a cut one cannot be shortened, which is an answer */
	if (kvarc_writer_open_append(&w, &source, &sink, &opt) == KVARC_OK) {
		kvarc_ret ret = kvarc_writer_checkpoint(w, "x", 0, NULL);
		/* PROG: the numbers of checkpoints end at 2^53 */
		FUZZ_CHECK(ret == KVARC_OK || ret == KVARC_MEM || ret == KVARC_MEMLIMIT ||
		           ret == KVARC_IO || ret == KVARC_PROG);
		kvarc_writer_abort(&w);
	}
	fuzz_file_free(&out);
}

static void show(const uint8_t *data, size_t n, struct fuzz_env *env)
{
	struct fuzz_input in = { .p = data, .n = n };
	kvarc_source source = fuzz_input_source(&in);
	kvarc_envelope v;
	kvarc_ret ret = kvarc_read_envelope(&source, &env->common, &v);
	FUZZ_CHECK(ret == KVARC_OK || ret == KVARC_FORMAT || ret == KVARC_DATA);
}

void fuzz_one(const uint8_t *data, size_t n, struct fuzz_env *env)
{
	const unsigned form = env->mode & 3;
	size_t made_n = n;
	uint8_t *made = form == 0   ? malloc(n + 1)
	                : form == 1 ? fuzz_seal(data, n, &made_n)
	                            : fuzz_seal_encrypted(data, n, &made_n);
	FUZZ_CHECK(made);
	if (form == 0)
		memcpy(made, data, n);
	/* an exact block, so that reads past the end are seen */
	uint8_t *exact = malloc(made_n ? made_n : 1);
	FUZZ_CHECK(exact);
	memcpy(exact, made, made_n);
	free(made);
	for (unsigned how = 0; how < 4; how++)
		read_one(exact, made_n, env, how);
	append(exact, made_n, env);
	show(exact, made_n, env);
	free(exact);
}
