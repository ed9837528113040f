/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * transform.h - channels of a head to coefficients and back, 32 tokens at once (spec had 3)
 *
 * Rows of KVI_LANES numbers, one a token; a row is a channel or coefficient. Numbers of lanes
 * without a token do not matter. The caller has set rounding to nearest with subnormals
 * (util/fpmode.h). Results are the same bits whatever the set.
 */
#ifndef KVI_TRANSFORM_H
#define KVI_TRANSFORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codecs/lossy/codes.h"

/* The rotated pairs of a head, the same for all heads. */
struct kvi_turned {
	size_t pairs;           /* 0: none */
	bool half;              /* pair i is (i, i + pairs), else (2i, 2i + 1) */
	const float *cos, *sin; /* cosines and sines of the positions: `pairs` rows */
};

/* Kernels of the transform codecs. */
struct kvi_transform {
	const char *name;
	/* n rows of elements of a dtype of 16 bits, or in the low half of 16, to numbers; numbers
	 * to elements (spec lossy 2). */
	void (*widen)(unsigned dtype, const uint16_t *from, size_t rows, float *to);
	void (*narrow)(unsigned dtype, const float *from, size_t rows, uint16_t *to);
	/* KVI_LANES cosines and sines in 2^-14, in turn, as two rows. */
	void (*turns)(const int16_t *from, float *cosines, float *sines);
	/* Removes (back) or applies RoPE. */
	void (*turn)(float *x, const struct kvi_turned *t, bool back);
	/* Channels to coefficients: minus the mean; with signs flipped and transformed, gains 1 /
	 * sqrt(n). */
	void (*forward)(float *x, const float *mean, size_t channels, bool hadamard);
	/* Points to channels: times the gain of each block, plus the mean. */
	void (*back)(const int8_t *codes, struct kvi_points points, float step, const float *mean,
	             size_t channels, bool hadamard, int32_t *buffer, float *x);
	/* Points of n rows of codes as feature rows (kernels/slots.h), the last one with zeros when
	 * n is odd. */
	void (*pairs)(const int8_t *codes, struct kvi_points points, size_t rows, int16_t *to);
	/* x = z * gain + mean, row by row. */
	void (*scale)(const int32_t *z, size_t rows, const float *gain, const float *mean,
	              float *x);
	/* Predicted rows from sums, clamped to 32767 (spec klt 2); and x = x + expected * unit, or
	 * minus that, row by row. */
	void (*expect)(const int32_t *sums, size_t rows, const int32_t *mean, const uint8_t *shift,
	               int16_t *to);
	void (*add_expected)(const int16_t *expected, size_t rows, const float *unit, bool minus,
	                     float *x);
	/* Encoders: feature rows of x, each lane in units of 1/32767 of its largest number; to = z
	 * * gain of the row * unit of the lane. */
	void (*lanes_to_pairs)(const float *x, size_t rows, int16_t *to, float *unit);
	void (*scale_lanes)(const int32_t *z, size_t rows, const float *gain, const float *unit,
	                    float *to);
	/* Encoders: the analysis of a head (spec klt 2) from its M, n rows of n in rows of
	 * `stride`, and `turned`, the same by column without gaps. gain: of the rows of M, with
	 * KVI_LANES spare entries; changed. to: rows like those of M, in integers as large as sums
	 * allow; unit: the value of 1 in a row. false: it cannot be computed. */
	bool (*invert)(const int16_t *m, const int16_t *turned, size_t n, size_t stride,
	               float *gain, int16_t *to, float *unit);
	/* Adds the first n lanes of rows, or their squares, to sums: rows, too. */
	void (*add)(const float *x, size_t rows, size_t n, bool squares, float *sums);
	/* Adds the squares of each lane of rows to sums: one row. */
	void (*add_squares)(const float *x, size_t rows, float *sums);
	/* q = sign(x) * floor(|x| * inverse + offset). Returns a bit for each token with a code
	 * that is out of range. */
	uint32_t (*quantise)(const float *x, size_t rows, float inverse, float offset,
	                     int8_t *codes);
	/* Symbols of KVI_LANES codes of a class with `count` sizes, and the escapes, used or not;
	 * n symbols and escapes to codes. */
	void (*to_symbols)(const int8_t *codes, unsigned count, uint16_t *sym, uint8_t *esc);
	void (*to_codes)(const uint16_t *sym, const uint8_t *esc, size_t n, int8_t *codes);
};

/* The fastest set that the mask allows and the processor has. */
const struct kvi_transform *kvi_transform_get(uint32_t isa_mask);
extern const struct kvi_transform kvi_transform_scalar, kvi_transform_avx2, kvi_transform_avx512;

#endif
