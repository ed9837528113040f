/* SPDX-License-Identifier: BSD-3-Clause */
/* frame_walk.h - goes through the frames of a file in order and checks their grammar
 * (spec 3.4, 6 to 9): sequence, order of chunks, index, footer */
#ifndef KVI_FRAME_WALK_H
#define KVI_FRAME_WALK_H

#include "chunk_header.h"
#include "frame_index.h"
#include "packed.h"
#include "params_header.h"
#include "segment.h"
#include "chunk_order.h"
#include "frame_input.h"
#include "util/list.h"

/* Leading bytes of a large frame's content that say which tensor or item it belongs to. */
enum { KVI_SKIM_BYTES = 64 };

/* A pass over the frames of a file in order, with all checks that follow from the order. */
struct kvi_walk {
	const struct kvi_input *in; /* &own */
	struct kvi_input own;
	struct kvi_window window;
	struct kvi_packer *packer;
	/* Set by the caller after the GEOMETRY frame, by kvi_walk_geometry. */
	const kvarc_geometry *geometry;
	const struct kvi_order *order;

	/* The current frame, after OK. */
	struct kvi_buffer buffer;
	struct kvi_frame frame;
	const uint8_t *content; /* unpacked content; of CHUNK, COMMIT, FOOTER: payload */
	size_t content_bytes;
	uint8_t *owned;
	struct kvi_segment segment;      /* the last SEGMENT; of a STOREREF the track */
	struct kvi_list stored;          /* kvarc_stored: of the last STOREREF */
	struct kvi_chunk_header chunk;   /* CHUNK */
	struct kvi_params_header params; /* PARAMS */
	struct kvi_index_entry entry;    /* all frames but INDEX and FOOTER */

	/* Set by a caller that looks for frames and does not use the content of all of them. */
	bool skim;             /* content of large PARAMS, BLOB and PROFILE frames holds the
	                        * first KVI_SKIM_BYTES alone; content_bytes counts all */
	uint64_t *decode_left; /* bytes that other frames may decode to; NULL: no limit */
	uint8_t head[KVI_SKIM_BYTES];

	/* The position of the walk, and the state of the grammar. */
	uint64_t offset, sequence;    /* offset and sequence of the next frame */
	bool begun;                   /* GEOMETRY has passed */
	uint64_t *tokens, *committed; /* a track */
	bool in_segment;
	uint64_t segment_sequence, segment_end;
	uint64_t n_items;           /* RESTORE frames */
	bool past_items;            /* a RESTORE frame is not valid any more on a pipe */
	uint32_t order_index;       /* CHUNK: position of its tensor in the order */
	uint64_t predictor;         /* the last PREDICTOR, 0: none, or of kind 0 */
	bool predictor_guides;      /* the last PREDICTOR is of kind 2 */
	bool predictor_codes;       /* ids of segments behind it may be coded */
	uint64_t segment_predictor; /* `predictor` where the segment began */
	bool segment_guided;
	uint64_t profile_next, profile_bytes; /* offset of the next PROFILE frame; bytes of the
	                                       * profile */
	struct kvi_order_walk chunks;
	uint16_t last_type; /* type of the last frame that counts for the order (spec 3.4) */
	bool uncommitted;
	uint64_t last_index, last_commit, commit_end;
	uint64_t checkpoint;    /* number of the last one, 0: none */
	struct kvi_h128 listed; /* hash of the entries that the next INDEX must list */
	uint64_t n_listed;
};

/* Starts before the first frame. packer belongs to the caller and must outlive the walk, which must
 * not be moved. */
void kvi_walk_init(struct kvi_walk *w, const struct kvi_input *in, struct kvi_packer *packer);
/* Reads a source that can seek in large requests from now on: the caller goes through all
 * frames. */
void kvi_walk_all(struct kvi_walk *w);
/* Frees buffers and counts; the walk may not be used again. */
void kvi_walk_free(struct kvi_walk *w);
/* Gives the walk the content of the GEOMETRY frame and its order; both must outlive it. Returns OK,
 * MEM, MEMLIMIT. */
kvarc_ret kvi_walk_geometry(struct kvi_walk *w, const kvarc_geometry *geometry,
                            const struct kvi_order *order, kvarc_error *error);

/* Moves to the GEOMETRY frame, past the frames before it. Returns as kvi_walk_next. */
kvarc_ret kvi_walk_first(struct kvi_walk *w, kvarc_error *error);
/*
 * Moves to the next frame; unknown frames that may be skipped are given, too. The first calls give
 * the KEY frames of an encrypted file, then GEOMETRY. END: the file ends after a complete frame
 * (last_type says whether it was closed). Returns OK, END, MEM, MEMLIMIT, DATA, OPTIONS, IO.
 */
kvarc_ret kvi_walk_next(struct kvi_walk *w, kvarc_error *error);

/* DATA with a text for a file that ends here without COMMIT or FOOTER; OK when
 * it ends well. */
kvarc_ret kvi_walk_end(const struct kvi_walk *w, kvarc_error *error);

/* Unpacks a frame's content. *owned is to be freed. */
kvarc_ret kvi_frame_content(struct kvi_packer *packer, const struct kvi_frame *frame,
                            const uint8_t **content, uint8_t **owned, kvarc_error *error);

/* Whether the first KVI_SKIM_BYTES of a frame's content are enough for a caller that looks for
 * frames: large PARAMS, BLOB and PROFILE frames. */
bool kvi_frame_skims(const struct kvi_frame_head *head);
/* Unpacks the first KVI_SKIM_BYTES of a frame's content. Returns OK, MEM, MEMLIMIT, DATA,
 * OPTIONS. */
kvarc_ret kvi_frame_skim(struct kvi_packer *packer, const struct kvi_frame *frame,
                         uint8_t head[KVI_SKIM_BYTES], kvarc_error *error);
/* Subtracts the decoded size of a frame from the remaining limit; NULL: there is no limit. Returns
 * OK, MEMLIMIT. */
kvarc_ret kvi_frame_spend(const struct kvi_frame *frame, uint64_t *left, kvarc_error *error);

/* Sets *error to `what` is wrong with a frame; returns DATA. */
kvarc_ret kvi_frame_bad(const struct kvi_frame *frame, kvarc_error *error, const char *what);
/* Checks the meaning of a frame's header as kvi_frame_head_check does, and sets *error. Returns OK,
 * DATA, OPTIONS. */
kvarc_ret kvi_frame_meaning(const struct kvi_frame *frame, kvarc_error *error);

/* Checks a chunk header by itself and against its tensor (spec 7). Returns OK, DATA, OPTIONS. */
kvarc_ret kvi_chunk_check(const kvarc_geometry *geometry, const struct kvi_chunk_header *header,
                          const struct kvi_frame *frame, kvarc_error *error);
/* Checks the header of a PARAMS frame by itself and against its tensor (spec 8). Returns OK, DATA,
 * OPTIONS. */
kvarc_ret kvi_params_check(const kvarc_geometry *geometry, const struct kvi_params_header *header,
                           const struct kvi_frame *frame, kvarc_error *error);

#endif
