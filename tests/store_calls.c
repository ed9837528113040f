/* SPDX-License-Identifier: BSD-3-Clause */
/* store_calls.c - system calls that go through hooks */
#define _GNU_SOURCE /* syscall numbers, O_TMPFILE */
#include "config.h"

#include "store_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "util/hash.h"

struct store_call_hooks store_calls;
unsigned store_calls_delay_most = 2000;

#undef openat
#undef openat64
#undef pwrite
#undef pwrite64
#undef ftruncate
#undef ftruncate64
int openat64(int fd, const char *path, int flags, ...);
ssize_t pwrite64(int fd, const void *data, size_t bytes, off64_t offset);
int ftruncate64(int fd, off64_t bytes);

/* Whether the call is to be made. */
static int begin(const struct store_call *c)
{
	const int error = store_calls.before ? store_calls.before(c) : 0;
	if (error)
		errno = error;
	return !error;
}

static long end(const struct store_call *c, long result)
{
	const int error = errno;
	if (store_calls.behind)
		store_calls.behind(c, result);
	errno = error;
	return result;
}

static int open_file(int fd, const char *path, int flags, mode_t mode)
{
	const struct store_call c = {
		.kind = STORE_CALL_OPEN, .fd = fd, .path = path, .flags = flags
	};
	return begin(&c) ? (int)end(&c, syscall(SYS_openat, fd, path, flags, mode)) : -1;
}

/* The mode, where there is one. */
#define OPEN_MODE(flags, mode)                                \
	do {                                                  \
		va_list list;                                 \
		va_start(list, flags);                        \
		if ((flags) & (O_CREAT | O_TMPFILE))          \
			(mode) = (mode_t)va_arg(list, int);   \
		va_end(list);                                 \
	} while (0)

int openat(int fd, const char *path, int flags, ...)
{
	mode_t mode = 0;
	OPEN_MODE(flags, mode);
	return open_file(fd, path, flags, mode);
}

int openat64(int fd, const char *path, int flags, ...)
{
	mode_t mode = 0;
	OPEN_MODE(flags, mode);
	return open_file(fd, path, flags, mode);
}

ssize_t write(int fd, const void *data, size_t bytes)
{
	struct store_call c = { .kind = STORE_CALL_WRITE, .fd = fd, .data = data, .bytes = bytes };
	if (!begin(&c))
		return -1;
	const long n = syscall(SYS_write, fd, data, bytes);
	const int error = errno;
	c.offset = n < 0 ? 0 : (uint64_t)lseek(fd, 0, SEEK_CUR) - (uint64_t)n;
	errno = error;
	return end(&c, n);
}

static ssize_t write_at(int fd, const void *data, size_t bytes, int64_t offset)
{
	const struct store_call c = { .kind = STORE_CALL_WRITE,
		                      .fd = fd,
		                      .data = data,
		                      .bytes = bytes,
		                      .offset = (uint64_t)offset };
	return begin(&c) ? end(&c, syscall(SYS_pwrite64, fd, data, bytes, offset)) : -1;
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
	return write_at(fd, data, bytes, offset);
}

ssize_t pwrite64(int fd, const void *data, size_t bytes, off64_t offset)
{
	return write_at(fd, data, bytes, offset);
}

static int truncate_to(int fd, int64_t bytes)
{
	const struct store_call c = {
		.kind = STORE_CALL_TRUNCATE, .fd = fd, .offset = (uint64_t)bytes
	};
	return begin(&c) ? (int)end(&c, syscall(SYS_ftruncate, fd, bytes)) : -1;
}

int ftruncate(int fd, off_t bytes)
{
	return truncate_to(fd, bytes);
}

int ftruncate64(int fd, off64_t bytes)
{
	return truncate_to(fd, bytes);
}

int fsync(int fd)
{
	const struct store_call c = { .kind = STORE_CALL_SYNC, .fd = fd };
	return begin(&c) ? (int)end(&c, syscall(SYS_fsync, fd)) : -1;
}

int fdatasync(int fd)
{
	const struct store_call c = { .kind = STORE_CALL_SYNC, .fd = fd };
	return begin(&c) ? (int)end(&c, syscall(SYS_fdatasync, fd)) : -1;
}

int mkdirat(int fd, const char *path, mode_t mode)
{
	const struct store_call c = { .kind = STORE_CALL_MKDIR, .fd = fd, .path = path };
	return begin(&c) ? (int)end(&c, syscall(SYS_mkdirat, fd, path, mode)) : -1;
}

int mkdir(const char *path, mode_t mode)
{
	return mkdirat(AT_FDCWD, path, mode);
}

int linkat(int fd, const char *path, int to_fd, const char *to, int flags)
{
	const struct store_call c = {
		.kind = STORE_CALL_LINK, .fd = fd, .path = path, .to_fd = to_fd, .to = to
	};
	return begin(&c) ? (int)end(&c, syscall(SYS_linkat, fd, path, to_fd, to, flags)) : -1;
}

static int move(int fd, const char *path, int to_fd, const char *to, unsigned flags)
{
	const struct store_call c = {
		.kind = STORE_CALL_RENAME, .fd = fd, .path = path, .to_fd = to_fd, .to = to
	};
	return begin(&c) ? (int)end(&c, syscall(SYS_renameat2, fd, path, to_fd, to, flags)) : -1;
}

int renameat(int fd, const char *path, int to_fd, const char *to)
{
	return move(fd, path, to_fd, to, 0);
}

int renameat2(int fd, const char *path, int to_fd, const char *to, unsigned flags)
{
	return move(fd, path, to_fd, to, flags);
}

int unlinkat(int fd, const char *path, int flags)
{
	const struct store_call c = {
		.kind = STORE_CALL_UNLINK, .fd = fd, .path = path, .flags = flags
	};
	return begin(&c) ? (int)end(&c, syscall(SYS_unlinkat, fd, path, flags)) : -1;
}

/* ----- another schedule ------------------------------------------------ */

int store_calls_delay(const struct store_call *c)
{
	static _Atomic uint64_t calls;
	uint64_t state = (uint64_t)getpid() << 32 | atomic_fetch_add(&calls, 1);
	const uint64_t r = kvi_splitmix64(&state);
	if (store_calls_delay_most == 0 || r % 4 != 0 ||
	    (c->kind != STORE_CALL_LINK && c->kind != STORE_CALL_RENAME &&
	     c->kind != STORE_CALL_UNLINK))
		return 0;
	/* Between a manifest and the looks around it others come by. */
	const bool manifest = c->kind == STORE_CALL_LINK && strncmp(c->to, "sessions/", 9) == 0;
	const uint64_t most = (uint64_t)store_calls_delay_most * (manifest ? 25 : 1);
	struct timespec t = { 0, (long)((r >> 8) % most) * 1000 };
	nanosleep(&t, NULL);
	return 0;
}
