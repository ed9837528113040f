/* SPDX-License-Identifier: BSD-3-Clause */
/* aead.c - encryption by libsodium */
#include "aead.h"

#include <sodium.h>

/* Before calls of libsodium: they then are for any thread, and it has chosen its fastest code. May
 * be called again; fails where a lock of its own does. */
static void begin(void)
{
	if (sodium_init() < 0)
		sodium_misuse();
}

void kvi_aead_wipe(void *p, size_t bytes)
{
	sodium_memzero(p, bytes);
}

void kvi_aead_random(void *out, size_t bytes)
{
	begin();
	randombytes_buf(out, bytes);
}

void kvi_aead_seal(uint8_t *to, const uint8_t *from, size_t n, const uint8_t *ad, size_t ad_bytes,
                   const uint8_t *nonce, const uint8_t *key)
{
	begin();
	crypto_aead_xchacha20poly1305_ietf_encrypt_detached(to, to + n, NULL, from, n, ad, ad_bytes,
	                                                    NULL, nonce, key);
}

bool kvi_aead_open(uint8_t *text, size_t n, const uint8_t *ad, size_t ad_bytes,
                   const uint8_t *nonce, const uint8_t *key)
{
	begin();
	return !crypto_aead_xchacha20poly1305_ietf_decrypt_detached(text, NULL, text, n, text + n,
	                                                            ad, ad_bytes, nonce, key);
}

void kvi_aead_keyed_hash(uint8_t *out, const void *in, size_t bytes, const uint8_t *key)
{
	begin();
	crypto_generichash(out, 32, in, bytes, key, KVI_AEAD_KEY_BYTES);
}

kvarc_ret kvi_aead_derive(uint8_t *out, const void *passphrase, size_t bytes, const uint8_t *salt,
                          uint32_t passes, uint32_t memory_kib)
{
	const uint64_t memory = (uint64_t)memory_kib << 10;
	if (memory > SIZE_MAX)
		return KVARC_MEM;
	begin();
	return crypto_pwhash(out, KVI_AEAD_KEY_BYTES, passphrase, bytes, salt, passes,
	                     (size_t)memory, crypto_pwhash_ALG_ARGON2ID13)
	               ? KVARC_MEM
	               : KVARC_OK;
}

bool kvi_aead_equal(const void *a, const void *b, size_t bytes)
{
	return !sodium_memcmp(a, b, bytes);
}
