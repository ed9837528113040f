/* SPDX-License-Identifier: BSD-3-Clause */
/* target_gguf.c - fuzz target: header of a GGUF model given with --model
 *
 * The import is a fixed small sequence of bytes; the input is the model.
 */
#include "fuzz_import.h"

const size_t fuzz_parameters = 0;

void fuzz_one(const uint8_t *data, size_t n, struct fuzz_env *env)
{
	static const uint8_t file[64] = "not a cache";
	struct fuzz_input model = { .p = data, .n = n, .piece = env->mode & 0x10 ? 100 : 0 };
	kvarc_source source = fuzz_input_source(&model);
	kvarc_import_options opt = KVARC_IMPORT_OPTIONS_INIT;
	opt.model = &source;
	fuzz_import(file, sizeof file, env, &opt, NULL, true);
}
