/* SPDX-License-Identifier: BSD-3-Clause */
/* frame_input.h - reads checked frames from a source that may be a pipe */
#ifndef KVI_FRAME_INPUT_H
#define KVI_FRAME_INPUT_H

#include <stdbool.h>

#include "frame.h"
#include "read_ahead.h"
#include "util/error.h"
#include "util/alloc.h"

/* Memory of one frame, reused from frame to frame. */
struct kvi_buffer {
	uint8_t *p;
	size_t bytes;
};

/* A part of the source, for one thread that goes through it in order. */
struct kvi_window {
	struct kvi_buffer buffer;
	uint64_t offset; /* offset of its first byte */
	size_t bytes;    /* 0: nothing has been read yet */
};

struct kvi_crypt;

/* A source of frames of one file. */
struct kvi_input {
	kvarc_source source;
	const struct kvi_alloc *alloc;
	uint64_t sync;
	bool stored;               /* STOREREF frames are allowed (spec frames R12.16) */
	struct kvi_ahead *ahead;   /* NULL: nothing is read ahead */
	struct kvi_window *window; /* NULL, or: reads go through it, in requests of 1 MiB */
	struct kvi_crypt *crypt;   /* NULL: the file is not encrypted */
};

/* A frame that was read; payload points into memory of the buffer or of the source. Of an encrypted
 * file head and payload are those of the inner frame. payload_bytes of a CHUNK excludes its
 * extension fields (spec 7). */
struct kvi_frame {
	struct kvi_frame_head head;
	uint64_t offset;
	uint64_t bytes;         /* bytes that the frame takes in the file */
	const uint8_t *payload; /* memory of the buffer or of the source */
	bool head_good;         /* set also when the frame is not good */
	bool check_good;        /* the check holds, too; an encrypted frame may still be wrong */
	bool cut;               /* the file ends inside of it */
	bool of_encrypted;      /* the frame was read from an encrypted file */
};

/* Whether the source has a size and takes any offset; a pipe does not. */
static inline bool kvi_input_seekable(const struct kvi_input *in)
{
	return in->source.size != KVARC_UNKNOWN;
}

/* Fills buf as far as the source goes, with bytes in memory and, for the rest, from the source.
 * Returns OK, IO. */
kvarc_ret kvi_input_read(const struct kvi_input *in, void *buf, size_t bytes, uint64_t offset,
                         size_t *got, kvarc_error *error);

/*
 * Reads the frame at offset and verifies header, size and check, and opens it in an encrypted file
 * (kvi_crypt_frame, whose answers come, too); not what the header means. END: the source ends
 * exactly here. Safe from several threads with a buffer each. Returns OK, END, MEM, MEMLIMIT, DATA,
 * IO.
 */
kvarc_ret kvi_frame_read(const struct kvi_input *in, uint64_t offset, struct kvi_buffer *buf,
                         struct kvi_frame *frame, kvarc_error *error);

/* kvi_frame_read in one request where the frame has at most `expected` bytes; 0: the size is not
 * known. */
kvarc_ret kvi_frame_read_expected(const struct kvi_input *in, uint64_t offset, uint64_t expected,
                                  struct kvi_buffer *buf, struct kvi_frame *f, kvarc_error *error);

/* Reads only the header and up to `extra` bytes behind it, not verified by the check; head holds 32
 * + extra bytes. For listings. In an encrypted file the whole frame is read. */
kvarc_ret kvi_frame_peek(const struct kvi_input *in, uint64_t offset, uint8_t *head, size_t extra,
                         struct kvi_frame *frame, kvarc_error *error);

/*
 * Finds the first offset at or behind `from`, a multiple of 16, with a good header of a frame that
 * ends inside the source; the size of the source when there is none. The frame's check is not
 * verified. The source can seek. window is reused from call to call; the caller frees its buffer.
 * Returns OK, MEM, MEMLIMIT, IO.
 */
kvarc_ret kvi_frame_find(const struct kvi_input *in, uint64_t from, struct kvi_window *window,
                         uint64_t *found, kvarc_error *error);

/* Makes the buffer hold at least `bytes`; its contents are lost when keep is 0. */
bool kvi_buffer_grow(struct kvi_buffer *buffer, const struct kvi_alloc *alloc, size_t bytes,
                     size_t keep);

#endif
