/* SPDX-License-Identifier: BSD-3-Clause */
/* crypt.h - KEY and ENCRYPTED frames: finds the file key, opens, seals (frames.md 12.1) */
#ifndef KVI_CRYPT_H
#define KVI_CRYPT_H

#include "frame_input.h"
#include "util/aead.h"

/* Bytes of an ENCRYPTED frame in front of its ciphertext, and in all beside it; of a KEY
 * payload. */
enum {
	KVI_CRYPT_HEAD_BYTES = 32,
	KVI_CRYPT_BYTES = KVI_CRYPT_HEAD_BYTES + KVI_AEAD_TAG_BYTES,
	KVI_KEY_PAYLOAD_BYTES = 152
};
/* Passes and KiB of Argon2id where a writer is given none. */
enum { KVI_PASSES_DEFAULT = 3, KVI_MEMORY_DEFAULT = 128 << 10 };

/*
 * The file key of an archive. While it is not known, one thread reads frames; afterwards nothing
 * changes, and any thread may.
 */
struct kvi_crypt {
	const struct kvi_alloc *alloc;
	kvarc_keys keys; /* the caller's, until the file key is known */
	bool any_key;    /* there was a KEY frame of whatever kind */
	bool known;      /* file_key is set */
	uint64_t work;   /* passes x KiB of Argon2id so far */
	bool too_much;   /* a passphrase was not tried, as it is more than a file may ask */
	uint64_t first;  /* offset of the first ENCRYPTED frame that was opened */
	uint8_t file_id[16];
	uint8_t file_key[KVI_AEAD_KEY_BYTES];
	uint8_t domain[KVI_AEAD_KEY_BYTES]; /* kvi_crypt_domain of the outer key that opened a
	                                     * KEY frame */
	/* KEY payloads of known kinds in front of the first ENCRYPTED frame, for copies. */
	size_t n_payloads;
	uint8_t payloads[KVARC_KEYS_MAX][KVI_KEY_PAYLOAD_BYTES];
};

/* Checks a caller's keys; keys NULL: there are none. Returns OK, PROG. */
KVI_SHARED kvarc_ret kvi_crypt_check(kvarc_error *error, const char *call, const kvarc_keys *keys,
                                     bool writes);

/* A secret that all archives of an outer key have in common, for keyed hashes: no other keys come
 * from it. */
KVI_SHARED void kvi_crypt_domain(uint8_t domain[KVI_AEAD_KEY_BYTES],
                                 const uint8_t outer[KVI_AEAD_KEY_BYTES]);

/* Makes a reader's crypt; keys may be NULL. *crypt is NULL on failure. Returns OK, MEM,
 * MEMLIMIT. */
kvarc_ret kvi_crypt_open(struct kvi_crypt **crypt, const struct kvi_alloc *alloc,
                         const uint8_t file_id[16], const kvarc_keys *keys, kvarc_error *error);
/* Makes a reader's crypt with the file key that another crypt of this file knows. *crypt is NULL on
 * failure. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_crypt_open_known(struct kvi_crypt **crypt, const struct kvi_alloc *alloc,
                               const struct kvi_crypt *known, kvarc_error *error);
/* Makes a writer's crypt: a new file key, and a KEY payload for each key. Returns OK, MEM,
 * MEMLIMIT; PROG: the passphrases are more work than a reader does for a file. */
kvarc_ret kvi_crypt_new(struct kvi_crypt **crypt, const struct kvi_alloc *alloc,
                        const uint8_t file_id[16], const kvarc_keys *keys, kvarc_error *error);
/* Wipes and frees; *crypt becomes NULL. */
void kvi_crypt_close(struct kvi_crypt **crypt);

/*
 * Processes a frame of an encrypted file whose check holds. KEY frames are tried with the keys;
 * ENCRYPTED frames are replaced: *frame gets head and payload of the inner frame, decrypted in
 * place. head: the 32 bytes of the frame; text: its payload, of ENCRYPTED frames alone. Returns OK;
 * AUTH: no key fits; DATA: a wrong tag or field, or a frame that must be encrypted; MEM, MEMLIMIT
 * (Argon2id).
 */
kvarc_ret kvi_crypt_frame(struct kvi_crypt *crypt, struct kvi_frame *frame, const uint8_t *head,
                          uint8_t *text, kvarc_error *error);

/*
 * Makes the ENCRYPTED frame of an inner one at an offset: header, payload and check in `out`, which
 * has kvi_frame_bytes(head->payload_bytes + KVI_CRYPT_BYTES) bytes. head, payload: of the inner
 * frame, whose payload has up to KVI_FRAME_MAX - KVI_CRYPT_BYTES bytes.
 */
void kvi_crypt_seal(const struct kvi_crypt *crypt, uint8_t *out, const struct kvi_frame_head *head,
                    uint64_t sync, uint64_t offset, const uint8_t *payload);

#endif
