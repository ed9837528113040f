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
#include <xxhash.h>

#include "message.h"

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

/* Where a name is in the table, or would be. */
static size_t slot_of(const struct slot_folder *f, const char *name)
{
	size_t i = (size_t)XXH3_64bits(name, strlen(name)) & (f->slots - 1);

	while (f->table[i] && strcmp(f->list[f->table[i] - 1].name, name) != 0)
		i = (i + 1) & (f->slots - 1);
	return i;
}

static struct folder_file *find(struct slot_folder *f, const char *name)
{
	size_t number = f->slots ? f->table[slot_of(f, name)] : 0;

	return number ? &f->list[number - 1] : NULL;
}

static void fill_table(struct slot_folder *f)
{
	memset(f->table, 0, f->slots * sizeof(*f->table));
	for (size_t i = 0; i < f->n; i++)
		f->table[slot_of(f, f->list[i].name)] = i + 1;
}

/* Capacity for one more file, in a table that is at most half full. */
static bool reserve(struct slot_folder *f)
{
	const size_t cap = f->cap ? 2 * f->cap : 64;
	struct folder_file *list;
	size_t *table;

	if (f->n < f->cap)
		return true;
	list = realloc(f->list, cap * sizeof(*list));
	if (list)
		f->list = list;
	table = list ? malloc(2 * cap * sizeof(*table)) : NULL;
	if (!table)
		return false;
	free(f->table);
	f->table = table;
	f->cap = cap;
	f->slots = 2 * cap;
	fill_table(f);
	return true;
}

static struct folder_file *add(struct slot_folder *f, const char *name)
{
	char *copy = strdup(name);

	if (!copy || !reserve(f)) {
		free(copy);
		return NULL;
	}
	f->list[f->n] = (struct folder_file){ .name = copy };
	f->table[slot_of(f, name)] = f->n + 1;
	return &f->list[f->n++];
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
	if (n == f->n)
		return;
	f->n = n;
	fill_table(f);
}

/* ----- what the folder has ------------------------------------------------ */

static bool same(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
	       a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
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
	f->next = 0;
	if (!ok)
		msg_error(NULL, "out of memory");
	return ok;
}

void slot_folder_event(void *opaque, const char *name, bool closed)
{
	struct slot_folder *f = opaque;
	struct folder_file *x = name ? find(f, name) : NULL;

	for (size_t i = 0; i < f->n && !name; i++)
		f->list[i].closed = f->list[i].open = false;
	if (!x && name && name[0] != '.')
		x = add(f, name);
	if (!x)
		return;
	x->there = true; /* until the next scan */
	x->closed = closed;
	x->open = !closed;
}

static bool has_settled(const struct folder_file *x, int64_t at)
{
	int64_t quiet = x->tried ? TRIED_AGAIN : x->closed ? QUIET_CLOSED : QUIET;

	if (x->open)
		quiet = x->tried ? TRIED_AGAIN_OPEN : QUIET_OPEN;
	return !x->taken && x->since && at - x->since >= quiet;
}

struct folder_file *slot_folder_next(struct slot_folder *f)
{
	int64_t at = now(CLOCK_MONOTONIC);

	while (f->next < f->n) {
		struct folder_file *x = &f->list[f->next++];
		if (has_settled(x, at)) {
			x->taken = true;
			return x;
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
	free(f->table);
	f->list = NULL;
	f->table = NULL;
	f->n = f->cap = f->slots = 0;
}
