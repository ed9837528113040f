/* SPDX-License-Identifier: BSD-3-Clause */
/* option_table.h - the verbs and options that there are, and how options take values */
#ifndef KVARC_CLI_OPTION_TABLE_H
#define KVARC_CLI_OPTION_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "cli/options.h"

/* The verb's own name: "ls", "--list", "-l" -> "list"; NULL: no alias. */
const char *verb_alias(const char *text);
/* Returns a verb's name as verb_alias does, for options of one letter in one word, of which the
 * first one is an alias: "-dc", whose other letters are options of the verb. */
const char *verb_alias_of_letters(const char *text);
/* The verb that a word of tar means, "-xf" or "tvf", which is no alias here because -f replaces
 * files; NULL: it is none. */
const char *verb_of_tar(const char *text);

/* Kinds of arguments, for completions. */
enum arg_kind { ARG_NONE, ARG_FILE, ARG_VALUE, ARG_CHOICE };

struct option_row;
/* Takes a value, NULL for options without one. Returns 0, or -1 after a message. */
typedef int option_set_fn(struct options *o, const struct option_row *r, const char *value);

/* Types of options, by their use of the value. */
enum option_type {
	OPTION_FLAG,   /* bool = true; takes no value */
	OPTION_STRING, /* const char * = the text of argv */
	OPTION_LIST,   /* struct option_list, one more */
	OPTION_CHOICE, /* unsigned = number of the choice, from 1 */
	OPTION_NUMBER, /* uint64_t between min and max */
	OPTION_CALL,   /* calls `set` */
	OPTION_HELP    /* shows the help of the verb */
};

/* Description of the value of an option. */
struct option_value {
	enum option_type type;
	size_t at;          /* offset of the member in struct options */
	uint64_t min, max;  /* OPTION_NUMBER */
	const char *wanted; /* "give ..." of a wrong value */
	option_set_fn *set; /* OPTION_CALL */
};

/* An option of one or more verbs. */
struct option_row {
	char letter; /* 0: none */
	const char *name;
	const char *arg; /* name of the argument, NULL: none */
	enum arg_kind arg_kind;
	const char *choices; /* separated by blanks, for ARG_CHOICE */
	unsigned verbs;
	const char *help;
	struct option_value value;
};

/* Action of a verb, named by the word behind it: "session save". Ways to call it stand one
 * behind the other, with one name; all but the first have no summary. */
struct action_row {
	unsigned verb;
	const char *name, *operands;
	const char *summary;
};

/*
 * Takes a value of the command line by the type of the option; value is NULL for an option without
 * one, and must stay as long as options. Returns 0, or -1 after a message that says what the option
 * wants.
 */
int options_set(struct options *options, const struct option_row *r, const char *value);

/* The option of a compression level, -0 to -9. */
option_set_fn options_set_level;

/* End with a row whose name is NULL. */
extern const struct verb options_verbs[];
extern const struct option_row options_rows[];
extern const struct action_row options_actions[];
/* The verb of that name or alias (option_table.h); NULL: none. */
const struct verb *options_verb(const char *name);
/* The name of the verb that is closest, NULL when none is close. */
const char *options_nearest_verb(const char *name);
/* The verb's first action, or its action of that name (option_table.h); NULL: none. */
const struct action_row *options_action(const struct verb *verb, const char *name);
/* The name of the verb's action that is closest, NULL when none is close. */
const char *options_nearest_action(const struct verb *verb, const char *name);
/* The name of the verb's option that is closest, NULL when none is close. */
const char *options_nearest_option(const struct verb *verb, const char *name);

#endif
