/* SPDX-License-Identifier: BSD-3-Clause */
/* options.c - parses the command line by the table of options, checks rules, shows help */
#include "config.h"

#include "options.h"

#include "option_table.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"
#include "kvarc.h"
#include "message.h"
#include "paths.h"
#include "units.h"
#include "kvarc/store.h"

/* ==== Which options need or exclude which others ==== */

enum relation { EXCLUDES, NEEDS };
enum { OTHERS = 4 };

/* A member of struct options. Its option was given if one of its bytes is not zero. */
struct member {
	size_t at, size;
};

/* EXCLUDES: none of the others may be given with `option`; NEEDS: all of them must be. */
struct rule {
	unsigned verb; /* or several */
	struct member option;
	enum relation relation;
	struct member others[OTHERS]; /* a size of 0 ends the list */
	const char *text;             /* the message, after the name of the verb */
};

/* clang-format off */
#define M(member) { offsetof(struct options, member), sizeof(((struct options *)0)->member) }
/* clang-format on */

/* Every command line has M(verb). */
static const struct rule rules[] = {
	{ VERB_CUT, M(verb), NEEDS, { M(output) }, "say where to write it with -o FILE" },
	{ VERB_COMPACT, M(verb), NEEDS, { M(output) }, "say where to write it with -o FILE" },
	{ VERB_COMPACT,
	  M(reading.checkpoint),
	  EXCLUDES,
	  { M(keep_states) },
	  "--checkpoint writes one state, and --keep says which: give one of them" },
	{ VERB_REPAIR, M(verb), NEEDS, { M(output) }, "say where to write it with -o FILE" },
	{ VERB_TRAIN,
	  M(verb),
	  NEEDS,
	  { M(output) },
	  "say where to write the profile with -o FILE" },
	{ VERB_EVAL,
	  M(verb),
	  NEEDS,
	  { M(coding.model) },
	  "say which model with --model: a GGUF, or a folder with config.json and safetensors" },
	{ VERB_UNPACK,
	  M(extract.range_given),
	  NEEDS,
	  { M(extract.to) },
	  "--layers, --tokens and --track need --to safetensors or --to llama; 'kvarc cut' makes "
	  "a smaller archive" },
	{ VERB_UNPACK | VERB_CUT,
	  M(extract.state_version),
	  NEEDS,
	  { M(extract.to) },
	  "--state-version needs --to llama" },
	{ VERB_CUT,
	  M(extract.to),
	  EXCLUDES,
	  { M(coding.level_given), M(coding.embed_profile), M(archive.verify),
	    M(archive.streamable) },
	  "--level, --embed-profile, --verify and --streamable are for archives, which --to does "
	  "not write" },
	{ VERB_BENCH,
	  M(lossy.tiers.n),
	  EXCLUDES,
	  { M(coding.level_given) },
	  "--tier lossless:LEVEL has the level" },
	{ VERB_BENCH,
	  M(bench.link),
	  EXCLUDES,
	  { M(lossy.tiers.n) },
	  "--link compares levels, not tiers" },
	{ VERB_BENCH,
	  M(device.given),
	  EXCLUDES,
	  { M(lossy.tiers.n), M(bench.link) },
	  "--device compares levels, not tiers or links" },
	{ VERB_UNPACK,
	  M(device.given),
	  EXCLUDES,
	  { M(reading.salvage), M(extract.to) },
	  "--device restores whole files; --salvage and --to decode on the host" },
	{ VERB_BENCH, M(bench.prefill), NEEDS, { M(bench.link) }, "--prefill is for --link" },
	{ VERB_ALL,
	  M(coding.blind),
	  NEEDS,
	  { M(coding.model) },
	  "--predict needs --model and an open loop" },
	{ VERB_TRAIN,
	  M(train.klt),
	  EXCLUDES,
	  { M(coding.level_given), M(train.no_stages), M(train.write), M(train.measure.n) },
	  "--klt fits transforms alone, without --level, --measure, --generate and --no-stages" },
	{ VERB_TRAIN, M(train.group), NEEDS, { M(train.klt) }, "--group is for --klt" },
	{ VERB_TRAIN,
	  M(train.head_block),
	  EXCLUDES,
	  { M(train.whole_layer) },
	  "--head-block and --whole-layer exclude each other" },
	{ VERB_PACK,
	  M(keep),
	  EXCLUDES,
	  { M(remove) },
	  "-k keeps the source and --rm deletes it: give one of them" },
	{ VERB_PACK | VERB_APPEND,
	  M(import.opaque),
	  EXCLUDES,
	  { M(import.members), M(import.kv_rule), M(import.axes), M(import.rope) },
	  "--opaque stores the file as it is: --members, --kv-rule, --axes and --rope need its "
	  "tensors" },
	{ VERB_PACK,
	  M(import.as_cache),
	  EXCLUDES,
	  { M(import.opaque) },
	  "--as-cache keeps the tensors, and --opaque looks for none: give one of them" },
	{ VERB_WATCH,
	  M(store.url),
	  EXCLUDES,
	  { M(output) },
	  "--store keeps sessions; -o is for archives" },
	{ VERB_WATCH, M(store.index), NEEDS, { M(store.url) }, "--index is for --store" },
	{ VERB_WATCH, M(store.name_space), NEEDS, { M(store.url) }, "--namespace is for --store" },
	{ VERB_ALL,
	  M(import.raw),
	  EXCLUDES,
	  { M(import.layout) },
	  "one of --raw and --layout at a time" },
	{ VERB_ALL,
	  M(import.raw),
	  EXCLUDES,
	  { M(import.opaque), M(import.members), M(import.kv_rule), M(import.axes) },
	  "--raw says what is in the file: --opaque, --members, --kv-rule and --axes are for "
	  "others" },
	{ VERB_ALL,
	  M(import.layout),
	  EXCLUDES,
	  { M(import.opaque), M(import.members), M(import.kv_rule), M(import.axes) },
	  "--layout says what is in the file: --opaque, --members, --kv-rule and --axes are for "
	  "others" },
	{ VERB_PACK,
	  M(import.layout),
	  EXCLUDES,
	  { M(remove) },
	  "--rm would take a file away from the engine that --layout is for" },
	{ VERB_PACK,
	  M(import.opaque),
	  EXCLUDES,
	  { M(lossy.tiers.n), M(lossy.scores), M(archive.token_ids) },
	  "--opaque stores the file as it is: --tier, --scores and --token-ids need its tensors" },
	{ VERB_PACK, M(keys.files), NEEDS, { M(keys.encrypt) }, "--key-file is for --encrypt" },
	{ VERB_PACK,
	  M(keys.passphrase_files),
	  NEEDS,
	  { M(keys.encrypt) },
	  "--passphrase-file is for --encrypt" },
	{ VERB_CUT | VERB_COMPACT,
	  M(keys.encrypt),
	  EXCLUDES,
	  { M(keys.decrypt) },
	  "--encrypt and --decrypt exclude each other" },
	{ VERB_UNPACK,
	  M(reading.salvage_tokens),
	  NEEDS,
	  { M(reading.salvage) },
	  "--salvage-tokens is for --salvage" },
	{ VERB_PACK,
	  M(archive.attach),
	  EXCLUDES,
	  { M(lossy.tiers.n), M(import.members) },
	  "--attach is for files that come back as they were, not for --tier or --members" },
	{ VERB_UNPACK,
	  M(archive.attach),
	  EXCLUDES,
	  { M(extract.to) },
	  "--attach extracts what is beside the files, and --to writes tensors: one at a time" },
	{ VERB_PACK,
	  M(remove),
	  EXCLUDES,
	  { M(import.members) },
	  "--rm would remove the container, of which --members restores only the files" },
	{ VERB_PACK,
	  M(lossy.near_tier),
	  EXCLUDES,
	  { M(lossy.max_kl) },
	  "one of --max-kl and --max-error at a time" },
	{ VERB_PACK,
	  M(lossy.max_kl),
	  NEEDS,
	  { M(lossy.tiers.n), M(coding.model) },
	  "--max-kl needs --tier and the model (--model)" },
};

