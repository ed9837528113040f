/* SPDX-License-Identifier: BSD-3-Clause */
/* tier.c - tiers as text: "had:4,keys=+0.5" */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "codecs/codec.h"
#include "codecs/lossy/lossy_codec.h"
#include "util/arguments.h"

enum {
	UNIT = 16,
	KEYS_MAX = 4 * UNIT,
	EXACT_DEFAULT = 4,
	ERROR_DIGITS = 9,
	ERROR_MIN = 1000,
	ERROR_MAX = 1000000000,
	MILLI = 1000,
	KEYFRAME_MAX = 256,
	BLOCK_MAX = 65535,
	TOKENS_MAX = 1 << 20,
	NUMBER_MAX = 100 * MILLI, /* decimal numbers have two digits */
	SPREAD_MAX = 4 * UNIT,
	TOKEN_RATES_MAX = 4,
	KEYS_AND_VALUES = 1 << KVARC_KEY | 1 << KVARC_VALUE | 1 << KVARC_CROSS_KEY |
	                  1 << KVARC_CROSS_VALUE,
	ALL_FLAGS = KVARC_LOSSY_NO_UNROPE | KVARC_LOSSY_IDENTITY | KVARC_LOSSY_PRODUCT
};

static const struct tier_tier {
	const char *name;
	kvarc_tier tier;
	int min_rate, max_rate; /* rates in 1/16 bit */
	bool whole;             /* bits are whole numbers */
	unsigned kinds;         /* kinds of tensors: a bit for each kvarc_kind */
} tiers[] = {
	{ "near", KVARC_TIER_NEAR, 0, 0, false, KEYS_AND_VALUES },
	{ "tsc", KVARC_TIER_TSC, 32, 128, true, KEYS_AND_VALUES },
	{ "vq", KVARC_TIER_VQ, 16, 64, true, KEYS_AND_VALUES },
	{ "had", KVARC_TIER_HAD, 16, 104, false, KEYS_AND_VALUES },
	{ "klt", KVARC_TIER_KLT, 4, 104, false, ~0u }, /* all tensors with a basis in the profile */
};

/* Quantisers of published codecs, named after their published ratios. */
static const struct preset {
	const char *name, *tier;
} presets[] = {
	{ "tsc-8x", "tsc:4,block=256" },
	{ "tsc-63x", "tsc:4,kappa=64,block=256" },
	{ "vq-84x", "tsc:4,kappa=64,block=256,keep=0.75" },
	{ "vq-219x", "vq:2,pq,fallback=0.33" },
	{ "vq-429x", "vq:4" },
	{ "vq-1034x", "vq:1" },
};

static const struct tier_tier *tier_of(kvarc_tier number)
{
	for (size_t i = 0; i < sizeof tiers / sizeof *tiers; i++)
		if (tiers[i].tier == number)
			return &tiers[i];
	return NULL;
}

/* Numbers of single tiers. */
static bool own_numbers_valid(const kvarc_lossy *tier)
{
	bool tsc = tier->tier == KVARC_TIER_TSC, vq = tier->tier == KVARC_TIER_VQ;
	if (tier->flags & KVARC_LOSSY_PRODUCT && (!vq || tier->rate != 2 * UNIT || tier->key_rate))
		return false;
	bool near = tier->tier == KVARC_TIER_NEAR;
	if (tier->params.bound.max_error < (near ? ERROR_MIN : 0) ||
	    tier->params.bound.max_error > (near ? ERROR_MAX : 0))
		return false;
	return tier->params.tsc.keyframe <= (tsc ? KEYFRAME_MAX : 0) &&
	       tier->params.tsc.block <= (tsc ? BLOCK_MAX : 0) &&
	       tier->params.vq.fallback <= (vq ? MILLI : 0);
}

/* Whether there are at most TOKEN_RATES_MAX different rates. */
static bool token_rates_valid(const kvarc_lossy *tier)
{
	int16_t seen[TOKEN_RATES_MAX];
	unsigned n = 0, k;
	for (uint64_t i = 0; tier->token_rate && i < tier->n_token_rates; i++) {
		int16_t rate = tier->token_rate[i];
		if (rate == KVARC_LOSSY_NOTHING || rate == KVARC_LOSSY_DROP)
			continue;
		for (k = 0; k < n && seen[k] != rate;)
			k++;
		if (k == TOKEN_RATES_MAX)
			return false;
		seen[k] = rate;
		n += k == n;
	}
	return true;
}

