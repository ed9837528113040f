/* SPDX-License-Identifier: BSD-3-Clause */
/* layers_tops.c - the tops of a chunk's channels that make few bits (spec layers 5) */
#include "layers_tops.h"

#include <string.h>

#include "codecs/coder.h"

enum {
	GROUP = KVI_TOPS_AT_ONCE,
	ROWS = KVI_TOPS_ROWS,
	ONE_TOP_ROWS = 16, /* with more rows, tops of their own pay */
	ABOVE_MEAN = 2,    /* of the first top that is tried: real channels have theirs 3 or 4
	                     * above the mean of their exponents */
	MOVES = 8,         /* most times that tops are tried further up or down */
	TOPS_COUNTS = 16 * KVI_LAYERS_N /* half bits of the counts of the tops */
};

/* Bits of a value, halved; larger values have those of the last one. */
static unsigned half_bits(unsigned value)
{
	static const uint8_t bits[KVI_LAYERS_BYTE] = { 4, 2, 1, 1, 1, 2, 2, 3, 3, 3, 4, 4 };
	return value < KVI_LAYERS_BYTE ? bits[value] : 8;
}

/* The rows that the search looks at: every step-th one. */
struct tops_sample {
	size_t step, rows;
};

static struct tops_sample sample_of(size_t rows)
{
	const size_t step = (rows + ROWS - 1) / ROWS;
	return (struct tops_sample){ step, (rows + step - 1) / step };
}

/* The exponents of a whole group of elements of 16 bits, whose mantissa is known to the compiler,
 * which makes vectors. */
static inline __attribute__((always_inline)) void
take_group16(const uint8_t *from, const unsigned mantissa, unsigned mask, uint8_t to[GROUP])
{
	uint16_t elements[GROUP];
	for (size_t c = 0; c < GROUP; c++)
		elements[c] = kvi_load16(from + 2 * c);
	for (size_t c = 0; c < GROUP; c++)
		elements[c] = (uint16_t)(elements[c] >> mantissa & mask);
	for (size_t c = 0; c < GROUP; c++)
		to[c] = (uint8_t)elements[c];
}

/* The exponents of `n` channels from `first` on in the rows of a sample; the rest of a group
 * repeats the last channel. */
static void take_exponents(const struct kvi_layers_matrix *matrix, const struct tops_sample *sample,
                           size_t first, size_t n, uint8_t exponents[ROWS * GROUP])
{
	const unsigned size = matrix->size;
	const size_t row = matrix->channels * size * sample->step;
	const unsigned mantissa = matrix->mantissa, mask = matrix->mask;
	const uint8_t *from = matrix->packed + first * size;
	for (size_t i = 0; i < sample->rows; i++, from += row) {
		uint8_t *to = exponents + i * GROUP;
		if (size == 2 && n == GROUP && mantissa == 7) {
			take_group16(from, 7, mask, to);
		} else if (size == 2 && n == GROUP && mantissa == 10) {
			take_group16(from, 10, mask, to);
		} else {
			for (size_t c = 0; c < n; c++)
				to[c] = (uint8_t)(kvi_load_element(from + c * size, size) >>
				                          mantissa &
				                  mask);
			memset(to + n, to[n - 1], GROUP - n);
		}
	}
}

/* The first top that is tried for each channel of a group. */
static void first_tops(const uint8_t *exponents, size_t rows, uint8_t first[GROUP])
{
	enum { LANES = 8 }; /* sums that stay in a register */
	const unsigned n = (unsigned)rows;
	for (size_t at = 0; at < GROUP; at += LANES) {
		uint16_t sum[LANES] = { 0 };
		for (size_t i = 0; i < rows; i++)
			for (size_t c = 0; c < LANES; c++)
				sum[c] = (uint16_t)(sum[c] + exponents[i * GROUP + at + c]);
		for (size_t c = 0; c < LANES; c++)
			first[at + c] = (uint8_t)((sum[c] + n / 2) / n + ABOVE_MEAN);
	}
}

/* The least cost of each channel of a group, and the first of the tops that have it. */
static void least_costs(const uint16_t cost[restrict KVI_TOPS_TRIED][GROUP],
                        uint16_t least[restrict GROUP], uint16_t best[restrict GROUP])
{
	memcpy(least, cost[0], GROUP * sizeof *least);
	memset(best, 0, GROUP * sizeof *best);
	for (uint16_t tried = 1; tried < KVI_TOPS_TRIED; tried++)
		for (size_t c = 0; c < GROUP; c++) {
			const bool less = cost[tried][c] < least[c];
			best[c] = less ? tried : best[c];
			least[c] = less ? cost[tried][c] : least[c];
		}
}

