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

size_t kvi_mask_token(const struct kvi_mask *m, size_t n)
{
	size_t t = 0;
	if (!m->row_bits)
		return n;
	while (n)
		n -= !kvi_bit(m->row_bits, t++);
	return t;
}

/* Lists the channels that remain; sets channels, rows, runs. */
static void index_rest(struct kvi_mask *m)
{
	m->rows = m->T - count_bits(m->row_bits, m->row_bits ? m->T : 0);
	m->channels = 0;
	m->n_runs = 0;
	for (size_t c = 0; c < m->C;) {
		if (kvi_bit(m->channel_bits, c)) {
			c++;
			continue;
		}
		size_t first = c;
		if (m->channel_bits)
			while (c < m->C && !kvi_bit(m->channel_bits, c))
				c++;
		else
			c = m->C;
		m->runs[m->n_runs++] = (struct kvi_mask_run){ (uint32_t)first,
			                                      (uint32_t)(c - first) };
		m->channels += c - first;
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

bool kvi_mask_parse(struct kvi_mask *m, struct kvi_in *in)
{
	unsigned flags = kvi_get8(in);
	m->row_bits = m->row_values = NULL;
	m->channel_bits = m->channel_values = NULL;
	if (in->bad || flags & ~(unsigned)(HAS_CHANNELS | HAS_ROWS))
		return false;
	if (flags & HAS_CHANNELS &&
	    !get_part(in, m->C, m->size, &m->channel_bits, &m->channel_values))
		return false;
	if (flags & HAS_ROWS && !get_part(in, m->T, m->size, &m->row_bits, &m->row_values))
		return false;
	index_rest(m);
	return true;
}

static inline bool equal(const uint8_t *a, const uint8_t *b, unsigned size)
{
	return size == 2   ? kvi_load16(a) == kvi_load16(b)
	       : size == 1 ? *a == *b
	                   : kvi_load32(a) == kvi_load32(b);
}

/* Bits of the channels all of whose elements are equal; how many. */
static size_t find_channels(const struct kvi_mask *m, const uint8_t *raw, uint8_t *bits)
{
	size_t row = m->C * m->size, found = 0;
	for (size_t c = 0; c < m->C; c++) {
		const uint8_t *v = raw + c * m->size;
		size_t t = 1;
		while (t < m->T && equal(v, v + t * row, m->size))
			t++;
		if (t == m->T) {
			bits[c / 8] |= (uint8_t)(1u << (c % 8));
			found++;
		}
	}
	return found;
}

/* Whether all elements of a row in the channels that remain are equal. */
static bool constant_row(const struct kvi_mask *m, const uint8_t *row)
{
	const uint8_t *first = row + m->runs[0].first * (size_t)m->size;
	for (size_t r = 0; r < m->n_runs; r++)
		for (size_t c = 0; c < m->runs[r].count; c++)
			if (!equal(row + (m->runs[r].first + c) * m->size, first, m->size))
				return false;
	return true;
}

/* Bits of the constant rows; how many. */
static size_t find_rows(const struct kvi_mask *m, const uint8_t *raw, uint8_t *bits)
{
	size_t found = 0;
	for (size_t t = 0; t < m->T; t++)
		if (constant_row(m, raw + t * m->C * m->size)) {
			bits[t / 8] |= (uint8_t)(1u << (t % 8));
			found++;
		}
	return found;
}

size_t kvi_mask_find(struct kvi_mask *m, const uint8_t *raw, uint8_t *to)
{
	size_t row = m->C * m->size;
	uint8_t *at = to + 1;
	*to = 0;
	m->row_bits = m->row_values = NULL;
	m->channel_bits = m->channel_values = NULL;

	memset(at, 0, bitmap_bytes(m->C));
	/* In a single token every channel is constant: nothing to win. */
	if (m->T > 1 && find_channels(m, raw, at)) {
		*to |= HAS_CHANNELS;
		m->channel_bits = at;
		at += bitmap_bytes(m->C);
		m->channel_values = at;
		for (size_t c = 0; c < m->C; c++)
			if (kvi_bit(m->channel_bits, c)) {
				memcpy(at, raw + c * m->size, m->size);
				at += m->size;
			}
	}
	index_rest(m);
	memset(at, 0, bitmap_bytes(m->T));
	if (m->channels > 1 && find_rows(m, raw, at)) {
		*to |= HAS_ROWS;
		m->row_bits = at;
		at += bitmap_bytes(m->T);
		m->row_values = at;
		for (size_t t = 0; t < m->T; t++)
			if (kvi_bit(m->row_bits, t)) {
				memcpy(at, raw + t * row + m->runs[0].first * (size_t)m->size,
				       m->size);
				at += m->size;
			}
		index_rest(m);
	}
	return (size_t)(at - to);
}

void kvi_mask_gather(const struct kvi_mask *m, const uint8_t *raw, uint8_t *packed)
{
	for (size_t t = 0; t < m->T; t++) {
		if (kvi_bit(m->row_bits, t))
			continue;
		const uint8_t *row = raw + t * m->C * m->size;
		for (size_t r = 0; r < m->n_runs; r++) {
			size_t n = m->runs[r].count * (size_t)m->size;
			memcpy(packed, row + m->runs[r].first * (size_t)m->size, n);
			packed += n;
		}
	}
}

void kvi_mask_channels(const struct kvi_mask *m, size_t size, const void *all, void *rest)
{
	uint8_t *to = rest;
	for (size_t r = 0; r < m->n_runs; r++) {
		memcpy(to, (const uint8_t *)all + m->runs[r].first * size, m->runs[r].count * size);
		to += m->runs[r].count * size;
	}
}

void kvi_mask_spread(const struct kvi_mask *m, const uint8_t *rest, uint8_t *all)
{
	for (size_t r = 0; r < m->n_runs; r++) {
		memcpy(all + m->runs[r].first, rest, m->runs[r].count);
		rest += m->runs[r].count;
	}
}

/* The constant channels of one row. */
static void fill_channels(const struct kvi_mask *m, uint8_t *row)
{
	const uint8_t *v = m->channel_values;
	for (size_t c = 0; c < m->C; c++)
		if (kvi_bit(m->channel_bits, c)) {
			memcpy(row + c * m->size, v, m->size);
			v += m->size;
		}
}

void kvi_mask_scatter(const struct kvi_mask *m, const uint8_t *packed, size_t first, size_t end,
                      uint8_t *raw)
{
	const size_t removed = count_bits(m->row_bits, m->row_bits ? first : 0);
	const uint8_t *value = removed ? m->row_values + removed * m->size : m->row_values;
	packed += (first - removed) * m->channels * m->size;
	for (size_t t = first; t < end; t++) {
		uint8_t *row = raw + t * m->C * m->size;
		bool constant = kvi_bit(m->row_bits, t);
		for (size_t r = 0; r < m->n_runs; r++) {
			size_t n = m->runs[r].count * (size_t)m->size;
			uint8_t *to = row + m->runs[r].first * (size_t)m->size;
			if (!constant) {
				memcpy(to, packed, n);
				packed += n;
				continue;
			}
			for (size_t i = 0; i < n; i += m->size)
				memcpy(to + i, value, m->size);
		}
		if (constant)
			value += m->size;
		if (m->channel_bits)
			fill_channels(m, row);
	}
}
