/* SPDX-License-Identifier: BSD-3-Clause */
/* target_kvc.c - fuzz target: KVC files */
#include "fuzz_import.h"

const size_t fuzz_parameters = 0;

void fuzz_one(const uint8_t *data, size_t n, struct fuzz_env *env)
{
	kvarc_import_options opt = KVARC_IMPORT_OPTIONS_INIT;
	opt.rope = "none";
	fuzz_import(data, n, env, &opt, "slot.kvc", true);
}
