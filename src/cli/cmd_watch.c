/* SPDX-License-Identifier: BSD-3-Clause */
/* cmd_watch.c - kvarc watch: packs the slot files of a folder when they are complete */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "commands.h"
#include "library.h"
#include "message.h"
#include "paths.h"
#include "profiles.h"
#include "readers.h"
#include "session_files.h"
#include "store_access.h"
#include "watch.h"

#ifdef HAVE_SYS_INOTIFY_H
#include <sys/inotify.h>
#endif

/* ==== Waits until something happens to the files of a folder ==== */

/* Event source of a folder; fd -1: there is none, folder_events_wait sleeps. */
struct folder_events {
	int fd;
};

/* closed: the file is complete as far as its writer is concerned, or has its final name now; else
 * it is being written. name NULL: there were more events than the system keeps, and some are
 * lost. */
typedef void folder_event_fn(void *opaque, const char *name, bool closed);

static void folder_events_close(struct folder_events *events);

/* Starts to listen, with inotify where there is one. Never fails. */
static void folder_events_open(struct folder_events *events, const char *folder, bool poll)
{
	events->fd = -1;
#ifdef HAVE_SYS_INOTIFY_H
	if (poll)
		return;
	events->fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	if (events->fd >= 0 &&
	    inotify_add_watch(events->fd, folder, IN_CLOSE_WRITE | IN_MOVED_TO | IN_MODIFY) < 0)
		folder_events_close(events);
#else
	(void)folder;
	(void)poll;
#endif
}

#ifdef HAVE_SYS_INOTIFY_H
static void report(const char *buf, size_t n, folder_event_fn *fn, void *opaque)
{
	struct inotify_event x;

	for (size_t at = 0; at + sizeof(x) <= n; at += sizeof(x) + x.len) {
		memcpy(&x, buf + at, sizeof(x));
		if (x.mask & IN_Q_OVERFLOW)
			fn(opaque, NULL, false);
		else if (x.len)
			fn(opaque, buf + at + sizeof(x), !(x.mask & IN_MODIFY));
	}
}
#endif

/* Calls fn for each event; returns after the first ones, or after this number of milliseconds. */
static void folder_events_wait(struct folder_events *events, int milliseconds, folder_event_fn *fn,
                               void *opaque)
{
	struct pollfd p = { .fd = events->fd, .events = POLLIN };

	if (poll(&p, 1, milliseconds) <= 0)
		return;
#ifdef HAVE_SYS_INOTIFY_H
	char buf[4096];
	ssize_t n;

	while ((n = read(events->fd, buf, sizeof(buf))) > 0)
		report(buf, (size_t)n, fn, opaque);
#else
	(void)fn;
	(void)opaque;
#endif
}

/* Stops listening. */
static void folder_events_close(struct folder_events *events)
{
	if (events->fd >= 0)
		close(events->fd);
	events->fd = -1;
}

/* ==== The files of a folder, and which of them are stable ==== */

/* A regular file, as it was when the folder was read last. */
struct folder_file {
	char *name;
	struct stat st;
	int64_t since; /* when it had this state first, in milliseconds */
	bool closed;   /* closed by its writer */
	bool open;     /* open for writing, and its writer may pause for longer */
	bool taken;    /* given out in this state */
	bool tried;    /* given out in this state, and to be given out once more */
	bool there;    /* found in the folder */
};

/* Hidden files and folders are left out. Begins with all zero but the path. */
struct slot_folder {
	const char *path;
	struct folder_file *list;
	size_t n, cap;
	size_t *table; /* by hashes of names: numbers in the list, plus 1; 0: free */
	size_t slots;  /* entries of the table, a power of 2 */
	size_t next;   /* number of the file that slot_folder_next looks at next */
};

/* Milliseconds; TRIED_AGAIN: after which what is not complete will not become so. _OPEN: of a file
 * that was not closed: truncate(2) does not report that, and events can be lost. */
