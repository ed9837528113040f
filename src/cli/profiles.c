/* SPDX-License-Identifier: BSD-3-Clause */
/* profiles.c - the profiles of --profile, and those that are looked for by digest */
#include "config.h"

#include "profiles.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "library.h"
#include "message.h"
#include "models.h"
#include "paths.h"
#include "units.h"

enum { PATH_BYTES = 4096 };

struct loaded {
	kvarc_profile *p;
	char *path;
};

/* State of one run of the command: handles of the library that use the profiles are closed
 * before. */
static struct {
	const struct work_options *work;
	const kvarc_profile **given; /* profiles of --profile */
	struct loaded *list;         /* profiles of --profile, and then those that were found */
	size_t n_given, n;
	bool taken; /* the one that is given is an installed one */
} all;

/* The path of a profile that is open here. */
static const char *path_of(const kvarc_profile *profile)
{
	for (size_t i = 0; i < all.n; i++)
		if (all.list[i].p == profile)
			return all.list[i].path;
	return "";
}

kvarc_profile *profiles_read(const struct work_options *work, struct input *in)
{
	kvarc_source source = input_source(in);
	kvarc_common common;
	kvarc_error error;
	kvarc_profile *p;
	kvarc_ret ret;

	library_common(work, &common, &error);
	common.progress = NULL;
	common.error = &error;
	ret = kvarc_profile_open(&p, &source, &common);
	if (ret == KVARC_FORMAT)
		msg_error(in->name, "is not a profile");
	else if (ret != KVARC_OK)
		library_error(in->name, ret, &error, in, NULL);
	return p;
}

static bool add(kvarc_profile *profile, const char *path)
{
	struct loaded *list = realloc(all.list, (all.n + 1) * sizeof(*list));
	char *copy = strdup(path);

	if (list)
		all.list = list;
	if (!list || !copy) {
		msg_error(NULL, "out of memory");
		free(copy);
		kvarc_profile_close(&profile);
		return false;
	}
	all.list[all.n++] = (struct loaded){ profile, copy };
	return true;
}

static kvarc_profile *open_file(const char *path)
{
	kvarc_profile *p = NULL;
	struct input in;

	if (input_open(&in, path, false)) {
		p = profiles_read(all.work, &in);
		input_close(&in);
	}
	return p;
}

bool profiles_folder(size_t i, char *out, size_t size)
{
	const char *path = getenv("KVARC_PROFILE_PATH");
	const char *home = getenv("HOME");

	for (; path && *path; path += path[0] == ':') {
		size_t n = strcspn(path, ":");
		if (n && n < size && i-- == 0) {
			memcpy(out, path, n);
			out[n] = '\0';
			return true;
		}
		path += n;
	}
	if (home && *home && i-- == 0)
		return (size_t)snprintf(out, size, "%s/.local/share/kvarc/profiles", home) < size;
	return i == 0 && (size_t)snprintf(out, size, "%s", KVARC_PROFILE_DIR) < size;
}

/* "; looked at A, B, and for DIGEST.kvp in C, D; ..." behind the library's text of an error; "":
 * there is nothing to add. Static storage. */
static const char *looked_at(const kvarc_error *error)
{
	static char out[1400];
	char folder[PATH_BYTES], hex[33], predict[16];
	size_t n = 0;

	models_predict_text(predict, error->blind);
	if (error->reason == KVARC_REASON_MODEL_DIFFERS && error->blind) {
		snprintf(out, sizeof(out), "; give --predict %s", predict);
		return out;
	}
	if (error->reason == KVARC_REASON_MODEL_NEEDED) {
		snprintf(out, sizeof(out),
		         "; give it with --model FILE.gguf, or a "
		         "folder with config.json and safetensors, or its folder in "
		         "KVARC_MODEL_PATH%s%s",
		         error->blind ? ", and --predict " : "", error->blind ? predict : "");
		return out;
	}
	if (error->reason != KVARC_REASON_PROFILE_NEEDED)
		return "";
	units_digest(hex, error->digest);
	for (size_t i = 0; i < all.n_given && n < sizeof(out); i++)
		n += (size_t)snprintf(out + n, sizeof(out) - n, "%s%s", i ? ", " : "; looked at ",
		                      path_of(all.given[i]));
	for (size_t i = 0; profiles_folder(i, folder, sizeof(folder)) && n < sizeof(out); i++) {
		if (i == 0)
			n += (size_t)snprintf(out + n, sizeof(out) - n, "; looked for %s.kvp in %s",
			                      hex, folder);
		else
			n += (size_t)snprintf(out + n, sizeof(out) - n, ", %s", folder);
	}
	if (n < sizeof(out))
		snprintf(out + n, sizeof(out) - n, "; give it with --profile FILE");
	return out;
}

