/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * file_calls.c - logs the calls that change files, and has some of them fail (LD_PRELOAD)
 *
 * CALLS_LOG: each call is a line of this file: its name, and the path that it is for. CALLS_FAIL:
 * "N:HOW": the Nth call (from 1) fails with ENOSPC or EIO, or (short) writes half of its bytes;
 * "N:HOW:all": so do those behind it. Calls are pwrite, write, ftruncate, fsync, renameat and
 * linkat, on regular files and folders alone.
 */
#define _GNU_SOURCE /* RTLD_NEXT */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SHORT = -1 };

static atomic_int calls;

ssize_t pwrite(int fd, const void *buf, size_t bytes, off_t offset);
ssize_t pwrite64(int fd, const void *buf, size_t bytes, off64_t offset);
ssize_t write(int fd, const void *buf, size_t bytes);
int ftruncate(int fd, off_t bytes);
int ftruncate64(int fd, off64_t bytes);
int fsync(int fd);
int renameat(int from_dir, const char *from, int to_dir, const char *to);
int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags);

/* The function of that name which this one stands in front of. */
static void next_function(const char *name, void *function)
{
	void *p = dlsym(RTLD_NEXT, name);

	if (!p)
		abort();
	memcpy(function, &p, sizeof(p));
}

/* errno of the call in hand, SHORT, or 0: it is made. */
static int planned(void)
{
	const char *plan = getenv("CALLS_FAIL");
	const int n = atomic_fetch_add(&calls, 1) + 1;
	char *how = NULL;
	long at = plan ? strtol(plan, &how, 10) : 0;

	if (!plan || n < at || (n > at && !strstr(how, ":all")))
		return 0;
	return strncmp(how, ":ENOSPC", 7) == 0 ? ENOSPC : strncmp(how, ":EIO", 4) == 0 ? EIO
	                                                                               : SHORT;
}

static void note(const char *call, const char *path)
{
	const char *log = getenv("CALLS_LOG");
	char line[4300];
	int n = snprintf(line, sizeof(line), "%s %s\n", call, path);
	int fd = log ? open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;

	if (fd < 0)
		return;
	if (syscall(SYS_write, fd, line, (size_t)n) != n)
		abort();
	close(fd);
}

/* A call for a descriptor: 0: it is to be made; else as planned. */
static int begin(const char *call, int fd)
{
	char link[64], path[4096];
	struct stat st;

	if (fd <= 2 || fstat(fd, &st) != 0 || (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)))
		return 0;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	ssize_t n = readlink(link, path, sizeof(path) - 1);
	path[n > 0 ? n : 0] = '\0';
	note(call, path);
	return planned();
}

static ssize_t failed(int error)
{
	errno = error;
	return -1;
}

ssize_t pwrite(int fd, const void *buf, size_t bytes, off_t offset)
{
	ssize_t (*next)(int, const void *, size_t, off_t);
	int how = begin("write", fd);

	next_function("pwrite", &next);
	return how > 0 ? failed(how) : next(fd, buf, how ? (bytes + 1) / 2 : bytes, offset);
}

ssize_t pwrite64(int fd, const void *buf, size_t bytes, off64_t offset)
{
	ssize_t (*next)(int, const void *, size_t, off64_t);
	int how = begin("write", fd);

	next_function("pwrite64", &next);
	return how > 0 ? failed(how) : next(fd, buf, how ? (bytes + 1) / 2 : bytes, offset);
}

ssize_t write(int fd, const void *buf, size_t bytes)
{
	ssize_t (*next)(int, const void *, size_t);
	int how = begin("write", fd);

	next_function("write", &next);
	return how > 0 ? failed(how) : next(fd, buf, how ? (bytes + 1) / 2 : bytes);
}

/* A call that is made as a whole, or not. */
static int begin_whole(const char *call, int fd)
{
	int how = begin(call, fd);

	return how == SHORT ? 0 : how;
}

int ftruncate(int fd, off_t bytes)
{
	int (*next)(int, off_t);
	int how = begin_whole("truncate", fd);

	next_function("ftruncate", &next);
	return how ? (int)failed(how) : next(fd, bytes);
}

int ftruncate64(int fd, off64_t bytes)
{
	int (*next)(int, off64_t);
	int how = begin_whole("truncate", fd);

	next_function("ftruncate64", &next);
	return how ? (int)failed(how) : next(fd, bytes);
}

int fsync(int fd)
{
	int (*next)(int);
	int how = begin_whole("fsync", fd);

	next_function("fsync", &next);
	return how ? (int)failed(how) : next(fd);
}

int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
	int (*next)(int, const char *, int, const char *);
	int how = planned();

	note("name", to);
	next_function("renameat", &next);
	return how > 0 ? (int)failed(how) : next(from_dir, from, to_dir, to);
}

int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags)
{
	int (*next)(int, const char *, int, const char *, int);
	int how = planned();

	note("name", to);
	next_function("linkat", &next);
	return how > 0 ? (int)failed(how)
	           : next(from_dir, from, to_dir, to, flags);
}
