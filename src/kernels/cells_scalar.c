/* SPDX-License-Identifier: BSD-3-Clause */
/* cells_scalar.c - the kernels of codec cells in portable C, the definition (spec cells) */
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

enum { CELLS = 2 << 10 /* of a sign in a power of two, in the format with most of them */ };

/* How many bits of each cell are not in its number: m less log2 of that. By a table, because some
 * processors count zeros slowly. */
static void fill_rest(unsigned mantissa, uint8_t rest[CELLS])
{
	rest[0] = (uint8_t)mantissa;
	for (unsigned i = 0; i <= mantissa; i++)
		memset(rest + ((size_t)1 << i), (int)(mantissa - i), (size_t)1 << i);
}

/* An element of which `code`, not an escape, is known; *st: the state of its lane; rest: fill_rest.
 * *most gathers the bits of the numbers of raw bits. Bits that are taken are those that a shift to
 * the right, and back, loses. */
INLINE uint16_t get_element(uint32_t *st, unsigned code, int mean, unsigned grid,
                            const uint8_t rest[CELLS], const unsigned mantissa, unsigned *most)
{
	const size_t at = kvi_cells_row(grid) + code;
	const unsigned nb = kvi_cells_nb[at], last = (2u << mantissa) - 1;
	uint32_t bits = *st >> nb;
	const int cell = (int16_t)(mean + kvi_cells_lo[at] + (int)(*st - (bits << nb)));
	const int sign = cell >> 15;
	unsigned j = (unsigned)(cell ^ sign), before = nb, base = grid >> 7 << 7;
	if (RARE(!j)) { /* zeros and a one, where the cell begins at zero */
		const unsigned zeros = (unsigned)__builtin_ctz(bits | 0x10000) + 1;
		bits >>= zeros;
		before += zeros;
		base -= zeros << mantissa;
		j = 1;
	}
	const unsigned n = j <= last ? rest[j] : 0;
	*st = bits >> n;
	*most |= before + n;
	const unsigned full = ((j - *st) << n) + bits; /* j << n, and n bits */
	return (uint16_t)((sign & 0x8000) | ((base - (n << mantissa) + full) & 0x7fff));
}

