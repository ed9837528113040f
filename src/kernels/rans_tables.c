/* SPDX-License-Identifier: BSD-3-Clause */
/* rans_tables.c - from frequencies to the decoder's and the encoder's tables */
#include "rans.h"

#include <string.h>

/* spec rans 2: total 2048, none 2048; and an escape that can be coded. */
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

/* The n entries of one symbol, four at a time: a chunk's decoder fills up to
 * 16 tables, one at a time that was 12 % of the time at level 0. */
static void fill(uint32_t *lut, uint32_t n, uint32_t first)
{
	typedef uint32_t four __attribute__((vector_size(16)));
	four v = { first, first + (1 << 9), first + (2 << 9), first + (3 << 9) };
	uint32_t i = 0;
	for (; i + 4 <= n; i += 4) {
		memcpy(lut + i, &v, sizeof v);
		v += (four){ 4 << 9, 4 << 9, 4 << 9, 4 << 9 };
	}
	for (; i < n; i++)
		lut[i] = first + (i << 9);
}

static void build_one(uint32_t *lut, uint32_t *enc, const uint16_t *freq, unsigned symbols,
                      unsigned stride)
{
	uint32_t cum = 0;
	for (uint32_t s = 0; s < symbols; s++) {
		uint32_t f = freq[s];
		enc[s] = f | cum << 16;
		if (lut)
			fill(lut + cum, f, s | f << 20);
		cum += f;
	}
	for (unsigned s = symbols; s < stride; s++)
		enc[s] = 0;
}

bool kvi_tables_build(struct kvi_tables *t, const uint16_t *freq)
{
	if (t->symbols == 0 || t->symbols > 512 || t->stride < t->symbols ||
	    (t->stride & (t->stride - 1)) != 0)
		return false;
	for (size_t i = 0; i < t->n_tables; i++) {
		const uint16_t *f = freq + i * t->symbols;
		if (!valid(f, t->symbols))
			return false;
		build_one(t->lut ? t->lut + i * KVI_PROB_TOTAL : NULL, t->enc + i * t->stride, f,
		          t->symbols, t->stride);
	}
	return true;
}
