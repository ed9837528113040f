/* SPDX-License-Identifier: BSD-3-Clause */
/* target_model_safetensors.c - fuzz target: the weights of a folder
 *
 * Data: config.json up to a byte of zero, then model.safetensors. Mode, bit 0: all of it is
 * an index of parts; bit 1: the safetensors file is there twice.
 */
#include "fuzz_model.h"

const size_t fuzz_parameters = 0;

static void read_index(const uint8_t *file, size_t n, struct fuzz_env *env)
{
	struct kvi_alloc alloc;
	struct kvi_model_part *parts;
	size_t n_parts;
	kvi_alloc_init(&alloc, &env->allocator, FUZZ_MEMLIMIT);
	kvarc_ret ret = kvi_safetensors_index(&alloc, (struct kvi_map){ file, n }, &parts, &n_parts,
	                                      &env->error);
	FUZZ_CHECK(ret == KVARC_OK || ret == KVARC_DATA || ret == KVARC_OPTIONS ||
	           ret == KVARC_MEMLIMIT || (ret == KVARC_MEM && env->failing));
	for (size_t i = 0; i < n_parts; i++) {
		FUZZ_CHECK(!strchr(parts[i].name, '/') && parts[i].name[0] != '.');
		kvi_free(&alloc, parts[i].name);
	}
	kvi_free(&alloc, parts);
}

static void read_folder(const uint8_t *file, size_t n, struct fuzz_env *env)
{
	char names[2][8] = { "part 1", "part 2" };
	const uint8_t *end = n ? memchr(file, 0, n) : NULL;
	size_t config = end ? (size_t)(end - file) : n;
	struct kvi_map whole = { file + config + (end != NULL), n - config - (end != NULL) };
	struct kvi_model_part parts[2] = { { names[0], whole }, { names[1], whole } };
	struct kvi_alloc alloc;
	struct kvi_model_file *m;
	fuzz_model_begin(&m, &alloc, env);
	if (!m)
		return;
	kvarc_ret ret = kvi_safetensors_model(m, (struct kvi_map){ file, config }, parts,
	                                      env->mode & 2 ? 2 : 1, &env->error);
	fuzz_model_end(&m, ret, file, n, env);
}

void fuzz_one(const uint8_t *data, size_t n, struct fuzz_env *env)
{
	uint8_t *file = malloc(n ? n : 1); /* exact: sanitizers see its end */
	FUZZ_CHECK(file);
	if (n)
		memcpy(file, data, n);
	if (env->mode & 1)
		read_index(file, n, env);
	else
		read_folder(file, n, env);
	free(file);
}
