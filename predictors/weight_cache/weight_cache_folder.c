/* SPDX-License-Identifier: BSD-3-Clause */
/* weight_cache_folder.c - finds and keeps files of converted weights in a folder */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "weight_cache.h"

#define DEFAULT_BYTES ((uint64_t)8 << 30)

enum { NAME_BYTES = 64, WRITE_MAX = 1 << 30 };

static void report(const struct kvi_engine_options *o, kvarc_weights what, uint64_t bytes,
                   const char *why)
{
	const kvarc_weight_cache *c = o->cache;
	if (c->report)
		c->report(c->opaque, what, bytes, why);
}

static uint64_t limit(const struct kvi_engine_options *o)
{
	return o->cache->max_bytes ? o->cache->max_bytes : DEFAULT_BYTES;
}

static bool layout_of(struct kvi_engine *e, const struct kvi_engine_options *o,
                      struct kvi_weight_cache_layout *l)
{
	struct kvi_h128 stamp;
	return o->cache && o->cache->folder && kvi_model_file_stamp(o->file, &stamp) &&
	       kvi_weight_cache_layout(e, &stamp, l);
}

static void name_of(const struct kvi_weight_cache_layout *l, char name[NAME_BYTES])
{
	snprintf(name, NAME_BYTES, "%016llx%016llx.kvw", (unsigned long long)l->key.hi,
	         (unsigned long long)l->key.lo);
}

static int open_folder(const char *path, bool make)
{
	int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (folder < 0 && errno == ENOENT && make && (mkdir(path, 0700) == 0 || errno == EEXIST))
		folder = open_folder(path, false);
	return folder;
}

/* ------------------------------------------------------------- finding */

/* Nobody else could have written it. */
static bool is_private(int fd, size_t bytes)
{
	struct stat st;
	return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
	       !(st.st_mode & 022) && (uintmax_t)st.st_size == bytes;
}

static bool map(struct kvi_engine *e, const struct kvi_engine_options *o,
                const struct kvi_weight_cache_layout *l, int fd)
{
	void *p = mmap(NULL, l->bytes, PROT_READ, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return false;
	if (!kvi_weight_cache_read(e, l, p, l->bytes, o->pool)) {
		munmap(p, l->bytes);
		return false;
	}
	e->kept = p;
	e->kept_bytes = l->bytes;
	return true;
}

static bool find(struct kvi_engine *e, const struct kvi_engine_options *o)
{
	struct kvi_weight_cache_layout l;
	char name[NAME_BYTES];
	if (!layout_of(e, o, &l))
		return false;
	name_of(&l, name);
	int folder = open_folder(o->cache->folder, false);
	if (folder < 0)
		return false;
	int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	bool good = fd >= 0 && is_private(fd, l.bytes) && map(e, o, &l, fd);
	if (good) {
		/* The last use: where that is not allowed, the file goes sooner. */
		int ignored = futimens(fd, NULL);
		(void)ignored;
		report(o, KVARC_WEIGHTS_FOUND, l.bytes, "");
	}
	if (fd >= 0)
		close(fd);
	close(folder);
	return good;
}

/* ------------------------------------------------------------- keeping */

static bool write_all(void *opaque, const void *p, size_t n)
{
	const int *fd = opaque;
	for (const uint8_t *at = p; n;) {
		ssize_t k = write(*fd, at, n < WRITE_MAX ? n : WRITE_MAX);
		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return false;
		at += k;
		n -= (size_t)k;
	}
	return true;
}

/* A name that no other process or thread has. */
static void temporary(const struct kvi_engine *e, char name[NAME_BYTES])
{
	struct {
		const void *e;
		struct timespec now;
		pid_t pid;
	} unique;
	memset(&unique, 0, sizeof unique);
	unique.e = e;
	unique.pid = getpid();
	clock_gettime(CLOCK_REALTIME, &unique.now);
	snprintf(name, NAME_BYTES, "%016llx.tmp",
	         (unsigned long long)kvi_h64(&unique, sizeof unique));
}

/* NULL: done. */
static const char *write_and_rename(struct kvi_engine *e, const struct kvi_weight_cache_layout *l,
                                    const uint8_t *header, int folder)
{
	char name[NAME_BYTES], temp[NAME_BYTES];
	name_of(l, name);
	temporary(e, temp);
	int fd = openat(folder, temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return strerror(errno);
	bool good = write_all(&fd, header, l->header) && kvi_weight_cache_parts(e, write_all, &fd);
	int code = errno;
	if (close(fd) && good) {
		good = false;
		code = errno;
	}
	if (good && renameat(folder, temp, folder, name) == 0)
		return NULL;
	code = good ? errno : code;
	unlinkat(folder, temp, 0);
	return strerror(code);
}

static bool disk_has_room(int folder, uint64_t bytes)
{
	struct statvfs s;
	return fstatvfs(folder, &s) || (uint64_t)s.f_bavail >= bytes / s.f_frsize + 1;
}

/* Beyond it a write is a signal, which ends a process. */
static bool may_be_so_long(uint64_t bytes)
{
	struct rlimit r;
	return getrlimit(RLIMIT_FSIZE, &r) || r.rlim_cur == RLIM_INFINITY || bytes <= r.rlim_cur;
}

static const char *store_in(struct kvi_engine *e, const struct kvi_engine_options *o,
                            const struct kvi_weight_cache_layout *l, int folder)
{
	if (!may_be_so_long(l->bytes))
		return strerror(EFBIG);
	if (!kvi_weight_cache_evict(folder, limit(o) - l->bytes))
		return "others cannot be removed";
	if (!disk_has_room(folder, l->bytes))
		return strerror(ENOSPC);
	/* before there is a file: one whose writer is killed has its magic then */
	uint8_t *header = kvi_malloc(e->alloc, l->header);
	const char *why = header && kvi_weight_cache_header(e, l, header, o->pool)
	                          ? write_and_rename(e, l, header, folder)
	                          : strerror(ENOMEM);
	kvi_free(e->alloc, header);
	return why;
}

static void store(struct kvi_engine *e, const struct kvi_engine_options *o)
{
	struct kvi_weight_cache_layout l;
	const char *why = "more than all may have";
	if (!o->cache || !o->cache->folder)
		return;
	if (!layout_of(e, o, &l)) {
		report(o, KVARC_WEIGHTS_NOT_KEPT, 0, "the model has just been written");
		return;
	}
	if (l.bytes <= limit(o)) {
		int folder = open_folder(o->cache->folder, true);
		why = folder < 0 ? strerror(errno) : store_in(e, o, &l, folder);
		if (folder >= 0)
			close(folder);
	}
	report(o, why ? KVARC_WEIGHTS_NOT_KEPT : KVARC_WEIGHTS_KEPT, l.bytes, why ? why : "");
}

kvarc_ret kvi_kept_engine(struct kvi_engine **e, const struct kvi_engine_options *o)
{
	kvarc_ret ret = kvi_engine_begin(e, o);
	if (ret || find(*e, o))
		return ret;
	ret = kvi_engine_convert(e, o);
	if (!ret)
		store(*e, o);
	return ret;
}