/* Levels that an option needs: with `option` the level must be given, between min and max. */
static const struct level_rule {
	unsigned verb;
	struct member option;
	int min, max;
	const char *text; /* message, as in struct rule */
} level_rules[] = {
	{ VERB_TRAIN, M(coding.level_given), 2, 8, "profiles are for levels 2 to 7" },
	{ VERB_TRAIN, M(coding.level_given), 2, 7,
	  "level 8 uses the models of level 7: give --level 7" },
	{ VERB_TRAIN, M(train.write), 4, 7,
	  "--generate needs --level 4 to 7 and the model (--model)" },
	{ VERB_TRAIN, M(train.no_stages), 4, 7, "--no-stages is for levels 4 to 7" },
};

static bool given(const struct options *options, struct member member)
{
	const unsigned char *p = (const unsigned char *)options + member.at;

	for (size_t i = 0; i < member.size; i++) {
		if (p[i])
			return true;
	}
	return false;
}

static bool broken(const struct options *options, const struct rule *r)
{
	if (!(options->verb->bit & r->verb) || !given(options, r->option))
		return false;
	for (size_t i = 0; i < OTHERS && r->others[i].size; i++) {
		if (given(options, r->others[i]) == (r->relation == EXCLUDES))
			return true;
	}
	return false;
}

