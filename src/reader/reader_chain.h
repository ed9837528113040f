/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_chain.h - chain values, verified while segments are passed; by the calling thread alone */
#ifndef KVI_READER_CHAIN_H
#define KVI_READER_CHAIN_H

#include "format/chain_value.h"
#include "reader_index.h"

/* Chain values, while segments are passed in order. */
struct kvi_reader_chains {
	struct kvi_h128 geometry; /* B128 of the content of the GEOMETRY frame */
	struct kvi_chain root;    /* known from the first segment with a chain value on */
	struct kvi_chain *last;   /* by track: chain value of its last segment */
	struct kvi_out scratch;
};

/* Checks the chain value of the next segment in the order of the file, if the ids are known. ref:
 * the segment in the index; NULL: on a pipe. Returns OK, MEM, MEMLIMIT, DATA; where it needs other
 * segments, what kvi_reader_ids returns for them. */
kvarc_ret kvi_reader_check_chain(kvarc_reader *r, const struct kvi_segment *segment,
                                 struct kvi_segment_ref *ref, kvarc_error *error);
/* Checks after an IDENTITY frame that earlier chain values would still be the same. Returns OK,
 * MEM, MEMLIMIT, DATA. */
kvarc_ret kvi_reader_check_root(kvarc_reader *r, kvarc_error *error);

#endif
