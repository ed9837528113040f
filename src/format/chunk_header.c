/* SPDX-License-Identifier: BSD-3-Clause */
/* chunk_header.c - parses and writes chunk headers (spec 7) */
#include "chunk_header.h"

#include "segment.h"
#include "util/bytes.h"

void kvi_chunk_header_write(uint8_t out[KVI_CHUNK_HEADER_BYTES],
                            const struct kvi_chunk_header *header)
{
	kvi_store32(out, header->tensor);
	kvi_store16(out + 4, header->head);
	kvi_store16(out + 6, header->heads);
	kvi_store64(out + 8, header->segment);
	kvi_store64(out + 16, header->params);
	out[24] = header->codec;
	out[25] = header->cut.stream_size;
	kvi_store16(out + 26, header->n);
	kvi_store32(out + 28, header->t0);
	kvi_store64(out + 32, header->raw_check);
	kvi_store32(out + 40, header->cut.section_bytes);
	kvi_store32(out + 44, 0);
}

bool kvi_chunk_header_parse(struct kvi_chunk_header *header, const uint8_t *payload, size_t bytes)
{
	if (bytes < KVI_CHUNK_HEADER_BYTES)
		return false;
	header->tensor = kvi_load32(payload);
	header->head = kvi_load16(payload + 4);
	header->heads = kvi_load16(payload + 6);
	header->segment = kvi_load64(payload + 8);
	header->params = kvi_load64(payload + 16);
	header->codec = payload[24];
	header->cut.stream_size = payload[25];
	header->n = kvi_load16(payload + 26);
	header->t0 = kvi_load32(payload + 28);
	header->raw_check = kvi_load64(payload + 32);
	header->cut.section_bytes = kvi_load32(payload + 40);
	return header->heads >= 1 && header->n >= 1 && header->n <= KVI_SEGMENT_TOKENS &&
	       header->cut.stream_size <= KVI_ONE_STREAM;
}