enum {
	QUIET = 1000,
	QUIET_CLOSED = 200,
	TRIED_AGAIN = 5000,
	QUIET_OPEN = 10000,
	TRIED_AGAIN_OPEN = 30000
};

static int64_t now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ----- the list ------------------------------------------------ */

/* Entry of a name in the table, or the free one for it. */
static size_t slot_of(const struct slot_folder *folder, const char *name)
{
	size_t i = (size_t)XXH3_64bits(name, strlen(name)) & (folder->slots - 1);

	while (folder->table[i] && strcmp(folder->list[folder->table[i] - 1].name, name) != 0)
		i = (i + 1) & (folder->slots - 1);
	return i;
}

static struct folder_file *find(struct slot_folder *folder, const char *name)
{
	size_t number = folder->slots ? folder->table[slot_of(folder, name)] : 0;

	return number ? &folder->list[number - 1] : NULL;
}

static void fill_table(struct slot_folder *folder)
{
	memset(folder->table, 0, folder->slots * sizeof(*folder->table));
	for (size_t i = 0; i < folder->n; i++)
		folder->table[slot_of(folder, folder->list[i].name)] = i + 1;
}

/* Capacity for one more file, in a table that is at most half full. */
static bool reserve(struct slot_folder *folder)
{
	const size_t cap = folder->cap ? 2 * folder->cap : 64;
	struct folder_file *list;
	size_t *table;

	if (folder->n < folder->cap)
		return true;
	list = realloc(folder->list, cap * sizeof(*list));
	if (list)
		folder->list = list;
	table = list ? malloc(2 * cap * sizeof(*table)) : NULL;
	if (!table)
		return false;
	free(folder->table);
	folder->table = table;
	folder->cap = cap;
	folder->slots = 2 * cap;
	fill_table(folder);
	return true;
}

static struct folder_file *add(struct slot_folder *folder, const char *name)
{
	char *copy = strdup(name);

	if (!copy || !reserve(folder)) {
		free(copy);
		return NULL;
	}
	folder->list[folder->n] = (struct folder_file){ .name = copy };
	folder->table[slot_of(folder, name)] = folder->n + 1;
	return &folder->list[folder->n++];
}

static void drop_missing(struct slot_folder *folder)
{
	size_t n = 0;

	for (size_t i = 0; i < folder->n; i++) {
		if (folder->list[i].there)
			folder->list[n++] = folder->list[i];
		else
			free(folder->list[i].name);
	}
	if (n == folder->n)
		return;
	folder->n = n;
	fill_table(folder);
}

/* ----- what the folder has ------------------------------------------------ */

