/* SPDX-License-Identifier: BSD-3-Clause */
/* chunk_header.h - the first 40 bytes of a CHUNK payload, and REPEAT's rest (spec 7) */
#ifndef KVI_CHUNK_HEADER_H
#define KVI_CHUNK_HEADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Sizes of the fixed part of a CHUNK payload and of the rest of a REPEAT chunk. */
enum { KVI_CHUNK_HEADER_BYTES = 40, KVI_REPEAT_BYTES = 16 };

/* The fixed part of a CHUNK payload: which tensor, heads and tokens, coded how (spec 7). */
struct kvi_chunk_header {
	uint32_t tensor;
	uint16_t head, heads;
	uint64_t segment, params; /* sequence numbers */
	uint8_t codec, lane_order;
	uint16_t n;
	uint32_t t0;
	uint64_t raw_check;
};

/* Writes the fixed part; the values have to be valid. */
void kvi_chunk_header_write(uint8_t out[KVI_CHUNK_HEADER_BYTES], const struct kvi_chunk_header *h);
/* False: too short, or not valid on its own; codec may be any. */
bool kvi_chunk_header_parse(struct kvi_chunk_header *h, const uint8_t *payload, size_t bytes);

#endif
