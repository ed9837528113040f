/* SPDX-License-Identifier: BSD-3-Clause */
/* klt_analysis.h - the inverse of the basis of a KLT profile, for encoders (spec klt 2) */
#ifndef KVI_KLT_ANALYSIS_H
#define KVI_KLT_ANALYSIS_H

#include "profile/profile_tensors.h"
#include "util/shared.h"

/* Numbers of 16 bits of rows, one behind the other, and the value of 1 in each row. */
struct kvi_klt_analysis {
	int16_t *rows; /* C rows of m_stride entries, of the coefficients of each head */
	float *unit;   /* C */
	/* memory at work: a head's matrix, its entries m_stride times its channels; its channels
	 * and KVI_LANES more */
	int16_t *turned;
	float *gain;
};

/*
 * y = M^T G (x - mean), G from the sizes of the rows, which are orthogonal: rows and unit are
 * filled. The caller has set rounding to nearest with subnormals (util/fpmode.h); the same bits
 * whatever the set of instructions. false: it cannot be computed.
 */
KVI_SHARED bool kvi_klt_analysis_make(const struct kvi_klt_analysis *a, const struct kvi_model *m,
                                      uint32_t isa_mask);

#endif