/* Numbers that kvarc_lossy_rates uses. */
static bool shares_valid(const kvarc_lossy *tier)
{
	return tier->select.keep <= MILLI && tier->select.top <= MILLI &&
	       tier->select.spread >= -SPREAD_MAX && tier->select.spread <= SPREAD_MAX &&
	       (!tier->select.spread || kvi_lossy_max_rate(tier->tier));
}

bool kvi_lossy_valid(const kvarc_lossy *tier)
{
	const struct tier_tier *t = tier_of(tier->tier);
	return t && kvi_all_zero(tier->reserved, sizeof tier->reserved) &&
	       kvi_all_zero(tier->params.reserved, sizeof tier->params.reserved) &&
	       kvi_all_zero(tier->select.reserved, sizeof tier->select.reserved) &&
	       tier->rate >= t->min_rate && tier->rate <= t->max_rate &&
	       tier->key_rate >= -KEYS_MAX && tier->key_rate <= KEYS_MAX &&
	       !(t->whole && (tier->rate | tier->key_rate) % UNIT) &&
	       (!tier->layer_rate || kvi_lossy_max_rate(tier->tier)) && own_numbers_valid(tier) &&
	       shares_valid(tier) && token_rates_valid(tier) &&
	       !(tier->flags & ~(unsigned)ALL_FLAGS);
}

int kvi_lossy_rate_at(const kvarc_lossy *tier, uint64_t token, uint64_t end)
{
	if (!tier || !tier->token_rate || token >= tier->n_token_rates)
		return 0;
	int rate = tier->token_rate[token];
	bool exact = token < tier->exact_tokens ||
	             (tier->tail_tokens && token + tier->tail_tokens >= end);
	return rate == KVARC_LOSSY_DROP && exact ? KVARC_LOSSY_NOTHING : rate;
}

int kvi_lossy_max_rate(kvarc_tier tier)
{
	const struct tier_tier *t = tier_of(tier);
	return t && !t->whole ? t->max_rate : 0;
}

bool kvi_lossy_takes(const kvarc_lossy *tier, unsigned kind)
{
	const struct tier_tier *t = tier_of(tier->tier);
	int rate = t && t->whole ? kvi_lossy_bits(tier, kind) * UNIT : tier->rate;
	return t && rate >= t->min_rate && rate <= t->max_rate && t->kinds >> kind & 1;
}

bool kvi_lossy_of_layer(const kvarc_lossy *all, uint32_t layer, kvarc_lossy *one)
{
	int most = kvi_lossy_max_rate(all->tier), more = 0;
	*one = *all;
	if (all->layer_rate && layer < all->n_layers)
		more = all->layer_rate[layer];
	if (more == KVARC_LOSSY_NOTHING)
		return false;
	if (more)
		one->rate = more > most - all->rate ? most : all->rate + more;
	return true;
}

/* The nearest whole number of bits, up when there are two. */
static int whole_bits(int rate)
{
	int whole = rate + UNIT / 2;
	return whole - (whole % UNIT + UNIT) % UNIT;
}

int kvi_lossy_token_rate(const kvarc_lossy *tier, unsigned kind, int more)
{
	const struct tier_tier *t = tier_of(tier->tier);
	int rate = tier->rate + more, keys = 0;
	if (t->tier == KVARC_TIER_NEAR || t->tier == KVARC_TIER_VQ)
		return tier->rate;
	if (t->whole) {
		rate = tier->rate + whole_bits(more);
		keys = kind == KVARC_KEY ? tier->key_rate : 0;
	}
	return rate + keys < t->min_rate   ? t->min_rate - keys
	       : rate + keys > t->max_rate ? t->max_rate - keys
	                                   : rate;
}

/* A part of the text, up to a comma. */
struct tier_part {
	const char *at;
	size_t n;
};

static bool next_part(const char **text, struct tier_part *part)
{
	if (!**text)
		return false;
	part->at = *text;
	part->n = strcspn(*text, ",");
	*text += part->n;
	*text += **text == ',';
	return true;
}

