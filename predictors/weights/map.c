/* SPDX-License-Identifier: BSD-3-Clause */
/* map.c - a file mapped for reading */
#include "config.h"

#include "model_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static kvarc_ret map_descriptor(struct kvi_map *map, int fd, const char *path,
                                kvarc_error *error)
{
	struct stat st;
	if (fstat(fd, &st))
		return kvi_model_fail(error, KVARC_IO, "%s: %s", path,
		                      strerror(errno));
	if (!S_ISREG(st.st_mode))
		return kvi_model_fail(error, KVARC_IO, "%s is not a regular file: "
		                      "a model must be one, to be mapped", path);
	if (st.st_size == 0)
		return KVARC_OK;
	if ((uintmax_t)st.st_size > (uintmax_t)(SIZE_MAX / 2))
		return kvi_model_fail(error, KVARC_IO, "%s is too large to be "
		                      "mapped: use a 64-bit program", path);
	void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (p == MAP_FAILED)
		return kvi_model_fail(error, KVARC_IO, "%s cannot be mapped: %s",
		                      path, strerror(errno));
	map->p = p;
	map->n = (size_t)st.st_size;
	return KVARC_OK;
}

kvarc_ret kvi_map_open(struct kvi_map *map, const char *path,
                       kvarc_error *error)
{
	memset(map, 0, sizeof *map);
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 && errno == ENOENT)
		return KVARC_END;
	if (fd < 0)
		return kvi_model_fail(error, KVARC_IO, "%s cannot be opened: %s",
		                      path, strerror(errno));
	kvarc_ret ret = map_descriptor(map, fd, path, error);
	close(fd);
	return ret;
}

void kvi_map_close(struct kvi_map *map)
{
	if (map->p)
		munmap((void *)(uintptr_t)map->p, map->n);
	memset(map, 0, sizeof *map);
}
