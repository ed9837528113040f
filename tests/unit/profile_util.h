/* SPDX-License-Identifier: BSD-3-Clause */
/* profile_util.h - random profiles, for tests */
#ifndef PROFILE_UTIL_H
#define PROFILE_UTIL_H

#include "profile/profile_io.h"

/* Deterministic numbers: splitmix64. */
static inline uint64_t profile_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

/* low..high, both included. */
static inline int profile_between(uint64_t *state, int low, int high)
{
	return low + (int)(profile_random(state) % (uint64_t)(high - low + 1));
}

/*
 * A finished profile of up to three layers, levels 2, 3, 4 and 7: heads of odd and even
 * numbers of channels, partial ropes, all kinds of sources, scopes, tables, corrections, sets.
 * seed also picks the shape. Coefficients are large: rows reach the limit.
 */
struct kvi_profile *profile_make(const struct kvi_alloc *alloc, uint64_t seed);

#endif
