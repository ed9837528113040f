/* SPDX-License-Identifier: BSD-3-Clause */
/* target_safetensors_import.c - fuzz target: safetensors files, rules and axes
 *
 * With mode bit 4 the data starts with a naming rule and a text of axes, each
 * ended by a zero byte.
 */
#include "fuzz_import.h"

const size_t fuzz_parameters = 0;

/* The next zero-terminated string, NULL when there is none. */
static const char *take_string(const uint8_t **p, size_t *n)
{
	const uint8_t *zero = *n ? memchr(*p, 0, *n) : NULL;
	const char *s = (const char *)*p;
	if (!zero)
		return NULL;
	*n -= (size_t)(zero + 1 - *p);
	*p = zero + 1;
	return s;
}

void fuzz_one(const uint8_t *data, size_t n, struct fuzz_env *env)
{
	kvarc_import_options opt = KVARC_IMPORT_OPTIONS_INIT;
	if (env->mode & 0x10) {
		opt.kv_rule = take_string(&data, &n);
		opt.axes = take_string(&data, &n);
	}
	opt.rope = env->mode & 0x20 ? "auto" : "none";
	fuzz_import(data, n, env, &opt, "cache.safetensors", true);
}
