/* SPDX-License-Identifier: BSD-3-Clause */
/* save_archive.h - the archive of a save, before it is put into the store */
#ifndef KVI_SAVE_ARCHIVE_H
#define KVI_SAVE_ARCHIVE_H

#include "new_archive.h"
#include "save_plan.h"

/*
 * Writes the archive of a plan: what the store has as STOREREF, the rest as segments, the files,
 * a checkpoint. keys NULL: not encrypted. known gets what kvi_index_fill wants to know (struct
 * kvi_known). a is to be closed, also on failure. Returns OK, MEM, MEMLIMIT, IO, and what writers
 * return.
 */
kvarc_ret kvi_save_write(struct kvi_new_archive *a, struct kvi_save_plan *p,
                         const kvarc_save_options *o, const kvarc_keys *keys,
                         struct kvi_list *known);
#endif
