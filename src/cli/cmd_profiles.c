/* SPDX-License-Identifier: BSD-3-Clause */
/* cmd_profiles.c - kvarc profiles: installs profiles where readers look for them, and lists them */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "commands.h"
#include "library.h"
#include "message.h"
#include "models.h"
#include "outfile.h"
#include "paths.h"
#include "profiles.h"
#include "readers.h"
#include "report.h"
#include "units.h"

enum { PATH_BYTES = 4096, LEVELS_BYTES = 32 };

/* A cache that profiles are to fit, an archive or a file that pack takes. No name: there is none,
 * all profiles are listed. */
struct fitted_file {
	const char *name;
	struct input in;
	kvarc_error error;
	kvarc_reader *r; /* of an archive */
	size_t n;        /* profiles that fit */
};

static const char *identity_value(const kvarc_profile *p, const char *wanted)
{
	const char *key, *value;

	for (size_t i = 0; kvarc_profile_identity_at(p, i, &key, &value) == KVARC_OK; i++) {
		if (strcmp(key, wanted) == 0)
			return value;
	}
	return NULL;
}

/* "2 3": the levels of a profile, those that predict something of the cache if there is one.
 * Returns the highest, 0: none. */
static int find_levels(char out[LEVELS_BYTES], const kvarc_profile *p,
                       const kvarc_geometry *geometry)
{
	kvarc_profile_info info;
	size_t n = 0;
	int highest = 0;

	out[0] = '\0';
	if (kvarc_profile_get_info(p, &info) != KVARC_OK)
		return 0;
	for (int level = 2; level <= LEVEL_BASIS; level++) {
		bool has = info.levels >> level & 1;

		if (has && geometry)
			has = kvarc_profile_predicts(p, (unsigned)level, geometry) > 0;
		if (!has)
			continue;
		n += (size_t)snprintf(out + n, LEVELS_BYTES - n,
		                      level == LEVEL_BASIS ? "%sklt" : "%s%d", n ? " " : "", level);
		highest = level;
	}
	return highest;
}

/* The command that packs with it. */
static void put_command(char *out, size_t size, const struct options *o, const char *path,
                        int level, const char *file)
{
	const char *model = o->model ? o->model : "MODEL";

	if (level == LEVEL_BASIS)
		snprintf(out, size, "kvarc pack --tier klt:RATE --profile %s %s", path, file);
	else
		snprintf(out, size, "kvarc pack -%d %s%s%s--profile %s %s", level,
		         level >= LEVEL_MODEL ? "--model " : "", level >= LEVEL_MODEL ? model : "",
		         level >= LEVEL_MODEL ? " " : "", path, file);
}

static void report_one(const struct options *o, const char *path, const kvarc_profile *p,
                       const kvarc_geometry *geometry, struct fitted_file *f)
{
	char levels[LEVELS_BYTES], digest[33], command[2 * PATH_BYTES] = "";
	const int level = find_levels(levels, p, geometry);
	kvarc_profile_info info;
	struct report x;

	if (level == 0 || (!o->json && msg_level() < 0) ||
	    kvarc_profile_get_info(p, &info) != KVARC_OK)
		return;
	if (f->n++ == 0 && !o->json)
		printf("%-7s  %9s  %-24s  %-32s\n", "levels", "size", "model", "digest");
	if (geometry)
		put_command(command, sizeof(command), o, path, level, f->name);
	report_start(&x, o->json);
	report_string(&x, "file", path);
	report_string(&x, "levels", levels);
	report_string(&x, "model", identity_value(p, "model"));
	report_string(&x, "fitted_on", identity_value(p, "fitted_on"));
	report_string(&x, "weights", identity_value(p, "weights"));
	report_u64(&x, "file_bytes", info.file_bytes);
	report_string(&x, "digest", units_digest(digest, info.digest));
	if (geometry)
		report_string(&x, "fits", f->name);
	report_string(&x, ".command", command);
	report_print(&x, "{levels:-7}  {file_bytes:9B}  {model:-24}  {digest:-32}\n"
	                 "[         {.command}\n]");
	report_end(&x);
}

static int is_profile_name(const struct dirent *e)
{
	size_t n = strlen(e->d_name);

	return e->d_name[0] != '.' && n > 4 && strcmp(e->d_name + n - 4, ".kvp") == 0;
}

/* Packed with this profile: it has the heads and RoPE of tensors that do not say them. NULL: a
 * message was shown. */
static kvarc_import *import_with(const struct options *o, struct fitted_file *f,
                                 const kvarc_profile *p, kvarc_source *source)
{
	kvarc_import_options io = KVARC_IMPORT_OPTIONS_INIT;
	kvarc_import *im;
	kvarc_ret ret;

	readers_import_options(o, &io, &f->error);
	io.members = 1;
	io.profiles = &p;
	io.n_profiles = 1;
	*source = input_source(&f->in);
	ret = kvarc_import_open(&im, source, NULL, &io);
	if (ret != KVARC_OK)
		library_error(f->name, ret, &f->error, &f->in, NULL);
	return im;
}

