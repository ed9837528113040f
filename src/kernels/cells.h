/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cells.h - kernels of codec cells: codes of 4 bits, and raw bits in a cell (spec cells)
 *
 * Kernels are pure, for any thread, and all memory is the caller's. Scalar C is the definition;
 * every set of instructions gives the same bytes, and the same answer for damaged input.
 */
#ifndef KVI_CELLS_H
#define KVI_CELLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rans.h"

/* Sizes that the format fixes (spec cells 3), and what kernels need. */
enum {
	KVI_CELLS_CLASSES = 16,
	KVI_CELLS_FINE = 12, /* classes from here on are those of elements finer than their cells */
	KVI_CELLS_MORE = 15, /* a first code behind which a second one follows */
	KVI_CELLS_ESCAPE = 30, /* first and second code of an escaped element, added */
	KVI_CELLS_ROW = 32,    /* entries of a class in the tables, of which 30 are used */
	KVI_CELLS_REACH = 128, /* distances from -128 to 127 have codes */
	KVI_CELLS_BITS = 15,   /* most raw bits of an element */
	KVI_CELLS_TOKENS = 32, /* most tokens of a call of kvi_cell_kernels.rotated */
	KVI_CELLS_SLACK = 256 /* entries or bytes that kernels may touch behind the end of arrays */
};

/* The first distance of the interval of each code, first codes 0 to 14 and then second ones, and
 * its size: 2^nb distances (spec cells 3); KVI_CELLS_ROW entries a class. Zeros follow. */
extern const int8_t kvi_cells_lo[];
extern const uint8_t kvi_cells_nb[];
/* The code of each distance, at KVI_CELLS_REACH + distance of the 2 * KVI_CELLS_REACH entries of a
 * class, in the lowest 5 bits, nb in the next 3, and above them the distance from the interval's
 * begin. KVI_CELLS_ESCAPE: there is no code; so for the smallest and largest distance. */
extern const uint16_t kvi_cells_code[];

/*
 * Contexts of token-major elements: `period` of them, then KVI_CELLS_SLACK more, in which they go
 * on from the first one. mean: M (spec cells 2). grid: the grid's exponent << m, of a format of m
 * bits of mantissa, and in the lowest 7 bits the class less KVI_CELLS_FINE, << 5, or of lower
 * classes KVI_CELLS_COARSE | class.
 */
struct kvi_cells_contexts {
	const int16_t *mean;
	const uint16_t *grid;
	size_t period; /* the number of elements, or of channels */
};
/* Marks classes below KVI_CELLS_FINE in an entry of kvi_cells_contexts.grid. */
enum { KVI_CELLS_COARSE = 0x10 };

/* The class of an entry of kvi_cells_contexts.grid. */
static inline unsigned kvi_cells_class(unsigned grid)
{
	return grid & KVI_CELLS_COARSE ? grid & 15 : KVI_CELLS_FINE + (grid >> 5 & 3);
}

/* Where the row of that class begins in the tables of codes. */
static inline size_t kvi_cells_row(unsigned grid)
{
	return grid & KVI_CELLS_COARSE ? (grid & 15) * KVI_CELLS_ROW
	                               : KVI_CELLS_FINE * KVI_CELLS_ROW + (grid & 0x60);
}

/* A stream that is read. The caller has checked the padding of planes, and that states are 2^16 or
 * more. Kernels read no byte behind a plane, the escapes or the words. */
struct kvi_cells_in {
	size_t n, n_second, n_escapes, n_words;
	const uint8_t *codes, *second;  /* planes of n and n_second codes of 4 bits */
	const uint8_t *escapes, *words; /* u16, little-endian, of any alignment */
	uint32_t state[KVI_LANES];
	uint8_t *work; /* kvi_cells_in_work(n), 2-aligned */
};
/* Bytes of work memory for a stream of n elements that is read. */
static inline size_t kvi_cells_in_work(size_t n)
{
	return 2 * (n + KVI_CELLS_SLACK);
}

