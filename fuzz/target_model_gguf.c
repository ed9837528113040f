/* SPDX-License-Identifier: BSD-3-Clause */
/* target_model_gguf.c - fuzz target: the weights of a GGUF file */
#include "fuzz_model.h"

const size_t fuzz_parameters = 0;

void fuzz_one(const uint8_t *data, size_t n, struct fuzz_env *env)
{
	struct kvi_alloc alloc;
	struct kvi_model_file *m;
	uint8_t *file = malloc(n ? n : 1); /* exact: sanitizers see its end */
	FUZZ_CHECK(file);
	if (n)
		memcpy(file, data, n);
	fuzz_model_begin(&m, &alloc, env);
	if (m) {
		kvarc_ret ret = kvi_gguf_model(m, (struct kvi_map){ file, n }, &env->error);
		fuzz_model_end(&m, ret, file, n, env);
	}
	free(file);
}
