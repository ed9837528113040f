/* SPDX-License-Identifier: BSD-3-Clause */
/* mask.c - the mask section: constant channels and constant rows (spec mask) */
#include "mask.h"

enum { HAS_CHANNELS = 1, HAS_ROWS = 2 };

static size_t bitmap_bytes(size_t bits)
{
	return (bits + 7) / 8;
}

size_t kvi_mask_runs_max(size_t C)
{
	return (C + 1) / 2;
}

size_t kvi_mask_bytes_max(size_t T, size_t C, unsigned size)
{
	return 1 + bitmap_bytes(C) + C * size + bitmap_bytes(T) + T * size;
}

static size_t count_bits(const uint8_t *bits, size_t n)
{
	size_t set = 0;
	for (size_t i = 0; i < n; i++)
		set += kvi_bit(bits, i);
	return set;
}

size_t kvi_mask_token(const struct kvi_mask *mask, size_t n)
{
	size_t t = 0;
	if (!mask->row_bits)
		return n;
	while (n)
		n -= !kvi_bit(mask->row_bits, t++);
	return t;
}

/* Lists the channels that remain; sets channels, rows, runs. */
static void index_rest(struct kvi_mask *mask)
{
	mask->rows = mask->T - count_bits(mask->row_bits, mask->row_bits ? mask->T : 0);
	mask->channels = 0;
	mask->n_runs = 0;
	for (size_t c = 0; c < mask->C;) {
		if (kvi_bit(mask->channel_bits, c)) {
			c++;
			continue;
		}
		size_t first = c;
		if (mask->channel_bits)
			while (c < mask->C && !kvi_bit(mask->channel_bits, c))
				c++;
		else
			c = mask->C;
		mask->runs[mask->n_runs++] = (struct kvi_mask_run){ (uint32_t)first,
			                                            (uint32_t)(c - first) };
		mask->channels += c - first;
	}
}

/* A bitmap with at least one bit, zero padding, and a value for each bit. */
static bool get_part(struct kvi_in *in, size_t n, unsigned size, const uint8_t **bits,
                     const uint8_t **values)
{
	*bits = kvi_get_bytes(in, bitmap_bytes(n));
	if (!*bits)
		return false;
	if (n % 8 && (*bits)[n / 8] >> (n % 8))
		return false;
	size_t set = count_bits(*bits, n);
	*values = kvi_get_bytes(in, set * size);
	return set && *values;
}

bool kvi_mask_parse(struct kvi_mask *mask, struct kvi_in *in)
{
	unsigned flags = kvi_get8(in);
	mask->row_bits = mask->row_values = NULL;
	mask->channel_bits = mask->channel_values = NULL;
	if (in->bad || flags & ~(unsigned)(HAS_CHANNELS | HAS_ROWS))
		return false;
	if (flags & HAS_CHANNELS &&
	    !get_part(in, mask->C, mask->size, &mask->channel_bits, &mask->channel_values))
		return false;
	if (flags & HAS_ROWS &&
	    !get_part(in, mask->T, mask->size, &mask->row_bits, &mask->row_values))
		return false;
	index_rest(mask);
	return true;
}

static inline bool equal(const uint8_t *a, const uint8_t *b, unsigned size)
{
	return size == 2   ? kvi_load16(a) == kvi_load16(b)
	       : size == 1 ? *a == *b
	                   : kvi_load32(a) == kvi_load32(b);
}

/* Sets the bits of the channels whose elements are all equal; returns their number. */
static size_t find_channels(const struct kvi_mask *mask, const uint8_t *raw, uint8_t *bits)
{
	size_t row = mask->C * mask->size, found = 0;
	for (size_t c = 0; c < mask->C; c++) {
		const uint8_t *v = raw + c * mask->size;
		size_t t = 1;
		while (t < mask->T && equal(v, v + t * row, mask->size))
			t++;
		if (t == mask->T) {
			bits[c / 8] |= (uint8_t)(1u << (c % 8));
			found++;
		}
	}
	return found;
}

/* Whether all elements of a row in the channels that remain are equal. */
static bool constant_row(const struct kvi_mask *mask, const uint8_t *row)
{
	const uint8_t *first = row + mask->runs[0].first * (size_t)mask->size;
	for (size_t r = 0; r < mask->n_runs; r++)
		for (size_t c = 0; c < mask->runs[r].count; c++)
			if (!equal(row + (mask->runs[r].first + c) * mask->size, first, mask->size))
				return false;
	return true;
}

