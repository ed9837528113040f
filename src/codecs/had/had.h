/* SPDX-License-Identifier: BSD-3-Clause */
/* had.h - transform codecs had and klt: tiles, bodies, means, bases */
#ifndef KVI_HAD_H
#define KVI_HAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "codecs/coder.h"
#include "codecs/had/transform.h"
#include "codecs/lossy/lossy_codec.h"
#include "codecs/lossy/quantiser.h"
#include "format/codec_ids.h"
#include "profile/profile_io.h"
#include "util/shared.h"

/* ==== Blocks of 32 tokens, and what codes them by a transform (spec/codecs/had.md, klt.md) ==== */

/* Parameters of the codec had: arrays of C entries. common.rotates: RoPE is removed from keys. */
struct kvi_had_params {
	struct kvi_params common;
	bool hadamard;
	float rms;   /* root mean square of coefficients; encoders alone */
	float *mean; /* bf16 numbers */
	int16_t *k;  /* size of coefficients, in classes */
};

/* The parameters of the codec had; NULL: they are of another codec. */
static inline struct kvi_had_params *kvi_had_params_of(const struct kvi_params *params)
{
	return params->codec == KVI_CODEC_HAD ? (struct kvi_had_params *)(uintptr_t)params : NULL;
}

/* ==== The inverse of the basis of a KLT profile, for encoders (spec klt 2) ==== */

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
bool kvi_klt_analysis_make(const struct kvi_klt_analysis *analysis, const struct kvi_model *model,
                           uint32_t isa_mask);

#endif
