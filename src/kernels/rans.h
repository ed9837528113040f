/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rans.h - the 32-lane coder and its kernels (spec/codecs/rans.md)
 *
 * READ ME FIRST. rANS decodes in the reverse order of encoding, so encoders
 * walk their input backwards and write words from the end of a buffer towards
 * its start. Kernels are pure: no allocation, no I/O, no global state; scalar
 * C is the definition, every other set is bit-equal on words and states.
 */
#ifndef KVI_RANS_H
#define KVI_RANS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvarc.h"
#include "util/shared.h"

/* Sizes that the format fixes (spec rans 1, grid 4). */
enum {
	KVI_LANES = 32,
	KVI_PROB_BITS = 11,
	KVI_PROB_TOTAL = 1 << KVI_PROB_BITS,
	KVI_GRID_SYMBOLS = 41, /* 40 tokens and escape */
	KVI_GRID_TABLES = 192,
	KVI_BYTE_SYMBOLS = 257 /* 256 bytes and escape */
};
#define KVI_RANS_LOW ((uint32_t)1 << 16)

/*
 * Order of a stream's elements in memory: full_steps steps of 32 elements, then
 * tail_steps steps of tail_lanes (0..31) elements, without gaps (spec rans 3).
 * All orders are this shape, those whose lanes are tokens after a transposition.
 */
struct kvi_steps {
	size_t full_steps, tail_steps;
	unsigned tail_lanes;
};

/* The elements of all steps. */
static inline size_t kvi_steps_elements(const struct kvi_steps *steps)
{
	return steps->full_steps * KVI_LANES + steps->tail_steps * steps->tail_lanes;
}

/*
 * Decoder's and encoder's form of a group of tables; the caller owns the memory. lut has 2048
 * entries a table: bits 0..8 symbol, 9..19 offset in the symbol's interval, 20..31 frequency.
 * enc has `stride` entries a table: frequency | cumulative frequency << 16.
 */
struct kvi_tables {
	size_t n_tables;
	unsigned symbols; /* a table */
	unsigned stride;  /* entries of enc a table: symbols rounded up to 2^n */
	uint32_t *lut;    /* n_tables * 2048, or NULL */
	uint32_t *enc;    /* n_tables * stride */
};

/* Fills lut (unless NULL: encoders do not need it) and enc from n_tables * symbols frequencies.
 * False when symbols is not 1 to 512, stride is not a power of two that is at least symbols, or a
 * table does not sum to 2048, has a frequency above 2047 or one of 0 for its last symbol, the
 * escape. */
bool kvi_tables_build(struct kvi_tables *tables, const uint16_t *freq);

/* The numbers of a floating-point format for the grid codec (spec grid 1). */
struct kvi_grid_format {
	int mant_bits; /* m */
	int emin;      /* 1 - bias */
	int elem_bits; /* w: 16 or 8 */
	int max_zeros; /* Z */
	bool whole;    /* elements are the centres of their cells (spec near) */
};

/*
 * The context of an element, packed: bits 0..7 table, 8..15 g (biased grid exponent), 16..30 M,
 * 31 neg (spec grid 3). mu_bits: the predicted mean, a binary32 pattern; k: the class of the
 * scale, -400 to 400.
 */
uint32_t kvi_grid_context(uint32_t mu_bits, int k, const struct kvi_grid_format *fmt);

/* Costs of the grid codec's symbols stand in rows of 2^KVI_GRID_COST_BITS, one a table. */
enum { KVI_GRID_COST_BITS = 6 };

/* A coded stream in memory; the caller owns the words. */
struct kvi_stream {
	uint32_t state[KVI_LANES];
	const void *words; /* u16, little-endian, of any alignment */
	size_t n_words;
};

/*
 * A job of the grid codec; read only, all memory is the caller's. Contexts are in stream order.
 * Those of the full steps repeat after ctx_steps steps, which is at least 1 and divides full_steps
 * or is not less; those of the tail steps never repeat. per_step: the arrays have one entry a step
 * instead of one an element, because the lanes are tokens between which nothing differs; faster,
 * and 32 times smaller.
 */
