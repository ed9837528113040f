/* SPDX-License-Identifier: BSD-3-Clause */
/* archive_copy_state.h - the inside of a copy, for its own sources */
#ifndef KVI_ARCHIVE_COPY_STATE_H
#define KVI_ARCHIVE_COPY_STATE_H

#include "archive_copy.h"
#include "format/chunk_header.h"
#include "format/segment.h"
#include "reader/reader_state.h"
#include "util/list.h"

/* Where a chunk of the reader is in the new archive. */
struct kvi_copied_chunk {
	uint64_t sequence, offset; /* 0: it is not there */
	bool planned;              /* it will be, before chunks of later segments */
};

/* PARAMS in force for the chunk at an order_index of its segment. */
struct kvi_copy_params {
	uint32_t tensor; /* of the writer */
	uint16_t head, heads;
	uint64_t from, sequence; /* the reader's frame, the writer's; 0: none */
};

/* A copy from a reader to a writer: one thread uses it. */
struct kvi_copy {
	kvarc_reader *r, *again; /* again: of KVARC_WRITE_VERIFY, NULL: not wanted */
	kvarc_writer *w;
	uint32_t track, to_track;
	const uint32_t *to;
	struct kvi_copied_chunk *copied; /* of each chunk of the reader */
	struct kvi_list given;
	uint64_t looked_t0; /* of the last search, and where it ended */
	size_t looked;
	uint64_t sequence;                         /* the writer's behind the last copied segment */
	const struct kvi_predictor_ref *predictor; /* in force in the new archive; NULL: another */
	struct kvi_buffer frame, target;
	struct kvi_out content;
	struct kvi_segment segments[2];
	kvarc_ret ret; /* of looking at chunks: what is not about them */
};

/* Where the copy of a chunk of the reader is; the caller fills it in. */
struct kvi_copied_chunk *kvi_copy_of(struct kvi_copy *c, const struct kvi_chunk_ref *ref);
/* Whether payloads of chunk b decode to the same elements with the header of chunk a. */
bool kvi_copy_same_shape(struct kvi_copy *c, const struct kvi_chunk_header *a,
                         const struct kvi_chunk_header *b);
/* Reads the header of a chunk, and of the chunk that has its payload: itself, or the target of a
 * REPEAT, which is returned. NULL: one is damaged, which the call that decodes it reports, or
 * c->ret is set. */
const struct kvi_chunk_ref *kvi_copy_resolve(struct kvi_copy *c, const struct kvi_chunk_ref *ref,
                                             struct kvi_chunk_header *h,
                                             struct kvi_chunk_header *there);

#endif
