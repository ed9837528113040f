/* SPDX-License-Identifier: BSD-3-Clause */
/* paths.c - which file is made from which */
#include "config.h"

#include "paths.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "message.h"
#include "outfile.h"

static const char ending[] = ".kva";

bool paths_to_stdout(const struct options *options)
{
	if (options->output)
		return strcmp(options->output, "-") == 0;
	return options->n_files && strcmp(options->files[0], "-") == 0;
}

bool paths_is_folder(const char *path)
{
	struct stat st;
	size_t n = strlen(path);

	return (n && path[n - 1] == '/') || (stat(path, &st) == 0 && S_ISDIR(st.st_mode));
}

bool paths_is_open(const char *path, int fd)
{
	struct stat named, open_file;

	return fstat(fd, &open_file) == 0 && stat(path, &named) == 0 &&
	       open_file.st_dev == named.st_dev && open_file.st_ino == named.st_ino;
}

bool paths_make_folder(const char *output)
{
	size_t n = output ? strlen(output) : 0;

	if (n == 0 || output[n - 1] != '/' || mkdir(output, 0777) == 0 || errno == EEXIST)
		return true;
	msg_error(output, "cannot make the folder: %s", strerror(errno));
	return false;
}

unsigned paths_output_flags(const struct options *options)
{
	bool named = options->output && !paths_is_folder(options->output);

	return (options->force ? OUTPUT_FORCE : 0) | (named ? 0 : OUTPUT_NEW);
}

bool paths_check_reading(const struct options *options)
{
	size_t n_stdin = 0;

	if (options->n_files == 0) {
		msg_usage("a file is missing%s; - stands for standard input",
		          options->plot
		                  ? ": the name behind --plot is that of the SVG that is written"
		                  : "");
		return false;
	}
	for (size_t i = 0; i < options->n_files; i++)
		n_stdin += strcmp(options->files[i], "-") == 0;
	if (n_stdin && options->n_files > 1) {
		msg_usage("- must be the only file");
		return false;
	}
	return true;
}

bool paths_check_operands(const struct options *options)
{
	if (!paths_check_reading(options))
		return false;
	if (paths_to_stdout(options)) {
		if (options->n_files > 1) {
			msg_usage("standard output takes one file; give one, or a folder with -o");
			return false;
		}
		if (options->json) {
			msg_usage("--json needs standard output for itself; use -o FILE");
			return false;
		}
	} else if (options->n_files > 1 && options->output && !paths_is_folder(options->output)) {
		msg_error(options->output, "is not a folder, and several files cannot become one");
		return false;
	}
	return true;
}

const char *paths_base(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

bool paths_ends_with(const char *path, const char *end)
{
	size_t n = strlen(path), bytes = strlen(end);

	return n > bytes && strcmp(path + n - bytes, end) == 0;
}

char *paths_folder(const char *file)
{
	return strndup(file, (size_t)(paths_base(file) - file));
}

char *paths_join(const char *folder, const char *name)
{
	size_t nf = folder ? strlen(folder) : 0, nn = strlen(name);
	bool slash = nf && folder[nf - 1] != '/';
	char *path = malloc(nf + slash + nn + 1);

	if (!path)
		return NULL;
	if (nf)
		memcpy(path, folder, nf);
	if (slash)
		path[nf] = '/';
	memcpy(path + nf + slash, name, nn + 1);
	return path;
}

static char *append(const char *a, size_t n, const char *b)
{
	char *s = malloc(n + strlen(b) + 1);

	if (s) {
		memcpy(s, a, n);
		strcpy(s + n, b);
	}
	return s;
}

char *paths_pack_target(const char *file, const char *output)
{
	bool is_stdin = strcmp(file, "-") == 0;
	char *name, *path;

	if (!output)
		return is_stdin ? strdup("-") : append(file, strlen(file), ending);
	if (strcmp(output, "-") == 0 || !paths_is_folder(output))
		return strdup(output);
	file = is_stdin ? "stdin" : paths_base(file);
	name = append(file, strlen(file), ending);
	path = name ? paths_join(output, name) : NULL;
	free(name);
	return path;
}

char *paths_stem(const char *file, const char *new_ending)
{
	const char *base = paths_base(file);
	bool has = paths_ends_with(base, ending);

	if (strcmp(file, "-") == 0)
		return append("stdin", 5, *new_ending ? new_ending : ".out");
	if (!has && !*new_ending)
		new_ending = ".out";
	return append(base, strlen(base) - (has ? strlen(ending) : 0), new_ending);
}

char *paths_of_user(const char *variable, const char *below_home, const char *name)
{
	const char *base = getenv(variable), *home = getenv("HOME");
	char *folder, *path;

	if (base && base[0] == '/')
		return paths_join(base, name);
	folder = home && home[0] == '/' ? paths_join(home, below_home) : NULL;
	path = folder ? paths_join(folder, name) : NULL;
	free(folder);
	return path;
}

bool paths_make_above(char *path, mode_t mode)
{
	for (char *p = path + 1; *p; p++) {
		if (*p != '/')
			continue;
		*p = '\0';
		if (mkdir(path, mode) != 0 && errno != EEXIST) {
			msg_error(path, "cannot make the folder: %s", strerror(errno));
			return false;
		}
		*p = '/';
	}
	return true;
}

const char *paths_temporary_folder(void)
{
	const char *tmp = getenv("TMPDIR");

	if (tmp && tmp[0])
		return tmp;
	if (access("/var/tmp", W_OK) == 0)
		return "/var/tmp";
	return access("/tmp", W_OK) == 0 ? "/tmp" : NULL;
}

bool paths_safe_name(const char *name)
{
	size_t n = strlen(name);

	if (n == 0 || n > 255 || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return false;
	for (const unsigned char *p = (const unsigned char *)name; *p; p++) {
		if (*p < 0x20 || *p == 0x7f || *p == '/')
			return false;
	}
	return true;
}

bool paths_safe_path(const char *path)
{
	char part[256];

	while (*path) {
		size_t n = strcspn(path, "/");
		if (n >= sizeof(part))
			return false;
		memcpy(part, path, n);
		part[n] = '\0';
		if (!paths_safe_name(part))
			return false;
		path += n;
		if (*path == '/' && *++path == '\0')
			return false;
	}
	return true;
}

bool paths_have_models(const char *model, const struct verb *verb)
{
	const char *path = getenv("KVARC_MODEL_PATH");

	return !model && path && *path &&
	       (verb->bit & (VERB_UNPACK | VERB_TEST | VERB_CUT | VERB_COMPACT));
}
