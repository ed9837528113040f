/* SPDX-License-Identifier: BSD-3-Clause */
/* kvarc/keys.h - keys and passphrases of encrypted archives */
#ifndef KVARC_H_INTERNAL
#error Include <kvarc.h> instead of this file.
#endif
#ifndef KVARC_KEYS_H
#define KVARC_KEYS_H

/* Kind of secret that the bytes of a key are. */
typedef enum kvarc_key_kind {
	KVARC_KEY_GIVEN = 1,      /* 32 random bytes */
	KVARC_KEY_PASSPHRASE = 2, /* any bytes, 1 to 4096; the key comes from them by Argon2id */
	/* 48 bytes: a salt of 16, and the key of 32 that Argon2id gives for a passphrase and this
	 * salt. Opens and makes what the passphrase does, without its time for each archive */
	KVARC_KEY_DERIVED = 3
} kvarc_key_kind;

/* Bytes of a key that is given and of one that is derived, and the most keys of an archive. */
#define KVARC_KEY_BYTES 32
#define KVARC_KEY_DERIVED_BYTES 48
#define KVARC_KEYS_MAX 64

/* A key or a passphrase. */
typedef struct kvarc_key {
	kvarc_key_kind kind;
	/* Writers, passphrases: passes (1 to 64) and KiB of memory (8 to 2^22) of Argon2id, which
	 * are what a reader needs, too: passes x KiB of all keys of a file are 2^22 at most, which
	 * a core does in 5 s. 0: 3 passes, 128 MiB. Derived: those that it came from.
	 * Readers: 0 */
	uint32_t passes, memory_kib;
	const void *bytes;
	size_t n;
	uint64_t reserved[2]; /* zero */
} kvarc_key;
#define KVARC_KEY_INIT KVARC_ZERO

/*
 * Keys of a reader: the archive opens with any of them. Keys of a writer: each of them opens the
 * archive. The library copies no key; what it derives from them is wiped when the handle is closed.
 * The caller keeps them until the open call of a reader, kvarc_writer_set_geometry or
 * kvarc_writer_open_append has returned, and wipes them.
 */
typedef struct kvarc_keys {
	const kvarc_key *list;
	size_t n;             /* up to KVARC_KEYS_MAX */
	uint64_t reserved[2]; /* zero */
} kvarc_keys;
#define KVARC_KEYS_INIT KVARC_ZERO

/* Parts of an archive that show without a key, as far as its frames are not damaged. */
typedef struct kvarc_envelope {
	uint16_t format_major, format_minor;
	uint8_t file_id[16];
	int encrypted;
	uint64_t file_bytes, frames;
	uint64_t encrypted_frames, parity_frames;
	uint64_t keys, passphrases;  /* that open it */
	uint32_t passes, memory_kib; /* of Argon2id, of the first passphrase */
	uint64_t reserved[6];
} kvarc_envelope;
/* Reads it by the frame headers alone; common may be NULL. Returns OK, IO, FORMAT, DATA (nothing
 * can be read), OPTIONS (a pipe), PROG. */
KVARC_API KVARC_MUST_CHECK kvarc_ret kvarc_read_envelope(const kvarc_source *source,
                                                         const kvarc_common *common,
                                                         kvarc_envelope *envelope);

#endif
