/* SPDX-License-Identifier: BSD-3-Clause */
/* help.c - prints help from the tables of verbs and options */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "commands.h"
#include "kvarc.h"
#include "message.h"
#include "options.h"

enum { HELP_COLUMN = 26 };

void help_overview(void)
{
	printf("kvarc %s - lossless archives of transformer KV caches\n\n"
	       "usage: kvarc VERB [OPTION...] FILE...\n\n",
	       kvarc_version());
	for (const struct verb *v = options_verbs; v->name; v++)
		printf("  %-8s %s\n", v->name, v->summary);
	printf("\n'kvarc VERB --help' explains a verb, 'kvarc --version' prints the "
	       "version.\nA FILE of - is standard input. Exit status: 0 success, "
	       "1 error, 2 warning.\nEnvironment: KVARC_CACHE, the folder of the "
	       "weight cache (~/.cache/kvarc; off:\nnone), KVARC_CACHE_SIZE, its size "
	       "limit (8G), KVARC_PROFILE_PATH, folders of\nprofiles, KVARC_MODEL_PATH, folders of "
	       "models, KVARC_STORE, the store of sessions.\nThe manual is kvarc(1).\n");
}

static void help_option(const struct option_row *r)
{
	char left[64];
	int n;

	if (r->letter)
		n = snprintf(left, sizeof(left), "  -%c, --%s", r->letter, r->name);
	else
		n = snprintf(left, sizeof(left), "      --%s", r->name);
	if (r->arg)
		n += snprintf(left + n, sizeof(left) - (size_t)n, " %s", r->arg);
	if (n >= HELP_COLUMN)
		printf("%s\n%*s%s\n", left, HELP_COLUMN, "", r->help);
	else
		printf("%-*s%s\n", HELP_COLUMN, left, r->help);
}

void help_verb(const struct verb *verb)
{
	if (verb->bit == VERB_HELP) {
		help_overview();
		return;
	}
	printf("usage: kvarc %s [OPTION...] %s\n%s\n\n", verb->name, verb->operands, verb->summary);
	for (const struct option_row *r = options_rows; r->name; r++) {
		if (r->verbs & verb->bit)
			help_option(r);
	}
	printf("\nexamples:\n%s", verb->examples);
}

/* kvarc help. */
void help(const struct options *o)
{
	const struct verb *v;

	if (o->n_files == 0) {
		help_overview();
		return;
	}
	v = options_verb(o->files[0]);
	if (v) {
		help_verb(v);
	} else {
		const char *near = options_nearest_verb(o->files[0]);
		if (near)
			msg_error(NULL, "unknown verb '%s'; did you mean '%s'?", o->files[0], near);
		else
			msg_error(NULL, "unknown verb '%s'; see 'kvarc help'", o->files[0]);
	}
}