/* Chooses the tops of a group; returns their cost. A channel whose best top is the last one that
 * was tried, or the first one at a high cost, is tried again further up or down. */
static uint32_t group_tops(const struct kvi_layer_kernels *kernels, const uint8_t *exponents,
                           size_t rows, uint8_t mask, size_t n, uint8_t *top)
{
	enum { LAST = KVI_TOPS_TRIED - 1 };
	uint16_t cost[KVI_TOPS_TRIED][GROUP], now[GROUP], best[GROUP], least[GROUP];
	uint8_t first[GROUP];
	uint32_t sum = 0;
	bool open = true;
	first_tops(exponents, rows, first);
	for (unsigned moves = 0; open && moves < MOVES; moves++) {
		kernels->top_costs(exponents, rows, GROUP, first, mask, cost);
		least_costs(cost, now, best);
		open = false;
		for (size_t c = 0; c < n; c++) {
			const bool better = !moves || now[c] < least[c];
			if (better) {
				top[c] = (uint8_t)(first[c] + best[c]) & mask;
				least[c] = now[c];
			}
			/* what was moved and found nothing better stays where it is */
			if (better && best[c] == LAST) {
				first[c] = (uint8_t)(first[c] + LAST);
				open = true;
			} else if (better && !best[c] && least[c] > 2 * rows) {
				first[c] = (uint8_t)(first[c] - LAST);
				open = true;
			}
		}
	}
	for (size_t c = 0; c < n; c++)
		sum += least[c];
	return sum;
}

/* The top with the least cost for exponents of which there are count[e]. */
static uint8_t best_top(const uint32_t count[256], uint8_t mask, uint32_t n, uint32_t *cost)
{
	uint8_t best = 0;
	uint32_t seen = 0; /* exponents that are `top` or up to KVI_LAYERS_BYTE - 1 less */
	*cost = UINT32_MAX;
	for (unsigned value = 1; value <= KVI_LAYERS_BYTE; value++)
		seen += count[(0 - value) & mask];
	for (unsigned top = 0; top <= mask; top++) {
		seen += count[top] - count[(top - KVI_LAYERS_BYTE) & mask];
		uint32_t sum = (n - seen) * half_bits(KVI_LAYERS_BYTE);
		for (unsigned value = 0; seen && value < KVI_LAYERS_BYTE; value++)
			sum += count[(top - value) & mask] * half_bits(value);
		if (sum < *cost) {
			*cost = sum;
			best = (uint8_t)top;
		}
	}
	return best;
}

bool kvi_layers_find_tops(const struct kvi_layer_kernels *kernels,
                          const struct kvi_layers_matrix *matrix, uint8_t *top, uint8_t *base)
{
	const struct tops_sample sample = sample_of(matrix->rows);
	const bool may_be_one = matrix->rows <= ONE_TOP_ROWS;
	uint8_t exponents[ROWS * GROUP];
	uint32_t of_tops[256] = { 0 }, of_all[256] = { 0 }, own = 0, cost;
	for (size_t first = 0; first < matrix->channels; first += GROUP) {
		const size_t left = matrix->channels - first, n = left < GROUP ? left : GROUP;
		take_exponents(matrix, &sample, first, n, exponents);
		own += group_tops(kernels, exponents, sample.rows, matrix->mask, n, top + first);
		for (size_t i = 0; may_be_one && i < sample.rows; i++)
			for (size_t c = 0; c < n; c++)
				of_all[exponents[i * GROUP + c]]++;
	}
	for (size_t c = 0; c < matrix->channels; c++)
		of_tops[top[c]]++;
	*base = best_top(of_tops, matrix->mask, (uint32_t)matrix->channels, &cost);
	if (!may_be_one)
		return false;
	own += cost + TOPS_COUNTS;
	const uint8_t one = best_top(of_all, matrix->mask,
	                             (uint32_t)(matrix->rows * matrix->channels), &cost);
	if (cost > own)
		return false;
	*base = one;
	memset(top, one, matrix->channels);
	return true;
}
