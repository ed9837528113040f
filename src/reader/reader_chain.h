/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_chain.h - chain values, verified while segments are passed; by the calling thread alone */
#ifndef KVI_READER_CHAIN_H
#define KVI_READER_CHAIN_H

#include "format/chain_value.h"
#include "reader_index.h"

/* Chain values, while segments are passed in order. */
struct kvi_reader_chains {
	struct kvi_h128 geometry; /* of its content */
	struct kvi_chain root;    /* known: since the first segment that has a chain value */
	struct kvi_chain *last;   /* by track: of its last segment */
	struct kvi_out scratch;
};

/* A segment in the order of the file: that its chain value is right, if its ids are known. ref: in
 * the index; NULL: on a pipe. Returns OK, MEM, MEMLIMIT, DATA, and of others as kvi_reader_ids. */
kvarc_ret kvi_reader_check_chain(kvarc_reader *r, const struct kvi_segment *segment,
                                 struct kvi_segment_ref *ref, kvarc_error *error);
/* After an IDENTITY frame: that chain values before it would still be the same. Returns OK, MEM,
 * MEMLIMIT, DATA. */
kvarc_ret kvi_reader_check_root(kvarc_reader *r, kvarc_error *error);

#endif
