/* SPDX-License-Identifier: BSD-3-Clause */
/* installed.c - installed profiles, and the one that fits a file */
#include "config.h"

#include "installed.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "library.h"
#include "message.h"
#include "paths.h"
#include "profiles.h"
#include "readers.h"

enum { PATH_BYTES = 4096 };

static int is_profile_name(const struct dirent *dirent)
{
	return dirent->d_name[0] != '.' && paths_ends_with(dirent->d_name, ".kvp");
}

void installed_each(installed_fn fn, void *opaque)
{
	char folder[PATH_BYTES];

	for (size_t i = 0; profiles_folder(i, folder, sizeof(folder)); i++) {
		struct dirent **entries;
		int n = scandir(folder, &entries, is_profile_name, alphasort);

		for (int k = 0; k < n; k++) {
			char *path = paths_join(folder, entries[k]->d_name);

			if (path)
				fn(opaque, path);
			else
				msg_error(NULL, "out of memory");
			free(path);
			free(entries[k]);
		}
		if (n >= 0)
			free(entries);
	}
}

kvarc_import *installed_import(const struct options *options, struct input *in,
                               const kvarc_profile *profile, kvarc_source *source,
                               kvarc_error *error)
{
	kvarc_import_options io = KVARC_IMPORT_OPTIONS_INIT;
	kvarc_import *im;

	readers_import_options(&options->work, &options->import, &io, error);
	io.members = 1;
	io.profiles = &profile;
	io.n_profiles = 1;
	*source = input_source(in);
	return kvarc_import_open(&im, source, NULL, &io) == KVARC_OK ? im : NULL;
}

/* A search for the profile that predicts most of a file. */
struct profile_choice {
	const struct options *options;
	struct input *in;
	kvarc_profile *best; /* NULL: none so far */
	char *path;
	size_t predicts; /* tensors */
	unsigned level;
};

static void compare(void *opaque, const char *path)
{
	struct profile_choice *x = opaque;
	kvarc_profile *p = NULL;
	kvarc_import *im = NULL;
	kvarc_common common;
	kvarc_source source;
	kvarc_error error;
	struct input in;
	char *copy = NULL;
	size_t n = 0;

	if (!input_open(&in, path, false))
		return;
	source = input_source(&in);
	library_common(&x->options->work, &common, &error);
	common.progress = NULL;
	if (kvarc_profile_open(&p, &source, &common) != KVARC_OK)
		msg_result(path, "is passed over: %s",
		           error.text[0] ? error.text : "not a profile");
	input_close(&in);
	if (p)
		im = installed_import(x->options, x->in, p, &source, &error);
	/* The level that was asked for; level 2 only of one that has nothing better. */
	for (unsigned level = (unsigned)x->options->coding.level; im && level > 1 && !copy;
	     level--) {
		n = kvarc_profile_predicts(p, level, kvarc_import_geometry(im));
		if (n && (level > x->level || (level == x->level && n > x->predicts)))
			copy = strdup(path);
		if (copy)
			x->level = level;
	}
	kvarc_import_close(&im);
	if (copy) {
		kvarc_profile_close(&x->best);
		free(x->path);
		x->best = p;
		x->path = copy;
		x->predicts = n;
	} else {
		kvarc_profile_close(&p);
	}
}

void installed_choose(const struct options *options, struct input *in)
{
	struct profile_choice x = { .options = options, .in = in };

	profiles_drop_taken();
	if (!profiles_fit_wanted(&options->coding) || options->coding.level > 3 ||
	    options->import.opaque || !in->seekable)
		return;
	installed_each(compare, &x);
	if (x.best && profiles_take(x.best, x.path))
		msg_result(in->name, "level %u with the installed profile %s, which readers need%s",
		           x.level, paths_base(x.path),
		           (int)x.level < options->coding.level ? "; none that fits has level 3"
		                                                : "");
	free(x.path);
}