bool profiles_open(const struct coding_options *coding, const struct work_options *work)
{
	all.work = work;
	library_set_hint(looked_at);
	if (coding->profiles.n == 0)
		return true;
	all.given = calloc(coding->profiles.n, sizeof(void *));
	if (!all.given) {
		msg_error(NULL, "out of memory");
		return false;
	}
	for (size_t i = 0; i < coding->profiles.n; i++) {
		kvarc_profile *p = open_file(coding->profiles.p[i]);
		if (!p || !add(p, coding->profiles.p[i]))
			return false;
		all.given[all.n_given++] = p;
	}
	return true;
}

bool profiles_take(kvarc_profile *profile, const char *path)
{
	const kvarc_profile **given = realloc(all.given, sizeof(*given));

	if (!given) {
		msg_error(NULL, "out of memory");
		kvarc_profile_close(&profile);
		return false;
	}
	all.given = given;
	if (!add(profile, path))
		return false;
	given[0] = profile;
	all.n_given = 1;
	all.taken = true;
	return true;
}

void profiles_drop_taken(void)
{
	if (all.taken)
		all.n_given = 0;
	all.taken = false;
}

void profiles_close(void)
{
	for (size_t i = 0; i < all.n; i++) {
		kvarc_profile_close(&all.list[i].p);
		free(all.list[i].path);
	}
	free(all.list);
	free(all.given);
	memset(&all, 0, sizeof(all));
}

const kvarc_profile *const *profiles_given(size_t *n)
{
	*n = all.n_given;
	return all.given;
}

/* The file of a digest in the first folder that has it. */
static bool find_file(const uint8_t digest[16], char path[PATH_BYTES + 40])
{
	char folder[PATH_BYTES], hex[33];

	units_digest(hex, digest);
	for (size_t i = 0; profiles_folder(i, folder, sizeof(folder)); i++) {
		snprintf(path, PATH_BYTES + 40, "%s/%s.kvp", folder, hex);
		if (access(path, R_OK) == 0)
			return true;
	}
	return false;
}

static const struct loaded *find_loaded(const uint8_t digest[16])
{
	kvarc_profile_info info;

	for (size_t i = 0; i < all.n; i++) {
		if (kvarc_profile_get_info(all.list[i].p, &info) == KVARC_OK &&
		    memcmp(info.digest, digest, 16) == 0)
			return &all.list[i];
	}
	return NULL;
}

const char *profiles_where(const uint8_t digest[16])
{
	static char path[PATH_BYTES + 40];
	const struct loaded *l = find_loaded(digest);

	if (l)
		return l->path;
	return find_file(digest, path) ? path : "";
}

/* A kvarc_find_profile. */
static const kvarc_profile *find(void *opaque, const uint8_t digest[16], const char *name)
{
	const struct loaded *l = find_loaded(digest);
	char path[PATH_BYTES + 40];
	kvarc_profile *p;

	(void)opaque, (void)name;
	if (!l && find_file(digest, path)) {
		p = open_file(path);
		if (p && add(p, path))
			l = find_loaded(digest);
		if (p && !l)
			msg_warning(path, "is not the profile that its name says");
	}
	return l ? l->p : NULL;
}

void profiles_reader(kvarc_reader_options *ro)
{
	ro->profiles = all.given;
	ro->n_profiles = all.n_given;
	ro->find_profile = find;
}

int profiles_highest_level(const kvarc_profile *profile)
{
	kvarc_profile_info info;

	if (kvarc_profile_get_info(profile, &info) != KVARC_OK)
		return 0;
	for (int level = models_given() ? LEVEL_MODELS : 3; level > 1; level--)
		if (info.levels >> level & 1)
			return level;
	return 0;
}

