/* SPDX-License-Identifier: BSD-3-Clause */
/* rans_cases.h - random jobs for the tests of the coder's kernels */
#ifndef RANS_CASES_H
#define RANS_CASES_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/rans.h"

static uint64_t rng_state = 88172645463325252u;

static inline uint32_t rng(void)
{
	rng_state ^= rng_state << 13;
	rng_state ^= rng_state >> 7;
	rng_state ^= rng_state << 17;
	return (uint32_t)(rng_state >> 24);
}
static inline uint32_t rng_below(uint32_t n)
{
	return (uint32_t)((uint64_t)rng() * n >> 32);
}
static inline double rng_unit(void)
{
	return (rng() + 0.5) / 4294967296.0;
}
static inline double rng_gauss(void)
{
	return sqrt(-2 * log(rng_unit())) * cos(6.283185307179586 * rng_unit());
}

static inline void *must_alloc(size_t n, size_t size)
{
	void *p = calloc(n ? n : 1, size);
	if (!p) {
		fputs("out of memory\n", stderr);
		exit(99);
	}
	return p;
}

enum {
	CASE_BF16,
	CASE_F16,
	CASE_E4M3,
	CASE_E5M2,
	CASE_FORMATS,
	/* with those of lattices, which slots do not have */
	CASE_NEAR = CASE_FORMATS,
	CASE_GRID_FORMATS = CASE_NEAR + 5
};
static const struct kvi_grid_format case_formats[CASE_GRID_FORMATS] = {
	{ 7, -126, 16, 7, false }, { 10, -14, 16, 5, false }, { 3, -6, 8, 11, false },
	{ 2, -14, 8, 11, false },  { 7, 7, 16, 7, true },     { 10, 10, 16, 5, true },
	{ 14, 14, 16, 1, true },   { 3, 3, 8, 11, true },     { 2, 2, 8, 11, true }
};

/* ------------------------------------------------------------- tables */

/* Frequencies with total 2048 from weights; at least 1 each when all is set. */
static inline void quantize_table(uint16_t *freq, const double *weight, unsigned n, int all)
{
	double sum = 0;
	int left = KVI_PROB_TOTAL, big = 0;
	for (unsigned i = 0; i < n; i++)
		sum += weight[i];
	for (unsigned i = 0; i < n; i++) {
		int f = (int)(weight[i] / sum * (KVI_PROB_TOTAL - (int)n));
		if (f == 0 && (all || i == n - 1))
			f = 1;
		if (f > KVI_PROB_TOTAL - 1)
			f = KVI_PROB_TOTAL - 1;
		freq[i] = (uint16_t)f;
		left -= f;
		if (f > freq[big])
			big = (int)i;
	}
	/* Add the remainder to symbols whose frequencies permit it. */
	for (unsigned i = (unsigned)big; left; i = (i + 1) % n) {
		int most = KVI_PROB_TOTAL - 1 - freq[i];
		int add = left < most ? left : most;
		if (add < 0 && freq[i] + add < 1)
			add = 1 - freq[i];
		freq[i] = (uint16_t)(freq[i] + add);
		left -= add;
	}
}

static inline struct kvi_tables tables_new(size_t n, unsigned symbols)
{
	struct kvi_tables t = { .n_tables = n, .symbols = symbols, .stride = 1 };
	while (t.stride < symbols)
		t.stride *= 2;
	t.lut = must_alloc(n * KVI_PROB_TOTAL, sizeof(*t.lut));
	t.enc = must_alloc(n * t.stride, sizeof(*t.enc));
	return t;
}

static inline void tables_free(struct kvi_tables *t)
{
	free(t->lut);
	free(t->enc);
}

/* Random tables: peaked, flat, sparse, almost certain. all: every frequency
 * at least 1. */
