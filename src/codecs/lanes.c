/* SPDX-License-Identifier: BSD-3-Clause */
/* lanes.c - transpositions and rings of the two orders (spec rans 3) */
#include "lanes.h"

#include <string.h>

struct kvi_steps kvi_token_steps(const struct kvi_lanes *lanes)
{
	unsigned tail = (unsigned)(lanes->rows % KVI_LANES);
	return (struct kvi_steps){ .full_steps = lanes->rows / KVI_LANES * lanes->channels,
		                   .tail_lanes = tail,
		                   .tail_steps = tail ? lanes->channels : 0 };
}

struct kvi_steps kvi_element_steps(size_t n)
{
	unsigned tail = (unsigned)(n % KVI_LANES);
	return (struct kvi_steps){ .full_steps = n / KVI_LANES,
		                   .tail_lanes = tail,
		                   .tail_steps = tail != 0 };
}

/* Tokens of the block that starts at token t. */
static size_t block_rows(const struct kvi_lanes *lanes, size_t t)
{
	return lanes->rows - t < KVI_LANES ? lanes->rows - t : KVI_LANES;
}

/* Blocks of KVI_LANES tokens, each transposed. */
#define MOVE(name, type, kernel, in_rows, in_columns)                                          \
	void name(const struct kvi_lanes *l, const type *from, type *to)                       \
	{                                                                                      \
		for (size_t t = 0; t < l->rows; t += KVI_LANES)                                \
			l->kernels->moves.kernel(to + t * l->channels, from + t * l->channels, \
			                         in_rows, in_columns);                         \
	}
MOVE(kvi_lanes_to8, uint8_t, transpose8, block_rows(l, t), l->channels)
MOVE(kvi_lanes_from8, uint8_t, transpose8, l->channels, block_rows(l, t))
MOVE(kvi_lanes_to16, uint16_t, transpose16, block_rows(l, t), l->channels)
MOVE(kvi_lanes_from16, uint16_t, transpose16, l->channels, block_rows(l, t))

void kvi_lanes_to32(const struct kvi_lanes *lanes, const uint32_t *from, uint32_t *to)
{
	for (size_t t = 0; t < lanes->rows; t += KVI_LANES) {
		size_t n = block_rows(lanes, t);
		const uint32_t *block = from + t * lanes->channels;
		for (size_t c = 0; c < lanes->channels; c++)
			for (size_t i = 0; i < n; i++)
				*to++ = block[i * lanes->channels + c];
	}
}

/* Tokens, 1 to 32, after which the first lane has the first channel again. */
static size_t ring_tokens(size_t channels)
{
	size_t common = channels & -channels; /* the power of two in it */
	return common < KVI_LANES ? KVI_LANES / common : 1;
}

/*
 * The order of elements repeats after lcm(channels, 32) elements. The kernels want a ring
 * that divides the full steps; where it does not, all steps are laid out.
 */
static size_t ring_steps(size_t rows, size_t channels)
{
	size_t full = rows * channels / KVI_LANES;
	size_t period = ring_tokens(channels) * channels / KVI_LANES;
	if (period > full || full % period)
		period = full;
	return period ? period : 1;
}

size_t kvi_ring_capacity(size_t rows, size_t channels)
{
	size_t tokens = ring_tokens(channels);
	return (rows % tokens ? rows : tokens) * channels + 2 * KVI_LANES;
}

size_t kvi_ring_trial(size_t channels)
{
	enum { ELEMENTS = 1024 };
	size_t tokens = ring_tokens(channels), n = tokens;
	while (n < KVI_LANES && n * channels < ELEMENTS)
		n += tokens;
	return n;
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

/* The ring of a stream of rows x channels elements, in buffer. */
static struct kvi_ring ring_make(size_t rows, size_t channels, size_t size, const void *per_channel,
                                 void *buffer)
{
	const struct kvi_steps s = kvi_element_steps(rows * channels);
	const size_t steps = ring_steps(rows, channels);
	uint8_t *full = buffer, *tail = full + steps * KVI_LANES * size;
	repeat(full, steps * KVI_LANES, per_channel, size, channels, 0);
	repeat(tail, s.tail_lanes, per_channel, size, channels,
	       s.full_steps * KVI_LANES % channels);
	return (struct kvi_ring){ full, tail, steps };
}

struct kvi_rings kvi_rings_make(size_t rows, size_t last, size_t channels, size_t size,
                                const void *per_channel, void *buffer, size_t capacity)
{
	struct kvi_rings r = { .rows = rows };
	uint8_t *second = (uint8_t *)buffer + capacity * size;
	r.ring[0] = ring_make(rows, channels, size, per_channel, buffer);
	if (last != rows)
		r.ring[1] = ring_make(last, channels, size, per_channel, second);
	return r;
}
