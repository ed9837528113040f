/* SPDX-License-Identifier: BSD-3-Clause */
/* frame_walk.h - goes through the frames of a file in order and checks their grammar
 * (spec 3.4, 6 to 9): sequence, order of chunks, index, footer */
#ifndef KVI_FRAME_WALK_H
#define KVI_FRAME_WALK_H

#include "frame_content.h"
#include "frame_index.h"
#include "segment.h"
#include "chunk_order.h"
#include "util/list.h"

/* The current frame of a walk. */
struct kvi_walk_frame {
	struct kvi_frame frame;
	const uint8_t *content; /* unpacked content; of CHUNK, COMMIT, FOOTER: payload */
	size_t content_bytes;
	struct kvi_index_entry entry;  /* all frames but INDEX and FOOTER */
	struct kvi_chunk_header chunk; /* CHUNK */
	uint32_t order_index;          /* CHUNK: position of its tensor in the order */
	struct kvi_buffer buffer;      /* memory of the frame; a caller may exchange it */
	uint8_t *owned;                /* memory of the content, NULL: it is elsewhere */
	uint8_t head[KVI_SKIM_BYTES];  /* memory of a content of which the caller skims */
	/* Memory of a frame that is passed. */
	uint8_t passed[KVI_FRAME_HEAD_BYTES + KVI_CHUNK_HEADER_BYTES];
};

/* The last PREDICTOR of a walk, and the PROFILE frames behind it. */
struct kvi_walk_predictor {
	uint64_t sequence;                    /* 0: none, or of kind 0 */
	bool is_model;                        /* it is of kind 2 */
	bool unknown;                         /* it is of a later version */
	bool codes_ids;                       /* ids of segments behind it may be coded */
	uint64_t profile_bytes, profile_next; /* bytes of its profile, offset of the next part */
};

/* The last SEGMENT or STOREREF of a walk. */
struct kvi_walk_segment {
	struct kvi_segment content; /* of the last SEGMENT */
	struct kvi_list stored;     /* kvarc_stored: of the last STOREREF */
	bool open;                  /* no COMMIT has followed it */
	uint32_t track;
	uint64_t sequence, end;              /* of the frame; index behind its last token */
	struct kvi_order_walk chunks;        /* SEGMENT: the next chunk */
	struct kvi_walk_predictor predictor; /* the last one before it */
};

/* The last COMMIT of a walk. */
struct kvi_walk_commit {
	uint64_t *tokens, *stated; /* a track: counted in segments; what a COMMIT states */
	uint64_t offset, end;      /* of the frame; 0: there was none */
	uint64_t checkpoint;       /* number of the last checkpoint, 0: none */
};

/* Entries of frames: how many, and the sum of their hashes, so that those of a LIST can be taken
 * off. */
struct kvi_walk_entries {
	uint64_t n, lo, hi;
};

/* An INDEX that has passed, and the entries of frames before it. */
struct kvi_walk_index {
	uint64_t offset;
	uint32_t bytes;
	struct kvi_walk_entries before; /* `all` of frames before it */
};

/* Entries that the next INDEX or LIST of a walk must have. */
struct kvi_walk_listing {
	struct kvi_list passed;         /* struct kvi_walk_index */
	struct kvi_walk_entries all;    /* in the file, but for CHUNK frames in a LIST */
	struct kvi_walk_entries chunks; /* CHUNK frames since the last INDEX or LIST */
	bool whole;                     /* the first of these is the first of its segment */
	uint64_t codecs;                /* kvi_codec_bit of all CHUNK frames */
};

/* A pass over the frames of a file in order, with all checks that follow from the order. */
struct kvi_walk {
	struct kvi_input in;
	struct kvi_window window;
	struct kvi_packer *packer;
	/* Set by a caller that looks for frames and does not use the content of all of them. */
	bool skim;             /* content of large PARAMS, BLOB and PROFILE frames holds the
	                        * first KVI_SKIM_BYTES alone; content_bytes counts all */
	uint64_t *decode_left; /* bytes that other frames may decode to; NULL: no limit */
	bool pass_chunks;      /* of CHUNK frames that are not encrypted only the headers are
	                        * read: who decodes them verifies their checks */
	/* Set by the caller after the GEOMETRY frame, by kvi_walk_geometry. */
	const kvarc_geometry *geometry;
	const struct kvi_order *order;

	uint64_t offset, sequence;     /* of the next frame */
	struct kvi_walk_frame current; /* after OK */

	/* The state of the grammar (spec 3.4). */
	uint16_t last_type; /* type of the last frame that counts; 0: GEOMETRY has not passed */
	bool past_items;    /* a RESTORE frame is not valid any more on a pipe */
	uint64_t n_items;   /* RESTORE frames */
	struct kvi_walk_segment segment;
	struct kvi_walk_predictor predictor;
	struct kvi_walk_commit commit;
	struct kvi_walk_listing listing;
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

/* The last INDEX that has passed; NULL: none. */
static inline const struct kvi_walk_index *kvi_walk_last_index(const struct kvi_walk *w)
{
	const struct kvi_list *l = &w->listing.passed;
	return l->n ? KVI_LIST(struct kvi_walk_index, *l, l->n - 1) : NULL;
}
/* DATA with a text for a file that ends here without COMMIT or FOOTER; OK when
 * it ends well. */
kvarc_ret kvi_walk_end(const struct kvi_walk *w, kvarc_error *error);

#endif
