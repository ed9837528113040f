/* SPDX-License-Identifier: BSD-3-Clause */
/* lanes.h - the two orders in which a stream takes its elements (spec rans 3) */
#ifndef KVI_LANE_ORDER_H
#define KVI_LANE_ORDER_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/rans.h"

/* The two orders of lanes: neighbouring channels of a token, or neighbouring tokens of a
 * channel. */
enum { KVI_LANES_CHANNELS = 0, KVI_LANES_TOKENS = 1, KVI_N_LANE_ORDERS = 2 };

/* The rows x channels elements of a stream. */
struct kvi_lanes {
	const struct kvi_kernels *kernels;
	size_t rows, channels;
	int order;
};

/* The steps of a stream of these elements. */
struct kvi_steps kvi_lane_steps(const struct kvi_lanes *l);

/* Between token-major order, which is the order of KVI_LANES_CHANNELS, and that of
 * KVI_LANES_TOKENS; elements of 1, 2 or 4 bytes. */
void kvi_lanes_to8(const struct kvi_lanes *l, const uint8_t *from, uint8_t *to);
void kvi_lanes_to16(const struct kvi_lanes *l, const uint16_t *from, uint16_t *to);
void kvi_lanes_to32(const struct kvi_lanes *l, const uint32_t *from, uint32_t *to);
/* The inverse of kvi_lanes_to8 and kvi_lanes_to16. */
void kvi_lanes_from8(const struct kvi_lanes *l, const uint8_t *from, uint8_t *to);
void kvi_lanes_from16(const struct kvi_lanes *l, const uint16_t *from, uint16_t *to);

/* Entries of a ring's buffer. */
size_t kvi_ring_capacity(const struct kvi_lanes *l);
/* One entry per channel, laid out for the kernels' jobs. */
struct kvi_ring {
	const void *full, *tail; /* entries of the full steps and of the last one */
	size_t steps;            /* period of the full part */
};
/*
 * Lays out entries of `size` bytes. With KVI_LANES_TOKENS all lanes of a step share an entry and
 * per_channel itself serves; else the ring is made in buffer, kvi_ring_capacity entries.
 */
struct kvi_ring kvi_ring_make(const struct kvi_lanes *l, size_t size, const void *per_channel,
                              void *buffer);

#endif
