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
static bool set_lossless(struct tier *tier, const char *level)
{
	uint64_t n = KVARC_LEVEL_DEFAULT;
	size_t n_profiles;
	const kvarc_profile *const *profiles = profiles_given(&n_profiles);

	if (level && !units_parse_u64(level, KVARC_LEVEL_MAX, &n)) {
		msg_usage("'%s' is not a level from 0 to 8", level);
		return false;
	}
	tier->writer.level = KVARC_LEVEL((int)n);
	if (n >= LEVEL_MODEL)
		tier->writer.predictor = models_given();
	if (n < 2)
		return true;
	if (n_profiles == 0) {
		msg_usage("the tier '%s' needs a profile (--profile)", tier->name);
		return false;
	}
	tier->writer.profile = profiles[0];
	return true;
}

static bool set_lossy(struct tier *tier)
{
	kvarc_error error;

	if (kvarc_lossy_parse(&tier->lossy, tier->name, &error) != KVARC_OK) {
		msg_usage("%s; without loss: lossless, lossless:LEVEL", error.text);
		return false;
	}
	tier->writer.level = 1;
	return profiles_tier(&tier->lossy, NULL, &tier->writer);
}

static bool parse(struct tier *tier)
{
	const char *colon = strchr(tier->name, ':');
	size_t n = colon ? (size_t)(colon - tier->name) : strlen(tier->name);

	tier->writer = (kvarc_writer_options)KVARC_WRITER_OPTIONS_INIT;
	if (n == 8 && strncmp(tier->name, "lossless", n) == 0)
		return set_lossless(tier, colon ? colon + 1 : NULL);
	return set_lossy(tier);
}

/* The names of one option, with blanks between. */
static bool add_all(struct tiers *tiers, const char *names)
{
	for (;;) {
		size_t n;
		struct tier *list;

		names += strspn(names, " \t\n");
		n = strcspn(names, " \t\n");
		if (n == 0)
			return true;
		list = realloc(tiers->list, (tiers->n + 1) * sizeof(*list));
		if (list)
			tiers->list = list;
		if (list)
			list[tiers->n] = (struct tier){ .name = strndup(names, n) };
		if (!list || !list[tiers->n].name) {
			msg_error(NULL, "out of memory");
			return false;
		}
		if (!parse(&tiers->list[tiers->n++]))
			return false;
		names += n;
	}
}

bool tiers_parse(struct tiers *tiers, const struct option_list *names)
{
	for (size_t i = 0; i < names->n; i++) {
		if (!add_all(tiers, names->p[i]))
			return false;
	}
	return true;
}

void tiers_free(struct tiers *tiers)
{
	for (size_t i = 0; i < tiers->n; i++)
		free(tiers->list[i].name);
	free(tiers->list);
}
