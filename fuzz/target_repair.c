/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * target_repair.c - fuzz target: an archive is repaired, as it is and behind its checks (seal.h);
 * what comes out is repaired again and does not change any more
 */
#include "fuzz_common.h"
#include "seal.h"

const size_t fuzz_parameters = 0;

static kvarc_ret repair(const uint8_t *data, size_t n, struct fuzz_env *env, struct fuzz_file *out,
                        kvarc_repair_report *report)
{
	struct fuzz_input in = { .p = data, .n = n };
	const kvarc_source source = fuzz_input_source(&in);
	const kvarc_sink sink = fuzz_file_sink(out);
	kvarc_repair_options opt = { .common = env->common };
	opt.flags = env->mode & 2 ? KVARC_REPAIR_END : 0;
	kvarc_ret ret = kvarc_repair(&source, &sink, &opt, report);
	FUZZ_CHECK(ret == KVARC_OK || ret == KVARC_FORMAT || ret == KVARC_MEM ||
	           ret == KVARC_MEMLIMIT || ret == KVARC_IO);
	FUZZ_CHECK(ret != KVARC_OK || report->file_bytes == out->n);
	return ret;
}

void fuzz_one(const uint8_t *data, size_t n, struct fuzz_env *env)
{
	size_t made_n = n;
	uint8_t *made = env->mode & 1 ? fuzz_seal(data, n, &made_n) : malloc(n + 1);
	struct fuzz_file first = { 0 }, second = { 0 };
	kvarc_repair_report a, b;
	FUZZ_CHECK(made);
	if (!(env->mode & 1))
		memcpy(made, data, n);
	/* an exact block, so that reads past the end are seen */
	uint8_t *exact = malloc(made_n ? made_n : 1);
	FUZZ_CHECK(exact);
	memcpy(exact, made, made_n);
	free(made);
	if (repair(exact, made_n, env, &first, &a) == KVARC_OK &&
	    repair(first.p, first.n, env, &second, &b) == KVARC_OK) {
		/* Groups that contradict each other restore each other's pieces, any number. */
		FUZZ_CHECK(b.restored_pieces ||
		           (second.n == first.n && !memcmp(second.p, first.p, first.n)));
	}
	fuzz_file_free(&first);
	fuzz_file_free(&second);
	free(exact);
}
