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

enum { ROUNDS = 2 };

size_t kvi_tables_fit_work(size_t channels, unsigned n_tables, unsigned stride)
{
	/* costs of channels, sums of tables, code lengths of tables */
	return (channels + (size_t)n_tables * stride) * sizeof(uint32_t) +
	       (size_t)n_tables * stride * sizeof(uint16_t);
}

static uint32_t *sums(const struct kvi_tables_fit *fit)
{
	return fit->work + fit->channels;
}

static uint16_t *lengths(const struct kvi_tables_fit *fit)
{
	return (uint16_t *)(void *)(sums(fit) + fit->n_tables * fit->stride);
}

/* Takes one after the other from the most frequent of n > 1 symbols, `most`, until another one is
 * more frequent, which it returns, or the sum is 2048. */
static uint32_t reduce(uint16_t *freq, unsigned n, uint32_t most, uint32_t *sum)
{
	uint32_t second = most ? 0 : 1;
	for (uint32_t s = 0; s < n; s++)
		if (s != most && freq[s] > freq[second])
			second = s;
	const uint32_t lead = (uint32_t)freq[most] - freq[second], more = *sum - KVI_PROB_TOTAL;
	const uint32_t less = more < lead ? more : lead ? lead : 1;
	freq[most] = (uint16_t)(freq[most] - less);
	*sum -= less;
	return lead ? most : second;
}

/* Turns counts into frequencies with a total of 2048; the escape, which has no counts, gets 1. */
static void quantise(const struct kvi_tables_fit *fit, const uint32_t *counts, uint16_t *freq)
{
	unsigned n = fit->symbols;
	uint64_t total = 0;
	for (unsigned s = 0; s < n; s++)
		total += counts[s];
	uint32_t sum = 1, most = 0;
	freq[n] = 1;
	for (unsigned s = 0; s < n; s++) {
		uint64_t v = 0; /* most symbols have no count and need no division */
		if (counts[s])
			v = ((uint64_t)counts[s] * KVI_PROB_TOTAL + total / 2) / total;
		if (v == 0 && counts[s])
			v = 1;
		freq[s] = (uint16_t)v;
		sum += (uint32_t)v;
		if (freq[s] > freq[most])
			most = s;
	}
	while (sum > KVI_PROB_TOTAL)
		most = reduce(freq, n, most, &sum);
	/* A table without any count: all to one symbol. */
	freq[most] = (uint16_t)(freq[most] + KVI_PROB_TOTAL - sum);
	if (freq[most] >= KVI_PROB_TOTAL)
		freq[most] = KVI_PROB_TOTAL - 1;
}

static void make_tables(struct kvi_tables_fit *fit, unsigned n_tables)
{
	uint32_t *sum = sums(fit);
	memset(sum, 0, (size_t)n_tables * fit->stride * sizeof *sum);
	fit->kernels->fits.tables_add(fit->counts, fit->channels, fit->stride, fit->table, sum);
	for (unsigned t = 0; t < n_tables; t++) {
		uint16_t *freq = fit->freq + t * (fit->symbols + 1);
		uint16_t *length = lengths(fit) + t * fit->stride;
		quantise(fit, sum + t * fit->stride, freq);
		for (unsigned s = 0; s < fit->symbols; s++)
			length[s] = fit->cost[freq[s]];
	}
}

/* The groups are in an order: a channel can move to a neighbour. */
static void choose(struct kvi_tables_fit *fit, unsigned n_tables)
{
	fit->kernels->fits.tables_choose(fit->counts, fit->channels, fit->stride, lengths(fit),
	                                 n_tables, fit->table, fit->work);
}

/* Starts with groups by what channels cost with a single table. */
static void start(struct kvi_tables_fit *fit)
{
	uint32_t *cost = fit->work, lo = UINT32_MAX, hi = 0;
	memset(fit->table, 0, fit->channels);
	memset(lengths(fit), 0, fit->n_tables * fit->stride * sizeof(uint16_t));
	make_tables(fit, 1);
	choose(fit, 1);
	for (size_t c = 0; c < fit->channels; c++) {
		lo = cost[c] < lo ? cost[c] : lo;
		hi = cost[c] > hi ? cost[c] : hi;
	}
	uint64_t width = (uint64_t)hi - lo + 1;
	for (size_t c = 0; c < fit->channels; c++)
		fit->table[c] = (uint8_t)((uint64_t)(cost[c] - lo) * fit->n_tables / width);
}

void kvi_tables_fit(struct kvi_tables_fit *fit)
{
	start(fit);
	make_tables(fit, fit->n_tables);
	for (int i = 0; i < ROUNDS && fit->n_tables > 1; i++) {
		choose(fit, fit->n_tables);
		make_tables(fit, fit->n_tables);
	}
}