/* Moves part to the value where it begins with "key="; false: it does not. */
static bool has_key(struct tier_part *part, const char *key)
{
	size_t n = strlen(key);
	if (part->n <= n || strncmp(part->at, key, n) || part->at[n] != '=')
		return false;
	part->at += n + 1;
	part->n -= n + 1;
	return true;
}

static bool is(const struct tier_part *part, const char *word)
{
	return part->n == strlen(word) && !strncmp(part->at, word, part->n);
}

static bool number(struct tier_part *part, unsigned most, unsigned *v)
{
	size_t digits = 0;
	*v = 0;
	for (; part->n && *part->at >= '0' && *part->at <= '9'; part->at++, part->n--) {
		*v = *v * 10 + (unsigned)(*part->at - '0');
		if (++digits > 7 || *v > most)
			return false;
	}
	return digits > 0;
}

/* A decimal number to the nearest multiple of 1 / parts. No libm: every machine reads the same. */
static bool decimal(struct tier_part part, bool sign, unsigned parts, int *v)
{
	unsigned whole, tenth = 0, scale = 1;
	bool minus = sign && part.n && *part.at == '-';
	if (sign && part.n && (*part.at == '-' || *part.at == '+')) {
		part.at++;
		part.n--;
	}
	if (!number(&part, 99, &whole))
		return false;
	if (part.n && *part.at == '.') {
		for (part.at++, part.n--;
		     part.n && *part.at >= '0' && *part.at <= '9' && scale < 100000;
		     part.at++, part.n--, scale *= 10)
			tenth = tenth * 10 + (unsigned)(*part.at - '0');
	}
	*v = (int)(whole * parts + (2 * tenth * parts + scale) / (2 * scale));
	*v = minus ? -*v : *v;
	return part.n == 0;
}

/* A decimal number in 1e-9; whether it is one, not above 9. */
static bool error_of(struct tier_part part, uint64_t *v)
{
	unsigned whole;
	int digits = 0;
	if (!number(&part, 9, &whole))
		return false;
	*v = whole;
	if (part.n && *part.at == '.')
		for (part.at++, part.n--;
		     part.n && *part.at >= '0' && *part.at <= '9' && digits < ERROR_DIGITS;
		     part.at++, part.n--, digits++)
			*v = *v * 10 + (unsigned)(*part.at - '0');
	for (; digits < ERROR_DIGITS; digits++)
		*v *= 10;
	return part.n == 0;
}

/* The number behind the name of a tier. */
static bool rate_of(kvarc_lossy *lossy, struct tier_part part)
{
	uint64_t error;
	if (lossy->tier != KVARC_TIER_NEAR)
		return decimal(part, false, UNIT, &lossy->rate);
	if (!error_of(part, &error) || error > ERROR_MAX)
		return false;
	lossy->params.bound.max_error = (uint32_t)error;
	return true;
}

/* Options: a number times `unit` and rounded, from `least` to `most`; a sign where least is
 * negative. Words without a number set a flag. */
static const struct tier_option {
	const char *key;
	unsigned flag;
	size_t offset; /* offset of the member, int or uint32_t */
	int unit, least, most;
} options[] = {
	{ .key = "identity", .flag = KVARC_LOSSY_IDENTITY },
	{ .key = "no-unrope", .flag = KVARC_LOSSY_NO_UNROPE },
	{ .key = "pq", .flag = KVARC_LOSSY_PRODUCT },
	{ "keys", 0, offsetof(kvarc_lossy, key_rate), UNIT, -NUMBER_MAX, NUMBER_MAX },
	{ "spread", 0, offsetof(kvarc_lossy, select.spread), UNIT, -NUMBER_MAX, NUMBER_MAX },
	{ "outliers", 0, offsetof(kvarc_lossy, outliers), UNIT, 1, NUMBER_MAX },
	{ "keep", 0, offsetof(kvarc_lossy, select.keep), MILLI, 1, NUMBER_MAX },
	{ "top", 0, offsetof(kvarc_lossy, select.top), MILLI, 1, NUMBER_MAX },
	{ "fallback", 0, offsetof(kvarc_lossy, params.vq.fallback), MILLI, 0, NUMBER_MAX },
	{ "exact", 0, offsetof(kvarc_lossy, exact_tokens), 1, 0, TOKENS_MAX },
	{ "tail", 0, offsetof(kvarc_lossy, tail_tokens), 1, 0, TOKENS_MAX },
	{ "recent", 0, offsetof(kvarc_lossy, select.recent), 1, 0, TOKENS_MAX },
	{ "kappa", 0, offsetof(kvarc_lossy, params.tsc.keyframe), 1, 1, KEYFRAME_MAX },
	{ "block", 0, offsetof(kvarc_lossy, params.tsc.block), 1, 1, BLOCK_MAX },
};

