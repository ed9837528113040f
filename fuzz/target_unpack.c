/* SPDX-License-Identifier: BSD-3-Clause */
/* target_unpack.c - fuzz target: RESTORE and BLOB frames, from a pipe or a file */
#include "fuzz_common.h"

const size_t fuzz_parameters = 0;

void fuzz_one(const uint8_t *data, size_t n, struct fuzz_env *env)
{
	struct fuzz_input in = {
		.p = data, .n = n, .pipe = env->mode & 1, .piece = env->mode & 2 ? 1000 : 0
	};
	kvarc_source source = fuzz_input_source(&in);
	kvarc_reader_options opt = { .common = env->common };
	kvarc_reader *r = NULL;
	opt.common.threads = env->mode & 4 ? 2 : 0;
	opt.flags = env->mode & 0x10 ? 0 : KVARC_READ_ALLOW_LOSSY;
	if (kvarc_reader_open(&r, &source, &opt) != KVARC_OK)
		return;
	kvarc_ret ret = fuzz_unpack_all(r);
	FUZZ_CHECK(ret != KVARC_END && ret != KVARC_PROG);
	kvarc_reader_close(&r);
}
