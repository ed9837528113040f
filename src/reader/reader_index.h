/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_index.h - the lists of frames: found by number or offset, what is left after rewinds */
#ifndef KVI_READER_INDEX_H
#define KVI_READER_INDEX_H

#include <stdatomic.h>

#include "codecs/codec.h"
#include "format/chain_value.h"
#include "format/chunk_header.h"
#include "format/chunk_order.h"
#include "format/fork.h"
#include "format/frame_index.h"
#include "format/frame_input.h"
#include "format/segment.h"
#include "kvarc.h"
#include "util/list.h"

/* A CHUNK frame as the index knows it, without reading it. */
struct kvi_chunk_ref {
	uint64_t offset, sequence, params;
	uint32_t tensor;
	uint16_t head, heads;
	uint32_t bytes; /* size of the frame */
	bool linear;    /* codec linear: params is the number of a PREDICTOR frame */
	bool lost;      /* salvage could not decode it, and it is in the list of losses */
	/* The frame names the tensor that pairs with `tensor`, of track named - 1 (spec 6.3); 0: it
	 * names `tensor`. */
	uint16_t named;
};

/* The reference to a chunk whose frame was read. */
static inline struct kvi_chunk_ref kvi_chunk_ref(const struct kvi_frame *frame,
                                                 const struct kvi_chunk_header *header)
{
	return (struct kvi_chunk_ref){ .offset = frame->offset,
		                       .sequence = frame->head.sequence,
		                       .params = header->params,
		                       .tensor = header->tensor,
		                       .head = header->head,
		                       .heads = header->heads,
		                       .bytes =
		                               (uint32_t)kvi_frame_bytes(frame->head.payload_bytes),
		                       .linear = kvi_codec_predicts(header->codec) };
}

/* A segment of the index. An entry with an origin is a segment that a FORK has its track take: all
 * that it says of frames and tokens is of the origin (spec 6.3). */
struct kvi_segment_ref {
	uint64_t offset; /* 0: the SEGMENT frame was lost (salvage) */
	uint64_t sequence, t0;
	uint64_t listed;     /* sequence number of the frame that lists it: its own, or of a FORK */
	uint64_t origin;     /* FORK: 1 + index of the segment that it is; 0: it is one itself */
	uint64_t first, end; /* chunks of the segment (kvi_segment_chunks) */
	uint64_t list;       /* 1 + index in kvi_reader_index.lists; 0: they are in `chunks` */
	uint32_t track, n;
	uint32_t bytes;  /* size of the frame */
	uint32_t most;   /* tokens of the segment that are of the track: n, or fewer in a FORK */
	uint32_t left;   /* tokens of these that rewinds have left (spec 6.2) */
	uint32_t part;   /* number in the STOREREF or FORK frame that lists it */
	uint64_t stored; /* 1 + index in kvi_reader_index.stored; 0: the file has the segment */
	uint64_t parent; /* 1 + index of the segment that holds the token before it; 0: none */
	struct kvi_chain chain, before; /* before: value at that token, once passed in order */
};

/* Whether tokens t0 .. end - 1 of a track have some that are left of a segment. */
static inline bool kvi_segment_has(const struct kvi_segment_ref *segment, uint32_t track,
                                   uint64_t t0, uint64_t end)
{
	return segment->track == track && segment->left && segment->t0 < end &&
	       segment->t0 + segment->left > t0;
}

/* A segment that lies in a store. */
struct kvi_stored_ref {
	kvarc_stored segment;
	size_t ns; /* index in kvi_reader_index.namespaces */
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
	uint32_t bytes; /* size of the frame */
};

/* A BLOB or PROFILE frame of the index. */
struct kvi_blob_ref {
	uint64_t offset, sequence;
	uint32_t bytes; /* size of the frame */
};

/* A LIST frame: the chunks of consecutive segments of the index. */
struct kvi_chunk_list {
	uint64_t offset, sequence;
	uint32_t bytes;                       /* size of the frame */
	uint64_t n;                           /* number of its entries */
	size_t first_segment, end_segment;    /* indices */
	struct kvi_chunk_ref *_Atomic chunks; /* NULL: not read yet (kvi_reader_list_segment) */
};

/* The frames of a source that can seek, in the order of the file. */
struct kvi_reader_index {
	struct kvi_list chunks;            /* struct kvi_chunk_ref: those that no LIST has */
	struct kvi_list lists;             /* struct kvi_chunk_list */
	size_t unlisted;                   /* the first segment whose chunks may be in a LIST */
	struct kvi_list segments;          /* struct kvi_segment_ref */
	struct kvi_list stored;            /* struct kvi_stored_ref */
	struct kvi_list namespaces;        /* char * */
	struct kvi_list params;            /* struct kvi_params_ref */
	struct kvi_list blobs;             /* struct kvi_blob_ref */
	struct kvi_order_walk chunk_order; /* while the index is built */
	uint64_t *tokens;                  /* committed tokens by track, also on a pipe */
	uint64_t *last;                    /* by track: 1 + the last segment, 0: none */
	uint64_t forked;                   /* segments of the list that FORK frames have listed */
	struct kvi_list checkpoints;       /* struct kvi_checkpoint_ref */
	/* Cache of kvarc_reader_segment_at: segments with tokens left before index listed_at. */
	uint64_t listed;
	size_t listed_at;
};

