/* SPDX-License-Identifier: BSD-3-Clause */
/* lanes.h - the orders in which a stream takes its elements (spec rans 3) */
#ifndef KVI_LANES_H
#define KVI_LANES_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/rans.h"

/* The rows x channels elements of a stream in the order of tokens: lanes are tokens. */
struct kvi_lanes {
	const struct kvi_kernels *kernels;
	size_t rows, channels;
};

/* The steps of a stream in the order of tokens. */
struct kvi_steps kvi_token_steps(const struct kvi_lanes *lanes);
/* The steps of a stream of n elements in the order of elements. */
struct kvi_steps kvi_element_steps(size_t n);

/* Move elements of 1, 2 or 4 bytes from token-major order to the order of tokens. */
void kvi_lanes_to8(const struct kvi_lanes *l, const uint8_t *from, uint8_t *to);
void kvi_lanes_to16(const struct kvi_lanes *l, const uint16_t *from, uint16_t *to);
void kvi_lanes_to32(const struct kvi_lanes *lanes, const uint32_t *from, uint32_t *to);
/* The inverse of kvi_lanes_to8 and kvi_lanes_to16. */
void kvi_lanes_from8(const struct kvi_lanes *l, const uint8_t *from, uint8_t *to);
void kvi_lanes_from16(const struct kvi_lanes *l, const uint16_t *from, uint16_t *to);

/* Entries per channel, laid out for the kernels' jobs in the order of elements. */
struct kvi_ring {
	const void *full, *tail; /* entries of the full steps and of the last one */
	size_t steps;            /* period of the full part */
};
/* The rings of the streams of a chunk, which have the same number of tokens but for the last
 * one. */
struct kvi_rings {
	size_t rows; /* tokens of each stream but the last */
	struct kvi_ring ring[2];
};
/* Entries of a buffer for the ring of any stream of a chunk of `rows` tokens. */
size_t kvi_ring_capacity(size_t rows, size_t channels);
/* Tokens of a short stream in whole steps, at most KVI_LANES, from whose words those of others are
 * estimated. */
size_t kvi_ring_trial(size_t channels);
/* Lays out both rings: for streams of `rows` tokens and for the last one of `last`. buffer: twice
 * `capacity` entries of `size` bytes (kvi_ring_capacity). */
struct kvi_rings kvi_rings_make(size_t rows, size_t last, size_t channels, size_t size,
                                const void *per_channel, void *buffer, size_t capacity);
/* The ring of a stream of this number of tokens. */
static inline const struct kvi_ring *kvi_rings_of(const struct kvi_rings *r, size_t rows)
{
	return &r->ring[rows != r->rows];
}

#endif
