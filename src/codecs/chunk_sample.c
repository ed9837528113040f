/* SPDX-License-Identifier: BSD-3-Clause */
/* chunk_sample.c - a cheap guess at what a general compressor would make of bytes */
#include "coder.h"

enum { SAMPLE = 2048, STRETCHES = 8 };

unsigned kvi_sample_entropy(const struct kvi_coder *coder, const uint8_t *p, size_t n)
{
	uint16_t counts[256] = { 0 };
	size_t taken = 0, each = SAMPLE / STRETCHES;
	for (size_t i = 0; i < STRETCHES; i++) {
		size_t from = n / STRETCHES * i;
		size_t to = from + each < n ? from + each : n;
		for (size_t j = from; j < to; j++)
			counts[p[j]]++;
		taken += to - from;
	}
	uint64_t bits = 0;
	for (unsigned v = 0; v < 256; v++) {
		/* Counts of a whole sample need no division. */
		const size_t freq = taken == SAMPLE ? counts[v]
		                                    : counts[v] * (size_t)SAMPLE / taken;
		bits += (uint64_t)counts[v] * coder->tables->cost[freq];
	}
	return (unsigned)(bits / taken);
}
