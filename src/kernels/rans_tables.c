/* SPDX-License-Identifier: BSD-3-Clause */
/* rans_tables.c - from frequencies to the decoder's and the encoder's tables */
#include "rans.h"

#include <string.h>

/* Whether frequencies have a total of 2048, none of them is 2048, and the escape can be coded (spec
 * rans 2). */
static bool valid(const uint16_t *freq, unsigned symbols)
{
	uint32_t sum = 0;
	for (unsigned s = 0; s < symbols; s++) {
		if (freq[s] >= KVI_PROB_TOTAL)
			return false;
		sum += freq[s];
	}
	return sum == KVI_PROB_TOTAL && freq[symbols - 1] != 0;
}

/*
 * The n entries of one symbol, from `first` on, eight at a time: a chunk's decoder fills up to 16
 * tables. Those behind the n-th are of symbols to come, so that most symbols are written without
 * a remainder, whose branches took more than half of the time. space: entries up to the end.
 */
static void fill(uint32_t *lut, uint32_t n, uint32_t space, uint32_t first)
{
	const uint32_t one = 1 << 9; /* an offset */
	typedef uint32_t four __attribute__((vector_size(16)));
	four v = { first, first + one, first + 2 * one, first + 3 * one };
	uint32_t i = 0;
	for (; i < n && i + 8 <= space; i += 8) {
		four w = v + 4 * one;
		memcpy(lut + i, &v, sizeof v);
		memcpy(lut + i + 4, &w, sizeof w);
		v = w + 4 * one;
	}
	for (; i < n; i++)
		lut[i] = first + i * one;
}

static void build_one(uint32_t *lut, uint32_t *enc, const uint16_t *freq, unsigned symbols,
                      unsigned stride)
{
	uint32_t cum = 0;
	for (uint32_t s = 0; s < symbols; s++) {
		uint32_t f = freq[s];
		enc[s] = f | cum << 16;
		if (lut)
			fill(lut + cum, f, KVI_PROB_TOTAL - cum, s | f << 20);
		cum += f;
	}
	for (unsigned s = symbols; s < stride; s++)
		enc[s] = 0;
}

bool kvi_tables_build(struct kvi_tables *tables, const uint16_t *freq)
{
	if (tables->symbols == 0 || tables->symbols > 512 || tables->stride < tables->symbols ||
	    (tables->stride & (tables->stride - 1)) != 0)
		return false;
	for (size_t i = 0; i < tables->n_tables; i++) {
		const uint16_t *f = freq + i * tables->symbols;
		if (!valid(f, tables->symbols))
			return false;
		build_one(tables->lut ? tables->lut + i * KVI_PROB_TOTAL : NULL,
		          tables->enc + i * tables->stride, f, tables->symbols, tables->stride);
	}
	return true;
}
