/* SPDX-License-Identifier: BSD-3-Clause */
/* walk.c - archives in the folders that the command line names */
#include "config.h"

#include "walk.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "infile.h"
#include "message.h"
#include "paths.h"

enum { DEPTH = 64 };

/* The files of the command line, folders replaced by what was found in them. */
struct walking {
	char **files;  /* files to be read */
	char **walked; /* allocated ones among files */
	size_t n, n_walked;
};

static bool add_file(struct walking *w, char *name, bool walked)
{
	char **files = realloc(w->files, (w->n + 1) * sizeof(*files));
	char **list = realloc(w->walked, (w->n_walked + 1) * sizeof(*list));

	if (files)
		w->files = files;
	if (list)
		w->walked = list;
	if (!files || !list)
		return false;
	w->files[w->n++] = name;
	if (walked)
		w->walked[w->n_walked++] = name;
	return true;
}

static bool is_archive(const char *path)
{
	struct input in;
	bool is;

	if (!input_open(&in, path, false))
		return false;
	is = input_is_archive(&in);
	input_close(&in);
	return is;
}

static int shown(const struct dirent *dirent)
{
	return dirent->d_name[0] != '.';
}

static bool walk_folder(struct walking *w, const char *folder, unsigned depth);

/* Takes ownership of path. */
static bool visit(struct walking *w, char *path, unsigned depth)
{
	struct stat st;
	bool ok = true;

	if (!path)
		return false;
	if (lstat(path, &st) != 0)
		msg_error(path, "cannot open: %s", strerror(errno));
	else if (S_ISDIR(st.st_mode))
		ok = walk_folder(w, path, depth + 1);
	else if (S_ISREG(st.st_mode) && is_archive(path)) {
		if (add_file(w, path, true))
			return true;
		ok = false;
	}
	free(path);
	return ok;
}

static bool walk_folder(struct walking *w, const char *folder, unsigned depth)
{
	struct dirent **entries;
	bool ok = true;
	int n;

	if (depth > DEPTH) {
		msg_error(folder, "is not walked through: too many folders inside each other");
		return true;
	}
	n = scandir(folder, &entries, shown, alphasort);
	if (n < 0 && errno == ENOMEM)
		return false;
	if (n < 0) {
		msg_error(folder, "cannot open: %s", strerror(errno));
		return true;
	}
	for (int i = 0; i < n; i++) {
		ok = ok && visit(w, paths_join(folder, entries[i]->d_name), depth);
		free(entries[i]);
	}
	free(entries);
	return ok;
}

static bool is_folder(const char *name)
{
	struct stat st;

	return strcmp(name, "-") != 0 && stat(name, &st) == 0 && S_ISDIR(st.st_mode);
}

/* A file of the command line, or what is in it. */
static bool take(struct walking *w, char *name, bool recursive)
{
	size_t before = w->n;

	if (!is_folder(name))
		return add_file(w, name, false);
	if (!recursive) {
		msg_error(name, "is a folder; give the files in it, or -r to find its archives");
		return true;
	}
	if (!walk_folder(w, name, 0))
		return false;
	if (w->n == before)
		msg_warning(name, "holds no archive");
	return true;
}

bool walk_folders(struct options *options)
{
	struct walking w = { 0 };
	bool ok = true;

	for (size_t i = 0; i < options->n_files && ok; i++)
		ok = take(&w, options->files[i], options->recursive);
	free(options->files);
	options->nothing_left = options->n_files && !w.n;
	options->files = w.files;
	options->n_files = w.n;
	options->walked = w.walked;
	options->n_walked = w.n_walked;
	if (!ok)
		msg_error(NULL, "out of memory");
	return ok;
}
