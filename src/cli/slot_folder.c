/* SPDX-License-Identifier: BSD-3-Clause */
/* slot_folder.c - the files of a folder, and which of them have settled */
#include "config.h"

#include "slot_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "message.h"

/* Milliseconds; TRIED_AGAIN: after which what is not complete will not become so. */
enum { QUIET = 1000, QUIET_CLOSED = 200, TRIED_AGAIN = 5000 };

static int64_t now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static struct folder_file *find(struct slot_folder *f, const char *name)
{
	for (size_t i = 0; i < f->n; i++) {
		if (strcmp(f->list[i].name, name) == 0)
			return &f->list[i];
	}
	return NULL;
}

static bool same(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
	       a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static struct folder_file *add(struct slot_folder *f, const char *name)
{
	struct folder_file *list = realloc(f->list, (f->n + 1) * sizeof(*list));
	char *copy = strdup(name);

	if (list)
		f->list = list;
	if (!list || !copy) {
		free(copy);
		return NULL;
	}
	list[f->n] = (struct folder_file){ .name = copy };
	return &list[f->n++];
}

/* A file that was there before is as old as its last change says. */
static bool see(struct slot_folder *f, const char *name, const struct stat *st)
{
	struct folder_file *x = find(f, name);
	int64_t age = 0;

	if (!x) {
		x = add(f, name);
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

static void drop_missing(struct slot_folder *f)
{
	size_t n = 0;

	for (size_t i = 0; i < f->n; i++) {
		if (f->list[i].there)
			f->list[n++] = f->list[i];
		else
			free(f->list[i].name);
	}
	f->n = n;
}

bool slot_folder_scan(struct slot_folder *f)
{
	DIR *dir = opendir(f->path);
	struct dirent *e;
	struct stat st;
	bool ok = true;

	if (!dir) {
		msg_error(f->path, "cannot open: %s", strerror(errno));
		return false;
	}
	for (size_t i = 0; i < f->n; i++)
		f->list[i].there = false;
	while (ok && (e = readdir(dir)) != NULL) {
		if (e->d_name[0] != '.' &&
		    fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    S_ISREG(st.st_mode))
			ok = see(f, e->d_name, &st);
	}
	closedir(dir);
	drop_missing(f);
	if (!ok)
		msg_error(NULL, "out of memory");
	return ok;
}

void slot_folder_event(void *opaque, const char *name, bool closed)
{
	struct folder_file *x = find(opaque, name);

	if (!x && name[0] != '.')
		x = add(opaque, name);
	if (!x)
		return;
	x->there = true; /* until the next scan */
	x->closed = closed;
	x->open = !closed;
}

static bool has_settled(const struct folder_file *x, int64_t at)
{
	int64_t quiet = x->tried ? TRIED_AGAIN : x->closed ? QUIET_CLOSED : QUIET;

	return !x->taken && !x->open && x->since && at - x->since >= quiet;
}

struct folder_file *slot_folder_next(struct slot_folder *f)
{
	int64_t at = now(CLOCK_MONOTONIC);

	for (size_t i = 0; i < f->n; i++) {
		if (has_settled(&f->list[i], at)) {
			f->list[i].taken = true;
			return &f->list[i];
		}
	}
	return NULL;
}

void slot_folder_again(struct folder_file *x)
{
	x->taken = false;
	x->tried = true;
}

size_t slot_folder_waiting(const struct slot_folder *f)
{
	size_t n = 0;

	for (size_t i = 0; i < f->n; i++)
		n += !f->list[i].taken;
	return n;
}

void slot_folder_free(struct slot_folder *f)
{
	for (size_t i = 0; i < f->n; i++)
		free(f->list[i].name);
	free(f->list);
	f->list = NULL;
	f->n = 0;
}
