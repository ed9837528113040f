/* SPDX-License-Identifier: BSD-3-Clause */
/* kv_rules.h - which tensors of a file are keys and values: rules, their tests, axes by name */
#ifndef KVI_KV_RULES_H
#define KVI_KV_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kvarc.h"
#include "util/alloc.h"

struct kvi_named;

/* Rules by which named tensors of files are keys, values and states. */

/* Limits of the rules that a user gives. */
enum { KVI_RULES_MAX = 256, KVI_RULES_BYTES_MAX = 64 << 10 };

/*
 * One rule. pattern: literal text with {layer}, a decimal number; {number}, another one; and
 * {K|V}, one of two words. Without {layer} the layer is in the name of the file. A star in front of
 * it is nothing, or text that ends with a dot, a slash or a colon.
 */
struct kvi_rule {
	const char *pattern;
	const char *axes;   /* letters (kvi_axes_take), or of known rules several of them separated
	                     * by "|"; NULL: guess; "-": the tensor stays bytes */
	const char *key;    /* key of the metadata test (kvi_rule_holds); NULL: no test; "": holds
	                     * where the metadata say nothing */
	const char *values; /* words separated by "|" */
	bool may_lack;      /* the test holds without that key, too */
	const char *engine; /* engine that writes such tensors, or NULL */
};

/* Numbers and words that a rule finds in a name; number: the first {number}. */
struct kvi_rule_match {
	uint32_t layer, number;
	bool value, has_layer;
};

/* The rules of a user, then those of known engines, then usual names; tried in this order. */
struct kvi_rules {
	struct kvi_rule *own;
	size_t n_own;
	char *text; /* text that own points into */
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
/* Bytes of a rule that is suggested. */
enum { KVI_RULE_SUGGESTED = 128 };
/* Meaning of the letters of axes, for messages. */
#define KVI_AXES_LEGEND "l layer, b batch, 2 keys and values, h head, t token, c channel"
/* Writes a rule that tensors with names like that of this one may follow: a guess that a user can
 * correct. False: there is none. */
bool kvi_rule_suggest(char rule[KVI_RULE_SUGGESTED], const struct kvi_named *named);
/* The only number between dots in the base name of a file; false: there is none, or more. */
bool kvi_rule_layer_of_file(const char *name, uint32_t *layer);

/* ==== Tests of the metadata of a file, for rules ==== */

/* Most elements that are looked at, and most bytes of a list; bytes of the text of a tensor. */
enum { KVI_TEXT_LIST_MAX = 1024, KVI_TEXT_LIST_BYTES = 16 << 10, KVI_SPELLED_BYTES = 64 };

/* The metadata of a file, texts by texts. NULL in place of it: the file has none. */
struct kvi_metadata {
	/* the text at a key, which stays until the end of the import; NULL: there is none */
	const char *(*get)(const void *opaque, const char *key);
	/* writes the text in the tensor of that name, an integer of 32 bits for each character as
	 * mlx-lm saves texts; false: no such tensor, or not a printable text of ASCII that fits */
	bool (*spell)(const void *opaque, const char *name, char text[KVI_SPELLED_BYTES]);
	const void *opaque;
	bool says; /* there is a text that is not about the kind of file */
};

/* A list of texts in JSON, as Python writes one of names: where its elements are. */
struct kvi_text_list {
	const char *text; /* NULL: not looked at */
	size_t n;
	uint16_t at[KVI_TEXT_LIST_MAX], bytes[KVI_TEXT_LIST_MAX];
};

/* A test and the list that it saw last; zeroed before the first test. */
struct kvi_rule_tests {
	const struct kvi_metadata *metadata;
	struct kvi_text_list list;
	char seen[48];                   /* the value that the last test found; "": none */
	char spelled[KVI_SPELLED_BYTES]; /* the text in the tensor that the last test asked for */
};

/*
 * Whether the metadata test of a rule holds for a name that its pattern matched. In the key
 * {layer} and {number} are those of the name; KEY[{layer}] is that element of the list at KEY, and
 * @NAME is the text in the tensor of that name.
 */
bool kvi_rule_holds(struct kvi_rule_tests *tests, const struct kvi_rule *rule,
                    const struct kvi_rule_match *match);

/* The axes of a named tensor by letters. */

/*
 * The axes of a tensor of rows, tokens, heads and channels. Strides count elements. A part is a
 * tensor of keys, of values or of both.
 */
struct kvi_axes {
	uint64_t batch, parts;            /* rows, which are outermost; 2: keys, then values */
	uint64_t tokens, heads, channels; /* extents of one part */
	uint64_t token_stride, head_stride, part_stride;
	uint64_t stacked; /* tensors of these axes, one behind the other */
	bool heads_first; /* heads before the tokens */
	bool parts_apart; /* all keys of a row are before its values */
	bool is_latent;   /* latents of MLA: neither keys nor values */
	bool is_state;    /* no tokens: rows of channels are numbered as tokens */
	bool is_conv;     /* state of a convolution, by its shape: fewer rows than channels */
};

/*
 * Whether letters name axes, one each, from the outermost one on: l layers, alone or with 2 for
 * keys and values in front of it or behind it; b rows of a batch (first behind those), 2 keys and
 * values, t tokens, h heads, 1 an axis of that size, and last one of c channels, p channels of the
 * keys and as many of the values, m channels of the latent of MLA. Or s alone: a state of two axes
 * or more, of which the last one has the channels.
 */
bool kvi_axes_known(const char *letters);
/* The number of leading letters that count tensors: l, l2, 2l, or none. */
static inline size_t kvi_axes_stacked(const char *letters)
{
	if (letters[0] == 'l')
		return letters[1] == '2' ? 2 : 1;
	return letters[0] == '2' && letters[1] == 'l' ? 2 : 0;
}
/* Whether known letters are those of a state. */
static inline bool kvi_axes_of_state(const char *letters)
{
	return !strcmp(letters, "s");
}
/* Reads a shape by known letters. False: the shape does not fit, or is empty or too large. */
bool kvi_axes_take(const struct kvi_named *named, const char *letters, struct kvi_axes *axes);

#endif
