/* SPDX-License-Identifier: BSD-3-Clause */
/* save_archive.h - the archive of a save, before it is put into the store */
#ifndef KVI_SAVE_ARCHIVE_H
#define KVI_SAVE_ARCHIVE_H

#include "save_plan.h"

/* An archive in a file without a name, or in memory. */
struct kvi_save_archive {
	uint8_t id[16];
	int fd; /* -1: in memory */
	kvarc_memory *memory;
	kvarc_sink sink;
	kvarc_source source; /* of all of it, once it is written */
	uint64_t bytes;
};

/* Makes an id, and a sink for an archive. a is to be closed, also on failure. Returns OK, MEM,
 * IO. */
kvarc_ret kvi_save_begin(struct kvi_save_archive *a, struct kvarc_store *s);
/* What was written to the sink, as a source. Returns OK, MEM, IO. */
kvarc_ret kvi_save_end(struct kvi_save_archive *a, struct kvarc_store *s);
/*
 * Writes the archive of a plan: what the store has as STOREREF, the rest as segments, the files,
 * a checkpoint. keys NULL: not encrypted. known gets what kvi_index_fill wants to know (struct
 * kvi_known). a is to be closed, also on failure. Returns OK, MEM, MEMLIMIT, IO, and what writers
 * return.
 */
kvarc_ret kvi_save_write(struct kvi_save_archive *a, struct kvi_save_plan *p,
                         const kvarc_save_options *o, const kvarc_keys *keys,
                         struct kvi_list *known);
/* Closes what kvi_save_write has opened. */
void kvi_save_close(struct kvi_save_archive *a);

#endif
