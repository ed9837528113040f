/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * linear.h - applying a tensor's linear model to the tokens of a segment
 * (spec/codecs/linear.md 2 to 4)
 *
 * Feature rows: int16, [head][channel pair][tokens, rounded up to 32][2]: two
 * slots next to each other, so that a dot product is a multiply-add of pairs.
 */
#ifndef KVI_LINEAR_H
#define KVI_LINEAR_H

#include "model/profile.h"

/* Tokens that a feature row has room for. */
static inline size_t kvi_token_room(size_t n_tokens)
{
	return (n_tokens + 31) & ~(size_t)31;
}

/* What upper tensors need of a tensor of one segment: z, r, and the scale at its end. */
struct kvi_features {
	size_t n_tokens, tokens_room;
	int16_t *z, *r;            /* heads * head_room / 2 * tokens_room * 2 */
	uint32_t *w;               /* tokens_room */
	uint32_t n;                /* N of spec linear 4 */
	bool has_z;                /* z is there and read by others: only read it */
};
kvarc_ret kvi_features_open(struct kvi_features **f,
                            const struct kvi_alloc *alloc,
                            const struct kvi_model *m, size_t n_tokens);
void kvi_features_close(struct kvi_features *f, const struct kvi_alloc *alloc);

/* Sources of a model's prediction, in the order of m->lower and m->same. */
struct kvi_linear_in {
	const struct kvi_model *model;
	const struct kvi_tables *tables; /* of the model's set; NULL: set 0 */
	uint8_t dtype;
	size_t n_tokens;
	const int32_t *positions;  /* may be NULL when nothing rotates */
	const int32_t *ids;        /* NULL: not known */
	const kvarc_rope *rope;    /* the file's: pairing and frequencies */
	const struct kvi_features *lower[KVI_LOWER_MAX], *same[KVI_SAME_MAX];
	const struct kvi_features *scale; /* NULL: none */
};

#endif
