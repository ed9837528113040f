/* SPDX-License-Identifier: BSD-3-Clause */
/* lanes.c - transpositions and rings of the two lane orders (spec rans 3) */
#include "lanes.h"

#include <string.h>

struct kvi_steps kvi_lane_steps(const struct kvi_lanes *l)
{
	struct kvi_steps s;
	if (l->order == KVI_LANES_CHANNELS) {
		size_t n = l->rows * l->channels;
		s.full_steps = n / KVI_LANES;
		s.tail_lanes = (unsigned)(n % KVI_LANES);
		s.tail_steps = s.tail_lanes != 0;
	} else {
		s.full_steps = l->rows / KVI_LANES * l->channels;
		s.tail_lanes = (unsigned)(l->rows % KVI_LANES);
		s.tail_steps = s.tail_lanes ? l->channels : 0;
	}
	return s;
}

/* Tokens of the block that starts at token t. */
static size_t block_rows(const struct kvi_lanes *l, size_t t)
{
	return l->rows - t < KVI_LANES ? l->rows - t : KVI_LANES;
}

/* Blocks of KVI_LANES tokens, each transposed. */
#define MOVE(name, type, kernel, in_rows, in_columns)                                             \
	void name(const struct kvi_lanes *l, const type *from, type *to)                          \
	{                                                                                         \
		for (size_t t = 0; t < l->rows; t += KVI_LANES)                                   \
			l->kernels->kernel(to + t * l->channels, from + t * l->channels, in_rows, \
			                   in_columns);                                           \
	}
MOVE(kvi_lanes_to8, uint8_t, transpose8, block_rows(l, t), l->channels)
MOVE(kvi_lanes_from8, uint8_t, transpose8, l->channels, block_rows(l, t))
MOVE(kvi_lanes_to16, uint16_t, transpose16, block_rows(l, t), l->channels)
MOVE(kvi_lanes_from16, uint16_t, transpose16, l->channels, block_rows(l, t))

void kvi_lanes_to32(const struct kvi_lanes *l, const uint32_t *from, uint32_t *to)
{
	for (size_t t = 0; t < l->rows; t += KVI_LANES) {
		size_t n = block_rows(l, t);
		const uint32_t *block = from + t * l->channels;
		for (size_t c = 0; c < l->channels; c++)
			for (size_t i = 0; i < n; i++)
				*to++ = block[i * l->channels + c];
	}
}

static size_t gcd(size_t a, size_t b)
{
	while (b) {
		size_t r = a % b;
		a = b;
		b = r;
	}
	return a;
}

/*
 * Order 0 repeats after lcm(channels, 32) elements. The kernels want a ring
 * that divides the full steps; where it does not, all steps are laid out.
 */
static size_t ring_steps(const struct kvi_lanes *l, size_t full_steps)
{
	size_t period = l->channels / gcd(l->channels, KVI_LANES);
	if (period > full_steps || full_steps % period)
		period = full_steps;
	return period ? period : 1;
}

size_t kvi_ring_capacity(const struct kvi_lanes *l)
{
	struct kvi_steps s = kvi_lane_steps(l);
	if (l->order != KVI_LANES_CHANNELS)
		return 0;
	return ring_steps(l, s.full_steps) * KVI_LANES + KVI_LANES;
}

/* Fills n entries with those of the channels, again and again, starting at `channel`. */
static void repeat(uint8_t *to, size_t n, const uint8_t *per_channel, size_t size, size_t channels,
                   size_t channel)
{
	while (n) {
		size_t some = channels - channel;
		if (some > n)
			some = n;
		memcpy(to, per_channel + channel * size, some * size);
		to += some * size;
		n -= some;
		channel = 0;
	}
}

struct kvi_ring kvi_ring_make(const struct kvi_lanes *l, size_t size, const void *per_channel,
                              void *buffer)
{
	struct kvi_steps s = kvi_lane_steps(l);
	if (l->order != KVI_LANES_CHANNELS)
		return (struct kvi_ring){ per_channel, per_channel, l->channels };
	size_t steps = ring_steps(l, s.full_steps);
	uint8_t *full = buffer, *tail = full + steps * KVI_LANES * size;
	repeat(full, steps * KVI_LANES, per_channel, size, l->channels, 0);
	repeat(tail, s.tail_lanes, per_channel, size, l->channels,
	       s.full_steps * KVI_LANES % l->channels);
	return (struct kvi_ring){ full, tail, steps };
}
