/* SPDX-License-Identifier: BSD-3-Clause */
/* cells_scalar.c - the kernels of codec cells in portable C, the definition (spec cells) */
#include <stdlib.h>

#include "cells_parts.h"
#include "feed.h"

#include "tables/cells.inc"

#define INLINE static inline __attribute__((always_inline))
#define RARE(condition) __builtin_expect(condition, 0)

/* The lowest n bits, n below 32. */
INLINE uint32_t low_bits(uint32_t bits, unsigned n)
{
	return bits & (((uint32_t)1 << n) - 1);
}

INLINE unsigned log2_floor(uint32_t number)
{
	return 31 - (unsigned)__builtin_clz(number);
}

/* ----- reading ------------------------------------------------ */

/* First codes of a block of n, in place of KVI_CELLS_MORE the next number of `second`. Returns the
 * end of those that were taken. */
static const uint8_t *block_of_codes(const uint8_t *block, size_t n, const uint8_t *second,
                                     uint8_t codes[BLOCK])
{
	unpack_codes(block, n, 0, codes);
	memset(codes + n, 0, BLOCK - n);
	/* A branch on each code would be mispredicted, one on the number of those that are taken
	 * is not. */
	for (size_t i = 0; i < n; i += WORD) {
		const uint64_t word = kvi_load64(codes + i);
		uint64_t more = (word + BYTES(1)) & BYTES(0x10);
		for (; more; more &= more - 1)
			codes[i + (unsigned)__builtin_ctzll(more) / 8] = *second++;
	}
	return second;
}

/* The interval of a code, 2^nb cells from `lo` on; mask: of nb bits. */
struct interval {
	int16_t lo;
	uint8_t mask, nb;
};

/* Elements of a cell by its number j (spec cells 3): n more raw bits follow; mask: of
 * n bits; begin: j * 2^n - n * 2^m, to which these bits and the context's base are added. */
struct cell_number {
	uint16_t begin, mask;
	uint32_t n;
};

/* Numbers in the format with most of them: no mean is further from zero than 2 << m (spec cells 2),
 * no cell of an interval further from the mean than KVI_CELLS_REACH. */
enum {
	NUMBERS = (2 << 10) + KVI_CELLS_REACH,
	INTERVALS = KVI_CELLS_CLASSES * KVI_CELLS_ROW,
	LONGEST_NB = 6
};

struct get_tables {
	struct interval interval[INTERVALS];
	struct cell_number number[NUMBERS];
};

static void fill_tables(unsigned mantissa, struct get_tables *tables)
{
	unsigned n = mantissa;
	for (unsigned i = 0; i < INTERVALS; i++)
		tables->interval[i] = (struct interval){ kvi_cells_lo[i],
			                                 (uint8_t)((1 << kvi_cells_nb[i]) - 1),
			                                 kvi_cells_nb[i] };
	for (unsigned j = 0; j < (2u << mantissa) + KVI_CELLS_REACH; j++) {
		if (j >> (mantissa - n) > 1 && n)
			n--;
		/* Zero is like one, behind other raw bits. */
		tables->number[j] =
			(struct cell_number){ (uint16_t)(((j ? j : 1) << n) - (n << mantissa)),
			                      (uint16_t)((1u << n) - 1), n };
	}
}

/* An element of each lane: its interval's number, the context's base (an exponent, << m), and then
 * its cell and magnitude, this less base. What comes before the states, and after them, is done
 * for a whole step: compilers make vectors of such loops. */
struct cells_step {
	uint16_t interval[KVI_LANES], base[KVI_LANES];
	uint16_t cell[KVI_LANES], magnitude[KVI_LANES];
};

/* Intervals and bases of a step; codes: those of elements behind the last one are any. */
INLINE void begin_step(const uint8_t *codes, const uint16_t *grid, struct cells_step *step)
{
	unsigned seen = 0;
	for (unsigned i = 0; i < KVI_LANES; i++) {
		seen |= grid[i];
		step->base[i] = (uint16_t)(grid[i] & ~0x7f);
		step->interval[i] =
			(uint16_t)(KVI_CELLS_FINE * KVI_CELLS_ROW + (grid[i] & 0x60) + codes[i]);
	}
	if (RARE(seen & KVI_CELLS_COARSE))
		for (unsigned i = 0; i < KVI_LANES; i++)
			step->interval[i] = (uint16_t)(kvi_cells_row(grid[i]) + codes[i]);
}