static bool has_level(const kvarc_profile *profile, int level)
{
	kvarc_profile_info info;

	level = level == LEVEL_PREDICTED ? LEVEL_MODELS : level;
	return kvarc_profile_get_info(profile, &info) == KVARC_OK && (info.levels >> level & 1);
}

/* The level that a writer takes of a profile, 0: it has none. Without a number
 * it is level 3, unless that predicts less than half of what level 2 does:
 * of a few layers that were cut out, those that it needs may be missing. */
static int level_of(const struct coding_options *coding, const kvarc_profile *profile,
                    const kvarc_geometry *geometry)
{
	size_t of_2 = kvarc_profile_predicts(profile, 2, geometry);
	size_t of_3 = kvarc_profile_predicts(profile, 3, geometry);

	if (all.taken && coding->level_given)
		return of_3 && coding->level > 2 ? 3 : 2;
	if (coding->level_given)
		return has_level(profile, coding->level) ? coding->level : 0;
	if (profiles_highest_level(profile) >= LEVEL_MODEL)
		return profiles_highest_level(profile);
	if (of_2 == 0 && of_3 == 0)
		return profiles_highest_level(profile);
	return 2 * of_3 > of_2 ? 3 : 2;
}

bool profiles_fit_wanted(const struct coding_options *coding)
{
	return coding->level_given && coding->level > 1 && all.n_given == 0;
}

bool profiles_check_level(const struct coding_options *coding, bool fits_one)
{
	if (coding->level_given && coding->level >= LEVEL_MODEL &&
	    (!models_given() || (all.n_given == 0 && !fits_one))) {
		msg_usage("level %d needs the model%s: give --model MODEL and --profile FILE; "
		          "'kvarc train --model MODEL --level %d' makes one",
		          coding->level,
		          fits_one ? ", and is smallest with a profile for it"
		                   : " and a profile for it",
		          coding->level < LEVEL_PREDICTED ? coding->level : LEVEL_MODELS);
		return false;
	}
	if ((coding->arithmetic || coding->loop) && all.n_given == 0) {
		msg_usage("--arith and --loop need a profile that was trained with them: 'kvarc "
		          "train' with the same options makes one");
		return false;
	}
	if (profiles_fit_wanted(coding) && !fits_one) {
		msg_usage("level %d needs a profile of the model: give it with --profile FILE",
		          coding->level);
		return false;
	}
	if (coding->embed_profile &&
	    (all.n_given == 0 || (coding->level_given && coding->level < 2))) {
		msg_usage("--embed-profile needs --profile and level 2 or higher");
		return false;
	}
	for (size_t i = 0; i < all.n_given; i++) {
		if (!coding->level_given || coding->level < 2 ||
		    has_level(all.given[i], coding->level))
			return true;
	}
	if (all.n_given == 0)
		return true;
	msg_error(path_of(all.given[0]), "has no models of level %d; its highest level is %d",
	          coding->level, profiles_highest_level(all.given[0]));
	return false;
}

/* The highest level that needs the model and that the profile has, 0: none. */
static int level_with_model(const kvarc_profile *profile)
{
	for (int level = LEVEL_MODELS; level >= LEVEL_MODEL; level--)
		if (has_level(profile, level))
			return level;
	return 0;
}

/* Profiles that predict nothing without a model are for tiers, or for what is read. */
static bool none_serves(bool needed)
{
	int level = level_with_model(all.given[0]);

	if (!needed)
		return true;
	if (level)
		msg_error(path_of(all.given[0]),
		          "holds statistics for level %d, which needs the model: "
		          "add -%d --model FILE",
		          level, level);
	else
		msg_error(path_of(all.given[0]), "has transforms for lossy tiers alone: say "
		                                 "--tier klt:RATE, or leave it out");
	return false;
}

