/* SPDX-License-Identifier: BSD-3-Clause */
/* params_header.h - the common start of PARAMS content (spec 8) */
#ifndef KVI_PARAMS_HEADER_H
#define KVI_PARAMS_HEADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Size of the fixed part of a PARAMS content. */
enum { KVI_PARAMS_HEADER_BYTES = 9 };

/* The fixed part of a PARAMS content: which tensor, heads and codec (spec 8). */
struct kvi_params_header {
	uint32_t tensor;
	uint16_t head, heads;
	uint8_t codec;
};

/* Writes the fixed part. */
void kvi_params_header_write(uint8_t out[KVI_PARAMS_HEADER_BYTES],
                             const struct kvi_params_header *header);
/* False: too short or no heads. Whether the codec has parameters is for the caller. */
bool kvi_params_header_parse(struct kvi_params_header *header, const uint8_t *content,
                             size_t bytes);

#endif
