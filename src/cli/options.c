/* SPDX-License-Identifier: BSD-3-Clause */
/* options.c - parses the command line by the table in option_table.c */
#include "config.h"

#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kvarc/store.h"
#include "message.h"
#include "nearest.h"
#include "option_values.h"
#include "units.h"
#include "verb_aliases.h"

static int unknown_option(const struct verb *verb, const char *shown, const char *name)
{
	struct nearest n;
	const char *near;

	nearest_init(&n, name);
	for (const struct option_row *r = options_rows; r->name; r++) {
		if (strcmp(r->name, name) == 0) {
			const struct verb *v = options_verbs;
			while (!(v->bit & r->verbs))
				v++;
			msg_error(NULL,
			          "%s: option '--%s' belongs to 'kvarc %s'; see 'kvarc %s --help'",
			          verb->name, name, v->name, verb->name);
			return -1;
		}
		if (r->verbs & verb->bit)
			nearest_try(&n, r->name);
	}
	near = nearest_result(&n);
	if (near)
		msg_error(NULL, "%s: unknown option '%s'; did you mean '--%s'?", verb->name, shown,
		          near);
	else
		msg_error(NULL, "%s: unknown option '%s'; see 'kvarc %s --help'", verb->name, shown,
		          verb->name);
	return -1;
}

/* --arith and --loop without a level: the one whose own they are, else that of its loop. */
static int choose_level(struct options *o)
{
	if (o->blind && o->loop == KVARC_LOOP_CLOSED) {
		msg_error(NULL, "%s: --predict needs --model and an open loop", o->verb->name);
		return -1;
	}
	if (o->blind && o->arithmetic)
		o->loop = KVARC_LOOP_OPEN;
	bool open = o->loop == KVARC_LOOP_OPEN;

	if ((!o->arithmetic && !o->loop) || o->verb->bit == VERB_EVAL)
		return 0;
	if (o->level_given && o->level < 4) {
		msg_error(NULL, "%s: --arith and --loop are for levels 4 to 8", o->verb->name);
		return -1;
	}
	if (!o->level_given)
		o->level = open                                       ? 4
		           : o->arithmetic == KVARC_ARITHMETIC_W8A15  ? 6
		           : o->arithmetic == KVARC_ARITHMETIC_W15A15 ? 7
		                                                      : 5;
	o->loop = o->level_given || o->loop ? o->loop : KVARC_LOOP_CLOSED;
	o->level_given = true;
	return 0;
}

/* "--store --once": a value that was forgotten. */
static int next_value(struct options *o, const struct option_row *r, const char *value)
{
	if (value[0] == '-' && value[1] == '-') {
		msg_error(NULL, "%s: option '--%s' needs a value, and '%s' is none; one that "
		                "begins with '--' is given as --%s=%s",
		          o->verb->name, r->name, value, r->name, value);
		return -1;
	}
	return options_set(o, r, value);
}

/* "--name", "--name=value", "--name value" at argv[*i]. */
static int long_option(struct options *o, int argc, char **argv, int *i)
{
	const char *text = argv[*i], *equal = strchr(text, '=');
	size_t len = equal ? (size_t)(equal - text) - 2 : strlen(text) - 2;
	const struct option_row *r = options_rows;
	char name[64];

	if (len >= sizeof(name))
		len = sizeof(name) - 1;
	memcpy(name, text + 2, len);
	name[len] = '\0';
	while (r->name && !(strcmp(r->name, name) == 0 && (r->verbs & o->verb->bit)))
		r++;
	if (!r->name) {
		char shown[72];
		snprintf(shown, sizeof(shown), "--%s", name);
		return unknown_option(o->verb, shown, name);
	}
	if (r->value.type == OPTION_HELP) {
		help_verb(o->verb);
		return 1;
	}
	if (!r->arg) {
		if (equal) {
			msg_error(NULL, "%s: option '--%s' takes no value", o->verb->name, name);
			return -1;
		}
		return options_set(o, r, NULL);
	}
	if (equal)
		return options_set(o, r, equal + 1);
	if (*i + 1 >= argc) {
		msg_error(NULL, "%s: option '--%s' needs a value: --%s %s", o->verb->name, name,
		          name, r->arg);
		return -1;
	}
	return next_value(o, r, argv[++*i]);
}

