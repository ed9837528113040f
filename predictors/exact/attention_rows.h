/* SPDX-License-Identifier: BSD-3-Clause */
/* attention_rows.h - rows of queries to a block of tokens in one go (spec/arithmetic.md 6) */
#ifndef KVI_ATTENTION_ROWS_H
#define KVI_ATTENTION_ROWS_H

#include "exact/matmul.h"

/* What attention of rows has so far, M, L and O of the specification; before the first block
 * -FLT_MAX and zeros. */
struct kvi_attended {
	float m, l;
};

/* The tokens of a block that a row sees, counted in the block; none: end is 0. */
struct kvi_seen {
	uint16_t first, end;
};

/* Queries and a block with 12 bits of queries, keys and probabilities. */
struct kvi_attention_rows {
	const struct kvi_activations *q; /* A12, one group */
	const struct kvi_operand *k;     /* KVI_GROUP_MAX rows of words */
	const struct kvi_operand *v;     /* KVI_GROUP_MAX columns, one group of scale 1 */
	const float *v_scale;            /* of each token */
	float scale;                     /* of attention */
	const struct kvi_seen *seen;     /* by row of q */
	struct kvi_attended *so_far;     /* by row of q; updated */
	float *out;                      /* O by row, whole blocks of v; updated */
};

#if defined(KVI_AVX512)
/* All rows of q to the block; in kvi_exact_kernels.attend. */
void kvi_avx512vnni_attend(const struct kvi_attention_rows *rows);
#endif

#endif
