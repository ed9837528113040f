/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_losses.h - what a damaged archive has lost, place by place and in sum (spec 9.4) */
#ifndef KVI_READER_LOSSES_H
#define KVI_READER_LOSSES_H

#include "reader_index.h"

struct kvi_decode_task;
struct kvi_alloc;

/* Bytes of the file that hold no good frame. */
struct kvi_region {
	uint64_t offset, bytes;
	bool explained; /* a loss names it */
};

/* A part of the archive that salvage has found missing. */
struct kvi_loss {
	kvarc_damage place;
	uint64_t tokens; /* place.n, which may be too small for it */
	uint64_t bytes;  /* bytes of elements, or of files outside their tensors */
};

/* All that salvage has found missing. */
struct kvi_reader_losses {
	struct kvi_list regions; /* struct kvi_region */
	struct kvi_list list;    /* struct kvi_loss */
	uint64_t *expected;      /* tokens by track that the archive had, from the good frames */
	uint64_t geometry;       /* offset of the GEOMETRY frame */
	bool end_known;          /* the archive had no more than `expected` */
	kvarc_loss *sums;        /* by track, then of all tracks; or NULL */
	bool final;              /* sums are from verify and do not change */
};

/* Adds a loss: tokens replaces place->n. bytes: of elements or literals that it costs.
 * Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_salvage_lose(kvarc_reader *r, const kvarc_damage *place, uint64_t tokens,
                           uint64_t bytes);
/* Finds, after the scan, what segments, chunks and the end of the archive lack, against COMMIT,
 * INDEX and RESTORE frames. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_salvage_losses(kvarc_reader *r);
/* Finds, after all BLOBs, files whose literal bytes are incomplete. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_salvage_literals(kvarc_reader *r);
/* Adds the chunk of a task that cannot be decoded, once. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_salvage_chunk(kvarc_reader *r, const struct kvi_decode_task *task);
/* Sums up the losses. *sums: memory of alloc for n_tracks + 1 entries, as kvarc_reader_loss gives
 * them; NULL on failure. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_salvage_sums(kvarc_reader *r, const struct kvi_alloc *alloc, kvarc_loss **sums);

#endif
