/* SPDX-License-Identifier: BSD-3-Clause */
/* store_transfer.h - sessions out of a store and into one: as a tar, into another store */
#ifndef KVI_STORE_TRANSFER_H
#define KVI_STORE_TRANSFER_H

#include <stddef.h>

#include "kvarc.h"
#include "kvarc/store.h"
#include "store/store_state.h"

struct kvarc_store;

/* Puts a version, of which `text` is the manifest, once its archives are there. It is not put
 * where the session has that very version: n->was_here. n->version says which it is. Returns OK,
 * DATA, STORE (archives are nowhere), OPTIONS (a newer manifest), IO, MEM. */
kvarc_ret kvi_arrive_version(struct kvarc_store *store, const char *session, const char *text,
                             size_t bytes, kvarc_received *n);

#endif
