/* SPDX-License-Identifier: BSD-3-Clause */
/* chunk_header.h - the first 48 bytes of a CHUNK payload, and REPEAT's rest (spec 7) */
#ifndef KVI_CHUNK_HEADER_H
#define KVI_CHUNK_HEADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/codec_ids.h"

/* Sizes of the fixed part of a CHUNK payload and of the rest of a REPEAT chunk. */
enum { KVI_CHUNK_HEADER_BYTES = 48, KVI_REPEAT_BYTES = 16 };

/* The stream size of a chunk with one stream, or none; tokens of a stream of size 0 (spec rans
 * 4). */
enum { KVI_ONE_STREAM = 3, KVI_SMALLEST_STREAM = 32 };

/* The cut of a chunk's payload; of a codec without streams: KVI_ONE_STREAM, 0. */
struct kvi_chunk_cut {
	uint8_t stream_size;    /* a stream has 32 * 2^stream_size tokens */
	uint32_t section_bytes; /* bytes in front of the streams */
};

/* The fixed part of a CHUNK payload: which tensor, heads and tokens, coded how (spec 7). */
struct kvi_chunk_header {
	uint32_t tensor;
	uint16_t head, heads;
	uint64_t segment, params; /* sequence numbers */
	uint8_t codec;
	struct kvi_chunk_cut cut;
	uint16_t n;
	uint32_t t0;
	uint64_t raw_check;
};

/* Writes the fixed part; the values have to be valid. */
void kvi_chunk_header_write(uint8_t out[KVI_CHUNK_HEADER_BYTES],
                            const struct kvi_chunk_header *header);
/* Whether the elements of a chunk are those that a model predicts; bytes: of its payload (spec
 * predicted 2). */
static inline bool kvi_chunk_predicted_exactly(const struct kvi_chunk_header *header, size_t bytes)
{
	return header->codec == KVI_CODEC_PREDICTED &&
	       bytes == KVI_CHUNK_HEADER_BYTES + KVI_PREDICTED_EXACT;
}
/* False: too short, or not valid on its own; codec may be any. The field extension_bytes is that of
 * kvi_frame_read, which takes extension fields off the payload. */
bool kvi_chunk_header_parse(struct kvi_chunk_header *header, const uint8_t *payload, size_t bytes);

#endif
