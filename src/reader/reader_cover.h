/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_cover.h - the frames that a range needs, in large requests before they are used */
#ifndef KVI_READER_COVER_H
#define KVI_READER_COVER_H

#include "reader_range.h"

/* A pass over the segments of a range, in the order of the index: what it needs up to a chunk is in
 * memory, as far as memory allows, or was. segment 0, chunk 0: nothing yet. */
struct kvi_cover {
	const struct kvi_range *g;
	size_t segment; /* the first one that is not covered, from this chunk on */
	uint64_t chunk;
};

/*
 * The pass comes to chunks of a segment with this index, from `chunk` on: they are covered, and as
 * many behind them as fit. A batch before the last one is dropped once its jobs are done. Only a
 * failure to read counts; what is damaged is found where it is used. Returns OK, MEM, IO, and what
 * jobs returned.
 */
kvarc_ret kvi_cover(kvarc_reader *r, struct kvi_cover *c, size_t segment, uint64_t chunk);
/* The same for the SEGMENT frames of a range alone. */
kvarc_ret kvi_cover_segments(kvarc_reader *r, const struct kvi_range *g);
/* No job is under way: drops all batches. */
void kvi_cover_end(kvarc_reader *r);

#endif
