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

/* CHANNELS: of exponents, side by side; GROUP: distances at once. */
enum { CHANNELS = FIT_BYTES, GROUP = 8, WORDS = FIT_BYTES / 2, FLOATS = FIT_BYTES / 4 };

typedef uint8_t fit_bytes __attribute__((vector_size(FIT_BYTES)));
typedef uint16_t fit_words __attribute__((vector_size(FIT_BYTES)));
typedef uint32_t fit_sums __attribute__((vector_size(2 * FIT_BYTES)));
typedef float fit_floats __attribute__((vector_size(FIT_BYTES)));
typedef int32_t fit_masks __attribute__((vector_size(FIT_BYTES)));

/* The n <= CHANNELS first lanes of memory, the others 0. */
static inline fit_bytes bytes_load(const uint8_t *p, size_t n)
{
	fit_bytes v = { 0 };
	if (n == CHANNELS)
		memcpy(&v, p, CHANNELS);
	else
		memcpy(&v, p, n);
	return v;
}

void FIT(exp_tops)(const uint8_t *fields, size_t rows, size_t channels, uint8_t last, uint8_t *top)
{
	const fit_bytes zero = { 0 };
	for (size_t c = 0; c < channels; c += CHANNELS) {
		size_t n = channels - c < CHANNELS ? channels - c : CHANNELS;
		fit_bytes most = zero;
		for (size_t t = 0; t < rows; t++) {
			fit_bytes x = bytes_load(fields + t * channels + c, n);
			x &= (fit_bytes)(x <= zero + last);
			fit_bytes more = (fit_bytes)(x > most);
			most = (x & more) | (most & ~more);
		}
		memcpy(top + c, &most, n);
	}
}

/*
 * counts[i][s]: the number of n rows, n <= 255, that have s in lane i, for GROUP values of s from
 * `first` on. Comparisons with all: counters in memory, one after the other, took 11 cycles an
 * element, as most rows count where the row before did.
 */
static void count_some(const fit_bytes *rows, size_t n, unsigned first, size_t used,
                       uint16_t *counts)
{
	const fit_bytes zero = { 0 };
	fit_bytes sum[GROUP] = { { 0 } };
	for (size_t t = 0; t < n; t++) {
		KVI_UNROLL(8)
		for (unsigned k = 0; k < GROUP; k++)
			sum[k] -= (fit_bytes)(rows[t] == zero + (uint8_t)(first + k));
	}
	for (size_t i = 0; i < used; i++)
		for (unsigned k = 0; k < GROUP; k++)
			counts[i * KVI_FIT_STRIDE + first + k] = sum[k][i];
}

void FIT(exp_counts)(const uint8_t *fields, size_t rows, size_t channels, const uint8_t *top,
                     uint16_t *counts)
{
	const fit_bytes zero = { 0 };
	const size_t step = rows >= KVI_FIT_ROWS ? 2 : 1;
	fit_bytes distance[KVI_FIT_ROWS];
	memset(counts, 0, channels * KVI_FIT_STRIDE * sizeof *counts);
	for (size_t c = 0; c < channels; c += CHANNELS, counts += CHANNELS * KVI_FIT_STRIDE) {
		size_t used = channels - c < CHANNELS ? channels - c : CHANNELS, n = 0;
		fit_bytes from = bytes_load(top + c, used), most = zero;
		for (size_t t = 0; t < rows; t += step) {
			fit_bytes x = bytes_load(fields + t * channels + c, used), d = from - x;
			fit_bytes near = (fit_bytes)(x <= from) &
			                 (fit_bytes)(d < zero + KVI_FIT_DISTANCES);
			fit_bytes more = (fit_bytes)(d > most) & near;
			most = (d & more) | (most & ~more);
			distance[n++] = (d & near) | ((zero + KVI_FIT_DISTANCES) & ~near);
		}
		unsigned last = 0;
		for (size_t i = 0; i < CHANNELS; i++)
			last = most[i] > last ? most[i] : last;
		for (unsigned s = 0; s <= last; s += GROUP)
			count_some(distance, n, s, used, counts);
	}
}

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
