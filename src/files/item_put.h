/* SPDX-License-Identifier: BSD-3-Clause */
/* item_put.h - the files of an import become RESTORE and BLOB frames (spec 10) */
#ifndef KVI_ITEM_PUT_H
#define KVI_ITEM_PUT_H

#include "format/restore.h"
#include "kvarc.h"
#include "util/bytes.h"

/* Writes the RESTORE frame of an item. Returns OK, MEM, MEMLIMIT, IO. */
kvarc_ret kvi_item_put_plan(kvarc_writer *w, kvarc_error *error, const struct kvi_alloc *alloc,
                            const struct kvi_restore *plan);

/* Literal bytes of one item wait here until a BLOB is full. */
struct kvi_item_put {
	kvarc_writer *w;
	kvarc_error *error;
	struct kvi_out out;
	uint64_t item, offset; /* offset: of the BLOB's first literal byte */
	size_t bytes;          /* literal bytes that wait */
};

/* Begins an item, by its number in the archive. alloc: must outlive it. */
void kvi_item_put_begin(struct kvi_item_put *put, kvarc_writer *w, kvarc_error *error,
                        const struct kvi_alloc *alloc, uint64_t item);
/* Writes all literal pieces of a file. Returns OK, MEM, MEMLIMIT, IO. */
kvarc_ret kvi_item_put_literals(struct kvi_item_put *put, const struct kvi_restore *plan,
                                const kvarc_source *file);
/* Writes what waits unless `ret` is a failure, which is returned then, and frees. */
kvarc_ret kvi_item_put_end(struct kvi_item_put *put, kvarc_ret ret);

#endif
