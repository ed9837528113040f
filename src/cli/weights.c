/* SPDX-License-Identifier: BSD-3-Clause */
/* weights.c - where the converted weights of models are kept: KVARC_CACHE, KVARC_CACHE_SIZE */
#include "config.h"

#include "weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "message.h"
#include "paths.h"
#include "units.h"

static struct {
	kvarc_weight_cache cache; /* folder NULL: there is none */
	const char *model;
} weights;

/* kvarc_weight_cache.report */
static void report(void *opaque, kvarc_weights what, uint64_t bytes, const char *why)
{
	char size[32];

	(void)opaque;
	units_bytes(size, sizeof(size), bytes);
	/* A large file in the user's home is said once, where it is read. */
	if (what == KVARC_WEIGHTS_KEPT && msg_level() == 0)
		msg_note(weights.model,
		         "weights converted and stored in %s (%s); 'kvarc weights clear' "
		         "removes them",
		         weights.cache.folder, size);
	if (msg_level() < 1)
		return;
	if (what == KVARC_WEIGHTS_FOUND)
		msg_note(weights.model, "weights found in %s (%s)", weights.cache.folder, size);
	else if (what == KVARC_WEIGHTS_KEPT)
		msg_note(weights.model, "weights converted and stored in %s (%s)",
		         weights.cache.folder, size);
	else
		msg_note(weights.model, "weights converted, but not stored in %s: %s",
		         weights.cache.folder, why);
}

/* A folder in the user's folder of caches, which is made as the base directory specification wants
 * it; when that fails, the library finds none. NULL: the user has none. */
static const char *default_folder(void)
{
	char *folder = paths_of_user("XDG_CACHE_HOME", ".cache", "kvarc");
	char *slash = folder ? strrchr(folder, '/') : NULL;

	if (slash) {
		*slash = '\0';
		(void)mkdir(folder, 0700); /* fails when it is there */
		*slash = '/';
	}
	return folder;
}

bool weights_init(const char *model, const struct verb *verb)
{
	const char *folder = getenv("KVARC_CACHE");
	const char *size = getenv("KVARC_CACHE_SIZE");

	if (!model && !paths_have_models(model, verb) && verb->bit != VERB_WEIGHTS)
		return true;
	if (size && *size &&
	    (!units_parse_size(size, &weights.cache.max_bytes) || weights.cache.max_bytes == 0)) {
		msg_error(NULL, "KVARC_CACHE_SIZE is '%s', which is not a size such as 20G", size);
		return false;
	}
	weights.model = model ? model : "(model)";
	if (!folder)
		weights.cache.folder = default_folder();
	else if (*folder && strcmp(folder, "off") != 0)
		weights.cache.folder = folder;
	weights.cache.report = report;
	return true;
}

const kvarc_weight_cache *weights_cache(void)
{
	return weights.cache.folder ? &weights.cache : NULL;
}
