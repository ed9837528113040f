/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * matmul.h - exact products of integer operands, and of floats (spec/arithmetic.md 2, 3)
 *
 * A weight operand is packed for the kernels of all instruction sets alike: rows
 * in blocks of 16, columns in quads of 4, so that 64 bytes hold a quad of each row
 * of a block. Groups begin at multiples of 4 columns; what is missing in the last
 * block or quad is zero.
 */
#ifndef KVI_MATMUL_H
#define KVI_MATMUL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "util/shared.h"

/* Layout of operands, and limits of activations. */
enum {
	KVI_OPERAND_ROWS = 16, /* rows of a block */
	KVI_OPERAND_QUAD = 4,
	KVI_GROUP_MAX = 256,
	KVI_A8_MAX = 127,
	KVI_A12_MAX = 2047,
	KVI_A15_MAX = 16383,
	KVI_W8_MAX = 127,
	KVI_W12_MAX = 2047,
	KVI_W15_MAX = 16319
};

/* Quads that hold that number of columns. */
static inline size_t kvi_quads(size_t columns)
{
	return (columns + 3) / 4;
}

/*
 * Matrix of `rows` outputs and `columns` inputs. Block b of plane p is the
 * kvi_quads(columns) * 64 bytes from w[p] + b * that: quad after quad, row after row.
 * scale, minimum and sum: by block, group, row of the block.
 */
struct kvi_operand {
	size_t rows, columns;
	unsigned group;     /* a multiple of 4, at most KVI_GROUP_MAX */
	unsigned planes;    /* 1 or 2 */
	const int8_t *w[2]; /* 64-byte aligned */
	const float *scale;
	const float *minimum;  /* NULL: none */
	const int32_t *sum[2]; /* sum of the integers of each group of a plane */
	/* E4M3 (float8.h) by block, column, row of the block; replaces all of the above but scale,
	 * which has one number a row. NULL: integers. */
	const uint8_t *e4m3;
	/* W12 (words.h), one group; replaces w and sum. NULL: bytes. */
	const int16_t *words;
};

/* Groups of a row; the last one may be shorter. */
static inline size_t kvi_groups(size_t columns, unsigned group)
{
	return (columns + group - 1) / group;
}
/* Groups of a row of the operand. */
static inline size_t kvi_operand_groups(const struct kvi_operand *w)
{
	return kvi_groups(w->columns, w->group);
}
/* Blocks of KVI_OPERAND_ROWS rows of the operand. */
static inline size_t kvi_operand_blocks(const struct kvi_operand *w)
{
	return (w->rows + KVI_OPERAND_ROWS - 1) / KVI_OPERAND_ROWS;
}

/*
 * Rows of activations with their groups. A8: a + 128 in a byte, in order (there are instructions
 * that multiply unsigned by signed bytes). A15 and A12: int16, columns of a quad in the order 0, 2,
 * 1, 3 (so that 16-bit halves of a weight quad meet the right ones). Integers behind the last quad
 * of a row are undefined.
 */
struct kvi_activations {
	size_t rows, columns;
	size_t stride; /* integers from a row to the next: whole 64 */
	unsigned group;
	bool wide;   /* A15, or A12 */
	int largest; /* largest magnitude, A8's or A15's; callers set it for A12 */
	uint8_t *a8; /* the integers of A8; a15 else */
	int16_t *a15;
	float *scale; /* A8: by row and group; else by row */
	int32_t *sum; /* sum of the integers of each group; for minima */
};

/* A product of activations and an operand, or a part of it. */
struct kvi_product {
	const struct kvi_activations *a;
	const struct kvi_operand *w;
	/* Rows of floats in place of a, for E4M3. */
	const float *x;
	size_t rows, x_stride;
	size_t first, blocks; /* blocks of w */
	float *y;             /* results by row of a; y[0] belongs to row 0 of w */
	size_t y_stride;      /* floats from a row to the next; at least 16 * all blocks of w */
	bool positive;        /* all integers of a are 0 or more, and its rows are one group */
};

struct kvi_attention_rows;

/* Kernels of an instruction set; all sets give the same bits. */
struct kvi_exact_kernels {
	const char *name;
	/* Fills scale, sum and the integers of rows [first, first + n) of a from the n rows at x
	 * (x[0] belongs to row `first`), x_stride floats from one to the next. */
	void (*quantise)(struct kvi_activations *a, const float *x, size_t x_stride, size_t first,
	                 size_t n);
	/* Computes y of all rows of a and some blocks of w, which has a's columns and groups. */
	void (*product)(const struct kvi_product *p);
	/* y of all rows of x and some blocks of w, which is E4M3. */
	void (*product_floats)(const struct kvi_product *p);
	/* Attention of rows to a block (attention_rows.h); NULL: product and quantise serve. */
	void (*attend)(const struct kvi_attention_rows *a);
};
extern const struct kvi_exact_kernels kvi_exact_scalar;
#if defined(KVI_AVX2)
extern const struct kvi_exact_kernels kvi_exact_avx2;
#endif
#if defined(KVI_AVX512)
extern const struct kvi_exact_kernels kvi_exact_avx512, kvi_exact_avx512vnni;
#endif
#if defined(KVI_NEON)
extern const struct kvi_exact_kernels kvi_exact_neon;
#endif
#if defined(KVI_NEONDOT)
extern const struct kvi_exact_kernels kvi_exact_neondot;
#endif
/* The fastest of a mask (KVARC_ISA_*; 0: all) that this processor runs. */
KVI_SHARED const struct kvi_exact_kernels *kvi_exact_kernels_get(uint32_t isa_mask);

/* Bytes of memory, 64-aligned parts, that kvi_operand_make needs. False: overflow. */
bool kvi_operand_bytes(size_t rows, size_t columns, unsigned group, unsigned planes, bool minima,
                       size_t *bytes);
/* Lays an empty operand (all zero) into memory of that size. */
void kvi_operand_init(struct kvi_operand *w, void *memory, size_t rows, size_t columns,
                      unsigned group, unsigned planes, bool minima);
/* The operand that lies in such memory. */
void kvi_operand_at(struct kvi_operand *w, const void *memory, size_t rows, size_t columns,
                    unsigned group, unsigned planes, bool minima);
/* Writes row r of an operand from integers: q[p] planes of `columns` integers, scales and minima by
 * group. memory is what kvi_operand_init was given. */
void kvi_operand_put(struct kvi_operand *w, size_t r, const int8_t *const q[2], const float *scale,
                     const float *minimum);
/* Writes row r of an operand from floats: W8 or, with two planes, W15. */
void kvi_operand_put_floats(struct kvi_operand *w, size_t r, const float *x);

/* Memory, 64-byte aligned, of kvi_activations for rows of `columns` columns. False: overflow. */
bool kvi_activations_bytes(size_t rows, size_t columns, unsigned group, bool wide, size_t *bytes);
/* Lays activations into memory of that size; nothing of them is set. */
void kvi_activations_init(struct kvi_activations *activations, void *memory, size_t rows,
                          size_t columns, unsigned group, bool wide);

#endif
