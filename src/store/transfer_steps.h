/* SPDX-License-Identifier: BSD-3-Clause */
/* transfer_steps.h - what leaves a store and what comes into one, in whatever form */
#ifndef KVI_TRANSFER_STEPS_H
#define KVI_TRANSFER_STEPS_H

#include "store_state.h"

/* A version that leaves. */
struct kvi_leaving {
	uint64_t number;
	struct kvi_manifest m; /* without its parent */
	struct kvi_list ids;   /* of the archives that it needs */
};

/* A version, number 0: the last one, and what it needs. *x is to be freed, also on failure. Returns
 * OK, END (no such version), STORE (archives are missing), PROG, DATA, IO, MEM. */
kvarc_ret kvi_leaving_find(struct kvi_leaving *x, struct kvarc_store *s,
                           const char *session, uint64_t number);
/* Frees the ids. */
void kvi_leaving_free(struct kvi_leaving *x, struct kvarc_store *s);
/* Archive i of x->ids.n in the order in which a receiver wants them: those that are named before
 * those that name them. */
const uint8_t *kvi_leaving_id(const struct kvi_leaving *x, size_t i);
/* The bytes of an archive of the store; close it with kvi_object_source_close. Returns OK, STORE
 * (it is missing), IO, MEM. */
kvarc_ret kvi_leaving_source(struct kvarc_store *s, const char *key, kvarc_source *source);

/* Puts an archive that comes from elsewhere under its key, unless it is there, and checks all of
 * its frames; one that is damaged goes again. Counts in *n. Returns OK, DATA, IO, MEM, MEMLIMIT. */
kvarc_ret kvi_arrive_pack(struct kvarc_store *s, const uint8_t id[16], const kvarc_source *source,
                          kvarc_received *n);
/* Puts a version, of which `text` is the manifest, once its archives are there. It is not put
 * where the session has that very version: n->was_here. n->version says which it is. Returns OK,
 * DATA, STORE (archives are nowhere), OPTIONS (a newer manifest), IO, MEM. */
kvarc_ret kvi_arrive_version(struct kvarc_store *s, const char *session, const char *text,
                             size_t bytes, kvarc_received *n);

#endif