struct kvi_grid_job {
	struct kvi_steps steps;
	const struct kvi_grid_format *fmt;
	const struct kvi_tables *tables; /* tables that contexts number */
	const uint32_t *ctx;             /* ctx_steps * 32 */
	size_t ctx_steps;
	const uint32_t *ctx_tail; /* tail_steps * tail_lanes */
	bool per_step;
};

/* A job of the byte codec, as kvi_grid_job: tab and tab_tail are the table numbers, 0 to 15. */
struct kvi_sym_job {
	struct kvi_steps steps;
	const struct kvi_tables *tables;
	const uint8_t *tab;
	size_t tab_steps;
	const uint8_t *tab_tail;
	unsigned escape; /* symbol number of the escape */
	bool per_step;
};

/* Entries of kvi_rotation.scales. */
enum { KVI_SCALE_PAIRS = 65 * 64 + 1 };

/*
 * Means and classes of the rotating channels of heads at one position (spec grid 2): 2 * pairs
 * channels a head, pair i is (i, i + pairs), or (2i, 2i + 1) when interleaved. turn[i] has the
 * cosine of the pair's angle in its low half and the sine in its high half, in 1/16384, the same
 * for all heads, angle_class[i] the class. scales: the table of grid 2 by difference of classes
 * and class of the angle, the entry of channel a in the low byte and that of channel b, whose
 * angle is a quarter turn further, in the high byte; an entry more lies behind them. mean, k and
 * the contexts of the next head follow head_channels further on. Many heads in one call are
 * faster: they share the turns. heads = 0 means one.
 */
struct kvi_rotation {
	const struct kvi_grid_format *fmt;
	size_t pairs;
	bool interleaved;
	const uint32_t *turn;
	const uint16_t *angle_class;
	const int16_t *mean, *k;
	const uint16_t *scales;
	size_t heads, head_channels;
};
/* Tokens, n <= 32, whose contexts are wanted at once. The contexts of the next token stand `row`
 * further on, its turns kvi_rotation.pairs. Classes have rows of `stride` tokens, one row a pair,
 * of which 32 can be read. */
struct kvi_rotated {
	size_t n, row, stride;
	const uint16_t *classes;
};

struct kvi_cell_kernels;  /* cells.h */
struct kvi_layer_kernels; /* layers.h */
struct kvi_rows;          /* slots.h */
struct kvi_slot_block;
struct kvi_slot_job;
struct kvi_near; /* fits.h */
struct kvi_near_sums;

/*
 * Kernels of range coding and of the contexts of its symbols.
 *
 * Encoders write words downwards from `end` and return their number n; the stream starts at
 * end - n, and `state` receives the states. Callers provide 3 words an element and 64 more (grid:
 * symbol, raw bits, escape; sym: 2 an element).
 *
 * Decoders accept any states and words. They return false when the stream needs more words than it
 * has, does not need all of them, or does not end with all lanes at 2^16; output is then
 * unspecified, but in bounds. Elements are u16 in stream order (callers widen formats of a byte).
 *
 * sym: symbols; esc: the escaped bytes, touched only where sym is the escape. The grid encoder
 * uses symbol 40 for all elements that it cannot code as token and raw bits.
 */
struct kvi_coding_kernels {
	size_t (*grid_encode)(const struct kvi_grid_job *job, const uint16_t *elements,
	                      uint16_t *end, uint32_t state[KVI_LANES]);
	bool (*grid_decode)(const struct kvi_grid_job *job, const struct kvi_stream *in,
	                    uint16_t *elements);
	size_t (*sym_encode)(const struct kvi_sym_job *job, const uint16_t *sym, const uint8_t *esc,
	                     uint16_t *end, uint32_t state[KVI_LANES]);
	bool (*sym_decode)(const struct kvi_sym_job *job, const struct kvi_stream *in,
	                   uint16_t *sym, uint8_t *esc);
	/* grid_decode of two streams at once. NULL: one after the other is as fast. */
	void (*grid_decode2)(const struct kvi_grid_job *const job[2],
	                     const struct kvi_stream *const in[2], uint16_t *const elements[2],
	                     bool ok[2]);
	/* grid_encode of two streams at once. NULL: one after the other is as fast. */
	void (*grid_encode2)(const struct kvi_grid_job *const job[2],
	                     const uint16_t *const elements[2], uint16_t *const end[2], size_t n[2],
	                     uint32_t *const state[2]);
	/* kvi_grid_context of n elements. */
	void (*grid_contexts)(uint32_t *ctx, const uint32_t *mu_bits, const int16_t *k, size_t n,
	                      const struct kvi_grid_format *fmt);
	/* Contexts of rotated channels. */
	void (*rotated_contexts)(uint32_t *ctx, const struct kvi_rotation *r);
	/* Contexts of rotated channels of many tokens; pairs: a multiple of 16; angle_class is not
	 * used. NULL: the set has no such kernel. */
	void (*rotated_tokens)(uint32_t *ctx, const struct kvi_rotation *r,
	                       const struct kvi_rotated *tokens);
};

