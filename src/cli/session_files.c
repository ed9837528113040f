/* SPDX-License-Identifier: BSD-3-Clause */
/* session_files.c - kvarc session save, load, find: files into a store, and out of it */
#include "config.h"

#include "session_files.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "identities.h"
#include "installed.h"
#include "library.h"
#include "message.h"
#include "paths.h"
#include "profiles.h"
#include "report.h"
#include "secrets.h"
#include "units.h"
#include "watch.h"
#include "attach.h"
#include "readers.h"

bool session_is_version(const char *text)
{
	const char *at = strrchr(text, '@');

	return at && at[1] && at[1 + strspn(at + 1, "0123456789")] == '\0';
}

bool session_split(const char *text, char **name, uint64_t *number)
{
	const char *at = strrchr(text, '@');
	bool is_version = session_is_version(text);

	*number = 0;
	*name = is_version ? strndup(text, (size_t)(at - text)) : strdup(text);
	if (!*name)
		msg_error(NULL, "out of memory");
	else if (is_version && !units_parse_u64(at + 1, UINT64_MAX, number))
		msg_error(text, "there is no such version");
	else if (is_version && *number == 0)
		msg_error(text, "versions are numbered from 1");
	else
		return true;
	free(*name);
	return false;
}

/* ----- a file that is read ------------------------------------------------ */

/* A file with the tokens that a session has or shares. */
struct session_input {
	struct input in;
	struct watch watch;
	kvarc_source source;
	kvarc_import *im;
	kvarc_error error;
	struct workspace workspace;
	bool changed; /* while it was saved: a message was shown */
};

static bool open_input(struct session_input *input, const struct options *options, const char *file)
{
	kvarc_import_options io = KVARC_IMPORT_OPTIONS_INIT;
	kvarc_ret ret;

	memset(input, 0, sizeof(*input));
	if (!input_open_as(&input->in, file, true, options->slot_files ? INPUT_SLOT : 0))
		return false;
	watch_start(&input->watch, &input->in);
	input_map(&input->in);
	if (!options->import.opaque && input_is_archive(&input->in)) {
		msg_error(file, "is a kvarc archive: a session takes the file that was packed");
		return false;
	}
	installed_choose(options, &input->in);
	readers_import_options(&options->work, &options->import, &io, &input->error);
	/* Positions do not change from save to save: level 0 has no use for them. */
	io.rope = options->coding.level > 0 || options->coding.profiles.n ? NULL : "none";
	io.profiles = profiles_given(&io.n_profiles);
	io.opaque = options->import.opaque;
	input->source = input_source(&input->in);
	ret = kvarc_import_open(&input->im, &input->source,
	                        input->in.is_stdin ? NULL : paths_base(file), &io);
	if (ret != KVARC_OK)
		library_error(file, ret, &input->error, &input->in, NULL);
	return ret == KVARC_OK;
}

static void close_input(struct session_input *input)
{
	kvarc_import_close(&input->im);
	workspace_close(&input->workspace);
	input_close(&input->in);
}

/* ----- save ------------------------------------------------ */

static int is_changed(void *opaque)
{
	struct session_input *x = opaque;
	char what[96];

	x->changed = watch_changed(&x->watch, &x->in, what, sizeof(what));
	if (!x->changed)
		return 0;
	msg_error(x->in.name, "changed while it was saved (%s): nothing was saved; try again",
	          what);
	return 1;
}

