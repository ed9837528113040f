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

enum { ROUNDS = 4 };

size_t kvi_tables_fit_work(size_t channels, unsigned n_tables,
                           unsigned symbols)
{
	return (channels + (size_t)n_tables * symbols) * sizeof(uint32_t);
}

/* Frequencies of a total of 2048 from counts; the escape gets what is due to
 * something that was not seen. */
static void quantise(const struct kvi_tables_fit *f, const uint32_t *counts,
                     uint16_t *freq)
{
	unsigned n = f->symbols;
	uint64_t total = 0;
	for (unsigned s = 0; s < n; s++)
		total += counts[s];
	uint32_t sum = 1, most = 0;
	freq[n] = 1;
	for (unsigned s = 0; s < n; s++) {
		uint64_t v = total ? ((uint64_t)counts[s] * KVI_PROB_TOTAL +
		                      total / 2) / total : 0;
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

static void make_tables(struct kvi_tables_fit *f)
{
	uint32_t *sums = f->work + f->channels;
	memset(sums, 0, (size_t)f->n_tables * f->symbols * sizeof *sums);
	for (size_t c = 0; c < f->channels; c++) {
		uint32_t *to = sums + (size_t)f->table[c] * f->symbols;
		const uint16_t *from = f->counts + c * f->symbols;
		for (unsigned s = 0; s < f->symbols; s++)
			to[s] += from[s];
	}
	for (unsigned i = 0; i < f->n_tables; i++)
		quantise(f, sums + i * f->symbols,
		         f->freq + i * (f->symbols + 1));
}

static uint32_t price(const struct kvi_tables_fit *f, size_t c, unsigned table)
{
	const uint16_t *n = f->counts + c * f->symbols;
	const uint16_t *freq = f->freq + table * (f->symbols + 1);
	uint32_t sum = 0;
	for (unsigned s = 0; s < f->symbols; s++)
		sum += (uint32_t)n[s] * f->cost[freq[s]];
	return sum;
}

/* Starts with groups of equal size in the order of what channels cost with a
 * single table. */
static void start(struct kvi_tables_fit *f)
{
	unsigned groups = f->n_tables;
	uint32_t *cost = f->work, lo = UINT32_MAX, hi = 0;
	memset(f->table, 0, f->channels);
	f->n_tables = 1;
	make_tables(f);
	f->n_tables = groups;
	for (size_t c = 0; c < f->channels; c++) {
		cost[c] = price(f, c, 0);
		lo = cost[c] < lo ? cost[c] : lo;
		hi = cost[c] > hi ? cost[c] : hi;
	}
	uint64_t width = (uint64_t)hi - lo + 1;
	for (size_t c = 0; c < f->channels; c++)
		f->table[c] = (uint8_t)((uint64_t)(cost[c] - lo) * groups /
		                        width);
}

static void assign(struct kvi_tables_fit *f)
{
	for (size_t c = 0; c < f->channels; c++) {
		uint32_t best = UINT32_MAX;
		for (unsigned i = 0; i < f->n_tables; i++) {
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
	make_tables(f);
	for (int i = 0; i < ROUNDS && f->n_tables > 1; i++) {
		assign(f);
		make_tables(f);
	}
}
