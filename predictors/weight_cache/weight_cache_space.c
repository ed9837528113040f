/* SPDX-License-Identifier: BSD-3-Clause */
/* weight_cache_space.c - keeps a folder of converted weights below its size */
#include "config.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "weight_cache.h"

enum { ABANDONED = 3600 }; /* seconds after its last byte */

struct found {
	uint64_t bytes; /* of all */
	char oldest[NAME_MAX + 1];
	struct timespec used; /* the oldest; its name is empty: there is none */
};

static bool ends_with(const char *name, const char *end)
{
	size_t n = strlen(name), m = strlen(end);
	return n > m && memcmp(name + n - m, end, m) == 0;
}

static bool has_magic(int folder, const char *name)
{
	uint8_t magic[KVI_WEIGHT_CACHE_MAGIC_BYTES];
	int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return false;
	ssize_t n = read(fd, magic, sizeof magic);
	close(fd);
	return n == (ssize_t)sizeof magic &&
	       memcmp(magic, kvi_weight_cache_magic, sizeof magic) == 0;
}

static bool is_older(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec != b->tv_sec ? a->tv_sec < b->tv_sec : a->tv_nsec < b->tv_nsec;
}

/* One name of the folder. */
static void look_at(int folder, const char *name, struct found *f)
{
	bool unfinished = ends_with(name, ".tmp");
	struct stat st;
	if ((!unfinished && !ends_with(name, ".kvw")) || strlen(name) > NAME_MAX ||
	    fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode) ||
	    st.st_uid != geteuid() || !has_magic(folder, name))
		return;
	if (unfinished && time(NULL) - st.st_mtim.tv_sec > ABANDONED &&
	    unlinkat(folder, name, 0) == 0)
		return;
	f->bytes += (uint64_t)st.st_size;
	if (unfinished || (f->oldest[0] && !is_older(&st.st_mtim, &f->used)))
		return;
	strcpy(f->oldest, name);
	f->used = st.st_mtim;
}

static bool look_around(int folder, struct found *f)
{
	int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	*f = (struct found){ .bytes = 0 };
	if (!d) {
		if (fd >= 0)
			close(fd);
		return false;
	}
	for (const struct dirent *entry; (entry = readdir(d));)
		look_at(folder, entry->d_name, f);
	closedir(d);
	return true;
}

bool kvi_weight_cache_evict(int folder, uint64_t bytes)
{
	struct found f;
	while (look_around(folder, &f)) {
		if (f.bytes <= bytes)
			return true;
		if (!f.oldest[0] || unlinkat(folder, f.oldest, 0))
			return false;
	}
	return false;
}