static inline struct kvi_tables tables_random(size_t n, unsigned symbols, int all)
{
	struct kvi_tables t = tables_new(n, symbols);
	uint16_t *freq = must_alloc(n * symbols, sizeof(*freq));
	double *w = must_alloc(symbols, sizeof(*w));
	for (size_t i = 0; i < n; i++) {
		unsigned kind = rng_below(4), peak = rng_below(symbols);
		for (unsigned s = 0; s < symbols; s++) {
			double d = fabs((double)s - peak);
			w[s] = kind == 0   ? rng_unit()
			       : kind == 1 ? exp(-d * 0.5)
			       : kind == 2 ? (rng_below(8) == 0)
			                   : (s == peak) * 1e6;
		}
		w[peak] += 1e-3;
		quantize_table(freq + i * symbols, w, symbols, all);
	}
	if (!kvi_tables_build(&t, freq)) {
		fputs("bad test tables\n", stderr);
		exit(99);
	}
	free(freq);
	free(w);
	return t;
}

static inline double normal_mass(double lo, double hi, double mean, double s)
{
	double a = (lo - mean) / s * M_SQRT1_2, b = (hi - mean) / s * M_SQRT1_2;
	return a > 0 ? erfc(a) - erfc(b) : erfc(-b) - erfc(-a);
}

/* Tables of the grid codec for a mixture of normal distributions. */
static inline struct kvi_tables tables_model(void)
{
	static const int lo[21] = { 0,  1,  2,  3,  4,  5,  6,  7,   8,   10, 12,
		                    14, 16, 20, 24, 28, 32, 64, 128, 256, 768 };
	struct kvi_tables t = tables_new(KVI_GRID_TABLES, KVI_GRID_SYMBOLS);
	uint16_t *freq = must_alloc(KVI_GRID_TABLES * KVI_GRID_SYMBOLS, sizeof(*freq));
	for (int i = 0; i < KVI_GRID_TABLES; i++) {
		double sigma = pow(2, (i / 8 - 16) / 4.0);
		double mean = (i % 8 + 0.5) / 8, w[KVI_GRID_SYMBOLS];
		for (int s = 0; s < 40; s++) {
			double a = lo[s / 2], b = lo[s / 2 + 1];
			if (s & 1) {
				double c = -a;
				a = -b;
				b = c;
			}
			w[s] = 0.95 * normal_mass(a, b, mean, sigma) +
			       0.03 * normal_mass(a, b, mean, 3 * sigma) +
			       0.02 * normal_mass(a, b, mean, 16 * sigma);
		}
		w[40] = 1e-9;
		quantize_table(freq + i * KVI_GRID_SYMBOLS, w, KVI_GRID_SYMBOLS, 1);
	}
	if (!kvi_tables_build(&t, freq))
		exit(99);
	free(freq);
	return t;
}

/* ------------------------------------------------------- grid elements */

/* A number as bits of a format, cut; too large becomes the largest. */
static inline uint16_t format_bits(double v, const struct kvi_grid_format *f)
{
	int e, bias_e;
	double a = fabs(v), frac = frexp(a, &e);
	uint32_t bits = 0, sign = signbit(v) ? 1u : 0u;
	e--;
	if (a > 0) {
		bias_e = e - f->emin + 1;
		if (bias_e < 1) {
			bits = (uint32_t)ldexp(a, f->mant_bits - f->emin);
		} else {
			uint32_t m = (uint32_t)ldexp(frac, f->mant_bits + 1);
			bits = ((uint32_t)(bias_e - 1) << f->mant_bits) + m;
		}
		uint32_t max = ((uint32_t)1 << (f->elem_bits - 1)) - 1;
		if (bits > max)
			bits = max;
	}
	return (uint16_t)(sign << (f->elem_bits - 1) | bits);
}

enum grid_kind { GRID_MODEL, GRID_SPRINKLED, GRID_RANDOM, GRID_KINDS };

/* Patterns that go wrong first: zeros, subnormals, infinities, NaN. */
static inline uint16_t nasty_bits(const struct kvi_grid_format *f)
{
	uint32_t top = (uint32_t)1 << (f->elem_bits - 1);
	uint32_t exps = top - ((uint32_t)1 << f->mant_bits);
	uint32_t mant = rng() & (((uint32_t)1 << f->mant_bits) - 1);
	const uint32_t v[8] = { 0,
		                1,
		                mant,
		                exps,
		                exps | mant,
		                top - 1,
		                (uint32_t)1 << f->mant_bits,
		                rng() & (top - 1) };
	return (uint16_t)(v[rng_below(8)] | (rng() & 1 ? top : 0));
}

