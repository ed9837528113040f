/* SPDX-License-Identifier: BSD-3-Clause */
/* random.h - numbers that look random, the same in every run of a test */
#ifndef RANDOM_H
#define RANDOM_H

#include <stdint.h>

static uint64_t seed = 1;

static inline uint32_t rnd(void)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(seed >> 33);
}

static inline uint32_t below(uint32_t n)
{
	return rnd() % n;
}

static inline int between(int lo, int hi)
{
	return (int)((uint32_t)lo + below((uint32_t)hi - (uint32_t)lo + 1));
}

/* Sum of uniforms: close enough to a normal variate. */
static inline float normal(void)
{
	int32_t sum = 0;
	for (int i = 0; i < 12; i++)
		sum += (int32_t)(rnd() & 0xffff);
	return (float)(sum - 12 * 32768) / 65536.0f;
}

#endif
