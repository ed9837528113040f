/* SPDX-License-Identifier: BSD-3-Clause */
/* quantiser.h - one step for all coefficients of a chunk (spec had 2) */
#ifndef KVI_QUANTISER_H
#define KVI_QUANTISER_H

#include "codecs/lossy/codes.h"
#include "util/shared.h"

/* Bytes in front of the stream of a body. */
enum { KVI_BODY_HEAD = 8 };

/* The head of a body: its numbers in front of the stream. */
struct kvi_body {
	float step;
	int shift;
	struct kvi_points points;
};
/* Reads the head of a body; false: it is not valid. */
bool kvi_body_get(struct kvi_in *in, struct kvi_body *body);
/* Writes the front of a body. */
void kvi_body_put(uint8_t to[KVI_BODY_HEAD], const struct kvi_body *body);
/* round(4 log2 v), v > 0 */
KVI_SHARED int kvi_quarter_log(float v);
/* The class of each of n coefficients of size k; NULL without memory. */
const uint8_t *kvi_classes(struct kvi_coder *coder, const int16_t *k, size_t n, int shift);

/* 2^(e/16), |e| < 496 */
KVI_SHARED float kvi_power_of(int e);

/* The step for coefficients of that root mean square at the tier's rate; encoders alone. */
KVI_SHARED float kvi_step_of(const kvarc_lossy *tier, const struct kvi_chunk *chunk, float rms);
/* The rounding offset for coefficients of that root mean square. */
float kvi_offset_of(float rms, float step);

/* Distances of coefficients from their codes towards 0, in steps, in a sample: sums and counts for
 * codes of size 1 and for larger ones. */
struct kvi_centroid {
	float sum[2];
	uint32_t n[2];
};
/* Adds the first n coefficients, and their codes, of every fourth of `rows` rows of KVI_LANES;
 * inverse: 1 / step. */
void kvi_centroid_watch(struct kvi_centroid *centroid, const float *x, const int8_t *codes,
                        size_t rows, float inverse, size_t n);
/* The points that reconstruct what was observed best. */
struct kvi_points kvi_centroid_points(const struct kvi_centroid *centroid);

#endif
