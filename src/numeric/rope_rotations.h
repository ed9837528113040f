/* SPDX-License-Identifier: BSD-3-Clause */
/* rope_rotations.h - frequencies of rotary embeddings, the same on every machine */
#ifndef KVI_ROPE_ROTATIONS_H
#define KVI_ROPE_ROTATIONS_H

#include <stdint.h>

/* log2(theta), in 2^-57; 1 <= theta < 2^63 */
uint64_t kvi_rope_log(double theta);
/* theta^(-2i / rotary) / (2 pi) turns, in 2^-64, rounded to a multiple of 2^-48: finer than
 * any position needs */
uint64_t kvi_rope_rotations(uint64_t log_theta, uint32_t i, uint32_t rotary);

#endif