static void report_saved(bool json, const char *name, const char *file, const kvarc_saved *saved,
                         double seconds)
{
	struct report r;

	report_start(&r, json);
	report_string(&r, "session", name);
	report_u64(&r, "version", saved->version);
	report_string(&r, "file", file);
	report_u64(&r, "tokens", saved->tokens);
	report_u64(&r, "kept_tokens", saved->kept_tokens);
	report_u64(&r, "new_tokens", saved->new_tokens);
	report_u64(&r, "file_bytes", saved->file_bytes);
	report_u64(&r, "written_bytes", saved->written_bytes);
	report_u64(&r, "not_written_bytes", saved->not_written_bytes);
	report_bool(&r, "unchanged", saved->unchanged);
	report_string(&r, "differs", saved->differs);
	report_real(&r, "seconds", seconds, 4);
	report_result(&r, name,
	              saved->unchanged ? "nothing is new since version {version}"
	              : saved->tokens
	                      ? "version {version}: {tokens:C} tokens, {kept_tokens:C} kept, "
	                        "{new_tokens:C} new: {written_bytes:B} written "
	                        "(file: {file_bytes:B})[; the version before has another "
	                        "'{differs}', or none]"
	                      : "version {version}: {written_bytes:B} written "
	                        "(file: {file_bytes:B})");
	report_end(&r);
}

static int see_encrypted(void *opaque, const kvarc_session_version *version)
{
	*(int *)opaque = version->encrypted ? 1 : 0;
	return 0;
}

/* A key alone does not encrypt: a new session must not become plain because of that. */
static bool check_key(const struct key_options *keys, struct store_access *access, const char *name)
{
	int encrypted = -1;

	if (!keys_given() || keys->encrypt || keys->decrypt)
		return true;
	/* A failure is left to the save, which finds it again. */
	(void)!kvarc_store_log(access->s, name, see_encrypted, &encrypted);
	if (encrypted < 0)
		msg_error(name, "is new, and a key was given without --encrypt: add --encrypt, or "
		                "give no key");
	return encrypted >= 0;
}

static int see_tokens(void *opaque, const kvarc_session_version *version)
{
	*(uint64_t *)opaque = version->tokens;
	return 0;
}

/* A file that was cut, or is no cache, must not become the last version of a session of tokens. */
static bool check_tokens(const struct import_options *import, struct store_access *access,
                         const char *name, struct session_input *input)
{
	uint64_t tokens = 0;

	if (import->opaque)
		return true;
	/* A failure is left to the save, which finds it again. */
	if (!library_import_tokens(input->im))
		(void)!kvarc_store_log(access->s, name, see_tokens, &tokens);
	if (tokens && !is_changed(input))
		library_refuse_import(input->in.name, input->im, name, tokens, "saved");
	else if (!tokens)
		library_warn_import(input->in.name, input->im);
	return !tokens;
}

/* false: a message was shown. */
static bool record_origin(const struct session_origin *origin, kvarc_import *im)
{
	kvarc_ret ret = origin ? kvarc_server_identity(origin->server, im) : KVARC_OK;

	if (ret == KVARC_OK && origin && origin->computed)
		ret = kvarc_canary_record(im, origin->computed, origin->next);
	if (ret == KVARC_OPTIONS) {
		msg_result(NULL, "no fingerprint: the server computed other tokens than those "
		                 "that it was asked for");
		ret = KVARC_OK;
	}
	if (ret != KVARC_OK)
		msg_error(NULL, "the server's identity cannot be recorded: %s",
		          kvarc_strerror(ret));
	return ret == KVARC_OK;
}

