/* SPDX-License-Identifier: BSD-3-Clause */
/* server_slots.c - kvarc session save, load, check with a running llama.cpp server */
#include "config.h"

#include "server_slots.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "infile.h"
#include "library.h"
#include "message.h"
#include "paths.h"
#include "readers.h"
#include "report.h"
#include "session_files.h"
#include "signals.h"
#include "kvarc/server.h"

/*
 * The server writes and reads files in the folder of its --slot-save-path, which --slot-folder
 * names. These files are the command's own and are removed, also when it is interrupted.
 */

enum { NAME_BYTES = 64, IDENTITY_KEYS = 8, VALUE_BYTES = 256 };

/* A file in the folder that the server shares with the command. */
struct shared_slot {
	char name[NAME_BYTES];
	char *path;
	struct input in;
	kvarc_source source;
	kvarc_import *im;
};

/* A server, and the files of a slot. */
struct slot_access {
	const struct options *o;
	kvarc_server *server;
	char *server_shown; /* URL of the server, without a password */
	kvarc_error error;
	int dirfd;
	struct shared_slot file, probe;
	/* Identity of the origin, from the archive of the version. */
	char keys[IDENTITY_KEYS][32], values[IDENTITY_KEYS][VALUE_BYTES];
	size_t n_keys;
};

static void show_error(const struct slot_access *access, kvarc_ret ret)
{
	library_error(access->server_shown, ret, &access->error, NULL, NULL);
}

/* A name that nobody has in the folder, remembered so that its file goes when the command is
 * interrupted. */
static bool name_file(struct slot_access *access, struct shared_slot *slot, const char *what)
{
	struct timespec t;
	bool remembered;

	clock_gettime(CLOCK_REALTIME, &t);
	snprintf(slot->name, sizeof(slot->name), "kvarc-%ld-%08lx-%s.bin", (long)getpid(),
	         (unsigned long)(t.tv_nsec ^ t.tv_sec << 4), what);
	slot->path = paths_join(access->o->server.slot_folder, slot->name);
	signals_hold();
	remembered = slot->path && signals_remember(access->dirfd, slot->name, -1, NULL);
	signals_release();
	if (!remembered)
		msg_error(NULL, "out of memory");
	return remembered;
}

static void remove_file(struct shared_slot *slot)
{
	kvarc_import_close(&slot->im);
	if (slot->in.name)
		input_close(&slot->in);
	if (slot->path)
		signals_remove(slot->name);
	free(slot->path);
}