/* The elements of a step. */
INLINE void end_step(const struct cells_step *step, uint16_t *elements)
{
	for (unsigned i = 0; i < KVI_LANES; i++)
		elements[i] = (uint16_t)((step->cell[i] & 0x8000) |
		                         ((step->base[i] + step->magnitude[i]) & 0x7fff));
}

/* Takes the raw bits of lane i, whose state is `st`, and returns its next state. *most gathers
 * the bits of those numbers of raw bits that may be too large. */
INLINE uint32_t get_bits(uint32_t st, const struct get_tables *tables, int mean,
                         struct cells_step *step, unsigned i, const unsigned mantissa,
                         unsigned *most)
{
	const struct interval *interval = &tables->interval[step->interval[i]];
	const int cell = (int16_t)(mean + interval->lo + (int)(st & interval->mask));
	const unsigned j = (unsigned)(cell ^ cell >> 15);
	unsigned before = interval->nb;
	st >>= interval->nb;
	if (RARE(!j)) { /* zeros and a one, where the cell begins at zero */
		const unsigned zeros = (unsigned)__builtin_ctz(st | 0x10000) + 1;
		st >>= zeros;
		before += zeros;
		step->base[i] = (uint16_t)(step->base[i] - (zeros << mantissa));
		*most |= before + mantissa;
	}
	const struct cell_number *number = &tables->number[j];
	if (LONGEST_NB + mantissa > KVI_CELLS_BITS)
		*most |= before + number->n;
	step->cell[i] = (uint16_t)cell;
	step->magnitude[i] = (uint16_t)(number->begin + (st & number->mask));
	return st >> number->n;
}

INLINE bool get_elements(const struct kvi_cells_in *in, const struct kvi_cells_contexts *contexts,
                         uint16_t *elements, const unsigned mantissa)
{
	const struct kvi_stream stream = { .words = in->words, .n_words = in->n_words };
	const uint8_t *second = second_codes(in), *second_end = second + in->n_second;
	const uint8_t *escape = in->escapes, *escapes_end = escape + 2 * in->n_escapes;
	const size_t context_step = KVI_LANES % contexts->period;
	struct kvi_feed feed;
	const uint8_t *words = kvi_feed_open(&feed, &stream);
	uint32_t state[KVI_LANES];
	uint8_t codes[BLOCK];
	struct get_tables tables;
	struct cells_step step;
	unsigned most = 0;
	size_t context = 0;
	memcpy(state, in->state, sizeof state);
	fill_tables(mantissa, &tables);
	for (size_t at = 0; at < in->n; at += KVI_LANES) {
		const unsigned lanes = in->n - at < KVI_LANES ? (unsigned)(in->n - at) : KVI_LANES;
		const int16_t *mean = contexts->mean + context;
		const uint16_t *grid = contexts->grid + context;
		const uint8_t *code = codes + at % BLOCK;
		uint16_t last[KVI_LANES] = { 0 }; /* of a step that is not full */
		if (at % BLOCK == 0)
			second = block_of_codes(in->codes + at / 2, block_codes(in->n, at), second,
			                        codes);
		KVI_FEED_CHECK(&feed, words);
		if (second > second_end)
			return false;
		if (lanes < KVI_LANES)
			grid = memcpy(last, grid, lanes * sizeof *last);
		begin_step(code, grid, &step);
		for (unsigned i = 0; i < lanes; i++) {
			if (RARE(code[i] == ESCAPE)) {
				if (escape == escapes_end)
					return false;
				step.cell[i] = kvi_load16(escape);
				step.magnitude[i] = (uint16_t)(step.cell[i] - step.base[i]);
				escape += 2;
				continue;
			}
			const uint32_t st = get_bits(state[i], &tables, mean[i], &step, i, mantissa,
			                             &most);
			/* without a branch, which would be mispredicted */
			const uint32_t low = 0 - (uint32_t)(st < KVI_RANS_LOW);
			state[i] = st << (16 & low) | (kvi_load16(words) & low);
			words += 2 & low;
		}
		if (lanes == KVI_LANES) {
			end_step(&step, elements + at);
		} else {
			end_step(&step, last);
			memcpy(elements + at, last, lanes * sizeof *last);
		}
		context += context_step;
		context -= context < contexts->period ? 0 : contexts->period;
	}
	return kvi_feed_done(&feed, words, state) && most <= KVI_CELLS_BITS &&
	       second == second_end && escape == escapes_end;
}

static bool get(const struct kvi_cells_in *in, const struct kvi_cells_contexts *contexts,
                unsigned mantissa, uint16_t *elements)
{
	return mantissa == 7 ? get_elements(in, contexts, elements, 7)
	                     : get_elements(in, contexts, elements, 10);
}

