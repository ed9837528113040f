/* SPDX-License-Identifier: BSD-3-Clause */
/* engine_files.c - files of engines that do not say what they are: --raw and --layout */
#include "config.h"

#include "engine_files.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "infile.h"
#include "message.h"
#include "paths.h"

enum { FOLDERS_ABOVE = 3 };

/* "a/b" -> "a"; "." above a name alone, ".." above that. Allocated; NULL: out of memory. */
static char *folder_above(const char *path)
{
	char *folder = paths_folder(path);
	size_t n = folder ? strlen(folder) : 0;

	while (n > 1 && folder[n - 1] == '/')
		folder[--n] = '\0';
	if (folder && strcmp(path, ".") == 0) {
		free(folder);
		return strdup("..");
	}
	if (folder && !*folder) {
		free(folder);
		return strdup(".");
	}
	return folder;
}

/* A rank's folder of vLLM, "BASE_r0", has its config.json in "BASE". */
static void cut_rank(char *folder)
{
	char *end = folder + strlen(folder);

	while (end > folder && isdigit((unsigned char)end[-1]))
		end--;
	if (*end && end - folder > 2 && strncmp(end - 2, "_r", 2) == 0)
		end[-2] = '\0';
}

/* The path of the config.json of a file; NULL: there is none. Allocated. */
static char *find_config(const char *file)
{
	char *folder = folder_above(file), *found = NULL;

	for (int i = 0; folder && !found && i <= FOLDERS_ABOVE; i++) {
		char *above = folder_above(folder);
		char *base = strdup(folder);

		found = paths_join(folder, "config.json");
		if (found && access(found, R_OK) != 0 && base) {
			free(found);
			cut_rank(base);
			found = paths_join(base, "config.json");
		}
		if (found && access(found, R_OK) != 0) {
			free(found);
			found = NULL;
		}
		free(base);
		free(folder);
		folder = above;
	}
	free(folder);
	return found;
}

bool engine_file_options(const struct import_options *import, const char *file,
                         struct engine_file *engine_file, kvarc_import_options *io)
{
	struct input config = { .fd = -1 };
	kvarc_source source;
	kvarc_error error = { 0 };
	kvarc_ret ret;
	char *path;
	bool ok;

	if (import->raw)
		io->raw = import->raw;
	if (!import->layout)
		return true;
	path = find_config(file);
	if (path && !input_open(&config, path, true)) {
		free(path);
		return false;
	}
	if (path)
		source = input_source(&config);
	ret = kvarc_raw_layout(import->layout, file, path ? &source : NULL, engine_file->raw,
	                       sizeof(engine_file->raw), &error);
	ok = ret == KVARC_OK;
	if (!ok)
		msg_error(path && ret != KVARC_PROG ? path : file, "%s",
		          error.text[0] ? error.text : kvarc_strerror(ret));
	else if (msg_level() > 0)
		msg_result(file, "read as %s%s%s", engine_file->raw, path ? ", with " : "",
		           path ? path : "");
	if (path)
		input_close(&config);
	free(path);
	io->raw = engine_file->raw;
	return ok;
}

static bool same_folder(const char *a, const char *b)
{
	struct stat x, y;

	return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

bool engine_file_target(const struct import_options *import, const char *file, const char *target)
{
	char *from, *to;
	bool inside = false;

	if (!import->layout || strcmp(target, "-") == 0)
		return true;
	to = folder_above(target);
	from = folder_above(file);
	for (int i = 0; from && to && !inside && i <= FOLDERS_ABOVE; i++) {
		char *config = paths_join(from, "config.json"), *above = folder_above(from);
		bool tier = i == 0 || (config && access(config, R_OK) == 0);

		inside = tier && same_folder(from, to);
		free(config);
		free(from);
		from = above;
	}
	free(from);
	free(to);
	if (inside)
		msg_error(target, "is in the folder of the engine, which it reads by itself; give "
		                  "another one with -o FOLDER/");
	return !inside;
}
