/* SPDX-License-Identifier: BSD-3-Clause */
/* new_archive.h - an archive that is written before it is put into a store */
#ifndef KVI_NEW_ARCHIVE_H
#define KVI_NEW_ARCHIVE_H

#include "kvarc.h"
#include "kvarc/store.h"

/* An archive in a file without a name, or in memory. */
struct kvi_new_archive {
	uint8_t id[16];
	int fd; /* -1: in memory */
	kvarc_memory *memory;
	kvarc_sink sink;
	kvarc_source source; /* source of the complete archive, once it is written */
	uint64_t bytes;
};

/* Makes an id, and a sink for an archive. a is to be closed, also on failure. Returns OK, MEM,
 * IO. */
kvarc_ret kvi_new_archive_begin(struct kvi_new_archive *archive, struct kvarc_store *store);
/* Ends the sink, and opens what was written as archive->source. Returns OK, MEM, IO. */
kvarc_ret kvi_new_archive_end(struct kvi_new_archive *archive, struct kvarc_store *store);
/* Closes and frees it; an archive that is not open has fd -1 and zeros. */
void kvi_new_archive_close(struct kvi_new_archive *archive);

#endif
