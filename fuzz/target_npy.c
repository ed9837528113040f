/* SPDX-License-Identifier: BSD-3-Clause */
/* target_npy.c - fuzz target: .npy files */
#include "fuzz_import.h"

const size_t fuzz_parameters = 0;

void fuzz_one(const uint8_t *data, size_t n, struct fuzz_env *env)
{
	kvarc_import_options opt = KVARC_IMPORT_OPTIONS_INIT;
	opt.axes = env->mode & 0x10 ? "htc" : env->mode & 0x20 ? "thc" : NULL;
	opt.rope = "none";
	fuzz_import(data, n, env, &opt, "layers.0.key.npy", true);
}
