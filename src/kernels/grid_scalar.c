/* SPDX-License-Identifier: BSD-3-Clause */
/* grid_scalar.c - the grid codec's element coder, the definition (spec grid 4) */
#include "scalar.h"

#define PAIR(lo, nb) (uint16_t)((lo) | (nb) << 11), (uint16_t)((lo) | (nb) << 11 | 0x8000)

const uint16_t kvi_grid_tokens[64] = { PAIR(0, 0),  PAIR(1, 0),  PAIR(2, 0),   PAIR(3, 0),
	                               PAIR(4, 0),  PAIR(5, 0),  PAIR(6, 0),   PAIR(7, 0),
	                               PAIR(8, 1),  PAIR(10, 1), PAIR(12, 1),  PAIR(14, 1),
	                               PAIR(16, 2), PAIR(20, 2), PAIR(24, 2),  PAIR(28, 2),
	                               PAIR(32, 5), PAIR(64, 6), PAIR(128, 7), PAIR(256, 9) };

enum { ESCAPE = KVI_GRID_SYMBOLS - 1, REACH = 768 };

/* An element as symbol and raw bits; escaped elements have symbol 40 and none. */
struct code {
	uint32_t symbol, raw;
	unsigned n_raw;
};

/* Numbers of an element that its context and dtype give. */
struct grid_cell {
	int gs;      /* G - emin */
	int n_max;   /* N: raw bits of a cell at most */
	int deepest; /* min(Z, B) */
	int mean;    /* M */
	uint32_t neg;
};

static inline struct grid_cell cell_of(uint32_t ctx, const struct kvi_grid_format *fmt)
{
	struct grid_cell c;
	c.gs = (int)(ctx >> 8 & 255) - 127 - fmt->emin;
	c.n_max = c.gs + fmt->mant_bits;
	c.deepest = c.gs < fmt->max_zeros ? c.gs : fmt->max_zeros;
	c.mean = (int)(ctx >> 16 & 0x7fff);
	c.neg = ctx >> 31;
	return c;
}

static inline unsigned log2_floor(uint32_t v)
{
	return 31 - (unsigned)__builtin_clz(v);
}

static inline unsigned token_of(uint32_t e)
{
	return e < 8     ? e
	       : e < 16  ? 4 + e / 2
	       : e < 32  ? 8 + e / 4
	       : e < 256 ? 11 + log2_floor(e)
	                 : 19;
}

/* The bits that follow the token of an element in the cell at zero, or false
 * when only an escape reaches it. */
static inline bool zero_cell(const struct grid_cell *cell, uint32_t magnitude, int m, int max_zeros,
                             struct code *code)
{
	uint32_t field = magnitude >> m;
	uint32_t mant = magnitude & (((uint32_t)1 << m) - 1);
	if (cell->gs <= 0) { /* the whole cell is subnormal */
		code->raw = magnitude;
		code->n_raw = (unsigned)cell->n_max;
		return true;
	}
	int zeros = cell->gs - (int)field;
	if (field ? zeros >= cell->deepest : cell->gs > max_zeros)
		return false;
	code->raw = (field ? mant << 1 | 1 : mant) << zeros;
	code->n_raw = (unsigned)(zeros + m + (field != 0));
	return true;
}

static inline struct code encode_one(uint32_t x, uint32_t ctx, const struct kvi_grid_format *fmt)
{
	const struct code escaped = { ESCAPE, 0, 0 };
	struct code code = { 0, 0, 0 };
	struct grid_cell c = cell_of(ctx, fmt);
	int m = fmt->mant_bits;
	uint32_t magnitude = x & (((uint32_t)1 << (fmt->elem_bits - 1)) - 1);
	uint32_t sign = x >> (fmt->elem_bits - 1) & 1;
	uint32_t field = magnitude >> m;
	uint32_t full = magnitude; /* magnitude in units of the element's own step */
	if (field)
		full = (magnitude & (((uint32_t)1 << m) - 1)) | (uint32_t)1 << m;

	/* The cell is 2^shift steps of the element wide. */
	int shift = c.n_max + 1 - (int)(field ? field : 1);
	if (shift < -10)
		return escaped; /* no token reaches so far */
	uint32_t j = shift > 31 ? 0 : shift > 0 ? full >> shift : full << -shift;
	if (j) {
		code.n_raw = shift > 0 ? (unsigned)shift : 0;
		code.raw = full & (((uint32_t)1 << code.n_raw) - 1);
	} else if (!zero_cell(&c, magnitude, m, fmt->max_zeros, &code)) {
		return escaped;
	}

	int32_t d = (sign ^ c.neg ? -(int32_t)j - 1 : (int32_t)j) - c.mean;
	uint32_t side = d < 0, e = (uint32_t)(side ? -d - 1 : d);
	if (e >= REACH)
		return escaped;
	code.symbol = 2 * token_of(e) + side;
	unsigned token = kvi_grid_tokens[code.symbol];
	unsigned nb = token >> 11 & 15;
	if (code.n_raw + nb > 16 || (j == 0 && nb > 1))
		return escaped;
	code.raw = code.raw << nb | (e - (token & 511));
	code.n_raw += nb;
	return code;
}

