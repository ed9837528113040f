/* SPDX-License-Identifier: BSD-3-Clause */
/* target_slot_import.c - fuzz target: llama.cpp sequence and session files */
#include "fuzz_import.h"

const size_t fuzz_parameters = 0;

void fuzz_one(const uint8_t *data, size_t n, struct fuzz_env *env)
{
	kvarc_import_options opt = KVARC_IMPORT_OPTIONS_INIT;
	opt.rope = env->mode & 0x10 ? "10000,interleaved" : env->mode & 0x20 ? "auto" : "none";
	fuzz_import(data, n, env, &opt, env->mode & 0x40 ? NULL : "slot", true);
}
