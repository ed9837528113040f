/* SPDX-License-Identifier: BSD-3-Clause */
/* level.c - what a predictor computes: the arithmetics and loops that have names (spec model 1) */
#include <stdio.h>
#include <string.h>

#include "exact/engine.h"

enum {
	N = 8,
	/* The lower levels compute keys and values with 15 bits. Attention takes 12: half the work,
	 * for 0.03 to 0.2 % of size; values of the cache need 8, at level 6 15. */
	LOW_WEIGHTS = KVI_WIDE_KV | KVI_ATTENTION_12,
	LOW_ACTIVATIONS = KVI_WIDE_KV | KVI_ATTENTION_12,
	MIDDLE_WEIGHTS = LOW_WEIGHTS | 1 << KVI_MATRIX_VALUES,
	MIDDLE_ACTIVATIONS = KVI_WIDE_ALL - KVI_WIDE_ATTENTION + KVI_ATTENTION_12,
};

/*
 * The residual of a closed loop is mostly the error of the last products: keys and values are the
 * first to be wide, and cost little, because their matrices are small. The first entries are those
 * of levels 4 to 7; level 8 has that of level 7.
 */
static const struct named {
	const char *text;
	kvarc_arithmetic arithmetic;
	kvarc_loop loop;
	struct kvi_engine_level is;
} all[N] = {
	{ "w8a8 open",
	  KVARC_ARITHMETIC_W8A8,
	  KVARC_LOOP_OPEN,
	  { { KVI_ATTENTION_12, KVI_ATTENTION_12, false }, false } },
	{ "w8a8 closed",
	  KVARC_ARITHMETIC_W8A8,
	  KVARC_LOOP_CLOSED,
	  { { LOW_WEIGHTS, LOW_ACTIVATIONS, false }, true } },
	{ "w8a15 closed",
	  KVARC_ARITHMETIC_W8A15,
	  KVARC_LOOP_CLOSED,
	  { { MIDDLE_WEIGHTS, MIDDLE_ACTIVATIONS, false }, true } },
	{ "w15a15 closed",
	  KVARC_ARITHMETIC_W15A15,
	  KVARC_LOOP_CLOSED,
	  { { KVI_WIDE_ALL, KVI_WIDE_ALL, false }, true } },
	{ "w8a15 open",
	  KVARC_ARITHMETIC_W8A15,
	  KVARC_LOOP_OPEN,
	  { { MIDDLE_WEIGHTS, MIDDLE_ACTIVATIONS, false }, false } },
	{ "w15a15 open",
	  KVARC_ARITHMETIC_W15A15,
	  KVARC_LOOP_OPEN,
	  { { KVI_WIDE_ALL, KVI_WIDE_ALL, false }, false } },
	{ "fp8 open",
	  KVARC_ARITHMETIC_FP8,
	  KVARC_LOOP_OPEN,
	  { { KVI_WIDE_ATTENTION, KVI_WIDE_ATTENTION, true }, false } },
	{ "fp8 closed",
	  KVARC_ARITHMETIC_FP8,
	  KVARC_LOOP_CLOSED,
	  { { KVI_WIDE_ATTENTION, KVI_WIDE_ATTENTION, true }, true } },
};

bool kvi_arithmetic_equal(const struct kvi_arithmetic *arithmetic, const struct kvi_arithmetic *b)
{
	return arithmetic->wide_weights == b->wide_weights && arithmetic->fp8 == b->fp8 &&
	       arithmetic->wide_activations == b->wide_activations;
}

bool kvi_engine_level_equal(const struct kvi_engine_level *level,
                            const struct kvi_engine_level *arithmetic)
{
	return kvi_arithmetic_equal(&level->arithmetic, &arithmetic->arithmetic) &&
	       level->closed == arithmetic->closed;
}

struct kvi_engine_level kvi_engine_level(unsigned level)
{
	return all[level < 4 ? 0 : level > 7 ? 3 : level - 4].is;
}

static const struct named *find(const struct kvi_engine_level *level)
{
	for (int i = 0; i < N; i++)
		if (kvi_engine_level_equal(&all[i].is, level))
			return &all[i];
	return NULL;
}

struct kvi_engine_level kvi_engine_choice(const struct kvi_engine_level *level,
                                          kvarc_arithmetic arithmetic, kvarc_loop loop)
{
	const struct named *own = find(level);
	for (int i = 0; own && i < N; i++)
		if (all[i].arithmetic == (arithmetic ? arithmetic : own->arithmetic) &&
		    all[i].loop == (loop ? loop : own->loop))
			return all[i].is;
	return *level;
}

const char *kvi_engine_text(const struct kvi_engine_level *level)
{
	const struct named *own = find(level);
	return own ? own->text : NULL;
}

bool kvi_engine_of_text(const char *text, struct kvi_engine_level *level)
{
	for (int i = 0; i < N; i++)
		if (!strcmp(all[i].text, text)) {
			*level = all[i].is;
			return true;
		}
	return false;
}

void kvi_arithmetic_key(char key[KVI_ARITHMETIC_KEY_BYTES], unsigned level)
{
	snprintf(key, KVI_ARITHMETIC_KEY_BYTES, "arithmetic_%u", level & 7);
}
