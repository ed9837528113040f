/* SPDX-License-Identifier: BSD-3-Clause */
/* level.c - what a level of a predictor computes */
#include "exact/engine.h"

/*
 * What is left in a closed loop is mostly the error of the last products: keys and values are
 * the first to be wide, and cost little, because their matrices are small.
 */
struct kvi_engine_level kvi_engine_level(unsigned level)
{
	static const struct kvi_engine_level levels[] = {
		{ { 0, 0 }, false },
		{ { KVI_WIDE_KV, KVI_WIDE_KV }, true },
		{ { KVI_WIDE_KV, KVI_WIDE_ALL }, true },
		{ { KVI_WIDE_ALL, KVI_WIDE_ALL }, true },
	};
	return levels[level < 4 ? 0 : level > 7 ? 3 : level - 4];
}
