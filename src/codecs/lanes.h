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

/* Between token-major order and order 1. (Order 0 is token-major.) */
void kvi_lanes_to8(const struct kvi_lanes *l, const uint8_t *from, uint8_t *to);
/* Back from order 1 to token-major order. */
void kvi_lanes_from8(const struct kvi_lanes *l, const uint8_t *from, uint8_t *to);
/* To order 1, elements of two bytes. */
void kvi_lanes_to16(const struct kvi_lanes *l, const uint16_t *from, uint16_t *to);
/* From order 1, elements of two bytes. */
void kvi_lanes_from16(const struct kvi_lanes *l, const uint16_t *from, uint16_t *to);
/* To order 1, elements of four bytes. */
void kvi_lanes_to32(const struct kvi_lanes *l, const uint32_t *from, uint32_t *to);

/*
 * What is known of a channel (one or four bytes), laid out for the kernels'
 * jobs. In order 1 all lanes of a step share an entry and per_channel itself
 * serves; in order 0 a ring is made in `room` (kvi_ring_capacity elements).
 */
size_t kvi_ring_capacity(const struct kvi_lanes *l);
/* Values of one byte by channel; steps: the period of the full part, in steps. */
struct kvi_ring8 {
	const uint8_t *full, *tail;
	size_t steps;
};
/* Values of four bytes by channel. */
struct kvi_ring32 {
	const uint32_t *full, *tail;
	size_t steps;
};
/* Lays out one value for each channel; buffer: kvi_ring_capacity entries, used where they are
 * needed. */
struct kvi_ring8 kvi_ring8_make(const struct kvi_lanes *l, const uint8_t *per_channel,
                                uint8_t *buffer);
/* The same for values of four bytes. */
struct kvi_ring32 kvi_ring32_make(const struct kvi_lanes *l, const uint32_t *per_channel,
                                  uint32_t *buffer);

#endif
