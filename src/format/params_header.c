/* SPDX-License-Identifier: BSD-3-Clause */
/* params_header.c - parses and writes the start of PARAMS content (spec 8) */
#include "params_header.h"

#include "util/bytes.h"

void kvi_params_header_write(uint8_t out[KVI_PARAMS_HEADER_BYTES],
                             const struct kvi_params_header *header)
{
	kvi_store32(out, header->tensor);
	kvi_store16(out + 4, header->head);
	kvi_store16(out + 6, header->heads);
	out[8] = header->codec;
}

bool kvi_params_header_parse(struct kvi_params_header *header, const uint8_t *content, size_t bytes)
{
	if (bytes < KVI_PARAMS_HEADER_BYTES)
		return false;
	header->tensor = kvi_load32(content);
	header->head = kvi_load16(content + 4);
	header->heads = kvi_load16(content + 6);
	header->codec = content[8];
	return header->heads >= 1;
}
