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
	char *name;       /* name of folder in parent */
	unsigned n_files; /* number of files that were made */
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

void staging_close(struct staging *staging)
{
	if (!staging)
		return;
	for (size_t i = 0; i < MAX_OPEN; i++)
		tempfile_close(&staging->open[i].fd);
	if (staging->name) {
		signals_hold();
		signals_remove(staging->name);
		signals_release();
	}
	tempfile_close(&staging->folder);
	tempfile_close(&staging->parent);
	free(staging->name);
	free(staging);
}

bool staging_reaches(const struct staging *staging, int dirfd)
{
	struct stat here, there;

	return fstat(staging->folder, &here) == 0 && fstat(dirfd, &there) == 0 &&
	       here.st_dev == there.st_dev;
}

int staging_folder(const struct staging *staging)
{
	return staging->folder;
}

static int open_file(struct staging *staging, unsigned number, int flags, char name[NAME_SIZE])
{
	unsigned i = number % MAX_OPEN;

	snprintf(name, NAME_SIZE, "%u", number);
	errno = tempfile_close(&staging->open[i].fd);
	if (errno != 0)
		return -1;
	staging->open[i].number = number;
	staging->open[i].fd = openat(staging->folder, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | flags,
	                             0600);
	return staging->open[i].fd;
}

char *staging_make(struct staging *staging, unsigned *number)
{
	char *name = malloc(NAME_SIZE);
	int fd = -1, error = errno;

	if (name) {
		*number = staging->n_files;
		signals_hold();
		fd = open_file(staging, *number, O_CREAT | O_EXCL, name);
		error = errno;
		staging->n_files += fd >= 0;
		signals_release();
	}
	if (fd < 0)
		free(name);
	errno = error;
	return fd < 0 ? NULL : name;
}

int staging_fd(struct staging *staging, unsigned number)
{
	unsigned i = number % MAX_OPEN;
	char name[NAME_SIZE];

	if (staging->open[i].fd >= 0 && staging->open[i].number == number)
		return staging->open[i].fd;
	return open_file(staging, number, 0, name);
}

int staging_close_file(struct staging *staging, unsigned number)
{
	unsigned i = number % MAX_OPEN;

	return staging->open[i].number == number ? tempfile_close(&staging->open[i].fd) : 0;
}
