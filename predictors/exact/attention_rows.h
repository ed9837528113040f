/* SPDX-License-Identifier: BSD-3-Clause */
/* attention_rows.h - rows of queries to a block of tokens in one go (spec/arithmetic.md 6) */
#ifndef KVI_ATTENTION_ROWS_H
#define KVI_ATTENTION_ROWS_H

#include "exact/matmul.h"

/* The state of a row's attention: M and L of the specification; before the first block -FLT_MAX and
 * 0. */
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
	const float *v_scale;            /* scale of each token's value */
	float scale;                     /* scale of attention */
	const struct kvi_seen *seen;     /* tokens seen, by row of q */
	struct kvi_attended *so_far;     /* state by row of q; updated */
	float *out;                      /* O by row, whole blocks of v; updated */
};

#if defined(KVI_AVX512)
/* kvi_exact_kernels.attend: attention of all rows of q to the block. */
void kvi_avx512vnni_attend(const struct kvi_attention_rows *rows);
#endif

#endif