/* ----- writing ------------------------------------------------ */

/* An element as code and raw bits. */
struct cell_code {
	unsigned code, raw, bits;
};

INLINE struct cell_code code_of_element(unsigned element, int mean, unsigned grid,
                                        const unsigned mantissa)
{
	const struct cell_code escaped = { ESCAPE, 0, 0 };
	const unsigned magnitude = element & 0x7fff, field = magnitude >> mantissa;
	const unsigned low = low_bits(magnitude, mantissa), full = low | 1u << mantissa;
	/* The cell is 2^shift steps of the element wide. */
	const int shift = (int)(grid >> mantissa) + 1 - (int)field;
	if (RARE(!field || shift < 0 || shift > KVI_CELLS_BITS))
		return escaped;
	const unsigned j = full >> shift, n = (unsigned)shift;
	const int distance = (int16_t)(uint16_t)((element >> 15 ? ~j : j) - (unsigned)mean);
	if (RARE(distance < -KVI_CELLS_REACH || distance >= KVI_CELLS_REACH))
		return escaped;
	const unsigned entry = kvi_cells_code[2 * KVI_CELLS_REACH * kvi_cells_class(grid) +
	                                      (unsigned)(distance + KVI_CELLS_REACH)];
	const unsigned code = entry & 31, nb = entry >> 5 & 7, within = entry >> 8;
	if (RARE(code == ESCAPE || nb + n > KVI_CELLS_BITS))
		return escaped;
	const unsigned rest = j ? low_bits(full, n) : (low << 1 | 1) << (n - mantissa - 1);
	return (struct cell_code){ code, rest << nb | within, nb + n };
}

/* Codes and raw bits of all elements; sets the counts of second codes and escapes. */
INLINE void draft_elements(const uint16_t *elements, size_t n,
                           const struct kvi_cells_contexts *contexts, struct cells_draft draft,
                           struct kvi_cells_out *out, const unsigned mantissa)
{
	const uint8_t *second = draft.second;
	const uint16_t *escapes = draft.escapes, *grid = contexts->grid;
	const int16_t *mean = contexts->mean;
	const size_t period = contexts->period;
	uint8_t codes[BLOCK], *to = out->to;
	for (size_t at = 0, context = 0; at < n; at++) {
		const struct cell_code c = code_of_element(elements[at], mean[context],
		                                           grid[context], mantissa);
		context = context + 1 < period ? context + 1 : 0;
		codes[at % BLOCK] = (uint8_t)(c.code < MORE ? c.code : MORE);
		*draft.second = (uint8_t)(c.code - MORE);
		draft.second += c.code >= MORE;
		*draft.escapes = elements[at];
		draft.escapes += c.code == ESCAPE;
		draft.raw[at] = (uint16_t)c.raw;
		draft.bits[at] = (uint8_t)c.bits;
		if (at % BLOCK == BLOCK - 1 || at == n - 1) {
			put_codes(codes, at % BLOCK + 1, CODE_BITS, 0, to);
			to += HALF_BLOCK;
		}
	}
	out->n_second = (uint32_t)(draft.second - second);
	out->n_escapes = (uint32_t)(draft.escapes - escapes);
}

static uint8_t *put(const uint16_t *elements, size_t n, const struct kvi_cells_contexts *contexts,
                    unsigned mantissa, struct kvi_cells_out *out)
{
	const struct cells_draft draft = cells_draft_of(out->work, n);
	uint16_t *words = draft.words;
	uint32_t state[KVI_LANES];
	if (mantissa == 7)
		draft_elements(elements, n, contexts, draft, out, 7);
	else
		draft_elements(elements, n, contexts, draft, out, 10);
	kvi_states_start(state);
	for (size_t i = n; i-- > 0;)
		state[i % KVI_LANES] = kvi_bits_put(state[i % KVI_LANES], draft.bits[i],
		                                    draft.raw[i], &words);
	memcpy(out->state, state, sizeof state);
	out->n_words = (uint32_t)(draft.words - words);
	return put_parts(&draft, n, out);
}

/* ----- contexts ------------------------------------------------ */

static int saturated(int number)
{
	return number > INT16_MAX ? INT16_MAX : number < INT16_MIN ? INT16_MIN : number;
}

/* A mean in cells that are 2^n times as wide. */
static int widened(int mean, int n)
{
	return n > 15 ? 0 : (mean + (1 << n >> 1)) >> n;
}

