/* SPDX-License-Identifier: BSD-3-Clause */
/* veil.c - keyed hashes that stand for chain values and digests in the index of a store */
#include "veil.h"

#include <string.h>

#include "util/aead.h"
#include "util/bytes.h"
#include "util/hash.h"

/* Kinds of hashed values: no two kinds have the same hashes. */
enum { VEIL_HASH = 1, VEIL_FIRST, VEIL_SPACE };

static void keyed(const struct kvi_veil *veil, uint8_t out[16], uint8_t kind, const uint8_t in[16])
{
	uint8_t text[17], hash[32];
	text[0] = kind;
	memcpy(text + 1, in, 16);
	kvi_aead_keyed_hash(hash, text, sizeof text, veil->key);
	memcpy(out, hash, 16);
}

void kvi_veil_hash(const struct kvi_veil *veil, uint8_t out[16], const uint8_t in[16])
{
	if (veil->on)
		keyed(veil, out, VEIL_HASH, in);
	else
		memmove(out, in, 16);
}

uint64_t kvi_veil_word(const struct kvi_veil *veil, const uint8_t in[16])
{
	uint8_t hash[16];
	kvi_veil_hash(veil, hash, in);
	return kvi_load64(hash);
}

int32_t kvi_veil_first(const struct kvi_veil *veil, uint64_t parent, int32_t id)
{
	uint8_t in[16] = { 0 }, hash[16];
	if (!veil->on)
		return id;
	kvi_store64(in, parent);
	kvi_store32(in + 8, (uint32_t)id);
	keyed(veil, hash, VEIL_FIRST, in);
	return (int32_t)(kvi_load32(hash) & 0x7fffffff);
}

uint64_t kvi_veil_space(const struct kvi_veil *veil, const char *name_space)
{
	const uint64_t plain = kvi_h64(name_space, strlen(name_space));
	uint8_t in[16] = { 0 }, hash[16];
	if (!veil->on)
		return plain;
	kvi_store64(in, plain);
	keyed(veil, hash, VEIL_SPACE, in);
	return kvi_load64(hash);
}

bool kvi_veil_equal(const struct kvi_veil *veil, const uint8_t veiled[16], const uint8_t plain[16])
{
	uint8_t hash[16];
	kvi_veil_hash(veil, hash, plain);
	return memcmp(hash, veiled, 16) == 0;
}