bool profiles_writer(const struct coding_options *coding, const kvarc_geometry *geometry,
                     bool needed, kvarc_writer_options *wo)
{
	size_t best = all.n_given;

	wo->level = KVARC_LEVEL(coding->level);
	if (profiles_fit_wanted(coding) && coding->level <= 3) {
		msg_result(NULL, "level 1: no installed profile fits; 'kvarc train' makes one");
		wo->level = 1;
	}
	if (all.n_given == 0 || (coding->level_given && coding->level < 2))
		return true;
	/* The first one that fits; else the writer says that none does. */
	for (size_t i = all.n_given; i-- > 0;) {
		int level = level_of(coding, all.given[i], geometry);
		if (level && (best == all.n_given ||
		              kvarc_profile_predicts(all.given[i], (unsigned)level, geometry)))
			best = i;
	}
	if (best == all.n_given)
		return none_serves(needed);
	wo->profile = all.given[best];
	wo->level = KVARC_LEVEL(level_of(coding, wo->profile, geometry));
	wo->profile_name = paths_base(path_of(wo->profile));
	if (coding->embed_profile)
		wo->flags |= KVARC_WRITE_EMBED_PROFILE;
	if (wo->level >= LEVEL_MODEL) {
		wo->predictor = models_given();
		wo->arithmetic = (kvarc_arithmetic)coding->arithmetic;
		wo->loop = (kvarc_loop)coding->loop;
		wo->predictor_name = models_name();
	}
	return true;
}

const char *profiles_why_unused(const kvarc_geometry *geometry)
{
	for (size_t i = 0; i < geometry->n_tensors; i++) {
		if (geometry->tensors[i].role != KVARC_WHOLE)
			return "the cache is quantised";
	}
	return geometry->n_tensors ? NULL : "no cache was found";
}

int profiles_level_used(const char *file, const kvarc_writer_options *wo,
                        const kvarc_geometry *geometry)
{
	const char *why = profiles_why_unused(geometry);

	if (wo->level < 2 || kvarc_profile_predicts(wo->profile, (unsigned)wo->level, geometry))
		return wo->level < 0 ? 0 : wo->level;
	msg_result(file, "level 1; the profile %s is not used: %s", wo->profile_name,
	           why ? why : "it predicts none of the tensors");
	return 1;
}

bool profiles_tier(const kvarc_lossy *tier, const kvarc_geometry *geometry,
                   kvarc_writer_options *wo)
{
	if (tier->tier != KVARC_TIER_KLT)
		return true;
	for (size_t i = 0; i < all.n_given && !wo->profile; i++) {
		if (geometry ? !kvarc_profile_predicts(all.given[i], LEVEL_BASIS, geometry)
		             : !has_level(all.given[i], LEVEL_BASIS))
			continue;
		wo->profile = all.given[i];
		wo->profile_name = paths_base(path_of(wo->profile));
	}
	if (!wo->profile)
		msg_usage("the tier klt needs a profile of the model (--profile) with transforms: "
		          "'kvarc train --klt' makes one");
	return wo->profile != NULL;
}

static const char *identity_of(const kvarc_profile *profile, const char *wanted)
{
	const char *key, *value;

	for (size_t i = 0; kvarc_profile_identity_at(profile, i, &key, &value) == KVARC_OK; i++)
		if (strcmp(key, wanted) == 0)
			return value;
	return NULL;
}

void profiles_check_weights(const char *model, const kvarc_writer_options *wo)
{
	static bool shown;
	const char *trained_for;
	uint8_t digest[16];
	char hex[33];

	if (wo->level < LEVEL_MODEL || !wo->profile || shown)
		return;
	trained_for = identity_of(wo->profile, "weights");
	if (!trained_for || kvarc_predictor_digest(wo->predictor, digest))
		return;
	units_digest(hex, digest);
	if (strcmp(trained_for, hex) == 0)
		return;
	shown = true;
	msg_warning(wo->profile_name,
	            "was trained for a model with other weights, "
	            "%s; those of %s are %s. Archives are right, but larger than "
	            "with a profile of 'kvarc train --model %s --level %d'",
	            trained_for, model, hex, model, wo->level);
}

const kvarc_profile *profiles_fitting(int level, const kvarc_geometry *geometry)
{
	for (size_t i = 0; i < all.n_given; i++)
		if (kvarc_profile_predicts(all.given[i], (unsigned)level, geometry))
			return all.given[i];
	return NULL;
}

bool profiles_is_one(struct input *in)
{
	/* spec profile 1 */
	static const unsigned char magic[8] = { 0x89, 'K', 'V', 'P', '\r', '\n', 0x1a, '\n' };
	return input_starts_with(in, magic);
}