struct grid_case {
	struct kvi_grid_job job;
	uint16_t *x;  /* elements */
	uint32_t *mu; /* of each context, full then tail */
	int16_t *k;
	size_t n, n_ctx; /* elements, contexts */
	uint32_t *ctx;
};

/* Context of an element in the ring order of rans.h. */
static inline size_t ctx_index(const struct grid_case *c, size_t i)
{
	const struct kvi_steps *s = &c->job.steps;
	size_t full = s->full_steps * KVI_LANES, lanes = KVI_LANES, base = 0;
	size_t ring = c->job.ctx_steps;
	if (i >= full) {
		i -= full;
		lanes = s->tail_lanes;
		base = ring * (c->job.per_step ? 1 : KVI_LANES);
		ring = s->tail_steps;
	}
	size_t step = i / lanes % ring;
	return base + (c->job.per_step ? step : step * lanes + i % lanes);
}

static inline void grid_case_fill(struct grid_case *c, enum grid_kind kind)
{
	const struct kvi_grid_format *f = c->job.fmt;
	int range = f->elem_bits == 16 ? 24 : 12;
	for (size_t i = 0; i < c->n_ctx; i++) {
		double scale = pow(2, (rng_unit() - 0.5) * range * 0.25);
		float mu = (float)(rng_gauss() * scale);
		c->k[i] = (int16_t)floor(4 * log2(scale * 0.05) + 0.5);
		memcpy(&c->mu[i], &mu, 4);
		if (kind == GRID_RANDOM || (kind == GRID_SPRINKLED && rng_below(16) == 0)) {
			c->mu[i] = rng_below(8) ? rng() : rng() << 23;
			c->k[i] = (int16_t)((int)rng_below(801) - 400);
		}
		c->ctx[i] = kvi_grid_context(c->mu[i], c->k[i], f);
	}
	for (size_t i = 0; i < c->n; i++) {
		size_t at = ctx_index(c, i);
		float mu;
		memcpy(&mu, &c->mu[at], 4);
		double sigma = pow(2, c->k[at] / 4.0);
		double v = isfinite(mu) ? mu + sigma * rng_gauss() : 1;
		if (!isfinite(v))
			v = 1;
		c->x[i] = format_bits(v, f);
		if (kind == GRID_RANDOM && rng_below(2) == 0)
			c->x[i] = (uint16_t)(rng() & ((1u << f->elem_bits) - 1));
		if (kind != GRID_MODEL && rng_below(12) == 0)
			c->x[i] = nasty_bits(f);
	}
}

static inline void grid_case_new(struct grid_case *c, unsigned format, enum grid_kind kind,
                                 struct kvi_steps steps, size_t ring, int per_step,
                                 const struct kvi_tables *tables)
{
	size_t tail = steps.tail_lanes ? steps.tail_steps : 0;
	memset(c, 0, sizeof(*c));
	c->job.steps = steps;
	c->job.fmt = &case_formats[format];
	c->job.tables = tables;
	c->job.ctx_steps = ring;
	c->job.per_step = per_step != 0;
	c->n = kvi_steps_elements(&steps);
	size_t full_ctx = ring * (per_step ? 1 : KVI_LANES);
	c->n_ctx = full_ctx + tail * (per_step ? 1 : steps.tail_lanes);
	c->x = must_alloc(c->n, sizeof(*c->x));
	c->mu = must_alloc(c->n_ctx, sizeof(*c->mu));
	c->k = must_alloc(c->n_ctx, sizeof(*c->k));
	c->ctx = must_alloc(c->n_ctx, sizeof(*c->ctx));
	c->job.ctx = c->ctx;
	c->job.ctx_tail = c->ctx + full_ctx;
	grid_case_fill(c, kind);
}

static inline void grid_case_free(struct grid_case *c)
{
	free(c->x);
	free(c->mu);
	free(c->k);
	free(c->ctx);
}

