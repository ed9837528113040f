/* SPDX-License-Identifier: BSD-3-Clause */
/* mask.h - constant channels and rows leave a chunk before coding (spec mask) */
#ifndef KVI_MASK_H
#define KVI_MASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/bytes.h"

/* A stretch of channels without a set bit. */
struct kvi_mask_run {
	uint32_t first, count;
};

/*
 * T x C elements of `size` bytes, of which rows x channels remain. Bitmaps and
 * values point into a payload; NULL where the section has none.
 */
struct kvi_mask {
	size_t T, C, rows, channels;
	unsigned size;
	const uint8_t *row_bits, *row_values;
	const uint8_t *channel_bits, *channel_values;
	struct kvi_mask_run *runs; /* runs of remaining channels; in the caller's memory */
	size_t n_runs;
};

/* Whether rows or channels were left out because they are constant. */
static inline bool kvi_mask_any(const struct kvi_mask *mask)
{
	return mask->row_bits || mask->channel_bits;
}
/* Number of elements that remain. */
static inline size_t kvi_mask_elements(const struct kvi_mask *mask)
{
	return mask->rows * mask->channels;
}
/* Bit i of a bitmap; NULL: no bit is set. */
static inline bool kvi_bit(const uint8_t *bits, size_t i)
{
	return bits && (bits[i / 8] >> (i % 8) & 1);
}

/* The number of the token behind the n-th one that remains. */
size_t kvi_mask_token(const struct kvi_mask *mask, size_t n);

/* Most runs that a mask can have. */
size_t kvi_mask_runs_max(size_t C);
/* Bytes that a written mask section can have at most. */
size_t kvi_mask_bytes_max(size_t T, size_t C, unsigned size);

/* Reads the section. T, C, size and runs of mask are set by the caller. */
bool kvi_mask_parse(struct kvi_mask *mask, struct kvi_in *in);

/* Finds constant channels and rows of raw and writes the section to `to`
 * (kvi_mask_bytes_max); returns its length. T, C, size, runs as above. */
size_t kvi_mask_find(struct kvi_mask *mask, const uint8_t *raw, uint8_t *to);

/* Copies the remaining elements of raw, T x C, to packed, rows x channels. */
void kvi_mask_gather(const struct kvi_mask *mask, const uint8_t *raw, uint8_t *packed);
/* The inverse of kvi_mask_gather for the tokens first to end - 1 alone, with the constant rows and
 * channels filled in. */
void kvi_mask_scatter(const struct kvi_mask *mask, const uint8_t *packed, size_t first, size_t end,
                      uint8_t *raw);

/* Copies the entries of the remaining channels out of C entries of `size` bytes. */
void kvi_mask_channels(const struct kvi_mask *mask, size_t size, const void *all, void *rest);
/* The inverse of kvi_mask_channels for bytes; entries of constant channels stay as they are. */
void kvi_mask_spread(const struct kvi_mask *mask, const uint8_t *rest, uint8_t *all);

#endif
