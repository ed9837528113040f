/* SPDX-License-Identifier: BSD-3-Clause */
/* disk_speed.c - how fast the disk of a folder reads */
#include "config.h"

#include "disk_speed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "message.h"
#include "paths.h"
#include "units.h"

enum { PIECE = 1 << 20, PIECES = 128 };

/* Nothing that a disk could compress or leave out. */
static void fill(uint64_t *words, uint64_t *state)
{
	for (size_t i = 0; i < PIECE / sizeof(*words); i++) {
		*state ^= *state << 13;
		*state ^= *state >> 7;
		*state ^= *state << 17;
		words[i] = *state;
	}
}

static int write_all(int fd, uint64_t *words)
{
	uint64_t state = 88172645463325252;

	for (int i = 0; i < PIECES; i++) {
		const char *p = (const char *)words;

		fill(words, &state);
		for (size_t left = PIECE; left;) {
			ssize_t n = write(fd, p, left);
			if (n < 0 && errno == EINTR)
				continue;
			if (n <= 0)
				return n < 0 ? errno : EIO;
			p += n;
			left -= (size_t)n;
		}
	}
	return fsync(fd) == 0 || errno == EINVAL ? 0 : errno;
}

static int read_all(int fd, void *buf, double *speed)
{
	double start;
	uint64_t all = 0;

	(void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	start = units_now();
	while (all < (uint64_t)PIECE * PIECES) {
		ssize_t n = pread(fd, buf, PIECE, (off_t)all);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? errno : EIO;
		all += (uint64_t)n;
	}
	double now = (double)all / (units_now() - start);
	*speed = now > *speed ? now : *speed;
	return 0;
}

static int open_unnamed(const char *folder)
{
	char *path = paths_join(folder, ".kvarc-XXXXXX");
	int fd = path ? mkstemp(path) : -1;

	if (fd >= 0)
		unlink(path);
	free(path);
	return fd;
}

double disk_speed(const char *folder)
{
	uint64_t *words = malloc(PIECE);
	int fd = words ? open_unnamed(folder) : -1;
	int error = fd >= 0 ? write_all(fd, words) : words ? errno : ENOMEM;
	double speed = 0;

	for (int i = 0; i < 2 && error == 0; i++)
		error = read_all(fd, words, &speed);
	if (error)
		msg_error(folder, "cannot measure the disk: %s", strerror(error));
	if (fd >= 0)
		close(fd);
	free(words);
	return error ? 0 : speed;
}
