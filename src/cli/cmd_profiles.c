/* SPDX-License-Identifier: BSD-3-Clause */
/* cmd_profiles.c - kvarc profiles: installs profiles where readers look for them, and lists them */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include <kvarc/exchange.h>

#include "commands.h"
#include "installed.h"
#include "library.h"
#include "message.h"
#include "models.h"
#include "outfile.h"
#include "paths.h"
#include "profiles.h"
#include "readers.h"
#include "report.h"
#include "units.h"

enum { PATH_BYTES = 4096, LEVELS_BYTES = 32, DOWNLOAD_BYTES = 1 << 30 };

/* A cache that profiles are to fit, an archive or a file that pack takes. No name: there is none,
 * all profiles are listed. */
struct fitted_file {
	const char *name;
	struct input in;
	kvarc_error error;
	kvarc_reader *r; /* reader of an archive */
	size_t n;        /* profiles that fit */
};

static const char *identity_value(const kvarc_profile *profile, const char *wanted)
{
	const char *key, *value;

	for (size_t i = 0; kvarc_profile_identity_at(profile, i, &key, &value) == KVARC_OK; i++) {
		if (strcmp(key, wanted) == 0)
			return value;
	}
	return NULL;
}

/* "2 3": the levels of a profile, those that predict something of the cache if there is one.
 * Returns the highest, 0: none. */
static int find_levels(char out[LEVELS_BYTES], const kvarc_profile *profile,
                       const kvarc_geometry *geometry)
{
	kvarc_profile_info info;
	size_t n = 0;
	int highest = 0;

	out[0] = '\0';
	if (kvarc_profile_get_info(profile, &info) != KVARC_OK)
		return 0;
	for (int level = 2; level <= LEVEL_BASIS; level++) {
		bool has = info.levels >> level & 1;

		if (has && geometry)
			has = kvarc_profile_predicts(profile, (unsigned)level, geometry) > 0;
		if (!has)
			continue;
		n += (size_t)snprintf(out + n, LEVELS_BYTES - n,
		                      level == LEVEL_BASIS ? "%sklt" : "%s%d", n ? " " : "", level);
		highest = level;
	}
	return highest;
}

/* The command that packs with it. */
static void put_command(char *out, size_t size, const struct coding_options *coding,
                        const char *path, int level, const char *file)
{
	const char *model = coding->model ? coding->model : "MODEL";

	if (level == LEVEL_BASIS)
		snprintf(out, size, "kvarc pack --tier klt:RATE --profile %s %s", path, file);
	else
		snprintf(out, size, "kvarc pack -%d %s%s%s--profile %s %s", level,
		         level >= LEVEL_MODEL ? "--model " : "", level >= LEVEL_MODEL ? model : "",
		         level >= LEVEL_MODEL ? " " : "", path, file);
}

static void report_one(const struct options *options, const char *path,
                       const kvarc_profile *profile, const kvarc_geometry *geometry,
                       struct fitted_file *file)
{
	char levels[LEVELS_BYTES], digest[33], command[2 * PATH_BYTES] = "";
	const int level = find_levels(levels, profile, geometry);
	kvarc_profile_info info;
	struct report x;

	if (level == 0 || (!options->json && msg_level() < 0) ||
	    kvarc_profile_get_info(profile, &info) != KVARC_OK)
		return;
	if (file->n++ == 0 && !options->json)
		printf("%-7s  %9s  %-24s  %-32s\n", "levels", "size", "model", "digest");
	if (geometry)
		put_command(command, sizeof(command), &options->coding, path, level, file->name);
	report_start(&x, options->json);
	report_string(&x, "file", path);
	report_string(&x, "levels", levels);
	report_string(&x, "model", identity_value(profile, "model"));
	report_string(&x, "fitted_on", identity_value(profile, "fitted_on"));
	report_string(&x, "weights", identity_value(profile, "weights"));
	report_u64(&x, "file_bytes", info.file_bytes);
	report_string(&x, "digest", units_digest(digest, info.digest));
	if (geometry)
		report_string(&x, "fits", file->name);
	report_string(&x, ".command", command);
	report_print(&x, "{levels:-7}  {file_bytes:9B}  {model:-24}  {digest:-32}\n"
	                 "[         {.command}\n]");
	report_end(&x);
}

static void compare(const struct options *options, const char *path, const kvarc_profile *profile,
                    struct fitted_file *file)
{
	kvarc_source source;
	kvarc_import *im;

	if (!file->name) {
		report_one(options, path, profile, NULL, file);
	} else if (file->r) {
		report_one(options, path, profile, kvarc_reader_geometry(file->r), file);
	} else {
		im = installed_import(options, &file->in, profile, &source, &file->error);
		if (im)
			report_one(options, path, profile, kvarc_import_geometry(im), file);
		else
			library_error(file->name, file->error.code, &file->error, &file->in, NULL);
		kvarc_import_close(&im);
	}
}

/* A list of profiles on its way. */
struct profile_listing {
	const struct options *options;
	struct fitted_file *file;
};

static void list_one(void *opaque, const char *path)
{
	const struct profile_listing *x = opaque;
	kvarc_profile *p = NULL;
	struct input in;

	if (!input_open(&in, path, false))
		return;
	p = profiles_read(&x->options->work, &in);
	if (p)
		compare(x->options, path, p, x->file);
	kvarc_profile_close(&p);
	input_close(&in);
}

