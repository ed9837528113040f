/* SPDX-License-Identifier: BSD-3-Clause */
/* archive_chunks.h - the chunks of an archive with what decoding them needs, frame by frame */
#ifndef KVI_TEST_ARCHIVE_CHUNKS_H
#define KVI_TEST_ARCHIVE_CHUNKS_H

#include <stdbool.h>
#include <stddef.h>

#include "codecs/codec.h"
#include "format/segment.h"

/* A chunk; memory is the walk's. */
struct archive_chunk {
	const struct kvi_chunk_header *header;
	struct kvi_chunk shape;
	const struct kvi_params *params; /* NULL: the codec has none */
	const uint8_t *payload;          /* header included */
	size_t bytes;
};

/* Called for a chunk of codecs 0, 2, 4, 5 and 16 whose header agrees with its tensor. */
typedef void (*archive_chunk_fn)(void *opaque, const struct archive_chunk *chunk);

/*
 * Goes through the frames of a file in memory and stops where there is none. Checks of frames are
 * not compared, and what is not valid is left out: damaged files are welcome. Returns false for a
 * file that is no archive or is encrypted.
 */
bool archive_chunks(const uint8_t *file, size_t bytes, archive_chunk_fn fn, void *opaque);

#endif
