/* SPDX-License-Identifier: BSD-3-Clause */
/* staging.c - a temporary folder for more files than there are descriptors */
#include "config.h"

#include "staging.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "signals.h"
#include "tempfile.h"

enum { MAX_OPEN = 32, NAME_SIZE = 16 };

struct staging {
	int parent, folder;
	char *name;       /* of folder in parent */
	unsigned n_files; /* were made */
	struct {
		int fd; /* -1: none */
		unsigned number;
	} open[MAX_OPEN]; /* file i at i % MAX_OPEN */
};

struct staging *staging_open(int dirfd, const char *base)
{
	struct staging *g = calloc(1, sizeof(*g));
	int error;

	if (!g)
		return NULL;
	for (size_t i = 0; i < MAX_OPEN; i++)
		g->open[i].fd = -1;
	g->folder = -1;
	g->parent = fcntl(dirfd, F_DUPFD_CLOEXEC, 3);
	if (g->parent >= 0)
		g->folder = tempfile_make(g->parent, base, &g->n_files, &g->name);
	if (g->folder >= 0)
		return g;
	error = errno;
	staging_close(g);
	errno = error;
	return NULL;
}

void staging_close(struct staging *g)
{
	if (!g)
		return;
	for (size_t i = 0; i < MAX_OPEN; i++)
		tempfile_close(&g->open[i].fd);
	if (g->name) {
		signals_hold();
		signals_remove(g->name);
		signals_release();
	}
	tempfile_close(&g->folder);
	tempfile_close(&g->parent);
	free(g->name);
	free(g);
}

bool staging_reaches(const struct staging *g, int dirfd)
{
	struct stat here, there;

	return fstat(g->folder, &here) == 0 && fstat(dirfd, &there) == 0 &&
	       here.st_dev == there.st_dev;
}

int staging_folder(const struct staging *g)
{
	return g->folder;
}

static int open_file(struct staging *g, unsigned number, int flags, char name[NAME_SIZE])
{
	unsigned i = number % MAX_OPEN;

	snprintf(name, NAME_SIZE, "%u", number);
	errno = tempfile_close(&g->open[i].fd);
	if (errno != 0)
		return -1;
	g->open[i].number = number;
	g->open[i].fd = openat(g->folder, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | flags, 0600);
	return g->open[i].fd;
}

char *staging_make(struct staging *g, unsigned *number)
{
	char *name = malloc(NAME_SIZE);
	int fd = -1, error = errno;

	if (name) {
		*number = g->n_files;
		signals_hold();
		fd = open_file(g, *number, O_CREAT | O_EXCL, name);
		error = errno;
		g->n_files += fd >= 0;
		signals_release();
	}
	if (fd < 0)
		free(name);
	errno = error;
	return fd < 0 ? NULL : name;
}

int staging_fd(struct staging *g, unsigned number)
{
	unsigned i = number % MAX_OPEN;
	char name[NAME_SIZE];

	if (g->open[i].fd >= 0 && g->open[i].number == number)
		return g->open[i].fd;
	return open_file(g, number, 0, name);
}

int staging_close_file(struct staging *g, unsigned number)
{
	unsigned i = number % MAX_OPEN;

	return g->open[i].number == number ? tempfile_close(&g->open[i].fd) : 0;
}
