/* SPDX-License-Identifier: BSD-3-Clause */
/* cells_scalar.c - the kernels of codec cells in portable C, the definition (spec cells) */
#include "cells_parts.h"
#include "feed.h"

#include "tables/cells.inc"

#define INLINE static inline __attribute__((always_inline))

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
 * *most gathers the bits of the numbers of raw bits. */
INLINE uint16_t get_element(uint32_t *st, unsigned code, int mean, unsigned grid,
                            const uint8_t rest[CELLS], const unsigned mantissa, unsigned *most)
{
	const size_t at = (size_t)kvi_cells_class(grid) * KVI_CELLS_ROW + code;
	const unsigned nb = kvi_cells_nb[at], last = (2u << mantissa) - 1;
	uint32_t bits = *st;
	const int cell = (int16_t)(mean + kvi_cells_lo[at] + (int)low_bits(bits, nb));
	const int sign = cell >> 15;
	const unsigned j = (unsigned)(cell ^ sign), zero = j == 0;
	const unsigned n = j <= last ? rest[j] : 0;
	bits >>= nb;
	/* zeros and a one, where the cell begins at zero */
	const unsigned zeros = (0u - zero) & ((unsigned)__builtin_ctz(bits | 0x10000) + 1);
	bits >>= zeros;
	*st = bits >> n;
	*most |= nb + zeros + n;
	const unsigned full = ((j | zero) << n) + low_bits(bits, n);
	const unsigned base = (grid >> 7 << 7) - ((n + zeros) << mantissa);
	return (uint16_t)((sign & 0x8000) | ((base + full) & 0x7fff));
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
	if (!field || shift < 0 || shift > KVI_CELLS_BITS)
		return escaped;
	const unsigned j = full >> shift, n = (unsigned)shift;
	const int distance = (int16_t)(uint16_t)((element >> 15 ? ~j : j) - (unsigned)mean);
	if (distance < -KVI_CELLS_REACH || distance >= KVI_CELLS_REACH)
		return escaped;
	const unsigned entry = kvi_cells_code[2 * KVI_CELLS_REACH * kvi_cells_class(grid) +
	                                      (unsigned)(distance + KVI_CELLS_REACH)];
	const unsigned code = entry & 31, nb = entry >> 5 & 7, within = entry >> 8;
	if (code == ESCAPE || nb + n > KVI_CELLS_BITS)
		return escaped;
	const unsigned rest = j ? low_bits(full, n) : (low << 1 | 1) << (n - mantissa - 1);
	return (struct cell_code){ code, rest << nb | within, nb + n };
}

/* Codes and raw bits of all elements; sets the counts of second codes and escapes. */
INLINE void draft_elements(const uint16_t *elements, size_t n,
                           const struct kvi_cells_contexts *contexts,
                           const struct cells_draft *draft, struct kvi_cells_out *out,
                           const unsigned mantissa)
{
	uint8_t codes[BLOCK];
	size_t context = 0, second = 0, escapes = 0;
	for (size_t at = 0; at < n; at++) {
		const struct cell_code c = code_of_element(elements[at], contexts->mean[context],
		                                           contexts->grid[context], mantissa);
		context = context + 1 < contexts->period ? context + 1 : 0;
		codes[at % BLOCK] = (uint8_t)(c.code < MORE ? c.code : MORE);
		draft->second[second] = (uint8_t)(c.code - MORE);
		second += c.code >= MORE;
		draft->escapes[escapes] = elements[at];
		escapes += c.code == ESCAPE;
		draft->raw[at] = (uint16_t)c.raw;
		draft->bits[at] = (uint8_t)c.bits;
		if (at % BLOCK == BLOCK - 1 || at == n - 1) {
			const size_t first = at / BLOCK * BLOCK;
			put_codes(codes, at + 1 - first, CODE_BITS, 0, out->to + first / 2);
		}
	}
	out->n_second = (uint32_t)second;
	out->n_escapes = (uint32_t)escapes;
}

