/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_frames.h - frames that others name, read where they are */
#ifndef KVI_READER_FRAMES_H
#define KVI_READER_FRAMES_H

#include "format/frame_input.h"
#include "format/packed.h"
#include "kvarc.h"
#include "util/bytes.h"

/* Reports a damaged frame: what says why. Returns DATA. */
kvarc_ret kvi_reader_bad(const struct kvi_frame *frame, kvarc_error *error, const char *what);
/* Reports a frame whose content is not valid. Returns DATA. */
kvarc_ret kvi_reader_not_valid(const struct kvi_frame *frame, kvarc_error *error);
/* Reads a frame that must be of this type and sequence number, in one request where the index has
 * its size. */
kvarc_ret kvi_reader_read_frame(kvarc_reader *r, uint64_t offset, uint16_t type, uint64_t sequence,
                                struct kvi_buffer *buf, struct kvi_frame *frame,
                                kvarc_error *error);

struct kvi_chunk_header;
struct kvi_chunk_ref;
/* Reads the header of a chunk of the index, and `extra` bytes behind it, to head, which holds 32 +
 * KVI_CHUNK_HEADER_BYTES + extra; frame: of it. The frame's check is not verified. Returns OK, DATA
 * (the frame is damaged, or of another chunk), END, OPTIONS, MEM, MEMLIMIT, IO. */
kvarc_ret kvi_reader_peek_chunk(kvarc_reader *r, const struct kvi_chunk_ref *chunk, uint8_t *head,
                                size_t extra, struct kvi_chunk_header *header,
                                struct kvi_frame *frame);

/* A metadata frame in memory; all zero: none yet. */
struct kvi_loaded {
	struct kvi_buffer buffer;
	struct kvi_frame frame;
	const uint8_t *content; /* frame.head.decoded_bytes */
	uint8_t *owned;
};

/* Reads a frame that must be of this type and sequence number, and its content, in place of what
 * loaded has. The caller frees loaded, also on failure. Returns OK, MEM, MEMLIMIT, DATA,
 * OPTIONS, IO. */
kvarc_ret kvi_reader_load_frame(kvarc_reader *r, struct kvi_packer *packer, uint64_t offset,
                                uint16_t type, uint64_t sequence, struct kvi_loaded *loaded,
                                kvarc_error *error);
/* Frees what loaded has of alloc. */
void kvi_loaded_free(struct kvi_loaded *loaded, const struct kvi_alloc *alloc);
/* The content of a frame of this type and sequence number, in place of what is in content. */
kvarc_ret kvi_reader_content(kvarc_reader *r, uint64_t offset, uint16_t type, uint64_t sequence,
                             struct kvi_out *content);

#endif
