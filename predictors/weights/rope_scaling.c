/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rope_scaling.c - scaled frequencies of rotary embeddings, the same on every machine: of
 * additions, products and quotients of binary64 alone (spec/arithmetic.md 10)
 */
#include "model_internal.h"

#include "model/rope_turns.h"

bool kvi_rope_divide(uint64_t *freq, double by)
{
	if (!(by >= 0.25) || !(by <= 1048576))
		return false;
	*freq = (uint64_t)((double)(*freq >> 16) / by + 0.5) << 16;
	return true;
}

/* Slow pairs by the factor, fast ones as they are, between them a blend. */
static bool scale_llama3(const struct kvi_rope_rule *r, uint64_t *freq)
{
	double f = (double)(*freq >> 16), waves = f * 0x1p-48 * r->context;
	if (waves >= r->high)
		return true;
	if (waves <= r->low)
		return kvi_rope_divide(freq, r->factor);
	double blend = (waves - r->low) / (r->high - r->low);
	f = (1 - blend) * (f / r->factor) + blend * f;
	*freq = (uint64_t)(f + 0.5) << 16;
	return true;
}

bool kvi_rope_rule_freq(const struct kvi_rope_rule *r, uint64_t *freq)
{
	if (!(r->theta > 1) || !(r->theta <= 1e12) || r->rotary % 2 ||
	    (r->scaling && (!(r->factor >= 1) || !(r->factor <= 1048576))))
		return false;
	if (r->scaling == KVI_ROPE_LLAMA3 &&
	    (!(r->low > 0) || !(r->high > r->low) || !(r->high <= 1e6) ||
	     !(r->context >= 1) || !(r->context <= 1e9)))
		return false;
	uint64_t log_theta = kvi_rope_log(r->theta);
	bool good = true;
	for (uint32_t i = 0; i < r->rotary / 2; i++) {
		freq[i] = kvi_rope_turns(log_theta, i, r->rotary);
		if (r->scaling == KVI_ROPE_LINEAR)
			good = kvi_rope_divide(&freq[i], r->factor) && good;
		else if (r->scaling == KVI_ROPE_LLAMA3)
			good = scale_llama3(r, &freq[i]) && good;
	}
	return good;
}