/* ------------------------------------------------------------ symbols */

struct byte_case {
	struct kvi_steps steps;
	size_t ring, n, n_tab;
	int per_step;
	uint8_t *tab, *tab_tail;
	uint16_t *sym;
	uint8_t *esc;
};

static inline struct kvi_sym_job sym_job(const struct byte_case *c, const struct kvi_tables *t)
{
	struct kvi_sym_job job = { c->steps,        t, c->tab, c->ring, c->tab_tail, t->symbols - 1,
		                   c->per_step != 0 };
	return job;
}

static inline size_t byte_tab_index(const struct byte_case *c, size_t i)
{
	struct grid_case g;
	g.job.steps = c->steps;
	g.job.ctx_steps = c->ring;
	g.job.per_step = c->per_step != 0;
	return ctx_index(&g, i);
}

/* spread: mean distance of symbols from 0, about; 0: any byte. Symbols that a table lacks become
 * escapes. */
static inline void byte_case_new(struct byte_case *c, struct kvi_steps steps, size_t ring,
                                 int per_step, int spread, const struct kvi_tables *t)
{
	size_t tail = steps.tail_lanes ? steps.tail_steps : 0;
	memset(c, 0, sizeof(*c));
	c->steps = steps;
	c->ring = ring;
	c->per_step = per_step;
	c->n = kvi_steps_elements(&steps);
	size_t full = ring * (per_step ? 1 : KVI_LANES);
	c->n_tab = full + tail * (per_step ? 1 : steps.tail_lanes);
	c->tab = must_alloc(c->n_tab, 1);
	c->tab_tail = c->tab + full;
	c->esc = must_alloc(c->n, 1);
	c->sym = must_alloc(c->n, sizeof(*c->sym));
	for (size_t i = 0; i < c->n_tab; i++)
		c->tab[i] = (uint8_t)rng_below((uint32_t)t->n_tables);
	for (size_t i = 0; i < c->n; i++) {
		size_t at = byte_tab_index(c, i);
		const uint32_t *enc = t->enc + c->tab[at] * t->stride;
		int d = spread ? (int)(fabs(rng_gauss()) * spread) : (int)(rng() & 255);
		c->esc[i] = (uint8_t)rng();
		unsigned s = (unsigned)d < t->symbols ? (unsigned)d : t->symbols - 1;
		c->sym[i] = (uint16_t)(enc[s] & 0xffff ? s : t->symbols - 1);
	}
}

static inline void byte_case_free(struct byte_case *c)
{
	free(c->tab);
	free(c->esc);
	free(c->sym);
}

/* ------------------------------------------------------------- streams */

struct coded {
	uint16_t *buf, *end;
	struct kvi_stream stream;
};

static inline void coded_new(struct coded *c, size_t elements)
{
	size_t cap = 3 * elements + 64;
	c->buf = must_alloc(cap, sizeof(*c->buf));
	c->end = c->buf + cap;
}

/* The words alone in an allocation of their size: a read past them is seen by
 * sanitizers. Odd alignment on purpose. */
static inline uint8_t *coded_seal(struct coded *c, size_t n_words)
{
	uint8_t *exact = must_alloc(2 * n_words + 1, 1);
	memcpy(exact + 1, c->end - n_words, 2 * n_words);
	c->stream.words = exact + 1;
	c->stream.n_words = n_words;
	return exact;
}

static const uint32_t case_isas[] = { KVARC_ISA_SCALAR, KVARC_ISA_AVX2, KVARC_ISA_AVX512,
	                              KVARC_ISA_NEON };
enum { CASE_ISAS = sizeof(case_isas) / sizeof(case_isas[0]) };

/* Whether na words and the states of a are the nb words and the states of b. */
static inline int same_words(const struct coded *a, size_t na, const struct coded *b, size_t nb)
{
	return na == nb && memcmp(a->end - na, b->end - nb, 2 * na) == 0 &&
	       memcmp(a->stream.state, b->stream.state, sizeof(a->stream.state)) == 0;
}

#endif