static void compare(const struct options *o, const char *path, const kvarc_profile *p,
                    struct fitted_file *f)
{
	kvarc_source source;
	kvarc_import *im;

	if (!f->name) {
		report_one(o, path, p, NULL, f);
	} else if (f->r) {
		report_one(o, path, p, kvarc_reader_geometry(f->r), f);
	} else {
		im = import_with(o, f, p, &source);
		if (im)
			report_one(o, path, p, kvarc_import_geometry(im), f);
		kvarc_import_close(&im);
	}
}

static void list_file(const struct options *o, const char *path, struct fitted_file *f)
{
	kvarc_profile *p = NULL;
	struct input in;

	if (!input_open(&in, path, false))
		return;
	p = profiles_read(o, &in);
	if (p)
		compare(o, path, p, f);
	kvarc_profile_close(&p);
	input_close(&in);
}

/* All folders, in the order in which readers look at them. */
static void list_folders(const struct options *o, struct fitted_file *f)
{
	char folder[PATH_BYTES];

	for (size_t i = 0; profiles_folder(i, folder, sizeof(folder)); i++) {
		struct dirent **entries;
		int n = scandir(folder, &entries, is_profile_name, alphasort);

		for (int k = 0; k < n; k++) {
			char *path = paths_join(folder, entries[k]->d_name);

			if (path)
				list_file(o, path, f);
			else
				msg_error(NULL, "out of memory");
			free(path);
			free(entries[k]);
		}
		if (n >= 0)
			free(entries);
	}
}

/* Where profiles are looked for, for messages. */
static void show_folders(const char *file, const char *what)
{
	char folder[PATH_BYTES], text[PATH_BYTES] = "";
	size_t n = 0;

	for (size_t i = 0; profiles_folder(i, folder, sizeof(folder)) && n < sizeof(text); i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s", i ? ", " : "", folder);
	msg_result(file, "%s in %s", what, text);
}

static void list_fitting(const struct options *o, const char *file)
{
	struct fitted_file f = { .name = file };
	bool ok = input_open(&f.in, file, true);

	if (ok && input_is_archive(&f.in)) {
		f.r = readers_open(o, &f.in, 0, &f.error);
		ok = f.r;
	}
	if (ok) {
		list_folders(o, &f);
		if (f.n == 0 && !o->json)
			show_folders(file, "no profile fits it");
	}
	kvarc_reader_close(&f.r);
	input_close(&f.in);
}

/* Makes a folder and those above it; path is cut into components on the way. */
static bool make_folders(char *path)
{
	for (char *p = path + 1;; p++) {
		const char c = *p;

		if (c && c != '/')
			continue;
		*p = '\0';
		const bool made = mkdir(path, 0777) == 0 || errno == EEXIST;
		*p = c;
		if (!made)
			msg_error(path, "cannot make the folder: %s", strerror(errno));
		if (!made || !c)
			return made;
	}
}

static void write_profile(const kvarc_profile *p, const struct input *in, const char *path)
{
	struct output out;
	kvarc_sink sink;
	kvarc_ret ret;

	if (!output_open(&out, path, OUTPUT_NEW, 0))
		return;
	sink = output_sink(&out);
	ret = kvarc_profile_write(p, &sink);
	if (ret != KVARC_OK) {
		library_error(path, ret, NULL, NULL, &out);
		output_abort(&out);
	} else if (output_commit(&out)) {
		msg_result(in->name, "installed as %s", path);
	}
}

/* Into the first folder that is looked at. */
static void install(const struct options *o, const char *file)
{
	char folder[PATH_BYTES], path[PATH_BYTES + 40], hex[33];
	kvarc_profile *p = NULL;
	kvarc_profile_info info;
	struct input in;

	if (!input_open(&in, file, false))
		return;
	p = profiles_read(o, &in);
	if (p && kvarc_profile_get_info(p, &info) == KVARC_OK &&
	    profiles_folder(0, folder, sizeof(folder)) && make_folders(folder)) {
		snprintf(path, sizeof(path), "%s/%s.kvp", folder, units_digest(hex, info.digest));
		if (access(path, F_OK) == 0)
			msg_result(file, "is installed already as %s", path);
		else
			write_profile(p, &in, path);
	}
	kvarc_profile_close(&p);
	input_close(&in);
}

void cmd_profiles(const struct options *o)
{
	const char *action = o->n_files ? o->files[0] : "list";
	const bool lists = strcmp(action, "list") == 0;
	struct fitted_file all = { .name = NULL };

	if (!lists && strcmp(action, "install") != 0)
		msg_error(NULL, "profiles: give 'list' or 'install FILE'");
	else if (!lists && o->n_files < 2)
		msg_error(NULL, "profiles: a file is missing: install FILE");
	for (size_t i = 1; i < o->n_files && msg_status() != EXIT_ERROR; i++)
		(lists ? list_fitting : install)(o, o->files[i]);
	if (!lists || o->n_files > 1)
		return;
	list_folders(o, &all);
	if (all.n == 0 && !o->json)
		show_folders(NULL, "there are no profiles");
}