/* Lists the profiles of all folders, in the order in which readers look at them. */
static void list_folders(const struct options *options, struct fitted_file *file)
{
	struct profile_listing x = { options, file };

	installed_each(list_one, &x);
}

/* Shows the folders of profiles in a message. */
static void show_folders(const char *file, const char *what)
{
	char folder[PATH_BYTES], text[PATH_BYTES] = "";
	size_t n = 0;

	for (size_t i = 0; profiles_folder(i, folder, sizeof(folder)) && n < sizeof(text); i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s", i ? ", " : "", folder);
	msg_result(file, "%s in %s", what, text);
}

static void list_fitting(const struct options *options, const char *file)
{
	struct fitted_file f = { .name = file };
	bool ok = input_open(&f.in, file, true);

	if (ok && input_is_archive(&f.in)) {
		f.r = readers_open(&options->work, &options->reading, &f.in, 0, &f.error);
		ok = f.r;
	}
	if (ok) {
		list_folders(options, &f);
		if (f.n == 0 && !options->json)
			show_folders(file, "no profile fits it");
	}
	kvarc_reader_close(&f.r);
	input_close(&f.in);
}

static void write_profile(const kvarc_profile *profile, const struct input *in, const char *path)
{
	struct output out;
	kvarc_sink sink;
	kvarc_ret ret;

	if (!output_open(&out, path, OUTPUT_NEW, 0))
		return;
	sink = output_sink(&out);
	ret = kvarc_profile_write(profile, &sink);
	if (ret != KVARC_OK) {
		library_error(path, ret, NULL, NULL, &out);
		output_abort(&out);
	} else if (output_commit(&out)) {
		msg_result(in->name, "installed as %s", path);
	}
}

static bool is_url(const char *file)
{
	return strstr(file, "://") != NULL;
}

/* Opens what was downloaded, which has no name on the disk. */
static bool open_url(struct input *in, const char *url, const struct work_options *work)
{
	const int fd = input_temporary();
	kvarc_common common;
	kvarc_error error;
	kvarc_sink sink;
	kvarc_ret ret;

	if (fd < 0) {
		msg_error(url, "cannot make a temporary file: %s", strerror(errno));
		return false;
	}
	library_common(work, &common, &error);
	ret = kvarc_sink_fd(&sink, fd, &common);
	if (ret == KVARC_OK)
		ret = kvarc_download(url, DOWNLOAD_BYTES, &sink, &common);
	if (ret == KVARC_OK)
		return input_of_fd(in, url, fd);
	library_error(NULL, ret, &error, NULL, NULL);
	close(fd);
	return false;
}

/* Whether --digest names this profile; of a URL without --digest a person is asked. */
static bool is_wanted(const struct options *options, const char *file, const kvarc_profile *profile,
                      const char *digest)
{
	const char *model = identity_value(profile, "model");
	char answer[8] = "";

	if (options->digest && strcasecmp(options->digest, digest) != 0) {
		msg_error(file, "has the digest %s, not %s, and is not installed", digest,
		          options->digest);
		return false;
	}
	if (options->digest || !is_url(file))
		return true;
	if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO)) {
		msg_error(file,
		          "has the digest %s; if that is what its publisher says, install it "
		          "with --digest %s",
		          digest, digest);
		return false;
	}
	fputs("profile of ", stderr);
	msg_put_safe(stderr, model ? model : "a model without a name");
	fprintf(stderr, ", digest %s; install it? [y/N] ", digest);
	if (fgets(answer, sizeof(answer), stdin) && (answer[0] == 'y' || answer[0] == 'Y'))
		return true;
	msg_error(file, "is not installed");
	return false;
}

/* Installs a profile into the first folder that readers look at. */
static void install(const struct options *options, const char *file)
{
	char folder[PATH_BYTES], path[PATH_BYTES + 40], hex[33];
	kvarc_profile *p = NULL;
	kvarc_profile_info info;
	struct input in;

	if (!(is_url(file) ? open_url(&in, file, &options->work) : input_open(&in, file, false)))
		return;
	p = profiles_read(&options->work, &in);
	if (p && kvarc_profile_get_info(p, &info) == KVARC_OK &&
	    is_wanted(options, file, p, units_digest(hex, info.digest)) &&
	    profiles_folder(0, folder, sizeof(folder))) {
		snprintf(path, sizeof(path), "%s/%s.kvp", folder, hex);
		if (access(path, F_OK) == 0)
			msg_result(file, "is installed already as %s", path);
		else if (paths_make_above(path, 0777))
			write_profile(p, &in, path);
	}
	kvarc_profile_close(&p);
	input_close(&in);
}

void cmd_profiles(const struct options *options)
{
	const char *action = options->n_files ? options->files[0] : "list";
	const bool lists = strcmp(action, "list") == 0;
	struct fitted_file all = { .name = NULL };

	if (!lists && options->n_files < 2)
		msg_usage("a file is missing: install FILE");
	if (options->digest && (lists || options->n_files > 2)) {
		msg_usage("--digest is for 'profiles install' of one file");
		return;
	}
	for (size_t i = 1; i < options->n_files && msg_status() != EXIT_ERROR; i++)
		(lists ? list_fitting : install)(options, options->files[i]);
	if (!lists || options->n_files > 1)
		return;
	list_folders(options, &all);
	if (all.n == 0 && !options->json)
		show_folders(NULL, "there are no profiles");
}
