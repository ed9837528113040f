/* SPDX-License-Identifier: BSD-3-Clause */
/* save_check.h - whether an archive of a store loads as the file that is saved */
#ifndef KVI_SAVE_CHECK_H
#define KVI_SAVE_CHECK_H

#include "store_state.h"

/* What a check has found. */
enum kvi_save_verdict {
	KVI_SAVE_SAME,
	KVI_SAVE_OTHER,  /* it loads as another file */
	KVI_SAVE_DAMAGED /* it does not load; what is damaged is doubted in the index now */
};

/*
 * Loads an archive as kvarc_store_load does, with segments of other archives from the store, and
 * compares what comes with the files of an import. source NULL: the archive is in the store, else
 * it is not put yet. Returns OK (*verdict is set), IO, MEM, MEMLIMIT, AUTH, DATA (the index is
 * damaged), and what readers return of archives that are whole.
 */
kvarc_ret kvi_save_check(struct kvarc_store *s, const uint8_t id[16], const kvarc_source *source,
                         const kvarc_import *im, enum kvi_save_verdict *verdict);

#endif
