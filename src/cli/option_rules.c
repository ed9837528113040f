/* SPDX-License-Identifier: BSD-3-Clause */
/* option_rules.c - which options need or exclude which others */
#include "message.h"
#include "option_values.h"
#include "options.h"

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
	{ VERB_TRAIN,
	  M(verb),
	  NEEDS,
	  { M(output) },
	  "say where to write the profile with -o FILE" },
	{ VERB_EVAL,
	  M(verb),
	  NEEDS,
	  { M(model) },
	  "say which model with --model: a GGUF, or a folder with config.json and safetensors" },
	{ VERB_UNPACK,
	  M(range_given),
	  NEEDS,
	  { M(to) },
	  "--layers, --tokens and --track need --to safetensors; 'kvarc cut' makes a smaller "
	  "archive" },
	{ VERB_BENCH,
	  M(tiers.n),
	  EXCLUDES,
	  { M(level_given) },
	  "--tier lossless:LEVEL has the level" },
	{ VERB_ALL, M(blind), NEEDS, { M(model) }, "--predict needs --model and an open loop" },
	{ VERB_TRAIN,
	  M(klt),
	  EXCLUDES,
	  { M(level_given), M(no_stages), M(write), M(measure.n) },
	  "--klt fits transforms alone, without --level, --measure, --generate and --no-stages" },
	{ VERB_TRAIN, M(group), NEEDS, { M(klt) }, "--group is for --klt" },
	{ VERB_TRAIN,
	  M(head_block),
	  EXCLUDES,
	  { M(whole_layer) },
	  "--head-block and --whole-layer exclude each other" },
	{ VERB_PACK,
	  M(remove),
	  EXCLUDES,
	  { M(members) },
	  "--rm would remove the container, of which --members restores only the files" },
	{ VERB_PACK,
	  M(near_tier),
	  EXCLUDES,
	  { M(max_kl) },
	  "one of --max-kl and --max-error at a time" },
	{ VERB_PACK,
	  M(max_kl),
	  NEEDS,
	  { M(tiers.n), M(model) },
	  "--max-kl needs --tier and the model (--model)" },
};

static bool given(const struct options *o, struct member m)
{
	const unsigned char *p = (const unsigned char *)o + m.at;

	for (size_t i = 0; i < m.size; i++) {
		if (p[i])
			return true;
	}
	return false;
}

static bool broken(const struct options *o, const struct rule *r)
{
	if (!(o->verb->bit & r->verb) || !given(o, r->option))
		return false;
	for (size_t i = 0; i < OTHERS && r->others[i].size; i++) {
		if (given(o, r->others[i]) == (r->relation == EXCLUDES))
			return true;
	}
	return false;
}

int options_check_rules(const struct options *o)
{
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
		if (broken(o, &rules[i])) {
			msg_error(NULL, "%s: %s", o->verb->name, rules[i].text);
			return -1;
		}
	}
	return 0;
}
