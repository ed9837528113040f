/* SPDX-License-Identifier: BSD-3-Clause */
/* append_items.h - the files of an append: literal bytes that the archive has are references */
#ifndef KVI_APPEND_ITEMS_H
#define KVI_APPEND_ITEMS_H

#include <stdbool.h>

#include "append_compare.h"
#include "format/restore.h"
#include "literal_find.h"
#include "util/bytes.h"

/* The items of an import as an archive will have them. */
struct kvi_append_items {
	kvarc_import *im;
	kvarc_reader *r;
	struct kvi_restore *plans; /* one an item */
	uint64_t first;            /* number of the first one in the archive */
	uint64_t lost;             /* literal bytes of the last state that are damaged in part */
	bool same;                 /* the last checkpoint of the archive has these very items */
};

/* Makes them; tracks: of the import. To be freed, also on failure. Returns OK, MEM, MEMLIMIT, DATA,
 * OPTIONS, IO; the reader's kvarc_error has the text. */
kvarc_ret kvi_append_items_make(struct kvi_append_items *x, kvarc_reader *r, kvarc_import *im,
                                const struct kvi_append_track *tracks);
/* Writes RESTORE and BLOB frames, for the checkpoint that follows. error: the writer's. */
kvarc_ret kvi_append_items_put(const struct kvi_append_items *x, kvarc_writer *w,
                               kvarc_error *error);
/* Frees the plans. */
void kvi_append_items_free(struct kvi_append_items *x);

#endif
