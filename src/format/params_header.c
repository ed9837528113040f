/* SPDX-License-Identifier: BSD-3-Clause */
/* params_header.c - parses and writes the start of PARAMS content (spec 8) */
#include "params_header.h"

#include "util/bytes.h"

void kvi_params_header_write(uint8_t out[KVI_PARAMS_HEADER_BYTES],
                             const struct kvi_params_header *h)
{
	kvi_store32(out, h->tensor);
	kvi_store16(out + 4, h->head);
	kvi_store16(out + 6, h->heads);
	out[8] = h->codec;
}

bool kvi_params_header_parse(struct kvi_params_header *h, const uint8_t *content, size_t bytes)
{
	if (bytes < KVI_PARAMS_HEADER_BYTES)
		return false;
	h->tensor = kvi_load32(content);
	h->head = kvi_load16(content + 4);
	h->heads = kvi_load16(content + 6);
	h->codec = content[8];
	return h->heads >= 1;
}
