/* SPDX-License-Identifier: BSD-3-Clause */
/* tier.c - tiers as text: "had:4,keys=+0.5" */
#include <stdio.h>
#include <string.h>

#include "codecs/codec.h"
#include "codecs/lossy/codes.h"

enum { UNIT = 16, KEYS_MAX = 4 * UNIT, EXACT_DEFAULT = 4 };

static const struct tier {
	const char *name;
	kvarc_tier tier;
	int min_rate, max_rate; /* in 1/16 bit */
} tiers[] = {
	{ "had", KVARC_TIER_HAD, 16, 104 },
	{ "klt", KVARC_TIER_KLT, 4, 104 },
};

static const struct tier *tier_of(kvarc_tier number)
{
	for (size_t i = 0; i < sizeof tiers / sizeof *tiers; i++)
		if (tiers[i].tier == number)
			return &tiers[i];
	return NULL;
}

bool kvi_lossy_valid(const kvarc_lossy *how)
{
	const struct tier *t = tier_of(how->tier);
	for (size_t i = 0; i < sizeof how->reserved / sizeof *how->reserved; i++)
		if (how->reserved[i])
			return false;
	return t && how->rate >= t->min_rate && how->rate <= t->max_rate &&
	       how->key_rate >= -KEYS_MAX && how->key_rate <= KEYS_MAX &&
	       !(how->flags & ~(KVARC_LOSSY_NO_UNROPE | KVARC_LOSSY_IDENTITY));
}

/* A part of the text, up to a comma. */
struct part {
	const char *at;
	size_t n;
};

static bool next_part(const char **text, struct part *p)
{
	if (!**text)
		return false;
	p->at = *text;
	p->n = strcspn(*text, ",");
	*text += p->n;
	*text += **text == ',';
	return true;
}

/* What follows "key=" in a part. */
static bool has_key(struct part *p, const char *key)
{
	size_t n = strlen(key);
	if (p->n <= n || strncmp(p->at, key, n) || p->at[n] != '=')
		return false;
	p->at += n + 1;
	p->n -= n + 1;
	return true;
}

static bool is(const struct part *p, const char *word)
{
	return p->n == strlen(word) && !strncmp(p->at, word, p->n);
}

static bool number(struct part *p, unsigned most, unsigned *v)
{
	size_t digits = 0;
	*v = 0;
	for (; p->n && *p->at >= '0' && *p->at <= '9'; p->at++, p->n--) {
		*v = *v * 10 + (unsigned)(*p->at - '0');
		if (++digits > 7 || *v > most)
			return false;
	}
	return digits > 0;
}

/* Decimal bits to sixteenths, the nearest. No libm: every machine reads the same. */
static bool sixteenths(struct part p, bool sign, int *v)
{
	unsigned whole, tenth = 0, scale = 1;
	bool minus = sign && p.n && *p.at == '-';
	if (sign && p.n && (*p.at == '-' || *p.at == '+')) {
		p.at++;
		p.n--;
	}
	if (!number(&p, 99, &whole))
		return false;
	if (p.n && *p.at == '.') {
		for (p.at++, p.n--; p.n && *p.at >= '0' && *p.at <= '9' &&
		     scale < 100000; p.at++, p.n--, scale *= 10)
			tenth = tenth * 10 + (unsigned)(*p.at - '0');
	}
	*v = (int)(whole * UNIT + (2 * tenth * UNIT + scale) / (2 * scale));
	*v = minus ? -*v : *v;
	return p.n == 0;
}

static bool option(kvarc_lossy *l, struct part p)
{
	unsigned n;
	if (is(&p, "identity"))
		l->flags |= KVARC_LOSSY_IDENTITY;
	else if (is(&p, "no-unrope"))
		l->flags |= KVARC_LOSSY_NO_UNROPE;
	else if (has_key(&p, "keys"))
		return sixteenths(p, true, &l->key_rate);
	else if (has_key(&p, "exact") && number(&p, 1 << 20, &n) && !p.n)
		l->exact_tokens = n;
	else
		return false;
	return true;
}

static kvarc_ret refuse(kvarc_error *e, const char *text, const char *why)
{
	if (e) {
		*e = (kvarc_error){ .code = KVARC_OPTIONS,
			            .offset = KVARC_UNKNOWN,
			            .frame = KVARC_UNKNOWN };
		snprintf(e->text, sizeof e->text, "lossy tier \"%.60s\": %s",
		         text, why);
	}
	return KVARC_OPTIONS;
}

kvarc_ret kvarc_lossy_parse(kvarc_lossy *lossy, const char *text,
                            kvarc_error *e)
{
	const struct tier *t = NULL;
	struct part p;
	if (!lossy || !text)
		return KVARC_PROG;
	*lossy = (kvarc_lossy){ .exact_tokens = EXACT_DEFAULT };
	size_t name = strcspn(text, ":,");
	for (size_t i = 0; i < sizeof tiers / sizeof *tiers; i++)
		if (strlen(tiers[i].name) == name &&
		    !strncmp(tiers[i].name, text, name))
			t = &tiers[i];
	if (!t)
		return refuse(e, text, "the tiers are had:RATE and klt:RATE");
	const char *rest = text + name;
	if (*rest++ != ':' || !next_part(&rest, &p) ||
	    !sixteenths(p, false, &lossy->rate))
		return refuse(e, text, "NAME:RATE is wanted, bits an element");
	lossy->tier = t->tier;
	while (next_part(&rest, &p))
		if (!option(lossy, p))
			return refuse(e, text, "not all options are known: keys=, "
			              "exact=, identity, no-unrope");
	if (!kvi_lossy_valid(lossy))
		return refuse(e, text, "a number is out of its range");
	return KVARC_OK;
}
