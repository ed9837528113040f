/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_range.h - part of an archive: which chunks a range needs, and how it gets them */
#ifndef KVI_READER_RANGE_H
#define KVI_READER_RANGE_H

#include "reader_index.h"

/* A checked range of layers and tokens of one track. */
struct kvi_range {
	uint32_t track, layer0;
	uint64_t layer_end, t0, t_end;
	const kvarc_view *views; /* NULL, or: tensors without data are left */
};

/* Checks a range, at the begin of every public call with one. Returns OK, OPTIONS (a pipe),
 * GEOMETRY, PROG. */
kvarc_ret kvi_range_check(kvarc_reader *r, const kvarc_range *range, struct kvi_range *g);
/* Bytes of the elements of all tokens. */
uint64_t kvi_reader_raw_bytes(const kvarc_reader *r);
/* Decodes the chunks of a segment that a range touches; no job is under way afterwards. */
kvarc_ret kvi_reader_segment_chunks(kvarc_reader *r, const struct kvi_segment_ref *segment,
                                    const struct kvi_range *range, kvarc_deliver deliver,
                                    void *opaque);

#endif