static uint16_t *encode_span(const struct kvi_grid_job *job, const struct kvi_span *span,
                             const uint32_t *ctx, const uint16_t *elements, uint32_t *st,
                             uint16_t *w)
{
	const struct kvi_grid_format *fmt = job->fmt;
	const unsigned width = (unsigned)fmt->elem_bits;
	const uint32_t *enc = job->tables->enc;
	const size_t stride = job->tables->stride;
	for (size_t step = span->steps; step-- > 0;) {
		const uint32_t *c = ctx + step % span->ring * span->step_size;
		const uint16_t *x = elements + step * span->lanes;
		struct code code[KVI_LANES];
		for (unsigned l = 0; l < span->lanes; l++)
			code[l] = encode_one(x[l], c[l * span->lane_size], fmt);
		for (unsigned l = span->lanes; l-- > 0;)
			if (code[l].symbol == ESCAPE)
				st[l] = kvi_bits_put(st[l], width, x[l], &w);
		for (unsigned l = span->lanes; l-- > 0;)
			st[l] = kvi_bits_put(st[l], code[l].n_raw, code[l].raw, &w);
		for (unsigned l = span->lanes; l-- > 0;) {
			size_t t = c[l * span->lane_size] & 255;
			st[l] = kvi_symbol_put(st[l], enc[t * stride + code[l].symbol], &w);
		}
	}
	return w;
}

size_t kvi_scalar_grid_encode(const struct kvi_grid_job *job, const uint16_t *elements,
                              uint16_t *end, uint32_t state[KVI_LANES])
{
	struct kvi_span full = kvi_span_full(&job->steps, job->ctx_steps, job->per_step);
	struct kvi_span tail = kvi_span_tail(&job->steps, job->per_step);
	uint16_t *w = end;
	kvi_states_start(state);
	w = encode_span(job, &tail, job->ctx_tail, elements + full.steps * KVI_LANES, state, w);
	w = encode_span(job, &full, job->ctx, elements, state, w);
	return (size_t)(end - w);
}

/* n low bits of a state. n is below 32. */
static inline uint32_t take(uint32_t *st, unsigned n)
{
	uint32_t bits = *st & (((uint32_t)1 << n) - 1);
	*st >>= n;
	return bits;
}

/* Magnitude of an element of cell j > 0. */
static inline uint32_t decode_cell(uint32_t *st, const struct grid_cell *cell, uint32_t j, int m)
{
	int level = (int)log2_floor(j), n = m - level;
	bool normal = n <= cell->n_max;
	if (!normal)
		n = cell->n_max;
	uint32_t full = n < 0 ? j >> -n : j << n | take(st, (unsigned)n);
	return normal ? ((uint32_t)(cell->gs + level) << m) + full : full;
}

/* Magnitude of an element of the cell at zero; false: it is escaped. */
static inline bool decode_zero_cell(uint32_t *st, const struct grid_cell *cell, int m,
                                    int max_zeros, uint32_t *magnitude)
{
	if (cell->gs <= 0) {
		*magnitude = take(st, (unsigned)cell->n_max);
		return true;
	}
	int zeros = __builtin_ctz(*st | (uint32_t)1 << cell->deepest);
	if (zeros < cell->deepest) {
		*st >>= zeros + 1;
		*magnitude = ((uint32_t)(cell->gs - zeros) << m) + take(st, (unsigned)m);
		return true;
	}
	*st >>= cell->deepest;
	if (cell->gs > max_zeros)
		return false;
	*magnitude = take(st, (unsigned)m);
	return true;
}

