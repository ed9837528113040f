/* SPDX-License-Identifier: BSD-3-Clause */
/* layers_codes.h - codes of codec layers and where they stand in a block (spec layers 2, 3) */
#ifndef KVI_LAYERS_CODES_H
#define KVI_LAYERS_CODES_H

#include <string.h>

#include "layers.h"
#include "util/bytes.h"

/* Sizes in short. */
enum {
	LAYERS = KVI_LAYERS_N,
	BLOCK = KVI_LAYERS_BLOCK,
	QUARTER = BLOCK / 4, /* codes of 2 bits that have the same shift, in a full block */
	WORD = 8,            /* bytes that are one number of 64 bits */
	NEXT = 3
};

/* Values of codes 0, 1 and 2 of each layer, less 2. */
static const uint8_t value_less2[LAYERS][16] = {
	{ 0, 1, 2 }, { 3, 0xff, 4 }, { 5, 6, 7 }, { 0xfe, 8, 9 }
};
/* The code of a value in each layer; larger values have code 3 in all of them. */
static const uint8_t code_of[LAYERS][16] = {
	{ 3, 3, 0, 1, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3 },
	{ 3, 1, 3, 3, 3, 0, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3 },
	{ 3, 3, 3, 3, 3, 3, 3, 0, 1, 2, 3, 3, 3, 3, 3, 3 },
	{ 0, 3, 3, 3, 3, 3, 3, 3, 3, 3, 1, 2, 3, 3, 3, 3 },
};
/* Bits of a value, halved; values of 15 and more have those of 15. */
static const uint8_t half_bits[16] = { 4, 2, 1, 1, 1, 2, 2, 3, 3, 3, 4, 4, 8, 8, 8, 8 };

/* The codes of a block that starts with code `first` of a plane of n. */
static inline size_t block_codes(size_t n, size_t first)
{
	return n - first < BLOCK ? n - first : BLOCK;
}

/* A word whose bytes are the same. */
#define BYTES(x) ((uint64_t)(x)*UINT64_C(0x0101010101010101))

/* Adds n codes of `bits` bits of a block to `codes`, which have other bits: << shift. */
static inline void add_codes(const uint8_t *block, size_t n, unsigned bits, unsigned shift,
                             uint8_t *codes)
{
	const size_t bytes = (n * bits + 7) / 8;
	const unsigned most = (1u << bits) - 1;
	for (size_t first = 0, at = 0; first < n; first += bytes, at += bits, codes += bytes) {
		const size_t end = n - first < bytes ? n - first : bytes;
		size_t i = 0;
		for (; i + WORD <= end; i += WORD)
			kvi_store64(codes + i, kvi_load64(codes + i) |
			                               (kvi_load64(block + i) >> at & BYTES(most))
			                                       << shift);
		for (; i < end; i++)
			codes[i] |= (uint8_t)((block[i] >> at & most) << shift);
	}
}

/* A block of n codes of `bits` bits: those bits of `codes` from bit `shift` on. */
static inline void put_codes(const uint8_t *codes, size_t n, unsigned bits, unsigned shift,
                             uint8_t *block)
{
	const size_t bytes = (n * bits + 7) / 8;
	const unsigned most = (1u << bits) - 1;
	memset(block, 0, bytes);
	for (size_t first = 0, at = 0; first < n; first += bytes, at += bits, codes += bytes) {
		const size_t end = n - first < bytes ? n - first : bytes;
		size_t i = 0;
		for (; i + WORD <= end; i += WORD)
			kvi_store64(block + i,
			            kvi_load64(block + i) |
			                    (kvi_load64(codes + i) >> shift & BYTES(most)) << at);
		for (; i < end; i++)
			block[i] |= (uint8_t)((codes[i] >> shift & most) << at);
	}
}

#endif