/* A stream that is written: codes, second codes, escapes and words from `to` on, which may be
 * overwritten up to KVI_CELLS_SLACK behind their end. */
struct kvi_cells_out {
	uint8_t *to;
	uint32_t n_second, n_escapes, n_words; /* set */
	uint32_t state[KVI_LANES];             /* set */
	uint8_t *work;                         /* kvi_cells_out_work(n), 2-aligned */
};
/* Bytes of work memory for a stream of n elements that is written. */
static inline size_t kvi_cells_out_work(size_t n)
{
	return 8 * (n + KVI_CELLS_SLACK);
}
/* Most bytes of a stream of n elements, without what may be overwritten behind it. */
static inline size_t kvi_cells_space(size_t n)
{
	return 3 * n + 64;
}

/* Kernels of codec cells, for formats of 16 bits; mantissa: 7 or 10 bits. */
struct kvi_cell_kernels {
	/* n elements; nothing is written behind them. False where the stream is not one that
	 * decodes to the end of all its parts; the elements are undefined then. */
	bool (*get)(const struct kvi_cells_in *in, const struct kvi_cells_contexts *contexts,
	            unsigned mantissa, uint16_t *elements);
	/* n elements to a stream. Returns its end. */
	uint8_t *(*put)(const uint16_t *elements, size_t n,
	                const struct kvi_cells_contexts *contexts, unsigned mantissa,
	                struct kvi_cells_out *out);
	/* Contexts of the rotating channels of n tokens, at most KVI_CELLS_TOKENS, which stand
	 * `row` entries apart; those of other channels are left alone. rotation: that of the first
	 * token, whose heads is not 0; turns of the next token follow `pairs` further on. */
	void (*rotated)(const struct kvi_rotation *rotation, size_t n, size_t row, int16_t *mean,
	                uint16_t *grid);
};

/* The kernels of portable C. */
extern const struct kvi_cell_kernels kvi_scalar_cells;
#if defined(KVI_AVX2)
extern const struct kvi_cell_kernels kvi_avx2_cells;
/* kvi_avx2_cells.get, which AVX-512 without VBMI uses, too. */
bool kvi_avx2_cells_get(const struct kvi_cells_in *in, const struct kvi_cells_contexts *contexts,
                        unsigned mantissa, uint16_t *elements);
/* kvi_avx2_cells.put, which it uses, too. */
uint8_t *kvi_avx2_cells_put(const uint16_t *elements, size_t n,
                            const struct kvi_cells_contexts *contexts, unsigned mantissa,
                            struct kvi_cells_out *out);
/* kvi_avx2_cells.rotated. */
void kvi_avx2_cells_rotate(const struct kvi_rotation *rotation, size_t n, size_t row, int16_t *mean,
                           uint16_t *grid);
#endif
#if defined(KVI_AVX512)
/* AVX-512 without VBMI: get and put of AVX2. */
extern const struct kvi_cell_kernels kvi_avx512_cells;
/* kvi_avx512_cells.rotated. */
void kvi_avx512_cells_rotate(const struct kvi_rotation *rotation, size_t n, size_t row,
                             int16_t *mean, uint16_t *grid);
/* AVX-512 with VBMI2 and BITALG. */
extern const struct kvi_cell_kernels kvi_vbmi_cells;
#endif
#if defined(KVI_NEON)
extern const struct kvi_cell_kernels kvi_neon_cells;
/* kvi_avx512_cells.rotated. */
void kvi_neon_cells_rotate(const struct kvi_rotation *rotation, size_t n, size_t row, int16_t *mean,
                           uint16_t *grid);
#endif

/* kvi_cell_kernels.rotated in portable C. */
void kvi_scalar_cells_rotate(const struct kvi_rotation *rotation, size_t n, size_t row,
                             int16_t *mean, uint16_t *grid);
/* The context of a channel that does not rotate: its mean and class k of the parameters. */
void kvi_cells_fixed_context(const struct kvi_grid_format *format, int mean, int k,
                             int16_t *to_mean, uint16_t *to_grid);

#endif