INLINE bool get_elements(const struct kvi_cells_in *in, const struct kvi_cells_contexts *contexts,
                         uint16_t *elements, const unsigned mantissa)
{
	const struct kvi_stream stream = { .words = in->words, .n_words = in->n_words };
	const uint8_t *second = second_codes(in), *second_end = second + in->n_second;
	const uint8_t *escape = in->escapes, *escapes_end = escape + 2 * in->n_escapes;
	struct kvi_feed feed;
	const uint8_t *words = kvi_feed_open(&feed, &stream);
	uint32_t state[KVI_LANES];
	uint8_t codes[BLOCK], rest[CELLS];
	unsigned most = 0;
	size_t context = 0;
	memcpy(state, in->state, sizeof state);
	fill_rest(mantissa, rest);
	for (size_t at = 0; at < in->n; at += KVI_LANES) {
		const unsigned lanes = in->n - at < KVI_LANES ? (unsigned)(in->n - at) : KVI_LANES;
		const int16_t *mean = contexts->mean + context;
		const uint16_t *grid = contexts->grid + context;
		if (at % BLOCK == 0)
			second = block_of_codes(in->codes + at / 2, block_codes(in->n, at), second,
			                        codes);
		KVI_FEED_CHECK(&feed, words);
		if (second > second_end)
			return false;
		for (unsigned i = 0; i < lanes; i++) {
			const unsigned code = codes[at % BLOCK + i];
			if (code == ESCAPE) {
				if (escape == escapes_end)
					return false;
				elements[at + i] = kvi_load16(escape);
				escape += 2;
				continue;
			}
			uint32_t st = state[i];
			elements[at + i] = get_element(&st, code, mean[i], grid[i], rest, mantissa,
			                               &most);
			/* without a branch, which would be mispredicted */
			const uint32_t low = st < KVI_RANS_LOW;
			state[i] = st << 16 * low | (kvi_load16(words) & (0 - low));
			words += 2 * low;
		}
		context = (context + KVI_LANES) % contexts->period;
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

/* The context of an element of class k, whose mean is in 1/16 of 2^top (spec cells 2). */
INLINE void make_context(struct kvi_grid_format format, int mean, int top, int k, int16_t *to_mean,
                         uint16_t *to_grid)
{
	const int m = format.mant_bits, q = k >> 2, least = format.emin + 127 + 15 - m;
	const int last = (1 << (15 - m)) - 1, most = (2 << m) - 65; /* of base, and of |cell| */
	int g = q + 124, class = KVI_CELLS_FINE + (k & 3);
	const unsigned doubled = (unsigned)saturated(mean + (mean >> (m + 1))) << (top - q);
	int cell = (int16_t)(uint16_t)(doubled + 1) >> 1;
	if (RARE(cell > most || cell < -most || g < least))
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

/* mean * cosine or sine, which is in 1/16384. */
INLINE int turned(int mean, int turn)
{
	const int limit = INT16_MAX, both = 2 * turn;
	const int factor = both > limit ? limit : both < -limit ? -limit : both;
	return (mean * factor + (1 << 14)) >> 15;
}

/* A pair of rotated channels: means, classes, and scales by angle class. */
struct rotated_pair {
	int mean[2], k[2];
	const uint16_t *scales;
};

INLINE struct rotated_pair pair_at(const struct kvi_rotation *r, size_t a, size_t b)
{
	const int apart = r->k[a] - r->k[b], row = 32 + (apart < -32  ? -32
	                                                 : apart > 32 ? 32
	                                                              : apart);
	return (struct rotated_pair){ { r->mean[a], r->mean[b] },
		                      { r->k[a], r->k[b] },
		                      r->scales + 64 * row };
}

/* The contexts of a pair. */
INLINE void rotate_pair(struct rotated_pair pair, struct kvi_grid_format format, uint32_t turn,
                        unsigned angle_class, int16_t *mean, uint16_t *grid, size_t other)
{
	const int cosine = (int16_t)turn, sine = (int16_t)(turn >> 16);
	const int mean_a = pair.mean[0], mean_b = pair.mean[1], k_b = pair.k[1];
	const int most = pair.k[0] > k_b ? pair.k[0] : k_b, top = most >> 2, least = most - 16;
	const unsigned scales = pair.scales[angle_class];
	const int x = k_b + (int8_t)scales, y = k_b + (int8_t)(scales >> 8);
	make_context(format, saturated(turned(mean_a, cosine) - turned(mean_b, sine)), top,
	             x < least ? least : x, mean, grid);
	make_context(format, saturated(turned(mean_b, cosine) + turned(mean_a, sine)), top,
	             y < least ? least : y, mean + other, grid + other);
}

void kvi_scalar_cells_rotate(const struct kvi_rotation *rotation, size_t n, size_t row,
                             int16_t *mean, uint16_t *grid)
{
	const struct kvi_rotation r = *rotation;
	const struct kvi_grid_format format = *r.fmt;
	const size_t first = r.interleaved ? 2 : 1, other = r.interleaved ? 1 : r.pairs;
	for (size_t h = 0; h < r.heads; h++)
		for (size_t i = 0; i < r.pairs; i++) {
			const size_t at = h * r.head_channels + first * i;
			const struct rotated_pair pair = pair_at(&r, at, at + other);
			for (size_t t = 0; t < n; t++)
				rotate_pair(pair, format, r.turn[t * r.pairs + i],
				            r.angle_class[t * r.pairs + i], mean + t * row + at,
				            grid + t * row + at, other);
		}
}

const struct kvi_cell_kernels kvi_scalar_cells = {
	.get = get,
	.put = put,
	.rotated = kvi_scalar_cells_rotate,
};
