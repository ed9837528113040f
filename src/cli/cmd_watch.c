/* SPDX-License-Identifier: BSD-3-Clause */
/* cmd_watch.c - kvarc watch: packs the slot files of a folder when they are complete */
#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"
#include "folder_events.h"
#include "library.h"
#include "message.h"
#include "paths.h"
#include "profiles.h"
#include "session_files.h"
#include "slot_folder.h"
#include "store_access.h"
#include "watch.h"

/* Milliseconds between two looks at the folder. */
enum { SOON = 100, POLLED = 1000, RARELY = 30000 };

struct watching {
	const struct options *o;
	struct slot_folder folder;
	struct folder_events events;
	struct store_access store; /* with --store */
};

/* What a file is. */
enum content { CACHE, NO_CACHE, NOT_COMPLETE };

/* NOT_COMPLETE: it begins like a cache, and does not end like one; why is a line of 200 bytes. */
static enum content look_into(const struct options *o, struct input *in, char *why)
{
	kvarc_import_options io = KVARC_IMPORT_OPTIONS_INIT;
	kvarc_source source = input_source(in);
	kvarc_import *im;
	kvarc_error error = { 0 };
	uint64_t tensors;
	kvarc_ret ret;

	if (input_is_archive(in))
		return NO_CACHE;
	library_import_options(o, &io, &error);
	io.rope = "none";
	ret = kvarc_import_open(&im, &source, NULL, &io);
	if (ret != KVARC_OK) {
		snprintf(why, 200, "%.199s", error.text[0] ? error.text : kvarc_strerror(ret));
		return NOT_COMPLETE;
	}
	kvarc_import_sizes(im, NULL, &tensors);
	/* what is kept as bytes by pack is left alone here */
	library_import_cause(im, why, 200);
	kvarc_import_close(&im);
	return tensors ? CACHE : *why ? NOT_COMPLETE : NO_CACHE;
}

/* The next checkpoint of the archive of that name. false: a message was shown. */
static bool append(const struct options *o, char *path, const char *name)
{
	struct options one = *o;
	char *folder = o->output ? strdup(o->output) : paths_folder(path);
	char *ending = malloc(strlen(name) + sizeof(".kva"));
	char *archive = NULL;
	char *files[2];
	const unsigned long errors = msg_errors();

	if (folder && ending) {
		strcpy(ending, name);
		strcat(ending, ".kva");
		archive = paths_join(folder, ending);
	}
	if (archive) {
		files[0] = archive;
		files[1] = path;
		one.files = files;
		one.n_files = 2;
		one.output = NULL;
		one.slot_files = true;
		one.verify = o->verify || o->remove;
		cmd_append(&one);
	} else {
		msg_error(NULL, "out of memory");
	}
	free(folder);
	free(ending);
	free(archive);
	return msg_errors() == errors;
}

/* The next version of the session that is called like the file, without its ending. false: nothing
 * was saved, a message was shown. */
static bool save(struct watching *w, const char *path, const char *name)
{
	struct options one = *w->o;
	char *session = strdup(name);
	char *dot = session ? strrchr(session, '.') : NULL;
	bool saved = false;

	one.slot_files = true;
	one.verify = one.verify || one.remove;
	if (dot && dot > session)
		*dot = '\0';
	if (session)
		saved = session_save(&one, &w->store, session, path);
	else
		msg_error(NULL, "out of memory");
	free(session);
	return saved;
}

static void take_open(struct watching *w, struct folder_file *x, struct input *in, char *path)
{
	struct watch seen;
	char why[200];
	bool packed;

	if (w->o->remove)
		watch_start_removal(&seen, in);
	switch (look_into(w->o, in, why)) {
	case NO_CACHE:
		break;
	case NOT_COMPLETE:
		/* It may still be growing. */
		if (!x->closed && !x->tried)
			slot_folder_again(x);
		else
			msg_error(path, "not packed: %s", why);
		break;
	case CACHE:
		packed = w->store.s ? save(w, path, x->name) : append(w->o, path, x->name);
		if (packed && w->o->remove)
			watch_remove(&seen, in);
		msg_flush();
		break;
	}
}

static void take(struct watching *w, struct folder_file *x)
{
	char *path = paths_join(w->folder.path, x->name);
	struct input in;

	if (!path)
		msg_error(NULL, "out of memory");
	else if (access(path, F_OK) == 0 && input_open_as(&in, path, true, INPUT_SLOT)) {
		take_open(w, x, &in, path);
		input_close(&in);
	}
	free(path);
}

static void run(struct watching *w)
{
	struct folder_file *x;

	while (slot_folder_scan(&w->folder)) {
		while ((x = slot_folder_next(&w->folder)) != NULL)
			take(w, x);
		bool waiting = slot_folder_waiting(&w->folder) > 0;
		if (w->o->once && !waiting)
			return;
		folder_events_wait(&w->events,
		                   waiting            ? SOON
		                   : w->events.fd < 0 ? POLLED
		                                      : RARELY,
		                   slot_folder_event, &w->folder);
	}
}

static bool check(const struct options *o)
{
	if (o->n_files != 1)
		msg_error(NULL, "watch: give one folder: kvarc watch FOLDER");
	else if (!paths_is_folder(o->files[0]) && access(o->files[0], F_OK) == 0)
		msg_error(o->files[0], "is a file: give its folder");
	else if (!paths_is_folder(o->files[0]))
		msg_error(o->files[0], "there is no such folder to watch");
	else if (o->output && !paths_is_folder(o->output))
		msg_error(NULL, "watch: -o names no folder: end it with a slash, and it is made");
	else if (o->level > 3)
		msg_error(NULL, "watch: a model would have to go through all tokens of each file: "
		                "give a level of 0 to 3, and use 'kvarc compact' for more");
	else
		return profiles_check_level(o, false) && paths_make_folder(o);
	return false;
}

void cmd_watch(const struct options *o)
{
	struct watching w = { .o = o, .events = { .fd = -1 } };

	if (!check(o))
		return;
	w.folder.path = o->files[0];
	if (!o->store || store_access_open(&w.store, o, true)) {
		folder_events_open(&w.events, w.folder.path, o->poll);
		run(&w);
	}
	folder_events_close(&w.events);
	slot_folder_free(&w.folder);
	if (o->store)
		store_access_close(&w.store);
}
