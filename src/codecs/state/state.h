/* SPDX-License-Identifier: BSD-3-Clause */
/* state.h - what the codec of states shares among its sources (spec state) */
#ifndef KVI_STATE_H
#define KVI_STATE_H

#include "codecs/coder.h"

/* Largest scale class, and what the fraction 255 stands for, in 1/256. */
enum { KVI_STATE_K_LIMIT = 400, KVI_STATE_ALL = 256 };

/* The scales and fractions of the rows x channels elements that a mask leaves. */
struct kvi_state_scales {
	size_t rows, channels;
	unsigned group;      /* rows of a group */
	int16_t *row;        /* of each row */
	int8_t *column;      /* of each group and column */
	uint8_t *fraction;   /* of each row; NULL: without a reference */
	const float *before; /* elements of the reference; NULL: without */
};

/* Number of groups. */
static inline size_t kvi_state_groups(const struct kvi_state_scales *s)
{
	return (s->rows + s->group - 1) / s->group;
}
/* Scale class of an element. */
static inline int kvi_state_class(const struct kvi_state_scales *s, size_t row, size_t column)
{
	int k = s->row[row] + s->column[row / s->group * s->channels + column];
	return k < -KVI_STATE_K_LIMIT  ? -KVI_STATE_K_LIMIT
	       : k > KVI_STATE_K_LIMIT ? KVI_STATE_K_LIMIT
	                               : k;
}
/* Binary32 patterns of the expected values of a row, `channels` of them. */
void kvi_state_expected(const struct kvi_state_scales *s, size_t row, uint32_t *mu);

/*
 * Fits group, row and column, and with s->before fraction, to the elements of a job; the arrays
 * have memory for groups of one row. Integers, and floating point with one rounding an operation:
 * the same on every machine. Returns OK, MEM, MEMLIMIT.
 */
kvarc_ret kvi_state_fit(struct kvi_coder *c, const struct kvi_coder_job *job,
                        struct kvi_state_scales *s);

#endif