bool session_save(const struct options *options, struct store_access *access, const char *name,
                  const char *file, const struct session_origin *origin)
{
	kvarc_save_options so = KVARC_SAVE_OPTIONS_INIT;
	struct session_input x;
	kvarc_saved saved;
	double start = units_now();
	kvarc_ret ret;

	if (!check_key(&options->keys, access, name))
		return false;
	if (!open_input(&x, options, file) || !check_tokens(&options->import, access, name, &x) ||
	    !identities_record(&options->archive.identity, &x.in, x.im, &x.error) ||
	    !record_origin(origin, x.im) ||
	    !workspace_attach(&x.workspace, options, x.im,
	                      (const char *[]){ x.in.name, store_access_folder(access) }, 2) ||
	    !profiles_writer(&options->coding, kvarc_import_geometry(x.im), false, &so.writer)) {
		close_input(&x);
		return false;
	}
	library_common(&options->work, &so.writer.common, &x.error);
	if (options->archive.verify)
		so.writer.flags |= KVARC_WRITE_VERIFY;
	so.encrypt = options->keys.encrypt   ? KVARC_SAVE_ENCRYPT
	             : options->keys.decrypt ? KVARC_SAVE_PLAIN
	                                     : 0;
	so.label = options->archive.label;
	so.mode = x.in.mode;
	so.time = (uint64_t)time(NULL) * 1000;
	so.confirm = is_changed;
	so.confirm_opaque = &x;
	progress_start(name, KVARC_UNKNOWN);
	ret = kvarc_store_save(access->s, name, x.im, &so, &saved);
	progress_stop();
	if (ret == KVARC_OK)
		report_saved(options->json, name, file, &saved, units_now() - start);
	else if (!x.changed && !is_changed(&x))
		library_error(name, ret, x.in.error ? &x.error : &access->error, &x.in, NULL);
	close_input(&x);
	return ret == KVARC_OK;
}

/* ----- load ------------------------------------------------ */

/* The file of a version on its way out. */
struct session_output {
	const struct options *o;
	struct output out;
	char *path; /* path of the file; NULL until it is open */
	uint64_t bytes;
	bool open, failed;
	struct workspace workspace;
	const char *version;                 /* version for messages */
	const kvarc_session_version *loaded; /* filled before the file is opened */
	mode_t mode;                         /* for a server; 0: as the file was saved */
};

/* The mode of the file: as it was saved; of an encrypted version, for its owner alone. */
static mode_t output_mode(const struct session_output *output)
{
	const mode_t saved = output->loaded->mode ? (mode_t)output->loaded->mode : 0600;

	if (output->loaded->encrypted)
		return saved & 0600 ? saved & 0600 : 0600;
	return output->mode ? output->mode : saved;
}

/* Path of the file: that of -o, in a folder with the name that it was saved from. Allocated; NULL
 * when out of memory. */
static char *output_path(const struct session_output *output, const kvarc_item *item)
{
	const char *base = paths_base(item->name), *version = paths_base(output->version);
	char *path, *name;

	if (!paths_is_folder(output->o->output))
		return strdup(output->o->output);
	name = paths_safe_name(base) ? strdup(base) : strndup(version, strcspn(version, "@"));
	path = name ? paths_join(output->o->output, name) : NULL;
	free(name);
	return path;
}

static int open_output(void *opaque, const kvarc_item *item, kvarc_sink *sink)
{
	struct session_output *x = opaque;

	if (item->kind == KVARC_ITEM_WORKSPACE) {
		int skip = workspace_item(&x->workspace, x->o, x->version, sink);
		x->failed = skip < 0;
		return skip;
	}
	if (x->open) {
		msg_error(x->o->output, "the version has several files, which is not one output");
		x->failed = true;
		return -1;
	}
	x->path = output_path(x, item);
	if (!x->path)
		msg_error(NULL, "out of memory");
	else if (paths_make_folder(x->o->output))
		x->open = output_open(&x->out, x->path, OUTPUT_RANDOM | paths_output_flags(x->o),
		                      output_mode(x));
	x->failed = !x->open;
	if (x->failed)
		return -1;
	x->bytes = item->bytes;
	*sink = output_sink(&x->out);
	return 0;
}

static void report_loaded(const struct session_output *output, const kvarc_session_version *version,
                          double seconds)
{
	struct report r;

	report_start(&r, output->o->json);
	report_string(&r, "session", version->session);
	report_u64(&r, "version", version->number);
	report_string(&r, "output", output->path);
	report_u64(&r, "tokens", version->tokens);
	report_u64(&r, "bytes", output->bytes);
	report_real(&r, "seconds", seconds, 4);
	report_result(&r, version->session,
	              "version {version}[, {tokens:C} tokens]: {bytes:B} -> {output}");
	report_end(&r);
}

