/* SPDX-License-Identifier: BSD-3-Clause */
/* rule_test.h - what the metadata of a file say about a tensor */
#ifndef KVI_RULE_TEST_H
#define KVI_RULE_TEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kv_rules.h"

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

#endif
