/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_meta.h - metadata frames: identity, packed files and their literal bytes */
#ifndef KVI_READER_META_H
#define KVI_READER_META_H

#include "format/frame_input.h"
#include "format/identity.h"
#include "reader_internal.h"
#include "util/list.h"

/* A packed file, and how much of its literal bytes was read. */
struct kvi_item {
	struct kvi_restore restore;
	uint64_t sequence;
	uint64_t literal_bytes, next; /* BLOB bytes in all, seen in order */
	uint64_t received;            /* BLOB bytes seen in salvage, which may have gaps */
};

/* Metadata frames. */
struct kvi_reader_meta {
	struct kvi_identity identity;
	struct kvi_list items; /* struct kvi_item; all items of the file */
	size_t first_item;     /* first of the current set (spec 10), while the file is opened */
	bool set_closed;       /* a checkpoint came behind that set */
	/* First item of the current set, and its end, while frames are passed in order. */
	size_t passed_first;
	bool passed_closed;
	kvi_blob_fn blob;
	void *blob_opaque;
	struct kvi_buffer commit; /* buffer of kvarc_reader_checkpoint */
	/* Bytes that metadata may still decode to while the reader is opened: the memory limit at
	 * first, although they are not held at the same time. */
	uint64_t decode_left;
};

/* Takes the content of IDENTITY, RESTORE, PREDICTOR frames; others are ignored. */
kvarc_ret kvi_reader_meta(kvarc_reader *r, const struct kvi_frame *frame, const uint8_t *content,
                          size_t bytes, kvarc_error *error);
/* A BLOB frame: checks that it is the next one of its item and gives it to the handler. */
kvarc_ret kvi_reader_blob(kvarc_reader *r, const struct kvi_frame *frame, const uint8_t *content,
                          size_t bytes, bool deliver, kvarc_error *error);
/* Begins a new set of items if a checkpoint has closed the current one; at each SEGMENT or RESTORE
 * frame while the file is opened. */
void kvi_reader_begin_set(kvarc_reader *r);
/* A frame that was passed in order: whether items are complete at the checkpoint that closes their
 * set. Returns OK, DATA, OPTIONS (a pipe). */
kvarc_ret kvi_reader_pass_items(kvarc_reader *r, kvarc_error *error);
/* Checks at the end of the file that all items of the last state are complete. */
kvarc_ret kvi_reader_blobs_end(kvarc_reader *r, kvarc_error *error);

#endif
