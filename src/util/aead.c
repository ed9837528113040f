/* SPDX-License-Identifier: BSD-3-Clause */
/* aead.c - encryption by libsodium; without it, calls that are never made */
#include "config.h"

#include "aead.h"

#include <string.h>

#include "sodium_calls.h"

int kvarc_has_encryption(void)
{
	return kvi_aead_ready();
}

bool kvi_aead_ready(void)
{
	return kvi_sodium(NULL) != NULL;
}

/* Does not call libsodium: the memory may hold a key that was never used, which is no reason to
 * open the library. */
void kvi_aead_wipe(void *p, size_t bytes)
{
#ifdef HAVE_EXPLICIT_BZERO
	explicit_bzero(p, bytes);
#else
	for (volatile unsigned char *at = p; bytes; bytes--)
		*at++ = 0;
#endif
}

#ifdef HAVE_SODIUM

void kvi_aead_random(void *out, size_t bytes)
{
	randombytes_buf(out, bytes);
}

void kvi_aead_seal(uint8_t *to, const uint8_t *from, size_t n, const uint8_t *ad, size_t ad_bytes,
                   const uint8_t *nonce, const uint8_t *key)
{
	crypto_aead_xchacha20poly1305_ietf_encrypt_detached(to, to + n, NULL, from, n, ad, ad_bytes,
	                                                    NULL, nonce, key);
}

bool kvi_aead_open(uint8_t *text, size_t n, const uint8_t *ad, size_t ad_bytes,
                   const uint8_t *nonce, const uint8_t *key)
{
	return !crypto_aead_xchacha20poly1305_ietf_decrypt_detached(text, NULL, text, n, text + n,
	                                                            ad, ad_bytes, nonce, key);
}

void kvi_aead_keyed_hash(uint8_t *out, const void *in, size_t bytes, const uint8_t *key)
{
	crypto_generichash(out, 32, in, bytes, key, KVI_AEAD_KEY_BYTES);
}

kvarc_ret kvi_aead_derive(uint8_t *out, const void *passphrase, size_t bytes, const uint8_t *salt,
                          uint32_t passes, uint32_t memory_kib)
{
	const uint64_t memory = (uint64_t)memory_kib << 10;
	if (memory > SIZE_MAX)
		return KVARC_MEM;
	return crypto_pwhash(out, KVI_AEAD_KEY_BYTES, passphrase, bytes, salt, passes,
	                     (size_t)memory, crypto_pwhash_ALG_ARGON2ID13)
	               ? KVARC_MEM
	               : KVARC_OK;
}

bool kvi_aead_equal(const void *a, const void *b, size_t bytes)
{
	return !sodium_memcmp(a, b, bytes);
}

#else

void kvi_aead_random(void *out, size_t bytes)
{
	memset(out, 0, bytes);
}

void kvi_aead_seal(uint8_t *to, const uint8_t *from, size_t n, const uint8_t *ad, size_t ad_bytes,
                   const uint8_t *nonce, const uint8_t *key)
{
	(void)from, (void)ad, (void)ad_bytes, (void)nonce, (void)key;
	memset(to, 0, n + KVI_AEAD_TAG_BYTES);
}

bool kvi_aead_open(uint8_t *text, size_t n, const uint8_t *ad, size_t ad_bytes,
                   const uint8_t *nonce, const uint8_t *key)
{
	(void)text, (void)n, (void)ad, (void)ad_bytes, (void)nonce, (void)key;
	return false;
}

void kvi_aead_keyed_hash(uint8_t *out, const void *in, size_t bytes, const uint8_t *key)
{
	(void)in, (void)bytes, (void)key;
	memset(out, 0, 32);
}

kvarc_ret kvi_aead_derive(uint8_t *out, const void *passphrase, size_t bytes, const uint8_t *salt,
                          uint32_t passes, uint32_t memory_kib)
{
	(void)passphrase, (void)bytes, (void)salt, (void)passes, (void)memory_kib;
	memset(out, 0, KVI_AEAD_KEY_BYTES);
	return KVARC_MEM;
}

bool kvi_aead_equal(const void *a, const void *b, size_t bytes)
{
	(void)a, (void)b, (void)bytes;
	return false;
}
#endif