/* Raw bits of one element; false: it is escaped. */
static inline bool decode_one(uint32_t *st, uint32_t symbol, uint32_t ctx,
                              const struct kvi_grid_format *fmt, uint16_t *x)
{
	if (symbol == ESCAPE)
		return false;
	struct grid_cell c = cell_of(ctx, fmt);
	unsigned token = kvi_grid_tokens[symbol], nb = token >> 11 & 15;
	int32_t e = (int32_t)((token & 511) + take(st, nb));
	int32_t pos = c.mean + (token >> 15 ? -e - 1 : e);
	uint32_t j = (uint32_t)(pos < 0 ? -pos - 1 : pos), magnitude;
	if (j)
		magnitude = decode_cell(st, &c, j, fmt->mant_bits);
	else if (nb > 1 || !decode_zero_cell(st, &c, fmt->mant_bits, fmt->max_zeros, &magnitude))
		return false;
	uint32_t sign = (pos < 0) ^ c.neg;
	uint32_t mask = fmt->elem_bits == 16 ? 0xffff : 0xff;
	*x = (uint16_t)((sign << (fmt->elem_bits - 1) | magnitude) & mask);
	return true;
}

void kvi_scalar_grid_span(const struct kvi_grid_job *job, const struct kvi_span *span,
                          const uint32_t *ctx, struct kvi_words_in *in, uint32_t st[KVI_LANES],
                          uint16_t *elements)
{
	const struct kvi_grid_format *fmt = job->fmt;
	const unsigned width = (unsigned)fmt->elem_bits;
	const uint32_t *lut = job->tables->lut;
	for (size_t step = 0; step < span->steps; step++) {
		const uint32_t *c = ctx + step % span->ring * span->step_size;
		uint16_t *x = elements + step * span->lanes;
		uint32_t symbol[KVI_LANES], escaped = 0;
		for (unsigned l = 0; l < span->lanes; l++) {
			size_t t = c[l * span->lane_size] & 255;
			uint32_t entry = lut[t * KVI_PROB_TOTAL + (st[l] & 2047)];
			symbol[l] = entry & 511;
			st[l] = kvi_symbol_take(st[l], entry);
			st[l] = kvi_renorm(st[l], in);
		}
		for (unsigned l = 0; l < span->lanes; l++) {
			if (!decode_one(&st[l], symbol[l], c[l * span->lane_size], fmt, &x[l]))
				escaped |= (uint32_t)1 << l;
			st[l] = kvi_renorm(st[l], in);
		}
		for (; escaped; escaped &= escaped - 1) {
			unsigned l = (unsigned)__builtin_ctz(escaped);
			x[l] = (uint16_t)take(&st[l], width);
			st[l] = kvi_renorm(st[l], in);
		}
	}
}

bool kvi_scalar_grid_decode(const struct kvi_grid_job *job, const struct kvi_stream *in,
                            uint16_t *elements)
{
	struct kvi_span full = kvi_span_full(&job->steps, job->ctx_steps, job->per_step);
	struct kvi_span tail = kvi_span_tail(&job->steps, job->per_step);
	struct kvi_words_in words = kvi_words_begin(in);
	uint32_t st[KVI_LANES];
	memcpy(st, in->state, sizeof(st));
	kvi_scalar_grid_span(job, &full, job->ctx, &words, st, elements);
	kvi_scalar_grid_span(job, &tail, job->ctx_tail, &words, st,
	                     elements + full.steps * KVI_LANES);
	return kvi_stream_done(st, &words);
}

uint64_t kvi_scalar_grid_price(const struct kvi_grid_format *fmt, const uint32_t *cost,
                               const uint32_t *ctx, const uint16_t *elements, size_t n)
{
	uint64_t sum = 0;
	for (size_t i = 0; i < n; i++) {
		struct code code = encode_one(elements[i], ctx[i], fmt);
		size_t row = (size_t)(ctx[i] & 255) << KVI_GRID_COST_BITS;
		sum += cost[row + code.symbol] + code.n_raw * 256;
	}
	return sum;
}
