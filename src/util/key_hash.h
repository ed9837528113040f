/* SPDX-License-Identifier: BSD-3-Clause */
/* key_hash.h - B128 of the specification (spec 1.4), on libsodium: what keys of stores are */
#ifndef KVI_KEY_HASH_H
#define KVI_KEY_HASH_H

#include <stddef.h>
#include <stdint.h>

#include "hash.h"

/* B128 of the bytes: BLAKE2b with a digest of 16, as kvi_load_h128 reads it. Any thread. */
struct kvi_h128 kvi_b128(const void *p, size_t bytes);

/* B128 of bytes that come in parts; its fields are of key_hash.c alone. */
struct kvi_key_hasher {
	_Alignas(64) uint8_t state[384];
};
/* Begins with no bytes. */
void kvi_key_hasher_begin(struct kvi_key_hasher *hasher);
/* Adds bytes behind those that came before. */
void kvi_key_hasher_add(struct kvi_key_hasher *hasher, const void *p, size_t bytes);
/* B128 of all bytes that came. No more may follow. */
struct kvi_h128 kvi_key_hasher_end(struct kvi_key_hasher *hasher);

#endif
