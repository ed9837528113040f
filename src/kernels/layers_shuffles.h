/* SPDX-License-Identifier: BSD-3-Clause */
/* layers_shuffles.h - expansion and compression of 8 bytes by a mask, as numbers for shuffles */
#ifndef KVI_LAYERS_SHUFFLES_H
#define KVI_LAYERS_SHUFFLES_H

#include <stdint.h>

/* A number that no byte has: shuffles write 0. */
#define NONE 0x80
/* A bit of a mask, and the number of bits below it. */
#define HAS(mask, i) (((uint64_t)(mask) >> (i)) & 1)
#define BELOW1(m) HAS(m, 0)
#define BELOW2(m) (BELOW1(m) + HAS(m, 1))
#define BELOW3(m) (BELOW2(m) + HAS(m, 2))
#define BELOW4(m) (BELOW3(m) + HAS(m, 3))
#define BELOW5(m) (BELOW4(m) + HAS(m, 4))
#define BELOW6(m) (BELOW5(m) + HAS(m, 5))
#define BELOW7(m) (BELOW6(m) + HAS(m, 6))
#define TO_LANE(m, i, below) ((HAS(m, i) ? (uint64_t)(below) : NONE) << 8 * (i))
#define FROM_LANE(m, i, below) (HAS(m, i) * ((uint64_t)(i)-NONE) << 8 * (below))

/* Byte i: the number of bits below bit i of the mask, if it has that. */
#define EXPANSION(m)                                                                      \
	(TO_LANE(m, 0, 0) | TO_LANE(m, 1, BELOW1(m)) | TO_LANE(m, 2, BELOW2(m)) |         \
	 TO_LANE(m, 3, BELOW3(m)) | TO_LANE(m, 4, BELOW4(m)) | TO_LANE(m, 5, BELOW5(m)) | \
	 TO_LANE(m, 6, BELOW6(m)) | TO_LANE(m, 7, BELOW7(m)))
/* Byte i: the number of bit i of those that the mask has. */
#define COMPRESSION(m)                                                                           \
	(NONE * UINT64_C(0x0101010101010101) + FROM_LANE(m, 0, 0) + FROM_LANE(m, 1, BELOW1(m)) + \
	 FROM_LANE(m, 2, BELOW2(m)) + FROM_LANE(m, 3, BELOW3(m)) + FROM_LANE(m, 4, BELOW4(m)) +  \
	 FROM_LANE(m, 5, BELOW5(m)) + FROM_LANE(m, 6, BELOW6(m)) + FROM_LANE(m, 7, BELOW7(m)))

#define OF_4(make, m) make(m), make((m) + 1), make((m) + 2), make((m) + 3)
#define OF_16(make, m) OF_4(make, m), OF_4(make, (m) + 4), OF_4(make, (m) + 8), OF_4(make, (m) + 12)
#define OF_64(make, m) \
	OF_16(make, m), OF_16(make, (m) + 16), OF_16(make, (m) + 32), OF_16(make, (m) + 48)
#define OF_ALL_MASKS(make) OF_64(make, 0), OF_64(make, 64), OF_64(make, 128), OF_64(make, 192)

static const uint64_t expansions[256] = { OF_ALL_MASKS(EXPANSION) };
static const uint64_t compressions[256] = { OF_ALL_MASKS(COMPRESSION) };

#endif
