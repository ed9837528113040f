/* SPDX-License-Identifier: BSD-3-Clause */
/* aead.h - encryption, key derivation and random bytes: the calls of libsodium that kvarc uses */
#ifndef KVI_AEAD_H
#define KVI_AEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvarc.h"
#include "util/shared.h"

/* Sizes of XChaCha20-Poly1305, and of a salt of Argon2id. */
enum {
	KVI_AEAD_KEY_BYTES = 32,
	KVI_AEAD_NONCE_BYTES = 24,
	KVI_AEAD_TAG_BYTES = 16,
	KVI_AEAD_SALT_BYTES = 16
};

/* Keys, nonces, salts and hashes below have the sizes above; a hash has 32 bytes. Any thread. */

/* Random bytes. */
KVI_SHARED void kvi_aead_random(void *out, size_t bytes);
/* Zeroes memory that the compiler believes is not read again. */
KVI_SHARED void kvi_aead_wipe(void *p, size_t bytes);
/* XChaCha20-Poly1305 of n bytes from `from` to `to` (which may be the same), the tag behind them:
 * n + 16 bytes. */
void kvi_aead_seal(uint8_t *to, const uint8_t *from, size_t n, const uint8_t *ad, size_t ad_bytes,
                   const uint8_t *nonce, const uint8_t *key);
/* Decrypts n bytes with the tag behind them, in place. False: the tag is wrong, and nothing was
 * changed. */
bool kvi_aead_open(uint8_t *text, size_t n, const uint8_t *ad, size_t ad_bytes,
                   const uint8_t *nonce, const uint8_t *key);
/* BLAKE2b-256 of `bytes` bytes with a key of 32. */
KVI_SHARED void kvi_aead_keyed_hash(uint8_t *out, const void *in, size_t bytes, const uint8_t *key);
/* Argon2id 1.3 with one lane. Returns OK, or MEM. */
KVI_SHARED kvarc_ret kvi_aead_derive(uint8_t *out, const void *passphrase, size_t bytes,
                                     const uint8_t *salt, uint32_t passes, uint32_t memory_kib);
/* Whether two secrets are equal, in a time that does not show where they differ. */
bool kvi_aead_equal(const void *a, const void *b, size_t bytes);

#endif
