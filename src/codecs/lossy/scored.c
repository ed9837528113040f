/* SPDX-License-Identifier: BSD-3-Clause */
/* scored.c - rates of tokens out of their scores */
#include <math.h>
#include <string.h>

#include "codecs/codec.h"

enum {
	MILLI = 1000,
	QUARTERS = 4,
	BYTE = 8,
	VALUES = 1 << BYTE,
	STAYS = 0,
	MARK = KVARC_LOSSY_DROP + 1 /* MARK + quarter: rates until all quarters are known */
};

struct scored {
	const float *score;
	int16_t *rate;
	uint64_t n;
};

/* Numbers in the order of floats. */
static uint32_t key_of(float x)
{
	uint32_t u;
	if (x == 0)
		x = 0; /* -0 */
	memcpy(&u, &x, sizeof u);
	return u >> 31 ? ~u : u | UINT32_C(1) << 31;
}

/* The k-th largest key, from 1, of the tokens with a rate, byte by byte; *equal: the number of
 * tokens with that key among the first k. */
static uint32_t kth(const struct scored *scored, int rate, uint64_t k, uint64_t *equal)
{
	uint32_t key = 0, known = 0;
	for (int shift = 32 - BYTE; shift >= 0; shift -= BYTE) {
		uint64_t count[VALUES] = { 0 };
		uint32_t b = VALUES - 1;
		for (uint64_t i = 0; i < scored->n; i++) {
			uint32_t u = key_of(scored->score[i]);
			if (scored->rate[i] == rate && (u & known) == key)
				count[u >> shift & (VALUES - 1)]++;
		}
		while (b && count[b] < k)
			k -= count[b--];
		key |= b << shift;
		known |= (uint32_t)(VALUES - 1) << shift;
	}
	*equal = k;
	return key;
}

/* Changes rate `from` to `to` for the k tokens of rate `from` with the highest scores; there are at
 * least k of them. */
static void move(const struct scored *scored, int from, int to, uint64_t k)
{
	uint64_t equal = 0;
	uint32_t least = k ? kth(scored, from, k, &equal) : 0;
	for (uint64_t i = k ? scored->n : 0; i-- > 0;) {
		uint32_t u = key_of(scored->score[i]);
		if (scored->rate[i] == from && (u > least || (u == least && equal && equal--)))
			scored->rate[i] = (int16_t)to;
	}
}

static uint64_t count(const struct scored *scored, int rate)
{
	uint64_t k = 0;
	for (uint64_t i = 0; i < scored->n; i++)
		k += scored->rate[i] == rate;
	return k;
}

static uint64_t share(uint64_t n, uint32_t thousandths)
{
	return (n * thousandths + MILLI / 2) / MILLI;
}

/* Marks the tokens that stay, STAYS, and the others, KVARC_LOSSY_DROP. */
static void keep(const kvarc_lossy *tier, const struct scored *scored)
{
	uint64_t all = tier->select.keep ? share(scored->n, tier->select.keep) : scored->n;
	uint64_t recent = tier->select.recent ? tier->select.recent : all / 2;
	if (tier->select.recent == KVARC_LOSSY_NO_RECENT)
		recent = 0;
	if (tier->tail_tokens > recent)
		recent = tier->tail_tokens;
	for (uint64_t i = 0; i < scored->n; i++)
		scored->rate[i] = i < tier->exact_tokens || scored->n - i <= recent
		                          ? STAYS
		                          : KVARC_LOSSY_DROP;
	uint64_t stay = count(scored, STAYS);
	move(scored, KVARC_LOSSY_DROP, STAYS, all > stay ? all - stay : 0);
}

/* Spreads the rates of the tokens that stay over quarters by score: `most` above for the highest
 * one, `most` below for the lowest one, in 1/16 bit. */
static void spread(int most, const struct scored *scored)
{
	uint64_t m = count(scored, STAYS), done = 0;
	int third = ((most < 0 ? -most : most) * 2 + 3) / 6;
	third = most < 0 ? -third : third;
	const int more[QUARTERS] = { most, third, -third, -most };
	for (unsigned q = 0; q < QUARTERS; q++) {
		uint64_t end = m * (q + 1) / QUARTERS;
		move(scored, STAYS, MARK + (int)q, end - done);
		done = end;
	}
	for (uint64_t i = 0; i < scored->n; i++)
		for (unsigned q = 0; q < QUARTERS; q++)
			if (scored->rate[i] == MARK + (int)q) {
				scored->rate[i] = (int16_t)more[q];
				break;
			}
}

kvarc_ret kvarc_lossy_rates(const kvarc_lossy *tier, const float *score, uint64_t n,
                            int16_t *token_rate)
{
	const struct scored s = { score, token_rate, n };
	if (!tier || n > UINT32_MAX || (n && (!score || !token_rate)) || !kvi_lossy_valid(tier))
		return KVARC_PROG;
	for (uint64_t i = 0; i < n; i++)
		if (isnan(score[i]))
			return KVARC_OPTIONS;
	keep(tier, &s);
	uint64_t top = share(n, tier->select.top), stay = count(&s, STAYS);
	move(&s, STAYS, KVARC_LOSSY_NOTHING, top < stay ? top : stay);
	if (tier->select.spread)
		spread(tier->select.spread, &s);
	return KVARC_OK;
}
