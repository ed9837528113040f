/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * scalar.h - the definition of a coder's step in C (spec rans 2), private to src/kernels
 *
 * Everything is pure; memory is the caller's.
 */
#ifndef KVI_SCALAR_H
#define KVI_SCALAR_H

#include "linear_formulas.h"
#include "rans.h"
#include "util/bytes.h"

/* The words of a decoder from p on. Past the end they are 0 and `missing` is set (spec rans 1). */
struct kvi_words_in {
	const uint8_t *p, *end;
	bool missing;
};

/* Starts at the first word of *stream. */
static inline struct kvi_words_in kvi_words_begin(const struct kvi_stream *stream)
{
	struct kvi_words_in in = { stream->words, NULL, false };
	in.end = stream->n_words ? in.p + 2 * stream->n_words : in.p;
	return in;
}

/* Consumes a word. */
static inline uint32_t kvi_word_next(struct kvi_words_in *in)
{
	if (in->p == in->end) {
		in->missing = true;
		return 0;
	}
	uint32_t w = kvi_load16(in->p);
	in->p += 2;
	return w;
}

/* The state after renormalisation, which consumes a word when it is below 2^16. */
static inline uint32_t kvi_renorm(uint32_t st, struct kvi_words_in *in)
{
	return st < KVI_RANS_LOW ? st << 16 | kvi_word_next(in) : st;
}

/* The last test of a decoder: all words consumed, all states 2^16. */
static inline bool kvi_stream_done(const uint32_t state[KVI_LANES], const struct kvi_words_in *in)
{
	uint32_t diff = 0;
	for (unsigned l = 0; l < KVI_LANES; l++)
		diff |= state[l] ^ KVI_RANS_LOW;
	return diff == 0 && !in->missing && in->p == in->end;
}

/* The states in which an encoder begins. */
static inline void kvi_states_start(uint32_t state[KVI_LANES])
{
	for (unsigned l = 0; l < KVI_LANES; l++)
		state[l] = KVI_RANS_LOW;
}

/* Writes the low word of a state below *w; returns the rest of the state. */
static inline uint32_t kvi_word_put(uint32_t st, uint16_t **w)
{
	kvi_store16(--*w, (uint16_t)st);
	return st >> 16;
}

/* Encodes n <= 16 raw bits; returns the new state. */
static inline uint32_t kvi_bits_put(uint32_t st, unsigned n, uint32_t bits, uint16_t **w)
{
	if ((uint64_t)st >= (uint64_t)1 << (32 - n))
		st = kvi_word_put(st, w);
	return st << n | bits;
}

/* Encodes a symbol; returns the new state. enc: its entry in kvi_tables.enc, freq not 0. */
static inline uint32_t kvi_symbol_put(uint32_t st, uint32_t enc, uint16_t **w)
{
	uint32_t freq = enc & 0xffff, cum = enc >> 16;
	if (st >> 21 >= freq)
		st = kvi_word_put(st, w);
	return ((st / freq) << KVI_PROB_BITS) + cum + st % freq;
}

/* The state after the symbol of an entry of kvi_tables.lut, before kvi_renorm(). */
static inline uint32_t kvi_symbol_take(uint32_t st, uint32_t entry)
{
	return (entry >> 20) * (st >> KVI_PROB_BITS) + (entry >> 9 & 2047);
}

/* A run of steps with the same number of active lanes: the full steps or the tail of a job. */
struct kvi_span {
	size_t steps;
	unsigned lanes;
	size_t ring;      /* steps after which the contexts repeat */
	size_t step_size; /* entries of the context array a step */
	size_t lane_size; /* 1, or 0 when all lanes share an entry */
};

/* The full steps of a job whose contexts repeat after `ring` steps. */
static inline struct kvi_span kvi_span_full(const struct kvi_steps *steps, size_t ring,
                                            bool per_step)
{
	struct kvi_span span = { steps->full_steps, KVI_LANES, ring, per_step ? 1 : KVI_LANES,
		                 !per_step };
	return span;
}

/* The tail of a job; no steps when there is none. */
static inline struct kvi_span kvi_span_tail(const struct kvi_steps *steps, bool per_step)
{
	struct kvi_span span = { steps->tail_lanes ? steps->tail_steps : 0, steps->tail_lanes,
		                 steps->tail_steps, per_step ? 1 : steps->tail_lanes, !per_step };
	return span;
}

/* The kernels of scalar C, by which kvi_kernels is defined. */
extern const struct kvi_kernels kvi_kernels_scalar;

/* kvi_coding_kernels.grid_encode. */
size_t kvi_scalar_grid_encode(const struct kvi_grid_job *job, const uint16_t *elements,
                              uint16_t *end, uint32_t state[KVI_LANES]);
/* kvi_coding_kernels.grid_decode. */
bool kvi_scalar_grid_decode(const struct kvi_grid_job *job, const struct kvi_stream *in,
                            uint16_t *elements);
