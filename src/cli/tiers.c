/* SPDX-License-Identifier: BSD-3-Clause */
/* tiers.c - the ways to write a cache that --tier names */
#include <stdlib.h>
#include <string.h>

#include "eval.h"
#include "message.h"
#include "models.h"
#include "profiles.h"
#include "units.h"

/* The first profile with models of the level: whether they fit, the writer tells. */
static bool set_lossless(struct eval_tier *t, const char *level)
{
	uint64_t n = KVARC_LEVEL_DEFAULT;
	size_t n_profiles;
	const kvarc_profile *const *profiles = profiles_given(&n_profiles);

	if (level && !units_parse_u64(level, KVARC_LEVEL_MAX, &n)) {
		msg_error(NULL, "eval: '%s' is no level, 0 to 8", level);
		return false;
	}
	t->writer.level = (int)n;
	if (n >= LEVEL_MODEL)
		t->writer.predictor = models_given();
	if (n < 2)
		return true;
	if (n_profiles == 0) {
		msg_error(NULL, "eval: the tier '%s' needs a profile (--profile)",
		          t->name);
		return false;
	}
	t->writer.profile = profiles[0];
	return true;
}

static bool parse(struct eval_tier *t)
{
	const char *colon = strchr(t->name, ':');
	size_t n = colon ? (size_t)(colon - t->name) : strlen(t->name);

	t->writer = (kvarc_writer_options)KVARC_WRITER_OPTIONS_INIT;
	if (n == 8 && strncmp(t->name, "lossless", n) == 0)
		return set_lossless(t, colon ? colon + 1 : NULL);
	msg_error(NULL, "eval: '%s' is no tier", t->name);
	return false;
}

/* The names of one option, with blanks between. */
static bool add_all(struct eval_tiers *t, const char *names)
{
	for (;;) {
		size_t n;
		struct eval_tier *list;

		names += strspn(names, " \t\n");
		n = strcspn(names, " \t\n");
		if (n == 0)
			return true;
		list = realloc(t->list, (t->n + 1) * sizeof(*list));
		if (list)
			t->list = list;
		if (!list || !(list[t->n].name = strndup(names, n))) {
			msg_error(NULL, "out of memory");
			return false;
		}
		if (!parse(&t->list[t->n++]))
			return false;
		names += n;
	}
}

bool eval_tiers_parse(struct eval_tiers *t, const struct options *o)
{
	for (size_t i = 0; i < o->n_tiers; i++) {
		if (!add_all(t, o->tiers[i]))
			return false;
	}
	return true;
}

void eval_tiers_free(struct eval_tiers *t)
{
	for (size_t i = 0; i < t->n; i++)
		free(t->list[i].name);
	free(t->list);
}
