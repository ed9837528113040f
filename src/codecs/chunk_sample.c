/* SPDX-License-Identifier: BSD-3-Clause */
/* chunk_sample.c - cheap guesses at what a general compressor would make of bytes */
#include <string.h>

#include "coder.h"
#include "util/hash.h"

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

bool kvi_rows_repeat(const uint8_t *rows, size_t n, size_t bytes)
{
	enum { SLOTS = 512, HEAD = 16, SHARE = 8 };
	uint16_t slots[SLOTS] = { 0 }; /* row + 1; 0: free */
	size_t repeats = 0;
	for (size_t i = 0; i < n && i < SLOTS / 2; i++) {
		const uint8_t *row = rows + i * bytes;
		size_t at = kvi_h64(row, bytes < HEAD ? bytes : HEAD) % SLOTS;
		while (slots[at] && memcmp(rows + (slots[at] - 1) * bytes, row, bytes) != 0)
			at = (at + 1) % SLOTS;
		repeats += slots[at] != 0;
		slots[at] = (uint16_t)(i + 1);
	}
	return repeats && repeats >= n / SHARE;
}

/* Tried where the other codecs win little, and on bytes when a sample of them packs well. */
bool kvi_zstd_may_win(struct kvi_coder *coder, const struct kvi_chunk *chunk, const uint8_t *raw,
                      size_t bytes)
{
	enum { STRETCH = 16384 };
	const size_t n = kvi_chunk_bytes(chunk);
	if (bytes <= kvi_zstd_never_wins(chunk))
		return false;
	if (bytes > n - n / 16 || n < 2 * STRETCH)
		return true;
	uint8_t *buffer = kvi_scratch(coder, KVI_SCRATCH_PLANE_OUT, STRETCH);
	size_t got = buffer ? kvi_zstd_write(coder, raw, STRETCH, buffer, STRETCH, 1) : 0;
	return got && (uint64_t)got * n < (uint64_t)bytes * STRETCH;
}