static bool breaks_level(const struct options *options, const struct level_rule *r)
{
	return (options->verb->bit & r->verb) && given(options, r->option) &&
	       (!options->coding.level_given || options->coding.level < r->min ||
	        options->coding.level > r->max);
}

/* Checks which options may stand together, before any file is opened. Returns 0, or -1 after a
 * message. */
static int options_check_rules(const struct options *options)
{
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
		if (broken(options, &rules[i])) {
			msg_usage("%s", rules[i].text);
			return -1;
		}
	}
	return 0;
}

/* Checks the levels that options need, after a level was chosen. Returns 0, or -1 after a
 * message. */
static int options_check_levels(const struct options *options)
{
	for (size_t i = 0; i < sizeof(level_rules) / sizeof(level_rules[0]); i++) {
		if (breaks_level(options, &level_rules[i])) {
			msg_usage("%s", level_rules[i].text);
			return -1;
		}
	}
	return 0;
}

/* ==== Prints help from the tables of verbs and options ==== */

enum { HELP_COLUMN = 26 };

/* Prints all verbs. */
static void help_overview(void)
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

/* Says which actions the verb has, or which one the word is close to; NULL: there is none. */
static void wrong_action(const struct verb *verb, const char *word)
{
	const char *near = word ? options_nearest_action(verb, word) : NULL;
	char all[256] = "";
	size_t length = 0;

	for (const struct action_row *a = options_actions; a->name; a++) {
		if (a->verb == verb->bit && a->summary)
			length += (size_t)snprintf(all + length, sizeof(all) - length, "%s%s",
			                           length ? ", " : "", a->name);
	}
	if (near)
		msg_usage("unknown action '%s'; did you mean 'kvarc %s %s'?", word, verb->name,
		          near);
	else
		msg_usage("give an action: %s", all);
}

/* Checks that the first operand is an action of the verb. Returns 0, or -1 after a message. */
static int check_action(const struct options *options)
{
	const struct verb *verb = options->verb;
	const char *word = options->n_files ? options->files[0] : NULL;

	if (!options_action(verb, NULL) ||
	    (word ? options_action(verb, word) != NULL : verb->operands[0] == '['))
		return 0;
	wrong_action(verb, word);
	return -1;
}

/* Prints the ways to call an action, or all actions of a verb. */
static void help_actions(const struct verb *verb, const char *name)
{
	char left[64];

	for (const struct action_row *a = options_actions; a->name; a++) {
		if (a->verb != verb->bit || (name && strcmp(a->name, name) != 0))
			continue;
		snprintf(left, sizeof(left), "%s %s", a->name, a->operands);
		printf(a->summary ? "  %-32s%s\n" : "  %s\n", left, a->summary);
	}
}

/* Prints the help of a verb. */
static void help_verb(const struct verb *verb)
{
	if (verb->bit == VERB_HELP) {
		help_overview();
		return;
	}
	printf("usage: kvarc %s [OPTION...] %s\n%s\n\n", verb->name, verb->operands, verb->summary);
	if (options_action(verb, NULL)) {
		help_actions(verb, NULL);
		putchar('\n');
	}
	for (const struct option_row *r = options_rows; r->name; r++) {
		if (r->verbs & verb->bit)
			help_option(r);
	}
	printf("\nexamples:\n%s", verb->examples);
}

/* kvarc help. */
void help(const struct options *options)
{
	const struct verb *v;

	if (options->n_files == 0) {
		help_overview();
		return;
	}
	v = options_verb(options->files[0]);
	if (v && options->n_files > 1 && options_action(v, NULL)) {
		if (options_action(v, options->files[1])) {
			help_actions(v, options->files[1]);
			printf("\n'kvarc %s --help' has the options.\n", v->name);
		} else {
			wrong_action(v, options->files[1]);
		}
	} else if (v) {
		help_verb(v);
	} else {
		const char *near = options_nearest_verb(options->files[0]);
		if (near)
			msg_error(NULL, "unknown verb '%s'; did you mean '%s'?", options->files[0],
			          near);
		else
			msg_error(NULL, "unknown verb '%s'; see 'kvarc help'", options->files[0]);
	}
}

