/* SPDX-License-Identifier: BSD-3-Clause */
/* sodium_calls.h - the calls of libsodium, linked or of the host's library, by their own names */
#ifndef KVI_SODIUM_CALLS_H
#define KVI_SODIUM_CALLS_H

#include "kvarc.h"

struct kvi_sodium;
/*
 * The library behind the names below, always the same one; any thread. With --with-sodium=dlopen
 * the first call that finds the library opens it. To be called before any other call. NULL: there
 * is no library, and *error, which may be NULL, says what to do (OPTIONS).
 */
const struct kvi_sodium *kvi_sodium(kvarc_error *error);

#ifdef HAVE_SODIUM

#include <sodium.h>

#ifdef SODIUM_DLOPEN

#include "util/shared_library.h"

/* The calls that are used. */
#define KVI_SODIUM_CALLS(X)                                    \
	X(crypto_aead_xchacha20poly1305_ietf_decrypt_detached) \
	X(crypto_aead_xchacha20poly1305_ietf_encrypt_detached) \
	X(crypto_generichash)                                  \
	X(crypto_pwhash)                                       \
	X(randombytes_buf)                                     \
	X(sodium_init)                                         \
	X(sodium_memcmp)

/* Pointers to the calls. */
struct kvi_sodium {
	KVI_SODIUM_CALLS(KVI_LIBRARY_POINTER)
};

#ifndef KVI_LIBRARY_TABLE
#define crypto_aead_xchacha20poly1305_ietf_decrypt_detached \
	(kvi_sodium(NULL)->crypto_aead_xchacha20poly1305_ietf_decrypt_detached)
#define crypto_aead_xchacha20poly1305_ietf_encrypt_detached \
	(kvi_sodium(NULL)->crypto_aead_xchacha20poly1305_ietf_encrypt_detached)
#define crypto_generichash (kvi_sodium(NULL)->crypto_generichash)
#define crypto_pwhash (kvi_sodium(NULL)->crypto_pwhash)
#define randombytes_buf (kvi_sodium(NULL)->randombytes_buf)
#define sodium_init (kvi_sodium(NULL)->sodium_init)
#define sodium_memcmp (kvi_sodium(NULL)->sodium_memcmp)
#endif

#else

/* The names are those of the linker. */
struct kvi_sodium {
	char linked;
};

#endif
#endif

#endif
