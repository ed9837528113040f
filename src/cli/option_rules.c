/* SPDX-License-Identifier: BSD-3-Clause */
/* option_rules.c - which options need or exclude which others */
#include "config.h"

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
	{ VERB_COMPACT, M(verb), NEEDS, { M(output) }, "say where to write it with -o FILE" },
	{ VERB_COMPACT,
	  M(checkpoint),
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
	  { M(model) },
	  "say which model with --model: a GGUF, or a folder with config.json and safetensors" },
	{ VERB_UNPACK,
	  M(range_given),
	  NEEDS,
	  { M(to) },
	  "--layers, --tokens and --track need --to safetensors or --to llama; 'kvarc cut' makes "
	  "a smaller archive" },
	{ VERB_CUT,
	  M(to),
	  EXCLUDES,
	  { M(level_given), M(embed_profile), M(verify), M(streamable) },
	  "--level, --embed-profile, --verify and --streamable are for archives, which --to does "
	  "not write" },
	{ VERB_BENCH,
	  M(tiers.n),
	  EXCLUDES,
	  { M(level_given) },
	  "--tier lossless:LEVEL has the level" },
	{ VERB_BENCH, M(link), EXCLUDES, { M(tiers.n) }, "--link compares levels, not tiers" },
	{ VERB_BENCH,
	  M(device_given),
	  EXCLUDES,
	  { M(tiers.n), M(link) },
	  "--device compares levels, not tiers or links" },
	{ VERB_UNPACK,
	  M(device_given),
	  EXCLUDES,
	  { M(salvage), M(to) },
	  "--device restores whole files; --salvage and --to decode on the host" },
	{ VERB_BENCH, M(prefill), NEEDS, { M(link) }, "--prefill is for --link" },
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
	  M(keep),
	  EXCLUDES,
	  { M(remove) },
	  "-k keeps the source and --rm deletes it: give one of them" },
	{ VERB_PACK | VERB_APPEND,
	  M(opaque),
	  EXCLUDES,
	  { M(members), M(kv_rule), M(axes), M(rope) },
	  "--opaque stores the file as it is: --members, --kv-rule, --axes and --rope need its "
	  "tensors" },
	{ VERB_WATCH,
	  M(store),
	  EXCLUDES,
	  { M(output) },
	  "--store keeps sessions; -o is for archives" },
	{ VERB_WATCH, M(index), NEEDS, { M(store) }, "--index is for --store" },
	{ VERB_WATCH, M(name_space), NEEDS, { M(store) }, "--namespace is for --store" },
	{ VERB_ALL, M(raw), EXCLUDES, { M(layout) }, "one of --raw and --layout at a time" },
	{ VERB_ALL,
	  M(raw),
	  EXCLUDES,
	  { M(opaque), M(members), M(kv_rule), M(axes) },
	  "--raw says what is in the file: --opaque, --members, --kv-rule and --axes are for "
	  "others" },
	{ VERB_ALL,
	  M(layout),
	  EXCLUDES,
	  { M(opaque), M(members), M(kv_rule), M(axes) },
	  "--layout says what is in the file: --opaque, --members, --kv-rule and --axes are for "
	  "others" },
	{ VERB_PACK,
	  M(layout),
	  EXCLUDES,
	  { M(remove) },
	  "--rm would take a file away from the engine that --layout is for" },
	{ VERB_PACK,
	  M(opaque),
	  EXCLUDES,
	  { M(tiers.n), M(scores), M(token_ids) },
	  "--opaque stores the file as it is: --tier, --scores and --token-ids need its tensors" },
	{ VERB_PACK, M(key_files), NEEDS, { M(encrypt) }, "--key-file is for --encrypt" },
	{ VERB_PACK,
	  M(passphrase_files),
	  NEEDS,
	  { M(encrypt) },
	  "--passphrase-file is for --encrypt" },
	{ VERB_CUT | VERB_COMPACT,
	  M(encrypt),
	  EXCLUDES,
	  { M(decrypt) },
	  "--encrypt and --decrypt exclude each other" },
	{ VERB_UNPACK,
	  M(salvage_tokens),
	  NEEDS,
	  { M(salvage) },
	  "--salvage-tokens is for --salvage" },
	{ VERB_PACK,
	  M(attach),
	  EXCLUDES,
	  { M(tiers.n), M(members) },
	  "--attach is for files that come back as they were, not for --tier or --members" },
	{ VERB_UNPACK,
	  M(attach),
	  EXCLUDES,
	  { M(to) },
	  "--attach extracts what is beside the files, and --to writes tensors: one at a time" },
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

/* With `option` the level must be given, between min and max. */
static const struct level_rule {
	unsigned verb;
	struct member option;
	int min, max;
	const char *text; /* as in struct rule */
} level_rules[] = {
	{ VERB_TRAIN, M(level_given), 2, 8, "profiles are for levels 2 to 7" },
	{ VERB_TRAIN, M(level_given), 2, 7, "level 8 uses the models of level 7: give --level 7" },
	{ VERB_TRAIN, M(write), 4, 7, "--generate needs --level 4 to 7 and the model (--model)" },
	{ VERB_TRAIN, M(no_stages), 4, 7, "--no-stages is for levels 4 to 7" },
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

static bool breaks_level(const struct options *o, const struct level_rule *r)
{
	return (o->verb->bit & r->verb) && given(o, r->option) &&
	       (!o->level_given || o->level < r->min || o->level > r->max);
}

static int check(const struct options *o, const char *broken_text)
{
	if (broken_text)
		msg_error(NULL, "%s: %s", o->verb->name, broken_text);
	return broken_text ? -1 : 0;
}

int options_check_rules(const struct options *o)
{
	const char *text = NULL;

	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]) && !text; i++)
		text = broken(o, &rules[i]) ? rules[i].text : NULL;
	return check(o, text);
}

int options_check_levels(const struct options *o)
{
	const char *text = NULL;

	for (size_t i = 0; i < sizeof(level_rules) / sizeof(level_rules[0]) && !text; i++)
		text = breaks_level(o, &level_rules[i]) ? level_rules[i].text : NULL;
	return check(o, text);
}