/* Widens the cells of a context until it has classes and a grid; least: the smallest g. */
static void widen(unsigned mantissa, int least, int *cell, int *g, int *class)
{
	const int wider = (int)log2_floor((uint32_t)(*cell < 0 ? -*cell : *cell) + 64) -
	                  (int)mantissa;
	if (wider > 0) {
		*cell = widened(*cell, wider);
		*g += wider;
		*class -= 4 * wider;
	}
	if (*g < least) {
		*cell = widened(*cell, least - *g);
		*class -= 4 * (least - *g);
		*g = least;
	}
}

/* The largest mean in cells that are not widened. */
INLINE int most_mean(const int m)
{
	return (2 << m) - 65;
}

/* The smallest g of a format. */
static int least_g(struct kvi_grid_format format)
{
	return format.emin + 127 + 15 - format.mant_bits;
}

/* The context of an element of class k, whose mean is in 1/16 of 2^top (spec cells 2). */
static void make_context(struct kvi_grid_format format, int mean, int top, int k, int16_t *to_mean,
                         uint16_t *to_grid)
{
	const int m = format.mant_bits, q = k >> 2, least = least_g(format), most = most_mean(m);
	const int last = (1 << (15 - m)) - 1; /* of base */
	int g = q + 124, class = KVI_CELLS_FINE + (k & 3);
	const unsigned doubled = (unsigned)saturated(mean + (mean >> (m + 1))) << (top - q);
	int cell = (int16_t)(uint16_t)(doubled + 1) >> 1;
	if (cell > most || cell < -most || g < least)
		widen((unsigned)m, least, &cell, &g, &class);
	int base = g - 127 - format.emin + m;
	base = base < last ? base : last;
	class = class < 0 ? 0 : class;
	*to_mean = (int16_t)cell;
	*to_grid = (uint16_t)(base << m | (class < KVI_CELLS_FINE ? KVI_CELLS_COARSE | class
	                                                          : (class - KVI_CELLS_FINE) << 5));
}

void kvi_cells_fixed_context(const struct kvi_grid_format *format, int mean, int k,
                             int16_t *to_mean, uint16_t *to_grid)
{
	make_context(*format, mean, k >> 2, k, to_mean, to_grid);
}

enum { GROUP = 16 /* pairs whose turns are taken at once */ };

/* The turn of a pair at a token: factors in 1/32768, and the class of the angle. */
struct factors {
	int16_t cosine, sine;
	uint16_t angle_class;
};

/* A cosine or sine, which is in 1/16384, as a factor. */
static int16_t factor_of(uint16_t turn)
{
	const int both = 2 * (int16_t)turn, most = INT16_MAX;
	return (int16_t)(both > most ? most : both < -most ? -most : both);
}

/* The turns of n tokens, of `pairs` pairs from `first` on. */
static void get_factors(const struct kvi_rotation *r, size_t first, size_t pairs, size_t n,
                        struct factors factors[GROUP][KVI_CELLS_TOKENS])
{
	for (size_t t = 0; t < n; t++)
		for (size_t i = 0; i < pairs; i++) {
			const size_t at = t * r->pairs + first + i;
			factors[i][t] = (struct factors){ factor_of((uint16_t)r->turn[at]),
				                          factor_of((uint16_t)(r->turn[at] >> 16)),
				                          r->angle_class[at] };
		}
}

/* Classes of a pair begin at most - 16 and end at `most`, because no entry of ROT is larger than D
 * or zero (spec cells 2). By the distance from 4 * top - 16: 2^(top - q), and what is added to the
 * grid of class 4 * top. */
struct class_step {
	uint16_t factor, grid;
};
enum { STEPS = 20 };

static void fill_steps(unsigned mantissa, struct class_step steps[STEPS])
{
	for (unsigned i = 0; i < STEPS; i++)
		steps[i] = (struct class_step){ (uint16_t)(16 >> i / 4),
			                        (uint16_t)((i / 4 << mantissa) - (4u << mantissa) +
			                                   (i % 4 << 5)) };
}

/* A pair of rotated channels. */
struct rotated_pair {
	int mean[2];
	int top, k, least; /* k: of the second channel, less 4 * top - 16; least: smallest class */
	unsigned plain;    /* how many cells about zero can be a mean without care */
	unsigned grid;     /* of class 4 * top */
	const uint16_t *scales; /* by class of the angle */
};