/* The lists of a reader's frames, which the reader owns until close. Chunks may be in a LIST that
 * was not read: kvi_reader_list_all. */
const struct kvi_reader_index *kvi_reader_index(const kvarc_reader *r);
/* The array that segment->first and segment->end count in; the chunks are known. */
static inline struct kvi_chunk_ref *kvi_segment_chunks(const struct kvi_reader_index *index,
                                                       const struct kvi_segment_ref *segment)
{
	return segment->list ? atomic_load_explicit(&KVI_LIST(struct kvi_chunk_list, index->lists,
	                                                      segment->list - 1)
	                                                     ->chunks,
	                                            memory_order_acquire)
	                     : index->chunks.p;
}
/* The PARAMS frame with this sequence number. NULL: not in the index. */
struct kvi_params_ref *kvi_index_params(const struct kvi_reader_index *index, uint64_t sequence);
/* The SEGMENT frame with this sequence number, or the first segment of such a STOREREF or FORK
 * frame. NULL: not in the index. */
struct kvi_segment_ref *kvi_index_segment(const struct kvi_reader_index *index, uint64_t sequence);
/* A segment of the index as it was read. NULL: not in the index. */
struct kvi_segment_ref *kvi_index_segment_of(const struct kvi_reader_index *index,
                                             const struct kvi_segment *segment);
/* The chunk with this sequence number. NULL: not in the index, or in a LIST that was not read. */
struct kvi_chunk_ref *kvi_index_chunk(const struct kvi_reader_index *index, uint64_t sequence);
/* The chunk whose frame begins at this offset of the file. NULL as kvi_index_chunk. */
struct kvi_chunk_ref *kvi_index_chunk_at(const struct kvi_reader_index *index, uint64_t offset);
/* The last segment of the list comes behind those of its track that are left. */
void kvi_index_link(struct kvi_reader_index *index);
/* Adds the segments that a FORK has its track take, to the last state of the list. lenient: where
 * segments are lost, those that are there. Returns OK, MEM, MEMLIMIT, DATA (the other track has
 * fewer tokens, or none that pairs). */
kvarc_ret kvi_index_fork(kvarc_reader *r, const struct kvi_fork *fork, uint64_t sequence,
                         bool lenient);
/* The track that the frames of a segment name. */
uint32_t kvi_segment_named(const kvarc_reader *r, const struct kvi_segment_ref *segment);
/* Computes `left` of each segment at the end of the list, and `tokens` and `last` of all tracks. */
void kvi_index_finish(struct kvi_reader_index *index, size_t n_tracks);
/* Counts all tokens of all segments as left, to verify them. Segments of a store that have none
 * left stay so: a store need not have them (spec frames 12.3). */
void kvi_index_take_all(struct kvi_reader_index *index);
/* The segment that holds the token before a segment. NULL: there is none. */
static inline const struct kvi_segment_ref *kvi_index_before(const struct kvi_reader_index *index,
                                                             const struct kvi_segment_ref *ref)
{
	return ref->parent ? KVI_LIST(struct kvi_segment_ref, index->segments, ref->parent - 1)
	                   : NULL;
}
/* Adds a COMMIT that is a checkpoint. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_index_checkpoint(kvarc_reader *r, const struct kvi_index_entry *entry);
/* Whether the last checkpoint is the one that the file is opened at. */
bool kvi_index_is_there(const kvarc_reader *r);
/* Reports that the file has no such checkpoint as the options name. Returns OPTIONS. */
kvarc_ret kvi_reader_no_checkpoint(const kvarc_reader *r, kvarc_error *error);
/* The end of the chunks of a segment, which begin at segment->first. A segment in a store has a
 * chunk for each tensor of the track (spec frames 12.3). */
uint64_t kvi_segment_chunks_end(const kvarc_reader *r, const struct kvi_segment_ref *segment);
/* Chunk i of a segment: segment->first to kvi_segment_chunks_end, exclusive; with a tensor of the
 * segment's track. */
struct kvi_chunk_ref kvi_segment_chunk(const kvarc_reader *r, const struct kvi_segment_ref *segment,
                                       uint64_t i);
/* The tensor that the frame of a chunk names. */
uint32_t kvi_chunk_named(const kvarc_reader *r, const struct kvi_chunk_ref *chunk);

#endif
