/* SPDX-License-Identifier: BSD-3-Clause */
/* veil.h - keyed hashes that stand for chain values and digests in the index of a store */
#ifndef KVI_VEIL_H
#define KVI_VEIL_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Key of the hashes that the index of a store has in place of the hashes and ids of an encrypted
 * archive; it is derived from the key of the archive. Without encryption the values stand there
 * themselves. So tokens of one key are never found under another one, and the index shows nothing
 * that can be compared with a text.
 */
struct kvi_veil {
	bool on;
	uint8_t key[32];
};

/* Hashes a chain value or a content digest, `in`; out may be the same memory. */
void kvi_veil_hash(const struct kvi_veil *veil, uint8_t out[16], const uint8_t in[16]);
/* First 8 bytes of the result of kvi_veil_hash. */
uint64_t kvi_veil_word(const struct kvi_veil *veil, const uint8_t in[16]);
/* The id of a token that follows a chain value, whose kvi_veil_word is `parent`. */
int32_t kvi_veil_first(const struct kvi_veil *veil, uint64_t parent, int32_t id);
/* A namespace, by its name. */
uint64_t kvi_veil_space(const struct kvi_veil *veil, const char *name_space);
/* Whether a hash of the index is that of a plain one. */
bool kvi_veil_equal(const struct kvi_veil *veil, const uint8_t veiled[16], const uint8_t plain[16]);

#endif
