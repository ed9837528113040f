/* SPDX-License-Identifier: BSD-3-Clause */
/* target_decode.c - fuzz target: read in order, pipe or file, 1 to 3 threads, to a checkpoint */
#include "fuzz_store.h"

const size_t fuzz_parameters = 0;

void fuzz_one(const uint8_t *data, size_t n, struct fuzz_env *env)
{
	struct fuzz_input in = {
		.p = data, .n = n, .pipe = env->mode & 1, .piece = env->mode & 2 ? 61 : 0
	};
	kvarc_source source = fuzz_input_source(&in);
	kvarc_reader_options opt = { .common = env->common };
	struct fuzz_store store;
	kvarc_reader *r = NULL;
	fuzz_store_use(&store, &opt);
	opt.common.threads = (env->mode >> 2) % 4;
	opt.flags = env->mode & 0x10 ? 0 : KVARC_READ_ALLOW_LOSSY;
	opt.checkpoint = env->mode >> 5;
	if (kvarc_reader_open(&r, &source, &opt) != KVARC_OK) {
		FUZZ_CHECK(!r);
		return;
	}
	store.vectors.geometry = kvarc_reader_geometry(r);
	kvarc_ret ret = fuzz_read_all(r);
	FUZZ_CHECK(ret != KVARC_OK && ret != KVARC_PROG);
	kvarc_info info;
	if (kvarc_reader_get_info(r, &info) == KVARC_OK)
		FUZZ_CHECK(in.pipe || info.file_bytes == n);
	kvarc_reader_close(&r);
	FUZZ_CHECK(!r);
}
