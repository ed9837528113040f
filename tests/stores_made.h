/* SPDX-License-Identifier: BSD-3-Clause */
/* stores_made.h - stores of made slots, for programs that damage, stop and race them */
#ifndef KV_TEST_STORES_MADE_H
#define KV_TEST_STORES_MADE_H

#include <stdbool.h>
#include <stdint.h>

#include "kvarc/store.h"
#include "slots_made.h"
#include "util/hash.h"

enum { MADE_TOKENS_MOST = 2000 };

/* What a version holds: a slot of `tokens` tokens, which from token `other` on are of another text
 * than those of other numbers. */
struct made_file {
	uint32_t tokens, other;
};
/* Its bytes, which slot_free frees. */
struct slot_made made_slot(struct made_file f);

/* How a store is opened. */
struct made_place {
	const char *url, *index; /* index NULL: the store's own */
	bool keyed;              /* with the key of all encrypted versions */
	unsigned flags;          /* KVARC_STORE_* */
};

/* A store that is open. */
struct made_store {
	kvarc_store *s;
	kvarc_error error; /* of the last call */
	bool other_bytes;  /* a load has given other bytes than it had to */
};

kvarc_ret made_open(struct made_store *m, const struct made_place *place);
void made_close(struct made_store *m);

/* encrypt: as in kvarc_save_options; NULL: saved is not wanted. Segments have 64 tokens, and the
 * label says which file it is. */
kvarc_ret made_save(struct made_store *m, const char *session, struct made_file f, int encrypt,
                    kvarc_saved *saved);
/* Loads a version, number 0: the last one. v and digest, of its bytes, may be NULL. */
kvarc_ret made_load(struct made_store *m, const char *session, uint64_t number,
                    kvarc_session_version *v, struct kvi_h128 *digest);
struct kvi_h128 made_digest(struct made_file f);
/* Which file a version is. False: its label does not say it. */
bool made_file_of(struct made_file *f, const kvarc_session_version *v);
/* The same; DATA, and other_bytes, where the bytes are not those of f. */
kvarc_ret made_check(struct made_store *m, const char *session, uint64_t number,
                     struct made_file f);
/* Removes a folder and all that is in it. */
void made_remove(const char *folder);

#endif
