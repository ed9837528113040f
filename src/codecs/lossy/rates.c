/* SPDX-License-Identifier: BSD-3-Clause */
/* rates.c - rate classes: tokens of a lossy chunk with a body of their own (spec lossy 1) */
#include "payload_parts.h"

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

void kvi_rates_choose(struct kvi_parts *parts, const kvarc_lossy *tier, int rate[KVI_RATES_MAX])
{
	const struct kvi_chunk *chunk = parts->chunk;
	const size_t C = kvi_chunk_channels(chunk);
	int wanted[KVI_TOKENS_MAX] = { 0 };
	struct rates r = { .n = 0 };
	parts->n_rates = 1;
	rate[0] = tier->rate;
	for (size_t t = 0; t < chunk->n_tokens && chunk->token_rate; t++) {
		wanted[t] = kvi_lossy_token_rate(tier, chunk, chunk->token_rate[t]);
		if (parts->part[t] & KVI_CODED)
			add(&r, wanted[t]);
	}
	if (!r.n)
		return;
	merge(&r, C, body_price(tier, C));
	parts->n_rates = (unsigned)r.n;
	for (size_t i = 0; i < r.n; i++)
		rate[i] = r.rate[i];
	for (size_t t = 0; t < chunk->n_tokens; t++) {
		unsigned class = 0;
		while (class + 1 < r.n && rate[class] < wanted[t])
			class ++;
		if (parts->part[t] & KVI_CODED)
			parts->part[t] = (uint8_t)(1u << class);
	}
}
