/* SPDX-License-Identifier: BSD-3-Clause */
/* tiers.c - the ways to write a cache that --tier names */
#include "config.h"

#include "tiers.h"

#include <stdlib.h>
#include <string.h>

#include "message.h"
#include "models.h"
#include "profiles.h"
#include "units.h"

/* The first profile with models of the level: whether they fit, the writer reports. */
static bool set_lossless(struct tier *t, const char *level, const struct options *o)
{
	uint64_t n = KVARC_LEVEL_DEFAULT;
	size_t n_profiles;
	const kvarc_profile *const *profiles = profiles_given(&n_profiles);

	if (level && !units_parse_u64(level, KVARC_LEVEL_MAX, &n)) {
		msg_error(NULL, "%s: '%s' is not a level from 0 to 8", o->verb->name, level);
		return false;
	}
	t->writer.level = KVARC_LEVEL((int)n);
	if (n >= LEVEL_MODEL)
		t->writer.predictor = models_given();
	if (n < 2)
		return true;
	if (n_profiles == 0) {
		msg_error(NULL, "%s: the tier '%s' needs a profile (--profile)", o->verb->name,
		          t->name);
		return false;
	}
	t->writer.profile = profiles[0];
	return true;
}

static bool set_lossy(struct tier *t, const struct options *o)
{
	kvarc_error error;

	if (kvarc_lossy_parse(&t->lossy, t->name, &error) != KVARC_OK) {
		msg_error(NULL, "%s: %s; without loss: lossless, lossless:LEVEL", o->verb->name,
		          error.text);
		return false;
	}
	t->writer.level = 1;
	return profiles_tier(o, &t->lossy, NULL, &t->writer);
}

static bool parse(struct tier *t, const struct options *o)
{
	const char *colon = strchr(t->name, ':');
	size_t n = colon ? (size_t)(colon - t->name) : strlen(t->name);

	t->writer = (kvarc_writer_options)KVARC_WRITER_OPTIONS_INIT;
	if (n == 8 && strncmp(t->name, "lossless", n) == 0)
		return set_lossless(t, colon ? colon + 1 : NULL, o);
	return set_lossy(t, o);
}

/* The names of one option, with blanks between. */
static bool add_all(struct tiers *t, const char *names, const struct options *o)
{
	for (;;) {
		size_t n;
		struct tier *list;

		names += strspn(names, " \t\n");
		n = strcspn(names, " \t\n");
		if (n == 0)
			return true;
		list = realloc(t->list, (t->n + 1) * sizeof(*list));
		if (list)
			t->list = list;
		if (list)
			list[t->n] = (struct tier){ .name = strndup(names, n) };
		if (!list || !list[t->n].name) {
			msg_error(NULL, "out of memory");
			return false;
		}
		if (!parse(&t->list[t->n++], o))
			return false;
		names += n;
	}
}

bool tiers_parse(struct tiers *t, const struct options *o)
{
	for (size_t i = 0; i < o->tiers.n; i++) {
		if (!add_all(t, o->tiers.p[i], o))
			return false;
	}
	return true;
}

void tiers_free(struct tiers *t)
{
	for (size_t i = 0; i < t->n; i++)
		free(t->list[i].name);
	free(t->list);
}
