/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_refs.h - the frames in a reader's index: where they are, and what they are of */
#ifndef KVI_READER_REFS_H
#define KVI_READER_REFS_H

#include "codecs/codec.h"
#include "format/chain_value.h"
#include "format/chunk_header.h"
#include "format/frame_input.h"

/* What is known of frames without reading them; in the order of the file. */
struct kvi_chunk_ref {
	uint64_t offset, sequence, params;
	uint32_t tensor;
	uint16_t head, heads;
	uint32_t bytes; /* of the frame, at most; 0: not known */
	bool linear;    /* codec linear: params is that of a PREDICTOR frame */
	bool lost;      /* salvage could not decode it, and it is in the list of losses */
};
/* The reference to a chunk whose frame was read. */
static inline struct kvi_chunk_ref kvi_chunk_ref(const struct kvi_frame *f,
                                                 const struct kvi_chunk_header *h)
{
	return (struct kvi_chunk_ref){ .offset = f->offset,
		                       .sequence = f->head.sequence,
		                       .params = h->params,
		                       .tensor = h->tensor,
		                       .head = h->head,
		                       .heads = h->heads,
		                       .bytes = (uint32_t)kvi_frame_bytes(f->head.payload_bytes),
		                       .linear = kvi_codec_predicts(h->codec) };
}
/* A segment of the index. */
struct kvi_segment_ref {
	uint64_t offset; /* 0: the SEGMENT frame was lost (salvage) */
	uint64_t sequence, t0;
	uint64_t first, end; /* its chunks */
	uint32_t track, n;
	uint32_t bytes;  /* of the frame, at most; 0: not known */
	uint32_t left;   /* tokens of it that rewinds have left (spec 6.2) */
	uint32_t part;   /* its number in a STOREREF, whose offset and sequence these are */
	uint64_t stored; /* 1 + its entry in kvi_reader_index.stored; 0: the file has it */
	uint64_t parent; /* 1 + that of the one that holds the token before it, 0: none */
	struct kvi_chain chain, before; /* before: of that token, once it was passed in order */
};
/* Whether tokens t0 .. end - 1 of a track have some that are left of a segment. */
static inline bool kvi_segment_has(const struct kvi_segment_ref *s, uint32_t track, uint64_t t0,
                                   uint64_t end)
{
	return s->track == track && s->left && s->t0 < end && s->t0 + s->left > t0;
}
/* A segment that lies in a store. */
struct kvi_stored_ref {
	kvarc_stored segment;
	size_t ns; /* in kvi_reader_index.namespaces */
};
/* A COMMIT that is a checkpoint. */
struct kvi_checkpoint_ref {
	uint64_t offset, sequence, number;
};
/* A PARAMS frame of the index. */
struct kvi_params_ref {
	uint64_t offset, sequence, copy_of;
	uint32_t tensor;
	uint16_t head, heads;
	uint32_t bytes; /* of the frame, at most; 0: not known */
};

/* A BLOB or PROFILE frame of the index. */
struct kvi_blob_ref {
	uint64_t offset, sequence;
	uint32_t bytes; /* of the frame, at most; 0: not known */
};

#endif
