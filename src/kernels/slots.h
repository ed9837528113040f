/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * slots.h - one slot, or one rotated pair of slots, of many tokens: predicted,
 * decoded and observed (spec linear 2 to 4)
 *
 * A lane is a token. Kernels take the tokens of a block: full steps of 32, or
 * one step with fewer active lanes. All arrays by token have room for whole
 * steps; the lanes of a step that are not active take part as elements 0.
 *
 * Feature rows hold two slots next to each other, so that a dot product is a
 * multiply-add of pairs: int16 [step][pair of slots][32 tokens][2]. Sums are
 * int32 [step][slot][32 tokens].
 */
#ifndef KVI_SLOTS_H
#define KVI_SLOTS_H

#include "scalar.h"

enum {
	KVI_BLOCK_TOKENS = 256, /* at most */
	KVI_PANEL = 8,          /* slots that kernels take together */
	KVI_PAIR_STEP = 2 * KVI_LANES, /* int16 of a feature row and step */
	KVI_SCALE_SLOTS = 65536 /* w and n stop there */
};

/* Feature rows next to each other. */
struct kvi_rows_part {
	const int16_t *features;
	size_t n_pairs, step; /* step: from one step to the next */
};

/* sum[row] = half(q[row]) + coef[row] . the feature rows of all parts. */
struct kvi_rows {
	int32_t *sum;
	const int16_t *coef;
	const uint8_t *q;
	const struct kvi_rows_part *part;
	size_t n_parts, rows, steps;
	size_t sum_step, coef_row; /* from one to the next */
};

/* What rounds the sum of a row (spec linear 3). */
static inline int32_t kvi_rows_half(const struct kvi_rows *r, size_t row)
{
	return (int32_t)1 << r->q[row] >> 1;
}

/* A stream that is decoded slot by slot. */
struct kvi_slot_reader {
	uint32_t state[KVI_LANES];
	struct kvi_words_in words;
};

/* What the slots of a block of tokens share. */
struct kvi_slot_block {
	size_t tokens;  /* a multiple of 32 */
	unsigned lanes; /* of a step: 32, or those of the only one */
	const struct kvi_grid_format *fmt;
	const struct kvi_tables *tables;
	const int16_t *unknown; /* added to k'; NULL: nothing */
	uint32_t *w;            /* NULL: the scale does not follow the token */
	struct kvi_slot_reader *reader; /* NULL: all elements are known */
};

/* One slot. Elements and contexts are in stream order: `lanes` a step. */
struct kvi_slot {
	uint16_t *x;
	bool known;             /* x is there already, and not in the stream */
	uint32_t *ctx;          /* contexts of known elements; NULL: not wanted */
	int32_t mean;
	int k, step;
	unsigned qa, qb;
	const int16_t *table;   /* T * 2^tshift; NULL: zeros */
	const int32_t *below;   /* sum over lower sources and half(qa); NULL: 0 */
	const int32_t *sum;     /* same layer and earlier panels, with half(qb); NULL:
	                         * the prediction is the base */
	const int16_t *coef;    /* of the pairs in `near` */
	size_t below_step, sum_step;
};

/* A slot, or the two of a rotated pair. */
struct kvi_slot_job {
	struct kvi_slot slot[2];
	bool pair;
	unsigned half;          /* of a slot alone: 0 or 1 in its feature row */
	/* Feature rows. z NULL: it is not wanted; r NULL: nothing but z is, of elements that are known:
	 * their contexts, and w, are not wanted either. */
	int16_t *r, *z;
	const int16_t *near;    /* feature rows of this panel before it */
	size_t n_near, feature_step;
	/* pair: cos, sin in 1/16384 of the block's tokens; angle classes; the
	 * row of ROT (spec grid 2) */
	const int16_t *turn;
	const uint8_t *angle_class;
	const int8_t *scales;
	uint32_t n;             /* slots in w */
	bool grow;              /* w takes these */
};

static inline size_t kvi_slot_steps(const struct kvi_slot_block *b)
{
	return b->tokens / KVI_LANES;
}

void kvi_scalar_slot_rows(const struct kvi_rows *r);
/* False when the words of the stream do not suffice. */
bool kvi_scalar_slot(const struct kvi_slot_block *b,
                     const struct kvi_slot_job *j);

#if defined(KVI_AVX512)
/* Multiply-add and sum in one instruction, where the processor has it too. */
#if defined(__clang__) || __GNUC__ >= 8
#define KVI_AVX512VNNI 1
extern const struct kvi_kernels kvi_kernels_avx512vnni;
#endif
#endif

#if defined(KVI_NEON)
/* Whether the processor has sums of four products of bytes. */
bool kvi_arm_has_dots(void);
#endif

#endif
