/* SPDX-License-Identifier: BSD-3-Clause */
/* kv_rules.h - rules by which named tensors of files are keys, values and states */
#ifndef KVI_KV_RULES_H
#define KVI_KV_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvarc.h"
#include "util/alloc.h"

/* Limits of the rules that a user gives. */
enum { KVI_RULES_MAX = 256, KVI_RULES_BYTES_MAX = 64 << 10 };

/*
 * One rule. pattern: literal text with {layer}, a decimal number; {number}, another one; and
 * {K|V}, one of two words. Without {layer} the layer is in the name of the file.
 */
struct kvi_rule {
	const char *pattern;
	const char *axes;   /* as in named_axes.h; NULL: guess; "-": the tensor is kept as bytes */
	const char *key;    /* of the metadata test, rule_test.h; NULL: no test */
	const char *values; /* words separated by "|" */
	bool may_lack;      /* the test holds without that key, too */
	const char *engine; /* that writes such tensors, or NULL */
};

/* What a name says by a rule; number: the first {number}. */
struct kvi_rule_match {
	uint32_t layer, number;
	bool value, has_layer;
};

/* The rules of a user, then those of known engines, then usual names; tried in this order. */
struct kvi_rules {
	struct kvi_rule *own;
	size_t n_own;
	char *text; /* what own points into */
};

/*
 * Parses lines of "PATTERN [AXES] [if KEY=VALUE|VALUE]", ("?=": the test holds without the key,
 * too); NULL: none. Empty lines and lines that begin with '#' are left out.
 * Returns OK, PROG (a line is no rule: the message quotes it), MEM, MEMLIMIT.
 */
kvarc_ret kvi_rules_parse(struct kvi_rules *r, const struct kvi_alloc *alloc, const char *text,
                          kvarc_error *error);
/* Frees what kvi_rules_parse has allocated. */
void kvi_rules_free(struct kvi_rules *r, const struct kvi_alloc *alloc);
/* Rule number i, NULL behind the last one. */
const struct kvi_rule *kvi_rules_at(const struct kvi_rules *r, size_t i);

/* Whether a name follows a pattern. */
bool kvi_rule_match(const char *pattern, const char *name, struct kvi_rule_match *match);
/* The only number between dots in the base name of a file; false: there is none, or more. */
bool kvi_rule_layer_of_file(const char *name, uint32_t *layer);

#endif