/* The file is as new as its version, as with unpack. */
static bool commit(struct session_output *output, const kvarc_session_version *version)
{
	if (version->time)
		output->out.mtime =
			(struct timespec){ .tv_sec = (time_t)(version->time / 1000),
			                   .tv_nsec = (long)(version->time % 1000) * 1000000 };
	return output_commit(&output->out);
}

/* Warns where the loaded version is not the last one, or not whole. */
static void warn_loaded(const kvarc_session_version *version)
{
	if (version->passed_over)
		msg_warning(
			version->session,
			"version %llu needs archives that are not there (its save was stopped, or "
			"they were lost): version %llu was loaded",
			(unsigned long long)version->passed_over,
			(unsigned long long)version->number);
	if (version->not_whole)
		msg_warning(
			version->session,
			"an archive of version %llu is not whole, but all that the version needs "
			"was there: the next save stores it again",
			(unsigned long long)version->number);
}

/* Loads a version into a file; *session_version is what it is. */
static bool load(struct session_output *output, struct store_access *access, const char *version,
                 kvarc_session_version *session_version)
{
	uint64_t number;
	char *name;
	bool done = false;
	kvarc_ret ret;

	if (!workspace_check(output->o) || !session_split(version, &name, &number))
		return false;
	output->version = version;
	output->loaded = session_version;
	progress_start(name, KVARC_UNKNOWN);
	ret = kvarc_store_load(access->s, name, number, open_output, output, session_version);
	progress_stop();
	if (ret != KVARC_OK) {
		if (output->open && output->out.error)
			output_report(&output->out);
		else if (!output->failed)
			store_access_error(access, version, ret);
		if (output->open)
			output_abort(&output->out);
	} else {
		done = workspace_extract(&output->workspace, output->o, version);
		if (output->open && !done)
			output_abort(&output->out);
		done = done && output->open && commit(output, session_version);
		warn_loaded(session_version);
	}
	workspace_close(&output->workspace);
	free(name);
	return done;
}

void session_load(const struct options *options, struct store_access *access, const char *version)
{
	struct session_output x = { .o = options };
	kvarc_session_version v;
	double start = units_now();

	if (load(&x, access, version, &v))
		report_loaded(&x, &v, units_now() - start);
	free(x.path);
}

bool session_load_into(const struct options *options, struct store_access *access,
                       const char *version, const char *path)
{
	struct options to = *options;
	struct session_output x = { .o = &to, .mode = 0600 };
	kvarc_session_version v;
	struct stat st;
	bool done;

	/* a server of another user may read in the folder */
	if (options->server.slot_folder && stat(options->server.slot_folder, &st) == 0)
		x.mode |= st.st_mode & 0666;
	to.output = path;
	done = load(&x, access, version, &v);
	free(x.path);
	return done;
}

/* ----- find ------------------------------------------------ */

/* Sessions on their way out. */
struct session_search {
	const struct options *o;
	uint64_t n;
};

static int report_found(void *opaque, const kvarc_found *found)
{
	struct session_search *x = opaque;
	struct report r;

	x->n++;
	report_start(&r, x->o->json);
	report_string(&r, "session", found->session);
	report_u64(&r, "version", found->number);
	report_u64(&r, "tokens", found->tokens);
	report_u64(&r, "common_tokens", found->common_tokens);
	report_string(&r, "model", found->model);
	report_print(&r, "{common_tokens:9C} of {tokens:C}  {session}@{version}[  {model}]\n");
	report_end(&r);
	return 0;
}

void session_find(const struct options *options, struct store_access *access, const char *file)
{
	struct session_search search = { options, 0 };
	struct session_input x;
	kvarc_ret ret;

	if (open_input(&x, options, file)) {
		ret = kvarc_store_find(access->s, x.im, report_found, &search);
		if (ret != KVARC_OK)
			library_error(file, ret, &access->error, &x.in, NULL);
		else if (!search.n)
			msg_result(file, "no session begins with these tokens");
	}
	close_input(&x);
}
