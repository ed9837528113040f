/* SPDX-License-Identifier: BSD-3-Clause */
/* save_encryption.h - whether versions of a session are encrypted, as their archives show it */
#ifndef KVI_SAVE_ENCRYPTION_H
#define KVI_SAVE_ENCRYPTION_H

#include "store_state.h"

/*
 * Whether the next version of a session is encrypted. asked: kvarc_save_options.encrypt. read: what
 * kvi_version_read returned for the last version, with s->error; last: of that, where it is OK.
 * A manifest is not trusted to say that a session is not encrypted: its archive is looked at.
 * Returns OK; AUTH (no key opens the last version); OPTIONS (not asked, and what the session is
 * cannot be read, or it is not encrypted although there are keys); DATA, IO, MEM, MEMLIMIT.
 */
kvarc_ret kvi_save_encrypts(struct kvarc_store *s, int asked, kvarc_ret read,
                            const struct kvi_needs *last, bool *encrypt);

#endif
