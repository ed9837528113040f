/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * scalar.h - the definition of a step in C, private to src/kernels
 *
 * A span is a run of steps with the same number of active lanes: the full
 * steps or the tail of a job.
 */
#ifndef KVI_SCALAR_H
#define KVI_SCALAR_H

#include "rans.h"
#include "util/bytes.h"

/* Words of a decoder. Past the end they are 0 and missing is set (spec rans 1). */
struct kvi_words_in {
	const uint8_t *p, *end;
	bool missing;
};

static inline struct kvi_words_in kvi_words_open(const struct kvi_stream *s)
{
	struct kvi_words_in in = { s->words, NULL, false };
	in.end = s->n_words ? in.p + 2 * s->n_words : in.p;
	return in;
}

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

static inline uint32_t kvi_renorm(uint32_t st, struct kvi_words_in *in)
{
	return st < KVI_RANS_LOW ? st << 16 | kvi_word_next(in) : st;
}

/* The last test of a decoder: everything consumed, all lanes at 2^16. */
static inline bool kvi_stream_done(const uint32_t state[KVI_LANES],
                                   const struct kvi_words_in *in)
{
	uint32_t diff = 0;
	for (unsigned l = 0; l < KVI_LANES; l++)
		diff |= state[l] ^ KVI_RANS_LOW;
	return diff == 0 && !in->missing && in->p == in->end;
}

static inline void kvi_states_start(uint32_t state[KVI_LANES])
{
	for (unsigned l = 0; l < KVI_LANES; l++)
		state[l] = KVI_RANS_LOW;
}

/* Writes the low word of a state downwards. */
static inline uint32_t kvi_word_put(uint32_t st, uint16_t **w)
{
	kvi_store16(--*w, (uint16_t)st);
	return st >> 16;
}

/* Encodes n <= 16 raw bits. */
static inline uint32_t kvi_bits_put(uint32_t st, unsigned n, uint32_t bits,
                                    uint16_t **w)
{
	if ((uint64_t)st >= (uint64_t)1 << (32 - n))
		st = kvi_word_put(st, w);
	return st << n | bits;
}

/* Encodes a symbol; enc is its entry in kvi_tables. */
static inline uint32_t kvi_symbol_put(uint32_t st, uint32_t enc, uint16_t **w)
{
	uint32_t freq = enc & 0xffff, cum = enc >> 16;
	if (st >> 21 >= freq)
		st = kvi_word_put(st, w);
	return ((st / freq) << KVI_PROB_BITS) + cum + st % freq;
}

/* State after the symbol of a LUT entry, before renorm. */
static inline uint32_t kvi_symbol_take(uint32_t st, uint32_t entry)
{
	return (entry >> 20) * (st >> KVI_PROB_BITS) + (entry >> 9 & 2047);
}

/* floor(a / 4), also of negative numbers */
static inline int kvi_quarter(int a)
{
	return (a - (a & 3)) / 4;
}

static inline int kvi_clamp(int v, int lo, int hi)
{
	return v < lo ? lo : v > hi ? hi : v;
}

/* v * 2^e as a binary32 pattern; |v| <= 2^24, the product is a normal number
 * or 0. */
static inline uint32_t kvi_scaled_bits(int32_t v, int e)
{
	uint32_t bits;
	float f = (float)v;
	memcpy(&bits, &f, sizeof(bits));
	return v ? bits + ((uint32_t)e << 23) : 0;
}

struct kvi_span {
	size_t steps;
	unsigned lanes;
	size_t ring;       /* contexts repeat after so many steps */
	size_t step_size;  /* entries of the context array a step */
	size_t lane_size;  /* 1, or 0 when all lanes share an entry */
};

static inline struct kvi_span kvi_span_full(const struct kvi_steps *s,
                                            size_t ring, bool per_step)
{
	struct kvi_span span = { s->full_steps, KVI_LANES, ring,
	                         per_step ? 1 : KVI_LANES, !per_step };
	return span;
}

static inline struct kvi_span kvi_span_tail(const struct kvi_steps *s,
                                            bool per_step)
{
	struct kvi_span span = { s->tail_lanes ? s->tail_steps : 0,
	                         s->tail_lanes, s->tail_steps,
	                         per_step ? 1 : s->tail_lanes, !per_step };
	return span;
}

/* Where a span's next step finds its table numbers and largest exponents. */
struct kvi_exp_ring {
	const uint8_t *tab, *top; /* of the first step */
	size_t at, size;          /* in entries */
};

/* The kernels of scalar C; also stand in where a set has no faster one. */
extern const struct kvi_kernels kvi_kernels_scalar;

