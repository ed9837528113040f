/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tables_fit.c - groups channels with like symbols, a table for each group
 *
 * Alternates between the table of each group and the best group of each
 * channel, by code length, as k-means does. Integers only: the same tables on
 * every machine.
 */
#include "tables_fit.h"

#include <string.h>

enum { ROUNDS = 2, BLOCK = 8 };

/* Counts and sums side by side, in whatever vectors the machine has. */
typedef uint16_t lanes16 __attribute__((vector_size(BLOCK * 2)));
typedef uint32_t lanes32 __attribute__((vector_size(BLOCK * 4)));

size_t kvi_tables_fit_work(size_t channels, unsigned n_tables, unsigned stride)
{
	/* what channels cost, sums of tables, code lengths of tables */
	return (channels + (size_t)n_tables * stride) * sizeof(uint32_t) +
	       (size_t)n_tables * stride * sizeof(uint16_t);
}

static uint32_t *sums(const struct kvi_tables_fit *f)
{
	return f->work + f->channels;
}

static uint16_t *lengths(const struct kvi_tables_fit *f)
{
	return (uint16_t *)(void *)(sums(f) + f->n_tables * f->stride);
}

/* Frequencies of a total of 2048 from counts; the escape gets what is due to
 * something that was not seen. */
static void quantise(const struct kvi_tables_fit *f, const uint32_t *counts, uint16_t *freq)
{
	unsigned n = f->symbols;
	uint64_t total = 0;
	for (unsigned s = 0; s < n; s++)
		total += counts[s];
	uint32_t sum = 1, most = 0;
	freq[n] = 1;
	for (unsigned s = 0; s < n; s++) {
		uint64_t v = total ? ((uint64_t)counts[s] * KVI_PROB_TOTAL + total / 2) / total : 0;
		if (v == 0 && (counts[s] || f->all_symbols))
			v = 1;
		freq[s] = (uint16_t)v;
		sum += (uint32_t)v;
		if (freq[s] > freq[most])
			most = s;
	}
	/* A table without any count: all to one symbol. */
	while (sum > KVI_PROB_TOTAL) {
		freq[most]--;
		sum--;
		for (unsigned s = 0; s < n; s++)
			if (freq[s] > freq[most])
				most = s;
	}
	freq[most] = (uint16_t)(freq[most] + KVI_PROB_TOTAL - sum);
	if (freq[most] >= KVI_PROB_TOTAL)
		freq[most] = KVI_PROB_TOTAL - 1;
}

static void make_tables(struct kvi_tables_fit *f, unsigned n_tables)
{
	uint32_t *sum = sums(f);
	memset(sum, 0, (size_t)n_tables * f->stride * sizeof *sum);
	for (size_t c = 0; c < f->channels; c++) {
		uint32_t *to = sum + (size_t)f->table[c] * f->stride;
		const uint16_t *from = f->counts + c * f->stride;
		for (unsigned s = 0; s < f->stride; s += BLOCK) {
			lanes16 n;
			lanes32 v;
			memcpy(&n, from + s, sizeof n);
			memcpy(&v, to + s, sizeof v);
			v += __builtin_convertvector(n, lanes32);
			memcpy(to + s, &v, sizeof v);
		}
	}
	for (unsigned t = 0; t < n_tables; t++) {
		uint16_t *freq = f->freq + t * (f->symbols + 1);
		uint16_t *length = lengths(f) + t * f->stride;
		quantise(f, sum + t * f->stride, freq);
		for (unsigned s = 0; s < f->symbols; s++)
			length[s] = f->cost[freq[s]];
	}
}

/* Sum of lanes, none of which carries: it is less than 2^16. */
static uint32_t across(lanes16 v)
{
	uint64_t part[BLOCK / 4];
	memcpy(part, &v, sizeof part);
	return (uint32_t)((part[0] + part[1]) * 0x0001000100010001u >> 48);
}

/*
 * Code length of a channel with a table, in 1/256 bit. A channel has 256
 * elements in a chunk at most: sums of the upper and of the lower bytes of
 * their code lengths fit 16 bits each.
 */
static uint32_t price(const struct kvi_tables_fit *f, size_t c, unsigned table)
{
	const uint16_t *n = f->counts + c * f->stride;
	const uint16_t *length = lengths(f) + table * f->stride;
	lanes16 low = { 0 }, high = { 0 };
	for (unsigned s = 0; s < f->stride; s += BLOCK) {
		lanes16 x, l;
		memcpy(&x, n + s, sizeof x);
		memcpy(&l, length + s, sizeof l);
		low += x * (l & 255);
		high += x * (l >> 8);
	}
	return across(low) + (across(high) << 8);
}

/* Starts with groups by what channels cost with a single table. */
static void start(struct kvi_tables_fit *f)
{
	uint32_t *cost = f->work, lo = UINT32_MAX, hi = 0;
	memset(f->table, 0, f->channels);
	memset(lengths(f), 0, f->n_tables * f->stride * sizeof(uint16_t));
	make_tables(f, 1);
	for (size_t c = 0; c < f->channels; c++) {
		cost[c] = price(f, c, 0);
		lo = cost[c] < lo ? cost[c] : lo;
		hi = cost[c] > hi ? cost[c] : hi;
	}
	uint64_t width = (uint64_t)hi - lo + 1;
	for (size_t c = 0; c < f->channels; c++)
		f->table[c] = (uint8_t)((uint64_t)(cost[c] - lo) * f->n_tables / width);
}

/* The groups are in an order: a channel can move to a neighbour. */
static void assign(struct kvi_tables_fit *f)
{
	for (size_t c = 0; c < f->channels; c++) {
		uint32_t best = UINT32_MAX;
		unsigned at = f->table[c];
		for (unsigned i = at ? at - 1 : 0; i < f->n_tables && i <= at + 1; i++) {
			uint32_t p = price(f, c, i);
			if (p < best) {
				best = p;
				f->table[c] = (uint8_t)i;
			}
		}
	}
}

void kvi_tables_fit(struct kvi_tables_fit *f)
{
	start(f);
	make_tables(f, f->n_tables);
	for (int i = 0; i < ROUNDS && f->n_tables > 1; i++) {
		assign(f);
		make_tables(f, f->n_tables);
	}
}