INLINE struct rotated_pair pair_at(const struct kvi_rotation *r, size_t a, size_t b, const int m)
{
	const struct kvi_grid_format format = *r->fmt;
	const int k[2] = { r->k[a], r->k[b] }, mean[2] = { r->mean[a], r->mean[b] };
	const int apart = k[0] - k[1], row = 32 + (apart < -32 ? -32 : apart > 32 ? 32 : apart);
	const int most = apart > 0 ? k[0] : k[1], top = most >> 2, base = top - 3 - format.emin + m;
	/* Neither the format's limits nor those of a mean matter to most pairs. */
	const bool usual = top - 4 + 124 >= least_g(format) && base < 1 << (15 - m) &&
	                   abs(mean[0]) + abs(mean[1]) < 32000;
	return (struct rotated_pair){ .mean = { mean[0], mean[1] },
		                      .top = top,
		                      .k = k[1] - (4 * top - 16),
		                      .least = most - 4 * top,
		                      .plain = usual ? 2 * (unsigned)most_mean(m) + 1 : 0,
		                      .grid = (unsigned)base << m,
		                      .scales = r->scales + 64 * row };
}

/* mean * factor, which is in 1/32768. */
INLINE int product(int mean, int factor)
{
	return (mean * factor + (1 << 14)) >> 15;
}

/* Does what make_context does; k: less 4 * top - 16, before it is limited. */
INLINE void rotated_context(const struct rotated_pair *pair, struct kvi_grid_format format,
                            const struct class_step steps[STEPS], int mean, int k, int16_t *to_mean,
                            uint16_t *to_grid, const int m)
{
	k = k < pair->least ? pair->least : k;
	const int doubled = (mean + (mean >> (m + 1))) * steps[k].factor;
	const int cell = (int16_t)(uint16_t)(doubled + 1) >> 1;
	*to_mean = (int16_t)cell;
	*to_grid = (uint16_t)(pair->grid + steps[k].grid);
	if (RARE((unsigned)(cell + most_mean(m)) >= pair->plain))
		make_context(format, mean, pair->top, k + 4 * pair->top - 16, to_mean, to_grid);
}

/* The contexts of a pair. */
INLINE void rotate_pair(struct rotated_pair pair, struct kvi_grid_format format,
                        const struct class_step steps[STEPS], const struct factors *factors,
                        size_t n, size_t row, size_t other, int16_t *mean, uint16_t *grid,
                        const int m)
{
	for (size_t t = 0; t < n; t++, mean += row, grid += row) {
		const struct factors f = factors[t];
		const unsigned scales = pair.scales[f.angle_class];
		rotated_context(&pair, format, steps,
		                product(pair.mean[0], f.cosine) - product(pair.mean[1], f.sine),
		                pair.k + (int8_t)scales, mean, grid, m);
		rotated_context(&pair, format, steps,
		                product(pair.mean[1], f.cosine) + product(pair.mean[0], f.sine),
		                pair.k + (int8_t)(scales >> 8), mean + other, grid + other, m);
	}
}

/* Does what kvi_scalar_cells_rotate does; m: a constant. */
INLINE void rotate(struct kvi_rotation r, size_t n, size_t row, int16_t *mean, uint16_t *grid,
                   const int m)
{
	const struct kvi_grid_format format = *r.fmt;
	const size_t step = r.interleaved ? 2 : 1, other = r.interleaved ? 1 : r.pairs;
	struct factors factors[GROUP][KVI_CELLS_TOKENS];
	struct class_step steps[STEPS];
	fill_steps((unsigned)m, steps);
	for (size_t first = 0; first < r.pairs; first += GROUP) {
		const size_t pairs = r.pairs - first < GROUP ? r.pairs - first : GROUP;
		get_factors(&r, first, pairs, n, factors);
		for (size_t h = 0; h < r.heads; h++)
			for (size_t i = 0; i < pairs; i++) {
				const size_t at = h * r.head_channels + step * (first + i);
				rotate_pair(pair_at(&r, at, at + other, m), format, steps,
				            factors[i], n, row, other, mean + at, grid + at, m);
			}
	}
}

void kvi_scalar_cells_rotate(const struct kvi_rotation *rotation, size_t n, size_t row,
                             int16_t *mean, uint16_t *grid)
{
	if (rotation->fmt->mant_bits == 7)
		rotate(*rotation, n, row, mean, grid, 7);
	else
		rotate(*rotation, n, row, mean, grid, 10);
}

const struct kvi_cell_kernels kvi_scalar_cells = {
	.get = get,
	.put = put,
	.rotated = kvi_scalar_cells_rotate,
};