static int unknown_letter(const struct verb *verb, char letter)
{
	const char text[] = { '-', letter, '\0' };
	const char *meant = verb_alias(text);

	if (meant)
		msg_error(NULL, "%s: unknown option '%s'; did you mean 'kvarc %s'?", verb->name,
		          text, meant);
	else
		msg_error(NULL, "%s: unknown option '%s'; see 'kvarc %s --help'", verb->name, text,
		          verb->name);
	return -1;
}

/* "-kvT4", "-T 4" at argv[*i]. */
static int short_options(struct options *o, int argc, char **argv, int *i)
{
	for (const char *p = argv[*i] + 1; *p; p++) {
		const struct option_row *r = options_rows;
		char digit[2] = { *p, '\0' };
		bool is_level = *p >= '0' && *p <= '9';

		while (r->name &&
		       !((is_level ? r->value.set == options_set_level : r->letter == *p) &&
		         (r->verbs & o->verb->bit)))
			r++;
		if (!r->name)
			return unknown_letter(o->verb, *p);
		if (r->value.type == OPTION_HELP) {
			help_verb(o->verb);
			return 1;
		}
		if (is_level) {
			if (options_set(o, r, digit) != 0)
				return -1;
		} else if (!r->arg) {
			if (options_set(o, r, NULL) != 0)
				return -1;
		} else if (p[1]) {
			return options_set(o, r, p + 1);
		} else if (*i + 1 >= argc) {
			msg_error(NULL, "%s: option '-%c' needs a value: -%c %s", o->verb->name, *p,
			          *p, r->arg);
			return -1;
		} else {
			return next_value(o, r, argv[++*i]);
		}
	}
	return 0;
}

static bool is_archive_name(const char *name)
{
	size_t n = strlen(name);

	return n > 4 && strcmp(name + n - 4, ".kva") == 0;
}

/* Options that stand where a verb belongs. */
static int without_verb(int argc, char **argv)
{
	const char *text = argv[1];
	const char *near;

	if (strcmp(text, "--version") == 0 || strcmp(text, "-V") == 0) {
		printf("kvarc %s (format %d.%d, kernels: %s)\n", kvarc_version(),
		       KVARC_FORMAT_MAJOR, KVARC_FORMAT_MINOR, kvarc_isa_name(KVARC_ISA_ALL));
		return 1;
	}
	if (strcmp(text, "--help") == 0 || strcmp(text, "-h") == 0) {
		help_overview();
		return 1;
	}
	if (strcmp(text, "--option-table") == 0) {
		completions_print_table();
		return 1;
	}
	if (strcmp(text, "--completions") == 0) {
		if (argc == 3 && completions_print(argv[2]))
			return 1;
		msg_error(NULL, "--completions needs a shell: bash, zsh or fish");
		return -1;
	}
	if (verb_of_tar(text)) {
		msg_error(NULL, "'%s' is for tar; did you mean 'kvarc %s FILE'?", text,
		          verb_of_tar(text));
		return -1;
	}
	if (text[0] == '-') {
		msg_error(NULL,
		          "'%s' stands where a verb belongs; "
		          "try 'kvarc pack %s ...' or 'kvarc help'",
		          text, text);
		return -1;
	}
	near = options_nearest_verb(text);
	if (near)
		msg_error(NULL, "unknown verb '%s'; did you mean 'kvarc %s'?", text, near);
	else if (access(text, F_OK) == 0)
		msg_error(NULL, "'%s' stands where a verb belongs; did you mean 'kvarc %s %s'?",
		          text, is_archive_name(text) ? "unpack" : "pack", text);
	else
		msg_error(NULL, "unknown verb '%s'; see 'kvarc help'", text);
	return -1;
}

