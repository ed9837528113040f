/* SPDX-License-Identifier: BSD-3-Clause */
/* pack_parts.h - the parts of kvarc_pack, for archives whose tokens come from elsewhere, too */
#ifndef KVI_PACK_PARTS_H
#define KVI_PACK_PARTS_H

#include "kvarc.h"
#include "util/shared.h"

/*
 * All return OK, MEM, MEMLIMIT; errors go to e, which may be NULL. Nothing is changed by a tier.
 */

/* The root of the chain values of the import's tokens, in the archive that kvarc_pack makes. */
KVI_SHARED kvarc_ret kvi_pack_chain_root(kvarc_import *im, uint8_t root[16], kvarc_error *error);
/* Writes geometry and identity of that archive. Also IO. */
KVI_SHARED kvarc_ret kvi_pack_begin(kvarc_import *im, kvarc_writer *w, kvarc_error *error);
/* Writes items of that archive, RESTORE and BLOB frames, before or behind the tokens. Also IO. */
KVI_SHARED kvarc_ret kvi_pack_items(kvarc_import *im, kvarc_writer *w, kvarc_error *error);

#endif
