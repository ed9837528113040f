/* SPDX-License-Identifier: BSD-3-Clause */
/* codes.h - the codes of lossy chunks, their tables and points (spec lossy 4) */
#ifndef KVI_CODES_H
#define KVI_CODES_H

#include "codecs/coder.h"
#include "util/shared.h"

/* Classes and limits of codes (spec lossy). */
enum {
	KVI_CODE_CLASSES = 33,
	KVI_CODE_UNIT = 12, /* class of codes with a standard deviation of 1 */
	KVI_CODE_MIN = -128,
	KVI_CODE_MAX = 127,
	KVI_CODE_ESCAPE = 256, /* symbol */
	KVI_CODE_STRIDE = 512,
	KVI_POINT_UNITS = 32,
	KVI_NEAR_MAX = 16
};

KVI_SHARED extern const uint8_t kvi_code_counts[];
KVI_SHARED extern const uint16_t kvi_code_freq[];

/* The distance by which points are nearer to 0 than their codes, in 1/KVI_POINT_UNITS of a step:
 * near1 for codes of size 1, near2 for larger ones. */
struct kvi_points {
	int8_t near1, near2;
};
/* The value that stands for code q, in 1/KVI_POINT_UNITS of a step. */
static inline int32_t kvi_code_point(int q, struct kvi_points points)
{
	int32_t size = KVI_POINT_UNITS * (q < 0 ? -q : q);
	size -= size > KVI_POINT_UNITS ? points.near2 : size ? points.near1 : 0;
	return q < 0 ? -size : size;
}

/* Most bytes of a stream of n codes. */
size_t kvi_codes_capacity(size_t n);
/* Encodes the codes, in stream order of the lanes, with a class for each channel; written in front
 * of end, which is 2-aligned. Returns where the stream begins; NULL: no memory. */
uint8_t *kvi_codes_put(struct kvi_coder *coder, const struct kvi_lanes *l, const uint8_t *class,
                       const int8_t *codes, uint8_t *end);
/* Decodes the codes that kvi_codes_put encoded. Returns OK, MEM, MEMLIMIT, DATA. */
kvarc_ret kvi_codes_get(struct kvi_coder *coder, const struct kvi_lanes *lanes,
                        const uint8_t *class, struct kvi_in *in, int8_t *codes);

#endif