/* ==== Parses the command line by the table in option_table.c ==== */

static int unknown_option(const struct verb *verb, const char *name)
{
	const char *near;

	for (const struct option_row *r = options_rows; r->name; r++) {
		if (strcmp(r->name, name) == 0) {
			const struct verb *v = options_verbs;
			while (!(v->bit & r->verbs))
				v++;
			msg_usage("option '--%s' belongs to 'kvarc %s'; see 'kvarc %s --help'",
			          name, v->name, verb->name);
			return -1;
		}
	}
	near = options_nearest_option(verb, name);
	if (near)
		msg_usage("unknown option '--%s'; did you mean '--%s'?", name, near);
	else
		msg_usage("unknown option '--%s'; see 'kvarc %s --help'", name, verb->name);
	return -1;
}

/* --arith and --loop without a level: the one whose own they are, else that of its loop. */
static int choose_level(struct options *options)
{
	if (options->coding.blind && options->coding.loop == KVARC_LOOP_CLOSED) {
		msg_usage("--predict needs --model and an open loop");
		return -1;
	}
	if (options->coding.blind && options->coding.arithmetic)
		options->coding.loop = KVARC_LOOP_OPEN;
	bool open = options->coding.loop == KVARC_LOOP_OPEN;

	if ((!options->coding.arithmetic && !options->coding.loop) ||
	    options->verb->bit == VERB_EVAL)
		return 0;
	if (options->coding.level_given && options->coding.level < 4) {
		msg_usage("--arith and --loop are for levels 4 to 8");
		return -1;
	}
	if (!options->coding.level_given)
		options->coding.level = open                                                    ? 4
		                        : options->coding.arithmetic == KVARC_ARITHMETIC_W8A15  ? 6
		                        : options->coding.arithmetic == KVARC_ARITHMETIC_W15A15 ? 7
		                                                                                : 5;
	options->coding.loop = options->coding.level_given || options->coding.loop
	                               ? options->coding.loop
	                               : KVARC_LOOP_CLOSED;
	options->coding.level_given = true;
	return 0;
}

/* "--store --once": a value that was forgotten. */
static int next_value(struct options *options, const struct option_row *r, const char *value)
{
	if (value[0] == '-' && value[1] == '-') {
		msg_usage("option '--%s' needs a value, and '%s' is none; one that begins with "
		          "'--' is given as --%s=%s",
		          r->name, value, r->name, value);
		return -1;
	}
	return options_set(options, r, value);
}

/* "--name", "--name=value", "--name value" at argv[*i]. */
static int long_option(struct options *options, int argc, char **argv, int *i)
{
	const char *text = argv[*i], *equal = strchr(text, '=');
	size_t len = equal ? (size_t)(equal - text) - 2 : strlen(text) - 2;
	const struct option_row *r = options_rows;
	char name[64];

	if (len >= sizeof(name))
		len = sizeof(name) - 1;
	memcpy(name, text + 2, len);
	name[len] = '\0';
	while (r->name && !(strcmp(r->name, name) == 0 && (r->verbs & options->verb->bit)))
		r++;
	if (!r->name)
		return unknown_option(options->verb, name);
	if (r->value.type == OPTION_HELP) {
		help_verb(options->verb);
		return 1;
	}
	if (!r->arg) {
		if (equal) {
			msg_usage("option '--%s' takes no value", name);
			return -1;
		}
		return options_set(options, r, NULL);
	}
	if (equal)
		return options_set(options, r, equal + 1);
	if (*i + 1 >= argc) {
		msg_usage("option '--%s' needs a value: --%s %s", name, name, r->arg);
		return -1;
	}
	return next_value(options, r, argv[++*i]);
}

static int unknown_letter(const struct verb *verb, char letter)
{
	const char text[] = { '-', letter, '\0' };
	const char *meant = verb_alias(text);

	if (meant)
		msg_usage("unknown option '%s'; did you mean 'kvarc %s'?", text, meant);
	else
		msg_usage("unknown option '%s'; see 'kvarc %s --help'", text, verb->name);
	return -1;
}