/* Decodes the steps of a span of a grid job, whose contexts are at ctx. *in and st are then those
 * after the span; words may be missing. */
void kvi_scalar_grid_span(const struct kvi_grid_job *job, const struct kvi_span *span,
                          const uint32_t *ctx, struct kvi_words_in *in, uint32_t st[KVI_LANES],
                          uint16_t *elements);
/* kvi_fit_kernels.grid_price. */
uint64_t kvi_scalar_grid_price(const struct kvi_grid_format *fmt, const uint32_t *cost,
                               const uint32_t *ctx, const uint16_t *elements, size_t n);
/* kvi_coding_kernels.grid_contexts. */
void kvi_scalar_grid_contexts(uint32_t *ctx, const uint32_t *mu_bits, const int16_t *k, size_t n,
                              const struct kvi_grid_format *fmt);
/* The number of heads in *r. */
static inline size_t kvi_rotation_heads(const struct kvi_rotation *r)
{
	return r->heads ? r->heads : 1;
}
/* kvi_coding_kernels.rotated_contexts, from pair `first` of each head on. */
void kvi_scalar_rotate_pairs(uint32_t *ctx, const struct kvi_rotation *r, size_t first);
/* kvi_move_kernels.transpose8 and transpose16. */
void kvi_scalar_transpose8(uint8_t *dst, const uint8_t *src, size_t rows, size_t cols);
void kvi_scalar_transpose16(uint16_t *dst, const uint16_t *src, size_t rows, size_t cols);
/* kvi_fit_kernels.tables_add. */
void kvi_scalar_tables_add(const uint16_t *counts, size_t channels, size_t stride,
                           const uint8_t *table, uint32_t *sum);
/* kvi_fit_kernels.tables_choose. */
void kvi_scalar_tables_choose(const uint16_t *counts, size_t channels, size_t stride,
                              const uint16_t *lengths, unsigned n_tables, uint8_t *table,
                              uint32_t *cost);
/* kvi_fit_kernels.sort_floats. */
void kvi_scalar_sort_floats(float *v);
/* kvi_fit_kernels.near_sums. */
void kvi_scalar_near_sums(const float *v, size_t rows, size_t row, const struct kvi_near *x,
                          struct kvi_near_sums *to);

/* The members of struct kvi_kernels for moves, of functions with a prefix. */
#define KVI_MOVES(prefix) \
	.moves.transpose8 = prefix##_transpose8, .moves.transpose16 = prefix##_transpose16

/* The members of struct kvi_kernels for fits, of functions with a prefix. */
#define KVI_FITS(prefix)                                                                      \
	.fits.tables_add = prefix##_tables_add, .fits.tables_choose = prefix##_tables_choose, \
	.fits.sort_floats = prefix##_sort_floats, .fits.near_sums = prefix##_near_sums

#if defined(KVI_AVX2)
extern const struct kvi_kernels kvi_kernels_avx2;
/* kvi_move_kernels.transpose8 and transpose16; this and the following serve AVX-512, too. */
void kvi_avx2_transpose8(uint8_t *dst, const uint8_t *src, size_t rows, size_t cols);
void kvi_avx2_transpose16(uint16_t *dst, const uint16_t *src, size_t rows, size_t cols);
/* kvi_fit_kernels.tables_add. */
void kvi_avx2_tables_add(const uint16_t *counts, size_t channels, size_t stride,
                         const uint8_t *table, uint32_t *sum);
/* kvi_fit_kernels.tables_choose. */
void kvi_avx2_tables_choose(const uint16_t *counts, size_t channels, size_t stride,
                            const uint16_t *lengths, unsigned n_tables, uint8_t *table,
                            uint32_t *cost);
/* kvi_fit_kernels.sort_floats. */
void kvi_avx2_sort_floats(float *v);
/* kvi_fit_kernels.near_sums. */
void kvi_avx2_near_sums(const float *v, size_t rows, size_t row, const struct kvi_near *x,
                        struct kvi_near_sums *to);
#endif
#if defined(KVI_AVX512)
extern const struct kvi_kernels kvi_kernels_avx512;
/* AVX-512 with VNNI, VBMI and VBMI2. */
extern const struct kvi_kernels kvi_kernels_avx512vbmi;
/* AVX-512 with VNNI, VBMI and VBMI2 for processors where gathers are fast. */
extern const struct kvi_kernels kvi_kernels_avx512gather;
#endif
#if defined(KVI_NEON)
extern const struct kvi_kernels kvi_kernels_neon;
#endif

/* Token pairs of the grid codec (spec grid 4), by symbol: LO in bits 0..8,
 * NB in bits 11..14, side in bit 15. Entries 40..63 are 0. */
extern const uint16_t kvi_grid_tokens[64];

#endif