size_t kvi_scalar_grid_encode(const struct kvi_grid_job *job,
                              const uint16_t *elements, uint16_t *end,
                              uint32_t state[KVI_LANES]);
bool kvi_scalar_grid_decode(const struct kvi_grid_job *job,
                            const struct kvi_stream *in, uint16_t *elements);
/* The steps of a span; words and states are left for what follows. */
void kvi_scalar_grid_span(const struct kvi_grid_job *job,
                          const struct kvi_span *span, const uint32_t *ctx,
                          struct kvi_words_in *in, uint32_t st[KVI_LANES],
                          uint16_t *elements);
size_t kvi_scalar_sym_encode(const struct kvi_sym_job *job,
                             const uint16_t *sym, const uint8_t *esc,
                             uint16_t *end, uint32_t state[KVI_LANES]);
bool kvi_scalar_sym_decode(const struct kvi_sym_job *job,
                           const struct kvi_stream *in, uint16_t *sym,
                           uint8_t *esc);
size_t kvi_scalar_exp_encode(const struct kvi_exp_job *job, const uint8_t *e,
                             uint16_t *end, uint32_t state[KVI_LANES]);
bool kvi_scalar_exp_decode(const struct kvi_exp_job *job,
                           const struct kvi_stream *in, void *out);
void kvi_scalar_grid_contexts(uint32_t *ctx, const uint32_t *mu_bits,
                              const int16_t *k, size_t n,
                              const struct kvi_grid_format *fmt);
void kvi_scalar_rotated_contexts(uint32_t *ctx, const struct kvi_rotation *r);
static inline size_t kvi_rotation_heads(const struct kvi_rotation *r)
{
	return r->heads ? r->heads : 1;
}
/* From pair `first` of each head on. */
void kvi_scalar_rotate_pairs(uint32_t *ctx, const struct kvi_rotation *r,
                             size_t first);
void kvi_scalar_bf16_split(uint8_t *e, uint8_t *rest, const uint16_t *x,
                           size_t n);
void kvi_scalar_bf16_merge(uint16_t *x, const uint8_t *e, const uint8_t *rest,
                           size_t n);
void kvi_scalar_f16_split(uint8_t *e, uint8_t *const planes[3],
                          const uint16_t *x, size_t n);
void kvi_scalar_f16_merge(uint16_t *x, const uint8_t *e,
                          const uint8_t *const planes[3], size_t n);
void kvi_scalar_transpose8(uint8_t *dst, const uint8_t *src, size_t rows,
                           size_t cols);
void kvi_scalar_transpose16(uint16_t *dst, const uint16_t *src, size_t rows,
                            size_t cols);

#if defined(KVI_AVX2)
extern const struct kvi_kernels kvi_kernels_avx2;
void kvi_avx2_bf16_split(uint8_t *e, uint8_t *rest, const uint16_t *x,
                         size_t n);
void kvi_avx2_bf16_merge(uint16_t *x, const uint8_t *e, const uint8_t *rest,
                         size_t n);
void kvi_avx2_f16_split(uint8_t *e, uint8_t *const planes[3],
                          const uint16_t *x, size_t n);
void kvi_avx2_f16_merge(uint16_t *x, const uint8_t *e,
                          const uint8_t *const planes[3], size_t n);
void kvi_avx2_transpose8(uint8_t *dst, const uint8_t *src, size_t rows,
                         size_t cols);
void kvi_avx2_transpose16(uint16_t *dst, const uint16_t *src, size_t rows,
                          size_t cols);
#endif
#if defined(KVI_AVX512)
extern const struct kvi_kernels kvi_kernels_avx512;
enum { KVI_AVX512_EXP_SEARCHED = 8 }; /* kvi_kernels.exp_searched */
size_t kvi_avx512_exp_encode(const struct kvi_exp_job *job, const uint8_t *e,
                             uint16_t *end, uint32_t state[KVI_LANES]);
bool kvi_avx512_exp_decode(const struct kvi_exp_job *job,
                           const struct kvi_stream *in, void *out);
void kvi_avx512_exp_decode2(const struct kvi_exp_job *const job[2],
                            const struct kvi_stream *const in[2],
                            void *const out[2], bool ok[2]);
#endif
#if defined(KVI_NEON)
extern const struct kvi_kernels kvi_kernels_neon;
#endif

/* Token pairs of the grid codec (spec grid 4), by symbol: LO in bits 0..8,
 * NB in bits 11..14, side in bit 15. Entries 40..63 are 0. */
extern const uint16_t kvi_grid_tokens[64];

#endif