static bool option(kvarc_lossy *lossy, struct tier_part part)
{
	for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
		const struct tier_option *o = &options[i];
		unsigned n = 0;
		int v;
		if (o->flag && is(&part, o->key)) {
			lossy->flags |= o->flag;
			return true;
		}
		if (o->flag || !has_key(&part, o->key))
			continue;
		if (o->unit > 1 ? !decimal(part, o->least < 0, (unsigned)o->unit, &v)
		                : !number(&part, (unsigned)o->most, &n) || part.n)
			return false;
		v = o->unit > 1 ? v : (int)n;
		if (v < o->least || v > o->most)
			return false;
		if (!v && o->offset == offsetof(kvarc_lossy, select.recent))
			lossy->select.recent = KVARC_LOSSY_NO_RECENT;
		else
			memcpy((char *)lossy + o->offset, &v, sizeof v);
		return true;
	}
	return false;
}

static kvarc_ret refuse(kvarc_error *error, const char *text, const char *why)
{
	if (error) {
		*error = (kvarc_error){ .code = KVARC_OPTIONS,
			                .offset = KVARC_UNKNOWN,
			                .frame = KVARC_UNKNOWN };
		snprintf(error->text, sizeof error->text, "lossy tier \"%.60s\": %s", text, why);
	}
	return KVARC_OPTIONS;
}

/* Reads "NAME:RATE[,KEY[=VALUE]]..."; returns NULL, or the reason why it is wrong. */
static const char *read_tier(kvarc_lossy *lossy, const char *text)
{
	const struct tier_tier *t = NULL;
	struct tier_part p;
	size_t name = strcspn(text, ":,");
	for (size_t i = 0; i < sizeof tiers / sizeof *tiers; i++)
		if (strlen(tiers[i].name) == name && !strncmp(tiers[i].name, text, name))
			t = &tiers[i];
	if (!t)
		return "the tiers are near:ERROR, tsc:BITS, vq:RATE, had:RATE and klt:RATE";
	const char *rest = text + name;
	lossy->tier = t->tier;
	if (*rest++ != ':' || !next_part(&rest, &p) || !rate_of(lossy, p))
		return "NAME:RATE is wanted, bits an element, or near:ERROR, 1 at most";
	while (next_part(&rest, &p))
		if (!option(lossy, p))
			return "not all options are known: keys=, exact=, "
			       "tail=, outliers=, keep=, recent=, top=, spread=, identity, "
			       "no-unrope, kappa=, block=, pq, fallback=";
	return NULL;
}

kvarc_ret kvarc_lossy_parse(kvarc_lossy *lossy, const char *text, kvarc_error *error)
{
	const char *rest = text, *wrong = NULL;
	struct tier_part p;
	if (!lossy || !text)
		return KVARC_PROG;
	*lossy = (kvarc_lossy){ .exact_tokens = EXACT_DEFAULT };
	for (size_t i = 0; i < sizeof presets / sizeof *presets && rest == text; i++) {
		size_t n = strlen(presets[i].name);
		if (strncmp(text, presets[i].name, n) || (text[n] && text[n] != ','))
			continue;
		wrong = read_tier(lossy, presets[i].tier);
		rest = text + n + (text[n] == ',');
		while (!wrong && next_part(&rest, &p))
			if (!option(lossy, p))
				wrong = "not all of its options are known";
	}
	if (rest == text)
		wrong = read_tier(lossy, text);
	if (!wrong && text[strlen(text) - 1] == ',')
		wrong = "nothing follows the last comma";
	if (wrong)
		return refuse(error, text, wrong);
	if (!kvi_lossy_valid(lossy))
		return refuse(error, text,
		              "a number is out of its range, or an option is another tier's");
	return KVARC_OK;
}
