/* SPDX-License-Identifier: BSD-3-Clause */
/* target_manifest.c - fuzz target: the manifest of a session, keys of manifests and of blocks */
#include "store/manifest.h"
#include "fuzz_common.h"
#include "util/hash.h"

const size_t fuzz_parameters = 0;

/* What was read is written so that it is read again. */
static void write_again(const struct kvi_manifest *m)
{
	char text[KVI_MANIFEST_MAX];
	struct kvi_manifest again;
	size_t bytes = kvi_manifest_write(text, m);
	FUZZ_CHECK(bytes <= sizeof text);
	FUZZ_CHECK(kvi_manifest_parse(&again, text, bytes) == KVARC_OK);
	FUZZ_CHECK(memcmp(m, &again, sizeof again) == 0);
}

static void parse(const char *text, size_t bytes)
{
	struct kvi_manifest m;
	kvarc_ret ret = kvi_manifest_parse(&m, text, bytes);
	FUZZ_CHECK(ret == KVARC_OK || ret == KVARC_DATA || ret == KVARC_OPTIONS);
	if (ret)
		return;
	FUZZ_CHECK(!*m.parent || !kvi_session_wrong(m.parent));
	write_again(&m);
}

/* The lines with the check that they need. */
static void parse_sealed(const uint8_t *data, size_t n)
{
	char text[KVI_MANIFEST_MAX + 64], hex[33];
	uint8_t sum[16];
	if (n > KVI_MANIFEST_MAX)
		return;
	memcpy(text, data, n);
	kvi_store_h128(sum, kvi_h128(data, n));
	kvi_hex(hex, sum);
	parse(text, n + (size_t)sprintf(text + n, "check=%s\n", hex));
}

static void parse_key(const uint8_t *data, size_t n)
{
	char key[KVI_KEY_MAX + 1], again[KVI_KEY_MAX + 1], name[KVI_BLOCK_NAME + 1];
	struct kvi_session_key k;
	if (n > KVI_KEY_MAX)
		return;
	memcpy(key, data, n);
	key[n] = 0;
	if (kvi_block_key_parse(name, key))
		FUZZ_CHECK(kvi_block_key(again, name) && strcmp(again, key) == 0);
	if (!kvi_session_key_parse(&k, key))
		return;
	FUZZ_CHECK(!kvi_session_wrong(k.name));
	FUZZ_CHECK(kvi_version_key(again, k.name_space, k.name, k.number));
	FUZZ_CHECK(strcmp(again, key) == 0);
}

void fuzz_one(const uint8_t *data, size_t n, struct fuzz_env *env)
{
	(void)env;
	parse((const char *)data, n);
	parse_sealed(data, n);
	parse_key(data, n);
}