static void set_defaults(struct options *o)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);

	memset(o, 0, sizeof(*o));
	o->level = KVARC_LEVEL_DEFAULT;
	/* More than four seldom pays for itself in memory. */
	o->threads = cores < 1 ? 1 : cores > 4 ? 4 : (unsigned)cores;
	o->repeat = 5;
	o->held_out = 10;
	o->first_token = -1;
	o->dtype = KVARC_BF16;
	o->sequences = 64;
	o->prefix = 512;
	o->continuation = 64;
	o->n_layers = UINT64_MAX;
	o->n_tokens = UINT64_MAX;
}

/* -c is -o - */
static int take_stdout(struct options *o)
{
	if (o->to_stdout && o->output && strcmp(o->output, "-") != 0) {
		msg_error(NULL, "%s: -c writes to standard output and -o to '%s': give one of them",
		          o->verb->name, o->output);
		return -1;
	}
	if (o->to_stdout)
		o->output = "-";
	return 0;
}

/* A URL with a password moves to memory of its own, and argv gets it without, for 'ps'. */
static int hide(const char **url, char **own)
{
	char *text = (char *)*url; /* of argv, which may be written to */
	const size_t n = text ? strlen(text) + 1 : 0;

	*own = n ? malloc(n) : NULL;
	if (n && !*own) {
		msg_error(NULL, "out of memory");
		return -1;
	}
	if (n) {
		memcpy(*own, text, n);
		kvarc_store_shown(*own, text, n);
		memset(text + strlen(text), 0, n - strlen(text));
		*url = *own;
	}
	return 0;
}

int options_parse(struct options *o, int argc, char **argv)
{
	bool only_files = false;
	int first = 2;

	set_defaults(o);
	if (argc < 2) {
		msg_error(NULL, "a verb is missing; see 'kvarc help'");
		return -1;
	}
	o->verb = options_verb(argv[1]);
	if (!o->verb && verb_alias_of_letters(argv[1])) {
		o->verb = options_verb(verb_alias_of_letters(argv[1]));
		argv[first = 1]++; /* "-dc": "-c" is left */
	}
	if (!o->verb)
		return without_verb(argc, argv);
	o->files = calloc((size_t)argc, sizeof(*o->files));
	if (!o->files) {
		msg_error(NULL, "out of memory");
		return -1;
	}
	for (int i = first; i < argc; i++) {
		const char *text = argv[i];
		int ret = 0;

		if (i == 1) {
			ret = short_options(o, argc, argv, &i);
		} else if (only_files || text[0] != '-' || text[1] == '\0') {
			if (text[0] == '\0') {
				msg_error(NULL, "%s: a file name is empty", o->verb->name);
				return -1;
			}
			o->files[o->n_files++] = argv[i];
		} else if (strcmp(text, "--") == 0) {
			only_files = true;
		} else if (text[1] == '-') {
			ret = long_option(o, argc, argv, &i);
		} else {
			ret = short_options(o, argc, argv, &i);
		}
		if (ret != 0)
			return ret;
	}
	if (hide(&o->store, &o->hidden[0]) || hide(&o->server, &o->hidden[1]))
		return -1;
	if (take_stdout(o) || options_check_rules(o) || choose_level(o) || options_check_levels(o))
		return -1;
	if (o->verb->bit == VERB_HELP) {
		help(o);
		return 1;
	}
	return 0;
}

void options_free(struct options *o)
{
	for (size_t i = 0; i < o->n_walked; i++)
		free(o->walked[i]);
	free(o->walked);
	free(o->files);
	free(o->identity.p);
	free(o->profiles.p);
	free(o->measure.p);
	free(o->key_files.p);
	free(o->passphrase_files.p);
	free(o->tiers.p);
	free(o->near_tier);
	free(o->hidden[0]);
	free(o->hidden[1]);
	free(o->kv_rule);
}
