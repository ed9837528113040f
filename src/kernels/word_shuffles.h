/* SPDX-License-Identifier: BSD-3-Clause */
/* word_shuffles.h - expansion and packing of 8 words by a mask, as numbers for shuffles */
#ifndef KVI_WORD_SHUFFLES_H
#define KVI_WORD_SHUFFLES_H

#include "layers_shuffles.h"

/* The bytes of word i in lane `to`, if that is in this half of 4 lanes. */
#define WORD_IN(half, i, to) \
	((to) / 4 == (half) ? (uint64_t)(0x0100 + 0x0202 * (i)) << 16 * ((to) % 4) : 0)
#define WORDS_OF(make, m, half)                                                                    \
	(make(m, half, 0, 0) | make(m, half, 1, BELOW1(m)) | make(m, half, 2, BELOW2(m)) |         \
	 make(m, half, 3, BELOW3(m)) | make(m, half, 4, BELOW4(m)) | make(m, half, 5, BELOW5(m)) | \
	 make(m, half, 6, BELOW6(m)) | make(m, half, 7, BELOW7(m)))

/* Lane i: the word whose number is that of bits below bit i of the mask. */
#define WORD_EXPANDED(m, half, i, below) WORD_IN(half, below, i)
#define WORDS_EXPANDED(m)                                                    \
	{                                                                    \
		WORDS_OF(WORD_EXPANDED, m, 0), WORDS_OF(WORD_EXPANDED, m, 1) \
	}
/* The last lanes: the words of those that the mask has. */
#define WORD_PACKED(m, half, i, below) \
	(HAS(m, i) ? WORD_IN(half, i, (8 - BELOW7(m) - HAS(m, 7) + (below)) % 8) : 0)
#define WORDS_PACKED(m)                                                  \
	{                                                                \
		WORDS_OF(WORD_PACKED, m, 0), WORDS_OF(WORD_PACKED, m, 1) \
	}

static const uint64_t word_expansions[256][2] = { OF_ALL_MASKS(WORDS_EXPANDED) };
static const uint64_t word_packings[256][2] = { OF_ALL_MASKS(WORDS_PACKED) };

#endif