/* Opens the server and the folder; false: a message was shown. */
static bool open_access(struct slot_access *access, const struct options *options)
{
	kvarc_server_options so = KVARC_SERVER_OPTIONS_INIT;
	kvarc_ret ret;

	memset(access, 0, sizeof(*access));
	access->o = options;
	access->dirfd = -1;
	access->server_shown = store_access_shown(options->server.url);
	if (!access->server_shown)
		return false;
	if (!options->server.slot_folder) {
		msg_error(NULL,
		          "say where the server keeps its slots with --slot-folder DIR: the folder "
		          "of its --slot-save-path");
		return false;
	}
	access->dirfd = open(options->server.slot_folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (access->dirfd < 0) {
		msg_error(options->server.slot_folder, "cannot open the folder of slots: %s",
		          strerror(errno));
		return false;
	}
	library_common(&options->work, &so.common, &access->error);
	so.api_key = getenv("LLAMA_API_KEY");
	ret = kvarc_server_open(&access->server, options->server.url, &so);
	if (ret != KVARC_OK)
		show_error(access, ret);
	return ret == KVARC_OK;
}

static void close_access(struct slot_access *access)
{
	remove_file(&access->file);
	remove_file(&access->probe);
	kvarc_server_close(&access->server);
	free(access->server_shown);
	if (access->dirfd >= 0)
		close(access->dirfd);
}

static bool open_import(struct slot_access *access, struct shared_slot *slot)
{
	kvarc_import_options io = KVARC_IMPORT_OPTIONS_INIT;
	kvarc_ret ret;

	if (!input_open_as(&slot->in, slot->path, true, INPUT_SLOT))
		return false;
	readers_import_options(&access->o->work, &access->o->import, &io, &access->error);
	io.rope = "none";
	slot->source = input_source(&slot->in);
	ret = kvarc_import_open(&slot->im, &slot->source, NULL, &io);
	if (ret != KVARC_OK)
		library_error(slot->path, ret, &access->error, &slot->in, NULL);
	return ret == KVARC_OK;
}

/* The server writes the slot. false: a message was shown. */
static bool save_slot(struct slot_access *access, struct shared_slot *slot, const char *what,
                      uint64_t *tokens)
{
	struct stat st;
	kvarc_ret ret;

	if (!name_file(access, slot, what))
		return false;
	ret = kvarc_server_save(access->server, (unsigned)access->o->server.slot, slot->name,
	                        tokens);
	if (ret != KVARC_OK) {
		show_error(access, ret);
	} else if (fstatat(access->dirfd, slot->name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
		msg_error(slot->path,
		          "the server says that it wrote this file, but it is not here: %s; "
		          "is --slot-folder its --slot-save-path? The file of that name is there "
		          "now: remove it",
		          strerror(errno));
	} else {
		return true;
	}
	return false;
}

/* Saves a slot; shows its report and messages. */
void server_slots_save(const struct options *options, struct store_access *access,
                              const char *name)
{
	struct options one = *options;
	struct slot_access x;
	uint64_t tokens = 0;

	one.slot_files = true;
	if (open_access(&x, options) && save_slot(&x, &x.file, "save", &tokens)) {
		if (tokens)
			session_save(&one, access, name, x.file.path, x.server);
		else
			msg_error(x.server_shown,
			          "slot %" PRIu64 " is empty: there is nothing to save",
			          options->server.slot);
	}
	close_access(&x);
}

/* ----- check ------------------------------------------------ */

static int take_identity(void *opaque, const char *key, const char *value)
{
	struct slot_access *x = opaque;
	size_t i = x->n_keys;

	if (i < IDENTITY_KEYS && strlen(key) < sizeof(x->keys[i]) &&
	    (strncmp(key, "model", 5) == 0 || strcmp(key, "engine_version") == 0)) {
		snprintf(x->keys[i], sizeof(x->keys[i]), "%s", key);
		snprintf(x->values[i], sizeof(x->values[i]), "%s", value);
		x->n_keys++;
	}
	return 0;
}

static const char *give_identity(void *opaque, const char *key)
{
	const struct slot_access *x = opaque;

	for (size_t i = 0; i < x->n_keys; i++) {
		if (strcmp(x->keys[i], key) == 0)
			return x->values[i];
	}
	return NULL;
}

/* A slot that the server writes now: its caches have the types and the layout that a restored slot
 * must have. An empty slot computes a token first. */
static bool look_at_server(struct slot_access *access)
{
	uint64_t tokens;
	int32_t first = 1;
	kvarc_ret ret;

	if (!save_slot(access, &access->probe, "probe", &tokens))
		return false;
	if (tokens == 0) {
		if (kvarc_import_read_tokens(access->file.im, 0, 0, 1, &first, NULL) != KVARC_OK ||
		    first < 0)
			first = 1;
		remove_file(&access->probe);
		memset(&access->probe, 0, sizeof(access->probe));
		ret = kvarc_server_touch(access->server, (unsigned)access->o->server.slot, first);
		if (ret != KVARC_OK) {
			show_error(access, ret);
			return false;
		}
		if (!save_slot(access, &access->probe, "probe", &tokens))
			return false;
	}
	return open_import(access, &access->probe);
}

/* Puts the file of a version into the folder and compares it with the server. */
static bool compare(struct slot_access *access, struct store_access *handle, const char *version,
                    kvarc_server_verdict *verdict)
{
	uint64_t number;
	char *name;
	kvarc_ret ret;

	if (!session_split(version, &name, &number))
		return false;
	ret = kvarc_store_identity(handle->s, name, number, take_identity, access);
	free(name);
	if (ret != KVARC_OK) {
		store_access_error(handle, version, ret);
		return false;
	}
	if (!name_file(access, &access->file, "load"))
		return false;
	if (!session_load_into(access->o, handle, version, access->file.path) ||
	    !open_import(access, &access->file) || !look_at_server(access))
		return false;
	ret = kvarc_server_check(access->server, (unsigned)access->o->server.slot, access->file.im,
	                         access->probe.im, give_identity, access, verdict);
	if (ret != KVARC_OK)
		show_error(access, ret);
	return ret == KVARC_OK;
}

/* Whether a version could be restored, and the next request would use it. */
void server_slots_check(const struct options *options, struct store_access *access,
                               const char *version)
{
	kvarc_server_verdict v;
	struct slot_access x;
	struct report r;

	if (open_access(&x, options) && compare(&x, access, version, &v)) {
		report_start(&r, options->json);
		report_string(&r, "session", version);
		report_u64(&r, "tokens", v.tokens);
		report_string(&r, "refuse", *v.refuse ? v.refuse : NULL);
		report_string(&r, "warn", *v.warn ? v.warn : NULL);
		report_string(&r, ".fits",
		              *v.refuse ? NULL
		                        : "the next request that begins with them "
		                          "uses them");
		if (options->json || !*v.refuse)
			report_result(&r, version, "{tokens:C} tokens: {.fits}[; but {warn}]");
		report_end(&r);
		if (*v.refuse)
			msg_error(version, "does not fit the server: %s", v.refuse);
	}
	close_access(&x);
}

/* ----- load ------------------------------------------------ */

static void restore(struct slot_access *access, const char *version,
                    const kvarc_server_verdict *verdict)
{
	uint64_t tokens;
	struct report r;
	kvarc_ret ret = kvarc_server_restore(access->server, (unsigned)access->o->server.slot,
	                                     access->file.name, &tokens);

	if (ret != KVARC_OK) {
		show_error(access, ret);
		return;
	}
	if (tokens != verdict->tokens) {
		msg_error(access->server_shown, "restored %" PRIu64 " of %" PRIu64 " tokens of %s",
		          tokens, verdict->tokens, version);
		return;
	}
	report_start(&r, access->o->json);
	report_string(&r, "session", version);
	report_u64(&r, "slot", access->o->server.slot);
	report_u64(&r, "tokens", tokens);
	report_note(&r, version, "{tokens:C} tokens restored to slot {slot}");
	report_end(&r);
}

/* Loads a version, "NAME" or "NAME@N", into the server, if it fits. */
void server_slots_load(const struct options *options, struct store_access *access,
                              const char *version)
{
	kvarc_server_verdict v;
	struct slot_access x;

	if (open_access(&x, options) && compare(&x, access, version, &v)) {
		if (*v.refuse) {
			msg_error(version, "not restored: %s", v.refuse);
		} else {
			if (*v.warn)
				msg_warning(version, "%s", v.warn);
			restore(&x, version, &v);
		}
	}
	close_access(&x);
}
