/* SPDX-License-Identifier: BSD-3-Clause */
/* llama_item.h - a llama.cpp file in an archive, without its elements */
#ifndef KVI_LLAMA_ITEM_H
#define KVI_LLAMA_ITEM_H

#include <stdbool.h>

#include "format/restore.h"
#include "kvarc.h"
#include "util/alloc.h"

/* A file whose literal bytes are in memory; elements read as zeros. */
struct kvi_llama_item {
	const struct kvi_alloc *alloc;
	const struct kvi_restore *plan; /* pieces of the file */
	struct kvi_restore made;        /* the plan of a file that no archive describes */
	uint64_t *starts;               /* offsets of the pieces in the file, and its size */
	uint64_t *kept_at;              /* offset in kept of each literal piece */
	uint8_t *kept;
	uint64_t n_kept, got;
	uint64_t *whole; /* leading tokens of each track that are there */
	kvarc_source source;
	bool rebuilt; /* from tensors alone: no engine wrote the file */
};

/*
 * Reads item i of a reader that can seek, from its source by a reader of its own. In salvage the
 * whole archive is decoded, to know what is lost. Free it, also on failure. Returns OK; END (some
 * of its literal bytes are lost); as kvarc_reader_open and kvarc_reader_next_segment.
 */
kvarc_ret kvi_llama_item_open(struct kvi_llama_item *it, kvarc_reader *r, size_t i);
/*
 * As kvi_llama_item_open for a made file: `made` is its plan, which becomes the item's, also on
 * failure, `kept` its literal bytes. Returns OK, MEM, MEMLIMIT, in salvage what reading returns.
 */
kvarc_ret kvi_llama_item_make(struct kvi_llama_item *it, kvarc_reader *r, struct kvi_restore *made,
                              const uint8_t *kept, size_t n_kept);
/* Frees all that the item has. */
void kvi_llama_item_free(struct kvi_llama_item *it);

/*
 * The llama.cpp file whose first tokens are on a track: its number, or the number of items: none
 * is. *first: its first area is of this track.
 */
size_t kvi_llama_item_find(const kvarc_reader *r, uint32_t track, bool *first);

#endif
