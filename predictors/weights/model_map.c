/* SPDX-License-Identifier: BSD-3-Clause */
/* model_map.c - a file mapped for reading */
#include "config.h"

#include "model_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ------------------------------------------------------------- stamps */

static int64_t nanoseconds(const struct timespec *time)
{
	return (int64_t)time->tv_sec * 1000000000 + time->tv_nsec;
}

/* Two changes within the same tick of a file system's clock leave the same time: whole seconds
 * on some, FAT two, and a jiffy on all others. */
static bool is_stable(const struct stat *st)
{
	const int64_t second = 1000000000;
	int64_t tick = st->st_mtim.tv_nsec && st->st_ctim.tv_nsec ? second / 10 : 2 * second;
	struct timespec now;
	if (clock_gettime(CLOCK_REALTIME, &now))
		return false;
	return nanoseconds(&now) - nanoseconds(&st->st_mtim) > tick &&
	       nanoseconds(&now) - nanoseconds(&st->st_ctim) > tick;
}

static struct kvi_file_stamp stamp_of(const char *path, const struct stat *st)
{
	const uint64_t numbers[4] = { (uint64_t)st->st_ino, (uint64_t)st->st_size,
		                      (uint64_t)nanoseconds(&st->st_mtim),
		                      (uint64_t)nanoseconds(&st->st_ctim) };
	struct kvi_file_stamp stamp = { .stable = false };
	char real[PATH_MAX];
	if (realpath(path, real)) {
		stamp.is = kvi_h128_2(numbers, sizeof numbers, real, strlen(real));
		stamp.stable = is_stable(st);
	}
	return stamp;
}

struct kvi_file_stamp kvi_file_stamp(const char *path)
{
	struct stat st;
	return stat(path, &st) ? (struct kvi_file_stamp){ .stable = false } : stamp_of(path, &st);
}

/* --------------------------------------------------------------- maps */

static kvarc_ret map_descriptor(struct kvi_map *map, int fd, const char *path,
                                struct kvi_file_stamp *stamp, kvarc_error *error)
{
	struct stat st;
	if (fstat(fd, &st))
		return kvi_fail(error, KVARC_IO, "%s: %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return kvi_fail(error, KVARC_IO,
		                "%s is not a regular file: a model must be one, to be mapped",
		                path);
	if (stamp)
		*stamp = stamp_of(path, &st);
	if (st.st_size == 0)
		return KVARC_OK;
	if ((uintmax_t)st.st_size > (uintmax_t)(SIZE_MAX / 2))
		return kvi_fail(error, KVARC_IO,
		                "%s is too large to be mapped: use a 64-bit program", path);
	void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (p == MAP_FAILED)
		return kvi_fail(error, KVARC_IO, "%s cannot be mapped: %s", path, strerror(errno));
	map->p = p;
	map->n = (size_t)st.st_size;
	return KVARC_OK;
}

kvarc_ret kvi_map_open(struct kvi_map *map, const char *path, struct kvi_file_stamp *stamp,
                       kvarc_error *error)
{
	memset(map, 0, sizeof *map);
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 && errno == ENOENT)
		return KVARC_END;
	if (fd < 0)
		return kvi_fail(error, KVARC_IO, "%s cannot be opened: %s", path, strerror(errno));
	kvarc_ret ret = map_descriptor(map, fd, path, stamp, error);
	close(fd);
	return ret;
}

void kvi_map_close(struct kvi_map *map)
{
	if (map->p)
		munmap((void *)(uintptr_t)map->p, map->n);
	memset(map, 0, sizeof *map);
}