static bool same(const struct stat *stat, const struct stat *b)
{
	return stat->st_dev == b->st_dev && stat->st_ino == b->st_ino &&
	       stat->st_size == b->st_size && stat->st_mtim.tv_sec == b->st_mtim.tv_sec &&
	       stat->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* A file that was there before is as old as its last change says. */
static bool see(struct slot_folder *folder, const char *name, const struct stat *st)
{
	struct folder_file *x = find(folder, name);
	int64_t age = 0;

	if (!x) {
		x = add(folder, name);
		if (!x)
			return false;
		age = now(CLOCK_REALTIME) -
		      ((int64_t)st->st_mtim.tv_sec * 1000 + st->st_mtim.tv_nsec / 1000000);
	}
	x->there = true;
	if (same(&x->st, st))
		return true;
	x->st = *st;
	x->since = now(CLOCK_MONOTONIC) - (age > 0 ? age : 0);
	x->taken = x->tried = false;
	return true;
}

/* Reads the folder again. false: it cannot be read, a message was shown. */
static bool slot_folder_scan(struct slot_folder *folder)
{
	DIR *dir = opendir(folder->path);
	struct dirent *e;
	struct stat st;
	bool ok = true;

	if (!dir) {
		msg_error(folder->path, "cannot open: %s", strerror(errno));
		return false;
	}
	for (size_t i = 0; i < folder->n; i++)
		folder->list[i].there = false;
	while (ok && (e = readdir(dir)) != NULL) {
		if (e->d_name[0] != '.' &&
		    fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    S_ISREG(st.st_mode))
			ok = see(folder, e->d_name, &st);
	}
	closedir(dir);
	drop_missing(folder);
	folder->next = 0;
	if (!ok)
		msg_error(NULL, "out of memory");
	return ok;
}

/* An event of a file (folder_event_fn); opaque is the folder. */
static void slot_folder_event(void *opaque, const char *name, bool closed)
{
	struct slot_folder *f = opaque;
	struct folder_file *x = name ? find(f, name) : NULL;

	for (size_t i = 0; i < f->n && !name; i++)
		f->list[i].closed = f->list[i].open = false;
	if (!x && name && name[0] != '.')
		x = add(f, name);
	if (!x)
		return;
	x->there = true; /* it counts as found until the next scan */
	x->closed = closed;
	x->open = !closed;
}

static bool is_stable(const struct folder_file *file, int64_t at)
{
	int64_t quiet = file->tried ? TRIED_AGAIN : file->closed ? QUIET_CLOSED : QUIET;

	if (file->open)
		quiet = file->tried ? TRIED_AGAIN_OPEN : QUIET_OPEN;
	return !file->taken && file->since && at - file->since >= quiet;
}

/*
 * Returns the next file that is stable: unchanged for a second, for a fifth of one where it was
 * closed, or for ten where it is open, as the system may not report the end of that. A file is
 * given out again only after it changes, or after slot_folder_again and another scan. NULL: there
 * is none. The file stays valid until the next scan or event.
 */
static struct folder_file *slot_folder_next(struct slot_folder *folder)
{
	int64_t at = now(CLOCK_MONOTONIC);

	while (folder->next < folder->n) {
		struct folder_file *x = &folder->list[folder->next++];
		if (is_stable(x, at)) {
			x->taken = true;
			return x;
		}
	}
	return NULL;
}

/* Gives the file out once more, when it has stayed as it is for some seconds. */
static void slot_folder_again(struct folder_file *file)
{
	file->taken = false;
	file->tried = true;
}

/* Counts the files that are not given out yet. */
static size_t slot_folder_waiting(const struct slot_folder *folder)
{
	size_t n = 0;

	for (size_t i = 0; i < folder->n; i++)
		n += !folder->list[i].taken;
	return n;
}

/* Frees the list. */
static void slot_folder_free(struct slot_folder *folder)
{
	for (size_t i = 0; i < folder->n; i++)
		free(folder->list[i].name);
	free(folder->list);
	free(folder->table);
	folder->list = NULL;
	folder->table = NULL;
	folder->n = folder->cap = folder->slots = 0;
}

/* ==== kvarc watch: packs the slot files of a folder when they are complete ==== */

/* Milliseconds between two looks at the folder. */
enum { SOON = 100, POLLED = 1000, RARELY = 30000 };

struct watching {
	const struct options *o;
	struct slot_folder folder;
	struct folder_events events;
	struct store_access store; /* opened with --store */
};

/* Kinds of files. */
enum content { CACHE, NO_CACHE, NOT_COMPLETE };

/* NOT_COMPLETE: it begins like a cache, and does not end like one; why is a line of 200 bytes. */
static enum content look_into(const struct options *options, struct input *in, char *why)
{
	kvarc_import_options io = KVARC_IMPORT_OPTIONS_INIT;
	kvarc_source source = input_source(in);
	kvarc_import *im;
	kvarc_error error = { 0 };
	uint64_t tensors;
	kvarc_ret ret;

	if (input_is_archive(in))
		return NO_CACHE;
	readers_import_options(&options->work, &options->import, &io, &error);
	io.rope = "none";
	ret = kvarc_import_open(&im, &source, NULL, &io);
	if (ret != KVARC_OK) {
		snprintf(why, 200, "%.199s", error.text[0] ? error.text : kvarc_strerror(ret));
		return NOT_COMPLETE;
	}
	kvarc_import_sizes(im, NULL, &tensors);
	/* files that pack stores as bytes are left alone here */
	library_import_cause(im, why, 200);
	kvarc_import_close(&im);
	return tensors ? CACHE : *why ? NOT_COMPLETE : NO_CACHE;
}

/* The next checkpoint of the archive of that name. false: a message was shown. */
static bool append(const struct options *options, char *path)
{
	struct options one = *options;
	char *beside = paths_pack_target(path, NULL);
	char *archive = beside && options->output ? paths_join(options->output, paths_base(beside))
	                                          : NULL;
	char *files[] = { options->output ? archive : beside, path };
	const unsigned long errors = msg_errors();

	if (files[0]) {
		one.files = files;
		one.n_files = 2;
		one.output = NULL;
		one.slot_files = true;
		one.archive.verify = options->archive.verify || options->remove;
		cmd_append(&one);
	} else {
		msg_error(NULL, "out of memory");
	}
	free(beside);
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
	one.archive.verify = one.archive.verify || one.remove;
	if (dot && dot > session)
		*dot = '\0';
	if (session)
		saved = session_save(&one, &w->store, session, path, NULL);
	else
		msg_error(NULL, "out of memory");
	free(session);
	return saved;
}

static void take_open(struct watching *w, struct folder_file *file, struct input *in, char *path)
{
	struct watch seen;
	char why[200];
	bool packed;

	if (w->o->remove)
		watch_start_removal(&seen, in);
	switch (look_into(w->o, in, why)) {
	case NO_CACHE:
		if (!input_is_archive(in))
			msg_note(path, "is no cache; it is left alone");
		break;
	case NOT_COMPLETE:
		/* The file may still be growing. */
		if (!file->closed && !file->tried)
			slot_folder_again(file);
		else
			msg_error(path, "not packed: %s", why);
		break;
	case CACHE:
		packed = w->store.s ? save(w, path, file->name) : append(w->o, path);
		if (packed && w->o->remove)
			watch_remove(&seen, in);
		msg_flush();
		break;
	}
}

static void take(struct watching *w, struct folder_file *file)
{
	char *path = paths_join(w->folder.path, file->name);
	struct input in;

	if (!path)
		msg_error(NULL, "out of memory");
	else if (access(path, F_OK) == 0 && input_open_as(&in, path, true, INPUT_SLOT)) {
		take_open(w, file, &in, path);
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
		if (w->o->watch.once && !waiting)
			return;
		folder_events_wait(&w->events,
		                   waiting            ? SOON
		                   : w->events.fd < 0 ? POLLED
		                                      : RARELY,
		                   slot_folder_event, &w->folder);
	}
}

static bool check(const struct options *options)
{
	if (options->n_files != 1)
		msg_usage("give one folder: kvarc watch FOLDER");
	else if (!paths_is_folder(options->files[0]) && access(options->files[0], F_OK) == 0)
		msg_error(options->files[0], "is a file: give its folder");
	else if (!paths_is_folder(options->files[0]))
		msg_error(options->files[0], "there is no such folder to watch");
	else if (options->output && !paths_is_folder(options->output))
		msg_usage("-o names no folder: end it with a slash, and it is made");
	else if (options->coding.level > 3)
		msg_usage("a model would have to go through all tokens of each file: give a level "
		          "of 0 to 3, and use 'kvarc compact' for more");
	else
		return profiles_check_level(&options->coding, true) &&
		       paths_make_folder(options->output);
	return false;
}

void cmd_watch(const struct options *options)
{
	struct watching w = { .o = options, .events = { .fd = -1 } };

	if (!check(options))
		return;
	w.folder.path = options->files[0];
	if (!options->store.url ||
	    store_access_open(&w.store, &options->store, &options->keys, &options->work, true)) {
		folder_events_open(&w.events, w.folder.path, options->watch.poll);
		if (!options->watch.once)
			msg_note(w.folder.path, "slot files are packed when they are complete");
		run(&w);
	}
	folder_events_close(&w.events);
	slot_folder_free(&w.folder);
	if (options->store.url)
		store_access_close(&w.store);
}
