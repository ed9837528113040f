/* SPDX-License-Identifier: BSD-3-Clause */
/* verb_aliases.h - the names and letters that users of zstd, xz and tar give to verbs */
#ifndef KVARC_CLI_VERB_ALIASES_H
#define KVARC_CLI_VERB_ALIASES_H

/* The verb's own name: "ls", "--list", "-l" -> "list"; NULL: no alias. */
const char *verb_alias(const char *text);
/* The same for options of one letter in one word, of which the first one is an alias: "-dc", whose
 * other letters are options of the verb. */
const char *verb_alias_of_letters(const char *text);
/* The verb that a word of tar means, "-xf" or "tvf", which is no alias here because -f replaces
 * files; NULL: it is none. */
const char *verb_of_tar(const char *text);

#endif
