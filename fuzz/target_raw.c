/* SPDX-License-Identifier: BSD-3-Clause */
/* target_raw.c - fuzz target: descriptions of raw pages, and config.json of engines
 *
 * The data begin with a text that ends with a zero byte. With mode bit 4 it is a layout, and the
 * rest a config.json; else it is a description, and the rest the file.
 */
#include "fuzz_import.h"

const size_t fuzz_parameters = 0;

struct rest {
	const uint8_t *p;
	size_t n;
};

static int64_t read_bytes(void *opaque, void *buf, size_t bytes, uint64_t offset)
{
	const struct rest *b = opaque;
	size_t left = offset < b->n ? b->n - (size_t)offset : 0;
	size_t n = bytes < left ? bytes : left;
	if (n)
		memcpy(buf, b->p + offset, n);
	return (int64_t)n;
}

void fuzz_one(const uint8_t *data, size_t n, struct fuzz_env *env)
{
	kvarc_import_options opt = KVARC_IMPORT_OPTIONS_INIT;
	const uint8_t *zero = n ? memchr(data, 0, n) : NULL;
	const char *text = (const char *)data;
	if (!zero)
		return;
	const size_t text_bytes = (size_t)(zero + 1 - data);
	if (env->mode & 0x10) {
		struct rest b = { data + text_bytes, n - text_bytes };
		const kvarc_source config = { .read = read_bytes, .opaque = &b, .size = b.n };
		char raw[160];
		kvarc_ret ret = kvarc_raw_layout(text, "base_r0/abc/de_g1/hash@bfloat16.bin",
		                                 b.n ? &config : NULL, raw, sizeof raw, NULL);
		if (ret == KVARC_OK && strlen(raw) >= sizeof raw)
			abort();
		return;
	}
	opt.raw = text;
	opt.rope = env->mode & 0x20 ? "auto" : "none";
	fuzz_import(data + text_bytes, n - text_bytes, env, &opt, "page.bin", true);
}
