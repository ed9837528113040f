/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fits_body.h - the loops over elements of fits of parameters, in vectors of FIT_BYTES
 *
 * Included once a file, after FIT(name), which gives a function its name, and FIT_BYTES, 16 or 32;
 * after FIT_PRICE where the file has a `price` of its own.
 * Channels side by side, in the compiler's own vectors: integers, or floats of one rounding an
 * operation, so that all widths give the same numbers.
 */
#ifndef KVI_FITS_BODY_H
#define KVI_FITS_BODY_H

#include <string.h>

#include "fits.h"
#include "scalar.h"
#include "util/unroll.h"

enum { WORDS = FIT_BYTES / 2, FLOATS = FIT_BYTES / 4 };

typedef uint16_t fit_words __attribute__((vector_size(FIT_BYTES)));
typedef uint32_t fit_sums __attribute__((vector_size(2 * FIT_BYTES)));
typedef float fit_floats __attribute__((vector_size(FIT_BYTES)));
typedef int32_t fit_masks __attribute__((vector_size(FIT_BYTES)));

void FIT(tables_add)(const uint16_t *counts, size_t channels, size_t stride, const uint8_t *table,
                     uint32_t *sum)
{
	for (size_t c = 0; c < channels; c++) {
		const uint16_t *from = counts + c * stride;
		uint32_t *to = sum + table[c] * stride;
		for (size_t s = 0; s < stride; s += WORDS) {
			fit_words n;
			fit_sums v;
			memcpy(&n, from + s, sizeof n);
			memcpy(&v, to + s, sizeof v);
			v += __builtin_convertvector(n, fit_sums);
			memcpy(to + s, &v, sizeof v);
		}
	}
}

#if !defined(FIT_PRICE)
/* Sum of lanes, none of which carries: it is less than 2^16. */
static inline uint32_t across(fit_words words)
{
	uint64_t part[FIT_BYTES / 8], sum = 0;
	memcpy(part, &words, sizeof part);
	for (size_t i = 0; i < FIT_BYTES / 8; i++)
		sum += part[i];
	return (uint32_t)(sum * 0x0001000100010001u >> 48);
}

/*
 * Code length of a channel with a table, in 1/256 bit. A channel has 256
 * elements in a chunk at most: sums of the upper and of the lower bytes of
 * their code lengths fit 16 bits each.
 */
static inline uint32_t price(const uint16_t *counts, const uint16_t *lengths, size_t stride)
{
	fit_words low = { 0 }, high = { 0 };
	for (size_t s = 0; s < stride; s += WORDS) {
		fit_words x, l;
		memcpy(&x, counts + s, sizeof x);
		memcpy(&l, lengths + s, sizeof l);
		low += x * (l & 255);
		high += x * (l >> 8);
	}
	return across(low) + (across(high) << 8);
}
#endif

void FIT(tables_choose)(const uint16_t *counts, size_t channels, size_t stride,
                        const uint16_t *lengths, unsigned n_tables, uint8_t *table, uint32_t *cost)
{
	for (size_t c = 0; c < channels; c++) {
		const unsigned at = table[c];
		cost[c] = UINT32_MAX;
		for (unsigned i = at ? at - 1 : 0; i < n_tables && i <= at + 1; i++) {
			uint32_t p = price(counts + c * stride, lengths + i * stride, stride);
			if (p < cost[c]) {
				cost[c] = p;
				table[c] = (uint8_t)i;
			}
		}
	}
}

/* Sorts FLOATS channels: Batcher's merge exchange. */
static inline void sort_some(fit_floats *floats)
{
	for (size_t p = KVI_FIT_SAMPLE / 2; p > 0; p /= 2) {
		size_t q = KVI_FIT_SAMPLE / 2, r = 0, d = p;
		for (;; d = q - p, q /= 2, r = p) {
			for (size_t i = 0; i + d < KVI_FIT_SAMPLE; i++) {
				if ((i & p) != r)
					continue;
				fit_masks x = (fit_masks)floats[i], y = (fit_masks)floats[i + d];
				fit_masks more = floats[i] > floats[i + d];
				fit_masks swap = (x ^ y) & more;
				floats[i] = (fit_floats)(x ^ swap);
				floats[i + d] = (fit_floats)(y ^ swap);
			}
			if (q == p)
				break;
		}
	}
}

void FIT(sort_floats)(float *v)
{
	for (size_t at = 0; at < KVI_FIT_FLOATS; at += FLOATS) {
		fit_floats s[KVI_FIT_SAMPLE];
		for (size_t i = 0; i < KVI_FIT_SAMPLE; i++)
			memcpy(&s[i], v + i * KVI_FIT_FLOATS + at, sizeof s[i]);
		sort_some(s);
		for (size_t i = 0; i < KVI_FIT_SAMPLE; i++)
			memcpy(v + i * KVI_FIT_FLOATS + at, &s[i], sizeof s[i]);
	}
}

/* FLOATS channels of near_sums. */
static inline void near_some(const float *v, size_t rows, size_t row, const struct kvi_near *near,
                             size_t at, struct kvi_near_sums *to)
{
	fit_floats mean, scale, limit, n = { 0 }, s1 = { 0 }, s2 = { 0 };
	const fit_floats one = n + 1.0f;
	memcpy(&mean, near->mean + at, sizeof mean);
	memcpy(&scale, near->scale + at, sizeof scale);
	memcpy(&limit, near->limit + at, sizeof limit);
	for (size_t t = 0; t < rows; t++) {
		fit_floats y;
		memcpy(&y, v + t * row + at, sizeof y);
		fit_floats d = (y - mean) * scale, d2 = d * d;
		/* a NaN sets no bit either */
		fit_masks in = d2 <= limit;
		n += (fit_floats)((fit_masks)one & in);
		s1 += (fit_floats)((fit_masks)d & in);
		s2 += (fit_floats)((fit_masks)d2 & in);
	}
	memcpy(to->n + at, &n, sizeof n);
	memcpy(to->s1 + at, &s1, sizeof s1);
	memcpy(to->s2 + at, &s2, sizeof s2);
}

void FIT(near_sums)(const float *v, size_t rows, size_t row, const struct kvi_near *x,
                    struct kvi_near_sums *to)
{
	for (size_t at = 0; at < KVI_FIT_FLOATS; at += FLOATS)
		near_some(v, rows, row, x, at, to);
}

#endif
