/* SPDX-License-Identifier: BSD-3-Clause */
/* chunk_header.c - parses and writes chunk headers (spec 7) */
#include "chunk_header.h"

#include "segment.h"
#include "util/bytes.h"

void kvi_chunk_header_write(uint8_t out[KVI_CHUNK_HEADER_BYTES], const struct kvi_chunk_header *h)
{
	kvi_store32(out, h->tensor);
	kvi_store16(out + 4, h->head);
	kvi_store16(out + 6, h->heads);
	kvi_store64(out + 8, h->segment);
	kvi_store64(out + 16, h->params);
	out[24] = h->codec;
	out[25] = h->cut.stream_size;
	kvi_store16(out + 26, h->n);
	kvi_store32(out + 28, h->t0);
	kvi_store64(out + 32, h->raw_check);
	kvi_store32(out + 40, h->cut.section_bytes);
	kvi_store32(out + 44, 0);
}

bool kvi_chunk_header_parse(struct kvi_chunk_header *h, const uint8_t *payload, size_t bytes)
{
	if (bytes < KVI_CHUNK_HEADER_BYTES)
		return false;
	h->tensor = kvi_load32(payload);
	h->head = kvi_load16(payload + 4);
	h->heads = kvi_load16(payload + 6);
	h->segment = kvi_load64(payload + 8);
	h->params = kvi_load64(payload + 16);
	h->codec = payload[24];
	h->cut.stream_size = payload[25];
	h->n = kvi_load16(payload + 26);
	h->t0 = kvi_load32(payload + 28);
	h->raw_check = kvi_load64(payload + 32);
	h->cut.section_bytes = kvi_load32(payload + 40);
	return h->heads >= 1 && h->n >= 1 && h->n <= KVI_SEGMENT_TOKENS &&
	       h->cut.stream_size <= KVI_ONE_STREAM && kvi_load32(payload + 44) == 0;
}
