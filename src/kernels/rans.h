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

enum {
	KVI_LANES = 32,
	KVI_PROB_BITS = 11,
	KVI_PROB_TOTAL = 1 << KVI_PROB_BITS,
	KVI_GRID_SYMBOLS = 41,  /* 40 tokens and escape */
	KVI_GRID_TABLES = 192,
	KVI_EXP_SYMBOLS = 32,   /* 31 distances and escape */
	KVI_BYTE_SYMBOLS = 257  /* 256 bytes and escape */
};
#define KVI_RANS_LOW ((uint32_t)1 << 16)

/*
 * Order of a stream's elements in memory: full_steps steps of 32 elements, then
 * tail_steps steps of tail_lanes (0..31) elements, without gaps (spec rans 3).
 * Both lane orders are this shape, after a transposition for order 1.
 */
struct kvi_steps {
	size_t full_steps, tail_steps;
	unsigned tail_lanes;
};

static inline size_t kvi_steps_elements(const struct kvi_steps *s)
{
	return s->full_steps * KVI_LANES + s->tail_steps * s->tail_lanes;
}

/*
 * Decoder's and encoder's form of a group of tables. lut has 2048 entries a
 * table: bits 0..8 symbol, 9..19 offset in the symbol's interval, 20..31
 * frequency (a frequency of 0 marks a slot that no symbol owns and cannot be
 * reached in a table that sums to 2048). enc has `stride` entries a table:
 * frequency | cum << 16.
 */
struct kvi_tables {
	size_t n_tables;
	unsigned symbols; /* a table */
	unsigned stride;  /* entries of enc a table: symbols rounded up to 2^n */
	uint32_t *lut;    /* n_tables * 2048 */
	uint32_t *enc;    /* n_tables * stride */
};

/* Fills lut (NULL: not wanted, an encoder does without) and enc (caller's
 * memory, sized as above) from n_tables * symbols frequencies. False when a
 * table does not sum to 2048, has a frequency above 2047, or its last symbol
 * (escape) has frequency 0. */
bool kvi_tables_build(struct kvi_tables *t, const uint16_t *freq);

/* Numbers of a dtype for the grid codec (spec/codecs/grid.md). */
struct kvi_grid_format {
	int mant_bits;    /* m */
	int emin;         /* 1 - bias */
	int elem_bits;    /* w: 16 or 8 */
	int max_zeros;    /* Z */
	bool whole;       /* elements are the middles of their cells (spec near) */
};

/*
 * Context of an element, packed: bits 0..7 table, 8..15 g (biased grid
 * exponent), 16..30 M, 31 neg (spec grid 3). Made by kvi_grid_context for one
 * element; kernels take arrays in stream order. ctx_steps: the array repeats after
 * so many full steps (at least 1, divides full_steps or is >= full_steps; contexts
 * of the tail steps follow behind, never repeated: at ctx_tail).
 */
uint32_t kvi_grid_context(uint32_t mu_bits, int k,
                          const struct kvi_grid_format *fmt);

/* Code length of n elements in their contexts, in 1/256 bit; cost: of a frequency. For those who
 * fit parameters. */
uint64_t kvi_grid_price(const struct kvi_grid_format *fmt,
                        const struct kvi_tables *tables, const uint16_t *cost,
                        const uint32_t *ctx, const uint16_t *elements, size_t n);

/* A coded stream in memory. */
struct kvi_stream {
	uint32_t state[KVI_LANES];
	const void *words; /* u16, little-endian, of any alignment */
	size_t n_words;
};

/*
 * per_step (lanes are tokens and nothing differs between them): the context
 * arrays have one entry a step instead of one an element; ctx_steps entries,
 * then tail_steps in the tail array. Faster, and 32 times smaller.
 */
struct kvi_grid_job {
	struct kvi_steps steps;
	const struct kvi_grid_format *fmt;
	const struct kvi_tables *tables; /* of the table sets in use: table number
	                                  * in a context is relative to `lut` */
	const uint32_t *ctx;       /* full steps, ring of ctx_steps * 32 */
	size_t ctx_steps;
	const uint32_t *ctx_tail;  /* tail_steps * tail_lanes, compact */
	bool per_step;
};

/* byte codec: the table of each element, same ring rule.
 * tab[i] is a table number (0..15). */
struct kvi_sym_job {
	struct kvi_steps steps;
	const struct kvi_tables *tables;
	const uint8_t *tab;
	size_t tab_steps;
	const uint8_t *tab_tail;
	unsigned escape; /* symbol number of the escape: 31 or 256 */
	bool per_step;
};

/*
 * exponent codec, fused: from and to the exponent fields themselves. Symbol
 * top - E when that is 0..30, else 31 and E as an escape. Tables of 32
 * symbols, stride 32. A decoder also returns false for a symbol that gives
 * E < 0; the caller compares E with 2^e for dtypes with e < 8 (spec exponent 2).
 */
struct kvi_exp_job {
	struct kvi_steps steps;
	const struct kvi_tables *tables;
	const uint8_t *tab, *top;           /* rings of tab_steps */
	size_t tab_steps;
	const uint8_t *tab_tail, *top_tail;
	bool per_step;
	/* Of a decoder that searches: what bf16 elements have beside the exponent, as of
	 * bf16_split; out are elements then. NULL: out are exponent fields. */
	const uint8_t *rest;
};

