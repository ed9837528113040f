/* SPDX-License-Identifier: BSD-3-Clause */
/* rule_test.c - what the metadata of a file say about a tensor */
#include "config.h"

#include "rule_test.h"

#include <stdio.h>
#include <string.h>

enum { KEY_BYTES = 160 };

/* A part of a text. */
struct text_part {
	const char *p;
	size_t n;
};

/* The key with the numbers of the name. False: it is too long. */
static bool write_key(char *dst, const char *key, const struct kvi_rule_match *match)
{
	size_t n = 0;
	while (*key) {
		bool layer = !strncmp(key, "{layer}", 7);
		bool number = !strncmp(key, "{number}", 8);
		if (n + 12 > KEY_BYTES)
			return false;
		if (layer || number) {
			n += (size_t)snprintf(dst + n, KEY_BYTES - n, "%u",
			                      (unsigned)(layer ? match->layer : match->number));
			key += layer ? 7 : 8;
		} else {
			dst[n++] = *key++;
		}
	}
	dst[n] = '\0';
	return true;
}

static size_t blanks(const char *p)
{
	return strspn(p, " \t\r\n");
}

/* Notes where the elements of ["A", "B"] are; none of a text of another form. */
static void read_list(struct kvi_text_list *list, const char *text)
{
	const char *p = text + blanks(text);
	list->text = text;
	list->n = 0;
	if (strnlen(text, KVI_TEXT_LIST_BYTES) == KVI_TEXT_LIST_BYTES || *p++ != '[')
		return;
	for (size_t n = 0; n < KVI_TEXT_LIST_MAX; n++) {
		p += blanks(p);
		if (*p++ != '"')
			return;
		size_t bytes = strcspn(p, "\"\\");
		if (p[bytes] != '"')
			return;
		list->at[n] = (uint16_t)(p - text);
		list->bytes[n] = (uint16_t)bytes;
		p += bytes + 1;
		p += blanks(p);
		if (*p == ']') {
			list->n = n + 1;
			return;
		}
		if (*p++ != ',')
			return;
	}
}

static bool element(struct kvi_rule_tests *tests, const char *text, uint32_t i,
                    struct text_part *part)
{
	if (tests->list.text != text)
		read_list(&tests->list, text);
	if (i >= tests->list.n)
		return false;
	*part = (struct text_part){ text + tests->list.at[i], tests->list.bytes[i] };
	return true;
}

/* The text in a tensor. */
static bool find_spelled(struct kvi_rule_tests *tests, const char *name, struct text_part *part)
{
	const struct kvi_metadata *m = tests->metadata;
	if (!m || !m->spell || !m->spell(m->opaque, name, tests->spelled))
		return false;
	*part = (struct text_part){ tests->spelled, strlen(tests->spelled) };
	return true;
}

/* What stands at a key, which may end with [N], or begin with @. */
static bool find(struct kvi_rule_tests *tests, char *key, struct text_part *part)
{
	if (key[0] == '@')
		return find_spelled(tests, key + 1, part);
	char *open = strrchr(key, '[');
	size_t n = strlen(key);
	unsigned i;
	char close;
	bool indexed = open && key[n - 1] == ']' && sscanf(open, "[%5u%c", &i, &close) == 2;
	if (indexed)
		*open = '\0';
	const char *text = tests->metadata ? tests->metadata->get(tests->metadata->opaque, key)
	                                   : NULL;
	if (!text)
		return false;
	if (indexed)
		return element(tests, text, i, part);
	*part = (struct text_part){ text, strlen(text) };
	return true;
}

static bool is_one_of(const struct text_part *part, const char *words)
{
	while (*words) {
		size_t n = strcspn(words, "|");
		if (n == part->n && !memcmp(words, part->p, n))
			return true;
		words += n + (words[n] == '|');
	}
	return false;
}

bool kvi_rule_holds(struct kvi_rule_tests *tests, const struct kvi_rule *rule,
                    const struct kvi_rule_match *match)
{
	char key[KEY_BYTES];
	struct text_part x;
	if (!rule->key)
		return true;
	if (!write_key(key, rule->key, match))
		return false;
	if (!find(tests, key, &x))
		return rule->may_lack;
	snprintf(tests->seen, sizeof tests->seen, "%.*s", x.n < 40 ? (int)x.n : 40, x.p);
	return is_one_of(&x, rule->values);
}
