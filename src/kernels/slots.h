/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * slots.h - one slot, or one rotated pair of slots, of many tokens: predicted,
 * decoded and observed (spec linear 2 to 4)
 *
 * A lane is a token. Kernels take the tokens of a block: full steps of 32, or
 * one step with fewer active lanes. All arrays by token have capacity for whole
 * steps; the lanes of a step that are not active count as elements 0.
 *
 * Feature rows hold two slots next to each other, so that a dot product is a
 * multiply-add of pairs: int16 [step][pair of slots][32 tokens][2]. Sums are
 * int32 [step][slot][32 tokens].
 *
 * The structs are arguments of kernels: the caller owns all memory, and a kernel
 * writes only where the comments say so.
 */
#ifndef KVI_SLOTS_H
#define KVI_SLOTS_H

#include "scalar.h"

/* Sizes of blocks and rows. */
enum {
	KVI_BLOCK_TOKENS = 256,       /* most tokens of a block */
	KVI_SLOT_PARTS = 8,           /* most parts of a block, each with its own stream */
	KVI_PANEL = 8,                /* slots that kernels take together */
	KVI_PAIR_STEP = 2 * KVI_LANES /* int16 of a feature row and step */
};

/* Feature rows next to each other. */
struct kvi_rows_part {
	const int16_t *features;
	size_t n_pairs, step; /* step: int16 from one step to the next */
};

/* Dot products, written to sum[row]: half(q[row]) + coef[row] . the feature rows of all parts.
 * Callers bound coefficients and features so that no sum exceeds 32 bits. */
struct kvi_rows {
	int32_t *sum;        /* written */
	const int16_t *coef; /* 2 a pair of slots, all parts after each other */
	const uint8_t *q;    /* fraction bits of a row's sum, 0 to 16 */
	const struct kvi_rows_part *part;
	size_t n_parts, rows, steps;
	size_t sum_step, coef_row; /* distance from one step, one row to the next */
};

/* Half of a unit of the row's sum, which rounds it (spec linear 3). */
static inline int32_t kvi_rows_half(const struct kvi_rows *r, size_t row)
{
	return kvi_linear_half(r->q[row]);
}

/* A stream that is decoded slot by slot; kernels advance it. */
struct kvi_slot_reader {
	uint32_t state[KVI_LANES];
	struct kvi_words_in words;
};

/* A block of tokens: the settings that its slots share. */
struct kvi_slot_block {
	size_t tokens;  /* a multiple of 32, at most KVI_BLOCK_TOKENS */
	unsigned lanes; /* lanes of a step: 32, or those of the only step */
	const struct kvi_grid_format *fmt;
	const struct kvi_tables *tables;
	const int16_t *unknown; /* added to k' by token; NULL: nothing */
	uint32_t *w;            /* distances by token, updated by kvi_slot_job.grow; NULL: the
	                         * scale does not follow the token */
	/* Readers, one for each 2^part_shift steps, which have a stream of their own. NULL: all
	 * elements are known. */
	struct kvi_slot_reader *reader;
	unsigned part_shift; /* at least 3: all steps are one part */
	size_t x_part;       /* elements from one part of a row to the next */
};

/* A slot. Elements are parts, `lanes` a step; contexts are in stream order. */
struct kvi_slot {
	uint16_t *x;   /* elements; written unless known */
	bool known;    /* x is given, and not in the stream */
	uint32_t *ctx; /* written: contexts of known elements; NULL: not wanted */
	int32_t mean;
	int k, step;
	unsigned qa, qb;
	const int16_t *table;        /* T * 2^tshift by token; NULL: zeros */
	const int32_t *below;        /* sum over lower sources and half(qa); NULL: 0 */
	const int32_t *sum;          /* same layer and earlier panels, with half(qb); NULL:
	                         * the prediction is the base */
	const int16_t *coef;         /* coefficients of the pairs in kvi_slot_job.near */
	size_t below_step, sum_step; /* int32 from one step to the next */
};

/* A slot, or the two of a rotated pair. */
struct kvi_slot_job {
	struct kvi_slot slot[2];
	bool pair;
	unsigned half; /* half of a slot alone in its feature row: 0 or 1 */
	/* Feature rows, written: residuals r, and elements less the mean z. z NULL: not wanted. r
	 * NULL: only z is, of known elements; neither contexts nor w are written then. */
	int16_t *r, *z;
	const int16_t *near;         /* n_near feature rows of this panel before this one */
	size_t n_near, feature_step; /* feature_step: int16 from one step to the next */
	/* pair: cosines and sines in 1/16384, angle classes, by token; the row of ROT (spec
	 * grid 2) */
	const int16_t *cos_sin;
	const uint8_t *angle_class;
	const int8_t *scales;
	uint32_t n; /* slots in w */
	bool grow;  /* add the distances of these to w */
};

/* The number of steps in *block. */
static inline size_t kvi_slot_steps(const struct kvi_slot_block *block)
{
	return block->tokens / KVI_LANES;
}

/* The part of a step: the index of its reader. */
static inline size_t kvi_slot_part(const struct kvi_slot_block *block, size_t step)
{
	return step >> block->part_shift;
}
/* The index of a step's first element in a row. */
static inline size_t kvi_slot_index(const struct kvi_slot_block *block, size_t step)
{
	size_t part = kvi_slot_part(block, step), first = part << block->part_shift;
	return part * block->x_part + (step - first) * block->lanes;
}

/* kvi_slot_kernels.slot_rows. */
void kvi_scalar_slot_rows(const struct kvi_rows *r);
/* kvi_slot_kernels.slot: false when the words of the stream do not suffice. */
bool kvi_scalar_slot(const struct kvi_slot_block *block, const struct kvi_slot_job *job);

#if defined(KVI_AVX512)
/* AVX-512 with multiply-add and sum in one instruction (VNNI). */
#if defined(__clang__) || __GNUC__ >= 8
#define KVI_AVX512VNNI 1
extern const struct kvi_kernels kvi_kernels_avx512vnni;
#endif
#endif

#if defined(KVI_NEON)
/* Whether this processor has sums of four products of bytes (DotProd). */
bool kvi_arm_has_dots(void);
#endif

#endif
