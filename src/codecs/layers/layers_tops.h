/* SPDX-License-Identifier: BSD-3-Clause */
/* layers_tops.h - the tops of a chunk's channels that make few bits (spec layers 5) */
#ifndef KVI_LAYERS_TOPS_H
#define KVI_LAYERS_TOPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/layers.h"

/* Elements, rows x channels of `size` bytes, token-major and little-endian. */
struct kvi_layers_matrix {
	const uint8_t *packed;
	size_t rows, channels;
	unsigned size, mantissa; /* bits of the mantissa */
	uint8_t mask;            /* 2^(bits of the exponent) - 1 */
};

/* Chooses a top for each channel, and the base of the tops. True: one top serves all channels, and
 * is the base. */
bool kvi_layers_find_tops(const struct kvi_layer_kernels *kernels,
                          const struct kvi_layers_matrix *matrix, uint8_t *top, uint8_t *base);

#endif
