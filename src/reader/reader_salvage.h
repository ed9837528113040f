/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_salvage.h - the intact part of a damaged archive (spec 9.4) */
#ifndef KVI_READER_SALVAGE_H
#define KVI_READER_SALVAGE_H

#include <stdint.h>
#include <string.h>

#include "kvarc.h"
#include "reader/reader_state.h"
#include "util/alloc.h"

/* The first 64 bytes are damaged: finds the sync mark in the first frame. */
kvarc_ret kvi_salvage_superblock(kvarc_reader *r);
/* Fills the index from whatever frames are good. */
kvarc_ret kvi_salvage_load(kvarc_reader *r);
/* As kvarc_reader_next_segment, of a reader that salvages. */
kvarc_ret kvi_salvage_next(kvarc_reader *r, kvarc_segment *segment);
/* As kvarc_reader_segment_deliver, of a reader that salvages. */
kvarc_ret kvi_salvage_deliver(kvarc_reader *r, kvarc_deliver deliver, void *opaque);
/* Adds a loss: tokens replaces place->n. bytes: of elements or literals that it costs.
 * Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_salvage_lose(kvarc_reader *r, const kvarc_damage *place, uint64_t tokens,
                           uint64_t bytes);
/* After the scan: finds what segments, chunks and the end of the archive lack, against COMMIT,
 * INDEX and RESTORE frames. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_salvage_losses(kvarc_reader *r);
/* After all BLOBs: finds files whose literal bytes are not complete. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_salvage_literals(kvarc_reader *r);
/* Adds the chunk of a job that cannot be decoded, once. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_salvage_chunk(kvarc_reader *r, const struct kvi_decode_job *j);
/* *sums: memory of alloc for n_tracks + 1 entries, as kvarc_reader_loss gives them; NULL on
 * failure. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_salvage_sums(kvarc_reader *r, const struct kvi_alloc *alloc, kvarc_loss **sums);

#endif
