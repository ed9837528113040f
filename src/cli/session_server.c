/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * session_server.c - kvarc session save, load, check with a running llama.cpp server
 *
 * The server writes and reads files in the folder of its --slot-save-path, which --slot-folder
 * names. These files are the command's own and are removed, also when it is interrupted.
 */
#include "config.h"

#include "session_server.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "kvarc/server.h"

#include "library.h"
#include "message.h"
#include "paths.h"
#include "report.h"
#include "session_files.h"
#include "signals.h"

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
	char *server_shown; /* its URL, without a password */
	kvarc_error error;
	int dirfd;
	struct shared_slot file, probe;
	/* What the archive of the version says of its origin. */
	char keys[IDENTITY_KEYS][32], values[IDENTITY_KEYS][VALUE_BYTES];
	size_t n_keys;
};

static void show_error(const struct slot_access *x, kvarc_ret ret)
{
	library_error(x->server_shown, ret, &x->error, NULL, NULL);
}

/* A name that nobody has in the folder, remembered so that its file goes when the command is
 * interrupted. */
static bool name_file(struct slot_access *x, struct shared_slot *f, const char *what)
{
	struct timespec t;
	bool remembered;

	clock_gettime(CLOCK_REALTIME, &t);
	snprintf(f->name, sizeof(f->name), "kvarc-%ld-%08lx-%s.bin", (long)getpid(),
	         (unsigned long)(t.tv_nsec ^ t.tv_sec << 4), what);
	f->path = paths_join(x->o->slot_folder, f->name);
	signals_hold();
	remembered = f->path && signals_remember(x->dirfd, f->name, -1, NULL);
	signals_release();
	if (!remembered)
		msg_error(NULL, "out of memory");
	return remembered;
}

static void remove_file(struct shared_slot *f)
{
	kvarc_import_close(&f->im);
	if (f->in.name)
		input_close(&f->in);
	if (f->path) {
		signals_hold();
		signals_remove(f->name);
		signals_release();
	}
	free(f->path);
}