/*
 * Contexts of the rotating channels of heads at one position (spec grid 2):
 * 2 * pairs channels a head, pair i is (i, i + pairs), or (2i, 2i + 1) when
 * interleaved. angle[i] is the pair's angle in 1/4096 turns, the same for all
 * heads. cosines (4096) and scales (65 * 64) are the tables of grid 2. mean, k
 * and the contexts of the next head follow head_channels further on. Many heads
 * in one call are faster: they share the cosines. heads = 0 means one.
 */
struct kvi_rotation {
	const struct kvi_grid_format *fmt;
	size_t pairs;
	bool interleaved;
	const uint16_t *angle;
	const int16_t *mean, *k;
	const int16_t *cosines;
	const int8_t *scales;
	size_t heads, head_channels;
};

/*
 * Encoders write words downwards from end; they return the number of words, which start
 * at end - n. Callers provide 3 words an element + 64 spare (grid: symbol, raw, escape; others: 2).
 * Decoders return false when the stream needs more words than it has, leaves some
 * over, or does not end with all lanes at 2^16; output is then unspecified but in bounds.
 * Decoders accept any states and words. Elements are u16 in stream order (one-byte dtypes
 * are widened by the caller).
 * sym: `sym` are symbols, `esc` the escaped bytes (only read / written where sym == escape).
 * The grid encoder uses symbol 40 for all that it cannot code as token and raw bits.
 */
struct kvi_rows; /* slots.h */
struct kvi_slot_block;
struct kvi_slot_job;

struct kvi_kernels {
	const char *name;
	uint32_t isa; /* KVARC_ISA_* */
	size_t (*grid_encode)(const struct kvi_grid_job *job,
	                      const uint16_t *elements, uint16_t *end,
	                      uint32_t state[KVI_LANES]);
	bool (*grid_decode)(const struct kvi_grid_job *job,
	                    const struct kvi_stream *in, uint16_t *elements);
	size_t (*sym_encode)(const struct kvi_sym_job *job,
	                     const uint16_t *sym, const uint8_t *esc,
	                     uint16_t *end, uint32_t state[KVI_LANES]);
	bool (*sym_decode)(const struct kvi_sym_job *job,
	                   const struct kvi_stream *in, uint16_t *sym,
	                   uint8_t *esc);
	size_t (*exp_encode)(const struct kvi_exp_job *job, const uint8_t *e,
	                     uint16_t *end, uint32_t state[KVI_LANES]);
	bool (*exp_decode)(const struct kvi_exp_job *job,
	                   const struct kvi_stream *in, void *out);
	/* exp_decode with at most so many tables, not per_step, searches: it
	 * reads enc only, lut may be NULL, and it takes rest. */
	unsigned exp_searched;
	/* Two streams at once, the results in ok. NULL: not faster than one
	 * after the other. */
	void (*exp_decode2)(const struct kvi_exp_job *const job[2],
	                    const struct kvi_stream *const in[2],
	                    void *const out[2], bool ok[2]);
	/* n contexts from n mu bit patterns and n classes (-400..400). */
	void (*grid_contexts)(uint32_t *ctx, const uint32_t *mu_bits,
	                      const int16_t *k, size_t n,
	                      const struct kvi_grid_format *fmt);
	void (*rotated_contexts)(uint32_t *ctx, const struct kvi_rotation *r);
	/* bf16 elements <-> exponent fields and sign and mantissa (sign << 7 | mantissa). */
	void (*bf16_split)(uint8_t *e, uint8_t *rest, const uint16_t *x,
	                   size_t n);
	void (*bf16_merge)(uint16_t *x, const uint8_t *e, const uint8_t *rest,
	                   size_t n);
	/* f16 elements <-> exponent fields (0..31) and the planes of 8, 2 and 1 bits of
	 * mantissa and sign (spec exponent 3). */
	void (*f16_split)(uint8_t *e, uint8_t *const planes[3],
	                  const uint16_t *x, size_t n);
	void (*f16_merge)(uint16_t *x, const uint8_t *e,
	                  const uint8_t *const planes[3], size_t n);
	/* dst[c * rows + r] = src[r * cols + c]: token-major to lane order 1 for a block of
	 * rows = 32 (or T' % 32) tokens; the way back has rows and cols exchanged. */
	void (*transpose8)(uint8_t *dst, const uint8_t *src, size_t rows,
	                   size_t cols);
	void (*transpose16)(uint16_t *dst, const uint16_t *src, size_t rows,
	                    size_t cols);
	/* Of the linear codec, see slots.h. */
	void (*slot_rows)(const struct kvi_rows *r);
	bool (*slot)(const struct kvi_slot_block *b,
	             const struct kvi_slot_job *j);
};

/* The fastest kernels in the mask (0: any) that this build and processor
 * have; scalar when the mask leaves none. */
const struct kvi_kernels *kvi_kernels_get(uint32_t isa_mask);

#endif