/* Sets the bits of the constant rows; returns their number. */
static size_t find_rows(const struct kvi_mask *mask, const uint8_t *raw, uint8_t *bits)
{
	size_t found = 0;
	for (size_t t = 0; t < mask->T; t++)
		if (constant_row(mask, raw + t * mask->C * mask->size)) {
			bits[t / 8] |= (uint8_t)(1u << (t % 8));
			found++;
		}
	return found;
}

size_t kvi_mask_find(struct kvi_mask *mask, const uint8_t *raw, uint8_t *to)
{
	size_t row = mask->C * mask->size;
	uint8_t *at = to + 1;
	*to = 0;
	mask->row_bits = mask->row_values = NULL;
	mask->channel_bits = mask->channel_values = NULL;

	memset(at, 0, bitmap_bytes(mask->C));
	/* A single token has constant channels alone: nothing to win. */
	if (mask->T > 1 && find_channels(mask, raw, at)) {
		*to |= HAS_CHANNELS;
		mask->channel_bits = at;
		at += bitmap_bytes(mask->C);
		mask->channel_values = at;
		for (size_t c = 0; c < mask->C; c++)
			if (kvi_bit(mask->channel_bits, c)) {
				memcpy(at, raw + c * mask->size, mask->size);
				at += mask->size;
			}
	}
	index_rest(mask);
	memset(at, 0, bitmap_bytes(mask->T));
	if (mask->channels > 1 && find_rows(mask, raw, at)) {
		*to |= HAS_ROWS;
		mask->row_bits = at;
		at += bitmap_bytes(mask->T);
		mask->row_values = at;
		for (size_t t = 0; t < mask->T; t++)
			if (kvi_bit(mask->row_bits, t)) {
				memcpy(at, raw + t * row + mask->runs[0].first * (size_t)mask->size,
				       mask->size);
				at += mask->size;
			}
		index_rest(mask);
	}
	return (size_t)(at - to);
}

void kvi_mask_gather(const struct kvi_mask *mask, const uint8_t *raw, uint8_t *packed)
{
	for (size_t t = 0; t < mask->T; t++) {
		if (kvi_bit(mask->row_bits, t))
			continue;
		const uint8_t *row = raw + t * mask->C * mask->size;
		for (size_t r = 0; r < mask->n_runs; r++) {
			size_t n = mask->runs[r].count * (size_t)mask->size;
			memcpy(packed, row + mask->runs[r].first * (size_t)mask->size, n);
			packed += n;
		}
	}
}

void kvi_mask_channels(const struct kvi_mask *mask, size_t size, const void *all, void *rest)
{
	uint8_t *to = rest;
	for (size_t r = 0; r < mask->n_runs; r++) {
		memcpy(to, (const uint8_t *)all + mask->runs[r].first * size,
		       mask->runs[r].count * size);
		to += mask->runs[r].count * size;
	}
}

void kvi_mask_spread(const struct kvi_mask *mask, const uint8_t *rest, uint8_t *all)
{
	for (size_t r = 0; r < mask->n_runs; r++) {
		memcpy(all + mask->runs[r].first, rest, mask->runs[r].count);
		rest += mask->runs[r].count;
	}
}

/* The constant channels of one row. */
static void fill_channels(const struct kvi_mask *mask, uint8_t *row)
{
	const uint8_t *v = mask->channel_values;
	for (size_t c = 0; c < mask->C; c++)
		if (kvi_bit(mask->channel_bits, c)) {
			memcpy(row + c * mask->size, v, mask->size);
			v += mask->size;
		}
}

void kvi_mask_scatter(const struct kvi_mask *mask, const uint8_t *packed, size_t first, size_t end,
                      uint8_t *raw)
{
	const size_t removed = count_bits(mask->row_bits, mask->row_bits ? first : 0);
	const uint8_t *value = removed ? mask->row_values + removed * mask->size : mask->row_values;
	packed += (first - removed) * mask->channels * mask->size;
	for (size_t t = first; t < end; t++) {
		uint8_t *row = raw + t * mask->C * mask->size;
		bool constant = kvi_bit(mask->row_bits, t);
		for (size_t r = 0; r < mask->n_runs; r++) {
			size_t n = mask->runs[r].count * (size_t)mask->size;
			uint8_t *to = row + mask->runs[r].first * (size_t)mask->size;
			if (!constant) {
				memcpy(to, packed, n);
				packed += n;
				continue;
			}
			for (size_t i = 0; i < n; i += mask->size)
				memcpy(to + i, value, mask->size);
		}
		if (constant)
			value += mask->size;
		if (mask->channel_bits)
			fill_channels(mask, row);
	}
}
