/* SPDX-License-Identifier: BSD-3-Clause */
/* target_container.c - fuzz target: tar, zip and npz inputs, in place and taken apart */
#include "fuzz_import.h"

const size_t fuzz_parameters = 0;

void fuzz_one(const uint8_t *data, size_t n, struct fuzz_env *env)
{
	const char *dir = getenv("TMPDIR");
	kvarc_import_options opt = KVARC_IMPORT_OPTIONS_INIT;
	opt.temp_dir = dir ? dir : "/tmp";
	opt.rope = "none";
	opt.members = env->mode & 0x20 ? 1 : 0;
	fuzz_import(data, n, env, &opt, env->mode & 0x10 ? "a.npz" : "a.tar", !opt.members);
}