/* "-kvT4", "-T 4" at argv[*i]. */
static int short_options(struct options *options, int argc, char **argv, int *i)
{
	for (const char *p = argv[*i] + 1; *p; p++) {
		const struct option_row *r = options_rows;
		char digit[2] = { *p, '\0' };
		bool is_level = *p >= '0' && *p <= '9';

		while (r->name &&
		       !((is_level ? r->value.set == options_set_level : r->letter == *p) &&
		         (r->verbs & options->verb->bit)))
			r++;
		if (!r->name)
			return unknown_letter(options->verb, *p);
		if (r->value.type == OPTION_HELP) {
			help_verb(options->verb);
			return 1;
		}
		if (is_level) {
			if (options_set(options, r, digit) != 0)
				return -1;
		} else if (!r->arg) {
			if (options_set(options, r, NULL) != 0)
				return -1;
		} else if (p[1]) {
			return options_set(options, r, p + 1);
		} else if (*i + 1 >= argc) {
			msg_usage("option '-%c' needs a value: -%c %s", *p, *p, r->arg);
			return -1;
		} else {
			return next_value(options, r, argv[++*i]);
		}
	}
	return 0;
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
		          text, paths_ends_with(text, ".kva") ? "unpack" : "pack", text);
	else
		msg_error(NULL, "unknown verb '%s'; see 'kvarc help'", text);
	return -1;
}

static void set_defaults(struct options *options)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);

	memset(options, 0, sizeof(*options));
	options->coding.level = KVARC_LEVEL_DEFAULT;
	/* Limit of four: more threads seldom pay for themselves in memory. */
	options->work.threads = cores < 1 ? 1 : cores > 4 ? 4 : (unsigned)cores;
	options->bench.repeat = 5;
	options->train.held_out = 10;
	options->train.first_token = -1;
	options->dtype = KVARC_BF16;
	options->eval.sequences = 64;
	options->eval.prefix = 512;
	options->eval.continuation = 64;
	options->extract.n_layers = UINT64_MAX;
	options->extract.n_tokens = UINT64_MAX;
}

/* -c is -o - */
static int take_stdout(struct options *options)
{
	if (options->to_stdout && options->output && strcmp(options->output, "-") != 0) {
		msg_usage("-c writes to standard output and -o to '%s': give one of them",
		          options->output);
		return -1;
	}
	if (options->to_stdout)
		options->output = "-";
	return 0;
}

/* A URL with a password moves to memory of its own, and argv gets it without, for 'ps'. */
static int hide(const char **url, char **own)
{
	char *text = (char *)*url; /* points into argv, which may be written to */
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

int options_parse(struct options *options, int argc, char **argv)
{
	bool only_files = false;
	int first = 2;

	set_defaults(options);
	if (argc < 2) {
		msg_error(NULL, "a verb is missing; see 'kvarc help'");
		return -1;
	}
	options->verb = options_verb(argv[1]);
	if (!options->verb && verb_alias_of_letters(argv[1])) {
		options->verb = options_verb(verb_alias_of_letters(argv[1]));
		argv[first = 1]++; /* "-dc": "-c" is left */
	}
	if (!options->verb)
		return without_verb(argc, argv);
	msg_set_verb(options->verb->name);
	options->files = calloc((size_t)argc, sizeof(*options->files));
	if (!options->files) {
		msg_error(NULL, "out of memory");
		return -1;
	}
	for (int i = first; i < argc; i++) {
		const char *text = argv[i];
		int ret = 0;

		if (i == 1) {
			ret = short_options(options, argc, argv, &i);
		} else if (only_files || text[0] != '-' || text[1] == '\0') {
			if (text[0] == '\0') {
				msg_usage("a file name is empty");
				return -1;
			}
			options->files[options->n_files++] = argv[i];
		} else if (strcmp(text, "--") == 0) {
			only_files = true;
		} else if (text[1] == '-') {
			ret = long_option(options, argc, argv, &i);
		} else {
			ret = short_options(options, argc, argv, &i);
		}
		if (ret != 0)
			return ret;
	}
	if (hide(&options->store.url, &options->hidden[0]) ||
	    hide(&options->server.url, &options->hidden[1]))
		return -1;
	if (check_action(options) || take_stdout(options) || options_check_rules(options) ||
	    choose_level(options) || options_check_levels(options))
		return -1;
	if (options->verb->bit == VERB_HELP) {
		help(options);
		return 1;
	}
	return 0;
}

void options_free(struct options *options)
{
	for (size_t i = 0; i < options->n_walked; i++)
		free(options->walked[i]);
	free(options->walked);
	free(options->files);
	free(options->archive.identity.p);
	free(options->coding.profiles.p);
	free(options->train.measure.p);
	free(options->keys.files.p);
	free(options->keys.passphrase_files.p);
	free(options->lossy.tiers.p);
	free(options->lossy.near_tier);
	free(options->hidden[0]);
	free(options->hidden[1]);
	free(options->import.kv_rule);
}