/* Opens the server and the folder; false: a message was shown. */
static bool open_access(struct slot_access *x, const struct options *o)
{
	kvarc_server_options so = KVARC_SERVER_OPTIONS_INIT;
	kvarc_ret ret;

	memset(x, 0, sizeof(*x));
	x->o = o;
	x->dirfd = -1;
	x->server_shown = store_access_shown(o->server);
	if (!x->server_shown)
		return false;
	if (!o->slot_folder) {
		msg_error(NULL,
		          "say where the server keeps its slots with --slot-folder DIR: the folder "
		          "of its --slot-save-path");
		return false;
	}
	x->dirfd = open(o->slot_folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (x->dirfd < 0) {
		msg_error(o->slot_folder, "cannot open the folder of slots: %s", strerror(errno));
		return false;
	}
	library_common(o, &so.common, &x->error);
	so.api_key = getenv("LLAMA_API_KEY");
	ret = kvarc_server_open(&x->server, o->server, &so);
	if (ret != KVARC_OK)
		show_error(x, ret);
	return ret == KVARC_OK;
}

static void close_access(struct slot_access *x)
{
	remove_file(&x->file);
	remove_file(&x->probe);
	kvarc_server_close(&x->server);
	free(x->server_shown);
	if (x->dirfd >= 0)
		close(x->dirfd);
}

static bool open_import(struct slot_access *x, struct shared_slot *f)
{
	kvarc_import_options io = KVARC_IMPORT_OPTIONS_INIT;
	kvarc_ret ret;

	if (!input_open_as(&f->in, f->path, true, INPUT_SLOT))
		return false;
	library_import_options(x->o, &io, &x->error);
	io.rope = "none";
	f->source = input_source(&f->in);
	ret = kvarc_import_open(&f->im, &f->source, NULL, &io);
	if (ret != KVARC_OK)
		library_error(f->path, ret, &x->error, &f->in, NULL);
	return ret == KVARC_OK;
}

/* The server writes the slot. false: a message was shown. */
static bool save_slot(struct slot_access *x, struct shared_slot *f, const char *what,
                      uint64_t *tokens)
{
	struct stat st;
	kvarc_ret ret;

	if (!name_file(x, f, what))
		return false;
	ret = kvarc_server_save(x->server, (unsigned)x->o->slot, f->name, tokens);
	if (ret != KVARC_OK) {
		show_error(x, ret);
	} else if (fstatat(x->dirfd, f->name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
		msg_error(f->path,
		          "the server says that it wrote this file, but it is not here: %s; "
		          "is --slot-folder its --slot-save-path? The file of that name is there "
		          "now: remove it",
		          strerror(errno));
	} else {
		return true;
	}
	return false;
}

void session_save_slot(const struct options *o, struct store_access *a, const char *name)
{
	struct options one = *o;
	struct slot_access x;
	uint64_t tokens = 0;

	one.slot_files = true;
	if (open_access(&x, o) && save_slot(&x, &x.file, "save", &tokens)) {
		if (tokens)
			session_save_from(&one, a, name, x.file.path, x.server);
		else
			msg_error(x.server_shown,
			          "slot %" PRIu64 " is empty: there is nothing to save", o->slot);
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
static bool look_at_server(struct slot_access *x)
{
	uint64_t tokens;
	int32_t first = 1;
	kvarc_ret ret;

	if (!save_slot(x, &x->probe, "probe", &tokens))
		return false;
	if (tokens == 0) {
		if (kvarc_import_read_tokens(x->file.im, 0, 0, 1, &first, NULL) != KVARC_OK ||
		    first < 0)
			first = 1;
		remove_file(&x->probe);
		memset(&x->probe, 0, sizeof(x->probe));
		ret = kvarc_server_touch(x->server, (unsigned)x->o->slot, first);
		if (ret != KVARC_OK) {
			show_error(x, ret);
			return false;
		}
		if (!save_slot(x, &x->probe, "probe", &tokens))
			return false;
	}
	return open_import(x, &x->probe);
}

/* Puts the file of a version into the folder and compares it with the server. */
static bool compare(struct slot_access *x, struct store_access *a, const char *version,
                    kvarc_server_verdict *verdict)
{
	uint64_t number;
	char *name;
	kvarc_ret ret;

	if (!session_split(version, &name, &number))
		return false;
	ret = kvarc_store_identity(a->s, name, number, take_identity, x);
	free(name);
	if (ret != KVARC_OK) {
		store_access_error(a, version, ret);
		return false;
	}
	if (!name_file(x, &x->file, "load"))
		return false;
	if (!session_load_into(x->o, a, version, x->file.path) || !open_import(x, &x->file) ||
	    !look_at_server(x))
		return false;
	ret = kvarc_server_check(x->server, (unsigned)x->o->slot, x->file.im, x->probe.im,
	                         give_identity, x, verdict);
	if (ret != KVARC_OK)
		show_error(x, ret);
	return ret == KVARC_OK;
}

void session_check_slot(const struct options *o, struct store_access *a, const char *version)
{
	kvarc_server_verdict v;
	struct slot_access x;
	struct report r;

	if (open_access(&x, o) && compare(&x, a, version, &v)) {
		report_start(&r, o->json);
		report_string(&r, "session", version);
		report_u64(&r, "tokens", v.tokens);
		report_string(&r, "refuse", *v.refuse ? v.refuse : NULL);
		report_string(&r, "warn", *v.warn ? v.warn : NULL);
		report_string(&r, ".fits",
		              *v.refuse ? NULL
		                        : "the next request that begins with them "
		                          "uses them");
		if (o->json || !*v.refuse)
			report_result(&r, version, "{tokens:C} tokens: {.fits}[; but {warn}]");
		report_end(&r);
		if (*v.refuse)
			msg_error(version, "does not fit the server: %s", v.refuse);
	}
	close_access(&x);
}

/* ----- load ------------------------------------------------ */

static void restore(struct slot_access *x, const char *version, const kvarc_server_verdict *v)
{
	uint64_t tokens;
	struct report r;
	kvarc_ret ret = kvarc_server_restore(x->server, (unsigned)x->o->slot, x->file.name,
	                                     &tokens);

	if (ret != KVARC_OK) {
		show_error(x, ret);
		return;
	}
	if (tokens != v->tokens) {
		msg_error(x->server_shown, "restored %" PRIu64 " of %" PRIu64 " tokens of %s",
		          tokens, v->tokens, version);
		return;
	}
	report_start(&r, x->o->json);
	report_string(&r, "session", version);
	report_u64(&r, "slot", x->o->slot);
	report_u64(&r, "tokens", tokens);
	report_note(&r, version, "{tokens:C} tokens restored to slot {slot}");
	report_end(&r);
}

void session_load_slot(const struct options *o, struct store_access *a, const char *version)
{
	kvarc_server_verdict v;
	struct slot_access x;

	if (open_access(&x, o) && compare(&x, a, version, &v)) {
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
