/* SPDX-License-Identifier: BSD-3-Clause */
/* key_hash.c - BLAKE2b through libsodium */
#include "key_hash.h"

#include <sodium.h>

/*
 * sodium_init is not called: this hash does not need it, and it asks the host for random numbers,
 * which reading an archive must not depend on. Where another thread calls it meanwhile, libsodium
 * changes to faster code, which computes the same.
 */

enum { BYTES = 16 };

_Static_assert(sizeof(crypto_generichash_state) <= sizeof(struct kvi_key_hasher), "a state fits");

static crypto_generichash_state *state_of(struct kvi_key_hasher *hasher)
{
	return (crypto_generichash_state *)(void *)hasher->state;
}

struct kvi_h128 kvi_b128(const void *p, size_t bytes)
{
	uint8_t digest[BYTES];
	crypto_generichash(digest, sizeof digest, p, bytes, NULL, 0);
	return kvi_load_h128(digest);
}

void kvi_key_hasher_begin(struct kvi_key_hasher *hasher)
{
	crypto_generichash_init(state_of(hasher), NULL, 0, BYTES);
}

void kvi_key_hasher_add(struct kvi_key_hasher *hasher, const void *p, size_t bytes)
{
	crypto_generichash_update(state_of(hasher), p, bytes);
}

struct kvi_h128 kvi_key_hasher_end(struct kvi_key_hasher *hasher)
{
	uint8_t digest[BYTES];
	crypto_generichash_final(state_of(hasher), digest, sizeof digest);
	return kvi_load_h128(digest);
}