static uint8_t *put(const uint16_t *elements, size_t n, const struct kvi_cells_contexts *contexts,
                    unsigned mantissa, struct kvi_cells_out *out)
{
	const struct cells_draft draft = cells_draft_of(out->work, n);
	uint16_t *words = draft.words;
	if (mantissa == 7)
		draft_elements(elements, n, contexts, &draft, out, 7);
	else
		draft_elements(elements, n, contexts, &draft, out, 10);
	kvi_states_start(out->state);
	for (size_t i = n; i-- > 0;) {
		uint32_t *st = &out->state[i % KVI_LANES];
		*st = kvi_bits_put(*st, draft.bits[i], draft.raw[i], &words);
	}
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

/* The context of an element of class k, whose mean is in 1/16 of 2^top (spec cells 2). */
INLINE void make_context(const struct kvi_grid_format *format, int mean, int top, int k,
                         int16_t *to_mean, uint16_t *to_grid)
{
	const int m = format->mant_bits, q = k >> 2, least = format->emin + 127 + 15 - m;
	const int last = (1 << (15 - m)) - 1; /* of base */
	int g = q + 124, class = KVI_CELLS_FINE + (k & 3);
	const unsigned doubled = (unsigned)saturated(mean + (mean >> (m + 1))) << (top - q);
	int cell = (int16_t)(uint16_t)(doubled + 1) >> 1;
	const int wider = (int)log2_floor((uint32_t)(cell < 0 ? -cell : cell) + 64) - m;
	if (wider > 0) {
		cell = widened(cell, wider);
		g += wider;
		class -= 4 * wider;
	}
	if (g < least) {
		cell = widened(cell, least - g);
		class -= 4 * (least - g);
		g = least;
	}
	int base = g - 127 - format->emin + m;
	base = base < last ? base : last;
	class = class < 0 ? 0 : class;
	*to_mean = (int16_t)cell;
	*to_grid = (uint16_t)(base << m | (class < KVI_CELLS_FINE ? KVI_CELLS_COARSE | class
	                                                          : (class - KVI_CELLS_FINE) << 5));
}

void kvi_cells_fixed_context(const struct kvi_grid_format *format, int mean, int k,
                             int16_t *to_mean, uint16_t *to_grid)
{
	make_context(format, mean, k >> 2, k, to_mean, to_grid);
}

/* mean * cosine or sine, which is in 1/16384. */
INLINE int turned(int mean, int turn)
{
	const int limit = INT16_MAX, both = 2 * turn;
	const int factor = both > limit ? limit : both < -limit ? -limit : both;
	return (mean * factor + (1 << 14)) >> 15;
}

/* The contexts of channels a and b of a pair. */
INLINE void rotate_pair(const struct kvi_rotation *r, const size_t from[2], uint32_t turn,
                        unsigned angle_class, const size_t to[2], int16_t *mean, uint16_t *grid)
{
	const int cosine = (int16_t)turn, sine = (int16_t)(turn >> 16);
	const int mean_a = r->mean[from[0]], mean_b = r->mean[from[1]];
	const int k_a = r->k[from[0]], k_b = r->k[from[1]], top = k_a > k_b ? k_a : k_b;
	const int apart = k_a - k_b, row = 32 + (apart < -32 ? -32 : apart > 32 ? 32 : apart);
	const unsigned scales = r->scales[64 * row + (int)angle_class];
	const int x = k_b + (int8_t)scales, y = k_b + (int8_t)(scales >> 8), least = top - 16;
	make_context(r->fmt, saturated(turned(mean_a, cosine) - turned(mean_b, sine)), top >> 2,
	             x < least ? least : x, mean + to[0], grid + to[0]);
	make_context(r->fmt, saturated(turned(mean_b, cosine) + turned(mean_a, sine)), top >> 2,
	             y < least ? least : y, mean + to[1], grid + to[1]);
}

void kvi_scalar_cells_rotate(const struct kvi_rotation *rotation, size_t n, size_t row,
                             int16_t *mean, uint16_t *grid)
{
	const size_t first = rotation->interleaved ? 2 : 1;
	const size_t other = rotation->interleaved ? 1 : rotation->pairs;
	for (size_t t = 0; t < n; t++)
		for (size_t h = 0; h < rotation->heads; h++)
			for (size_t i = 0; i < rotation->pairs; i++) {
				const size_t at = h * rotation->head_channels + first * i;
				rotate_pair(rotation, (size_t[2]){ at, at + other },
				            rotation->turn[t * rotation->pairs + i],
				            rotation->angle_class[t * rotation->pairs + i],
				            (size_t[2]){ t * row + at, t * row + at + other }, mean,
				            grid);
			}
}

const struct kvi_cell_kernels kvi_scalar_cells = {
	.get = get,
	.put = put,
	.rotated = kvi_scalar_cells_rotate,
};