/* Kernels that change the order of elements. */
struct kvi_move_kernels {
	/* dst[c * rows + r] = src[r * cols + c]: token-major to the order of tokens for a block of
	 * rows = 32 (or T' % 32) tokens; the inverse has rows and cols exchanged. */
	void (*transpose8)(uint8_t *dst, const uint8_t *src, size_t rows, size_t cols);
	void (*transpose16)(uint16_t *dst, const uint16_t *src, size_t rows, size_t cols);
};

/* Kernels of fits of parameters (fits.h), over channels or rows x channels. */
struct kvi_fit_kernels {
	/* Code length of n elements, at most 2^20, in their contexts, in 1/256 bit. cost: that of
	 * each symbol by table; the escape's includes the element. */
	uint64_t (*grid_price)(const struct kvi_grid_format *fmt, const uint32_t *cost,
	                       const uint32_t *ctx, const uint16_t *elements, size_t n);
	/* Adds the counts of each channel to the sums of its table. stride: entries of a channel
	 * and of a table, a multiple of 32. */
	void (*tables_add)(const uint16_t *counts, size_t channels, size_t stride,
	                   const uint8_t *table, uint32_t *sum);
	/* Moves channels to the best of their table and its two neighbours; cost: code length
	 * there, in 1/256 bit. lengths: of the symbols by table. Counts of a channel: 256 together
	 * at most. */
	void (*tables_choose)(const uint16_t *counts, size_t channels, size_t stride,
	                      const uint16_t *lengths, unsigned n_tables, uint8_t *table,
	                      uint32_t *cost);
	/* Sorts the KVI_FIT_SAMPLE finite values of each of KVI_FIT_FLOATS channels, which are side
	 * by side. */
	void (*sort_floats)(float *v);
	/* Sums of KVI_FIT_FLOATS channels of a matrix of rows with `row` channels; NaNs do not
	 * count. */
	void (*near_sums)(const float *v, size_t rows, size_t row, const struct kvi_near *x,
	                  struct kvi_near_sums *to);
};

/* Kernels of the linear codec (slots.h): dot products, and slots. */
struct kvi_slot_kernels {
	void (*slot_rows)(const struct kvi_rows *r);
	/* False: the words of the reader's stream do not suffice. */
	bool (*slot)(const struct kvi_slot_block *b, const struct kvi_slot_job *j);
};

/* The kernels of a set of instructions: pure functions for any thread, whose memory is all the
 * caller's. All sets give the same numbers. */
struct kvi_kernels {
	const char *name;
	uint32_t isa; /* KVARC_ISA_* */
	bool vnni;    /* AVX-512 sets: the processor has VNNI */
	struct kvi_coding_kernels coding;
	struct kvi_move_kernels moves;
	struct kvi_fit_kernels fits;
	struct kvi_slot_kernels slots;
	const struct kvi_layer_kernels *layers;
	const struct kvi_cell_kernels *cells;
};

/* The fastest kernels in the mask (KVARC_ISA_*, 0: any) that this build and processor have;
 * scalar when there are none. Never NULL; from any thread. */
KVI_SHARED const struct kvi_kernels *kvi_kernels_get(uint32_t isa_mask);

#endif
