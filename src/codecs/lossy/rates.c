/* SPDX-License-Identifier: BSD-3-Clause */
/* rates.c - rate classes: tokens of a lossy chunk with a body of their own, by scores */
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "payload_parts.h"
#include "codecs/codec.h"

/* ==== Rates of tokens out of their scores ==== */

enum {
	MILLI = 1000,
	QUARTERS = 4,
	BYTE_BITS = 8,
	VALUES = 1 << BYTE_BITS,
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
	for (int shift = 32 - BYTE_BITS; shift >= 0; shift -= BYTE_BITS) {
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

/* ==== Rate classes: tokens of a lossy chunk with a body of their own (spec lossy 1) ==== */

/* Bits of a class in the payload. */
static unsigned width_of(unsigned n_rates)
{
	return n_rates > 2 ? 2 : 1;
}

static unsigned class_of(unsigned part)
{
	return part >= 8 ? 3 : part / 2;
}

void kvi_rates_put(const struct kvi_parts *parts, const size_t bytes[KVI_RATES_MAX],
                   struct kvi_out *out)
{
	const unsigned width = width_of(parts->n_rates);
	uint8_t map[KVI_TOKENS_MAX / 4] = { 0 };
	size_t at = 0;
	for (size_t t = 0; t < parts->chunk->n_tokens; t++)
		if (parts->part[t] & KVI_CODED) {
			map[at / 8] |= (uint8_t)(class_of(parts->part[t]) << at % 8);
			at += width;
		}
	kvi_put8(out, (uint8_t)parts->n_rates);
	kvi_put_bytes(out, map, (at + 7) / 8);
	for (unsigned i = 0; i + 1 < parts->n_rates; i++)
		kvi_put_varint(out, bytes[i]);
}

bool kvi_rates_get(struct kvi_parts *parts, struct kvi_in *in, size_t bytes[KVI_RATES_MAX])
{
	parts->n_rates = kvi_get8(in);
	if (parts->n_rates < 2 || parts->n_rates > KVI_RATES_MAX)
		return false;
	const unsigned width = width_of(parts->n_rates);
	const size_t bits = kvi_parts_count(parts, KVI_CODED) * width;
	const uint8_t *map = kvi_get_bytes(in, (bits + 7) / 8);
	unsigned seen = 0;
	if (!map || (bits % 8 && map[bits / 8] >> bits % 8))
		return false;
	for (size_t t = 0, at = 0; t < parts->chunk->n_tokens; t++)
		if (parts->part[t] & KVI_CODED) {
			unsigned class = map[at / 8] >> at % 8 & ((1u << width) - 1);
			parts->part[t] = (uint8_t)(1u << class);
			seen |= parts->part[t];
			at += width;
		}
	bool good = seen == (1u << parts->n_rates) - 1;
	for (unsigned i = 0; i + 1 < parts->n_rates; i++) {
		bytes[i] = (size_t)kvi_get_varint(in, SIZE_MAX / 2);
		good = good && bytes[i];
	}
	return good && !in->bad;
}

/* Encoding. */

/* Rates of tokens, ascending, and the number of tokens with each. */
struct rates {
	size_t n;
	int rate[KVI_TOKENS_MAX];
	size_t tokens[KVI_TOKENS_MAX];
};

static void add(struct rates *r, int rate)
{
	size_t i = 0;
	while (i < r->n && r->rate[i] < rate)
		i++;
	if (i == r->n || r->rate[i] != rate) {
		size_t behind = r->n++ - i;
		memmove(r->rate + i + 1, r->rate + i, behind * sizeof *r->rate);
		memmove(r->tokens + i + 1, r->tokens + i, behind * sizeof *r->tokens);
		r->rate[i] = rate;
		r->tokens[i] = 0;
	}
	r->tokens[i]++;
}

/* Tokens of rate i get the next higher one. */
static void merge_up(struct rates *r, size_t i)
{
	size_t behind = --r->n - i;
	r->tokens[i + 1] += r->tokens[i];
	memmove(r->rate + i, r->rate + i + 1, behind * sizeof *r->rate);
	memmove(r->tokens + i, r->tokens + i + 1, behind * sizeof *r->tokens);
}

/* Bits that tokens of rate i would take more with the next higher one, in 1/16. */
static size_t price(const struct rates *r, size_t i, size_t C)
{
	return r->tokens[i] * C * (size_t)(r->rate[i + 1] - r->rate[i]);
}

/* Price of one more body, besides its codes, in 1/16 bit. tsc has a table for each channel. */
static size_t body_price(const kvarc_lossy *tier, size_t C)
{
	enum { BODY = 140, BYTE = 8 * 16 };
	return (BODY + (tier->tier == KVARC_TIER_TSC ? C : 0)) * BYTE;
}

/* Merges rates into higher ones until KVI_RATES_MAX are left at most and each saves more than its
 * body takes: no token gets less than was asked for. */
static void merge(struct rates *r, size_t C, size_t body)
{
	while (r->n > 1) {
		size_t least = 0;
		for (size_t i = 1; i + 1 < r->n; i++)
			if (price(r, i, C) < price(r, least, C))
				least = i;
		if (r->n <= KVI_RATES_MAX && price(r, least, C) > body)
			return;
		merge_up(r, least);
	}
}

void kvi_rates_choose(struct kvi_parts *parts, const struct kvi_encode_request *request,
                      const kvarc_lossy *tier, int rate[KVI_RATES_MAX])
{
	const size_t T = request->chunk.n_tokens, C = kvi_chunk_channels(&request->chunk);
	int wanted[KVI_TOKENS_MAX] = { 0 };
	struct rates r = { .n = 0 };
	parts->n_rates = 1;
	rate[0] = tier->rate;
	for (size_t t = 0; t < T && request->token_rate; t++) {
		wanted[t] = kvi_lossy_token_rate(tier, request->kind, request->token_rate[t]);
		if (parts->part[t] & KVI_CODED)
			add(&r, wanted[t]);
	}
	if (!r.n)
		return;
	merge(&r, C, body_price(tier, C));
	parts->n_rates = (unsigned)r.n;
	for (size_t i = 0; i < r.n; i++)
		rate[i] = r.rate[i];
	for (size_t t = 0; t < T; t++) {
		unsigned class = 0;
		while (class + 1 < r.n && rate[class] < wanted[t])
			class ++;
		if (parts->part[t] & KVI_CODED)
			parts->part[t] = (uint8_t)(1u << class);
	}
}
