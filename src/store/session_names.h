/* SPDX-License-Identifier: BSD-3-Clause */
/* session_names.h - names of sessions, and the keys that their manifests have in a store */
#ifndef KVI_SESSION_NAMES_H
#define KVI_SESSION_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "backend.h"

/* Limits of names, and capacities. */
enum {
	KVI_SESSION_MAX = 200,  /* bytes of the name of a session */
	KVI_NAMESPACE_MAX = 64, /* bytes of the name of a namespace */
	KVI_PACK_KEY = 48,      /* capacity for the key of a pack */
	KVI_BLOCK_NAME = 64,    /* digits of the name of a block */
	KVI_BLOCK_KEY = 80      /* capacity for the key of a block */
};
/* Default namespace, and prefixes of keys. */
#define KVI_NAMESPACE_DEFAULT "default"
#define KVI_SESSIONS "sessions/"
#define KVI_PACKS "packs/"
#define KVI_RETIRED "retired/"
#define KVI_BLOCKS "blocks/"

/* Returns NULL where a session may have the name (kvarc/store.h), else the reason, a clause. */
const char *kvi_session_wrong(const char *name);
/* Returns NULL where a namespace may have the name, 1 to 64 bytes without control characters, else
 * the reason, a clause. */
const char *kvi_namespace_wrong(const char *name);

/*
 * The prefix of the keys of a session's manifests, "sessions/NAME/"; name "": of all sessions of
 * the namespace. Bytes that keys do not have are %XX; a component of digits alone, which is the
 * number of a version, and one that begins with a dot, have their first byte like that. Other
 * namespaces than the default one begin with "=" and the namespace. False: too long for a key.
 */
bool kvi_session_prefix(char key[KVI_KEY_MAX + 1], const char *name_space, const char *name);
/* The key of a version. False: too long. */
bool kvi_version_key(char key[KVI_KEY_MAX + 1], const char *name_space, const char *name,
                     uint64_t number);

/* Parsed key of a manifest. */
struct kvi_session_key {
	char name_space[KVI_NAMESPACE_MAX + 1];
	char name[KVI_SESSION_MAX + 1];
	uint64_t number;
	int64_t touched; /* time of the object of a listed key; 0: not known */
};
/* Parses the key of a manifest. False: not such a key. */
bool kvi_session_key_parse(struct kvi_session_key *session_key, const char *key);

/* The key of a mark, "sessions/NAME/=N": versions of the session up to N have been there, and their
 * numbers are not used again. False: too long. */
bool kvi_mark_key(char key[KVI_KEY_MAX + 1], const struct kvi_session_key *session_key);
/* Parses the key of a mark. False: not such a key. */
bool kvi_mark_key_parse(struct kvi_session_key *session_key, const char *key);

/* packs/XX/ID.kva */
void kvi_pack_key(char key[KVI_PACK_KEY], const uint8_t id[16]);
/* retired/ID */
void kvi_retired_key(char key[KVI_PACK_KEY], const uint8_t id[16]);
/* Parses the key of a pack. False: not such a key. */
bool kvi_pack_key_parse(uint8_t id[16], const char *key);
/* Parses the key of a tombstone. False: not such a key. */
bool kvi_retired_key_parse(uint8_t id[16], const char *key);

/* blocks/XX/NAME.kva. False: not the name of a block (kvarc/blocks.h). */
bool kvi_block_key(char key[KVI_BLOCK_KEY], const char *name);
/* False: not the key of a block. */
bool kvi_block_key_parse(char name[KVI_BLOCK_NAME + 1], const char *key);

/* 32 hex digits, terminated. */
void kvi_hex(char out[33], const uint8_t id[16]);
/* False: not 32 lower-case hex digits at the start of text. */
bool kvi_unhex(uint8_t id[16], const char *text);
/* A decimal number without leading zeros, below 2^53; *end behind it. False: there is none. */
bool kvi_decimal(const char *text, const char **end, uint64_t *n);

#endif
