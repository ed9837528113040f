/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * backend_folder.c - objects as files of a folder: written under a temporary name, synchronised,
 * linked to their key, and then the folder is synchronised
 */
#include "config.h"

#include "backend.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "util/alloc.h"
#include "util/arguments.h"
#include "util/error.h"
#include "util/hash.h"
#include "write_file.h"

/* Folder of files that are not complete yet. */
#define TEMP ".tmp"
enum {
	TEMP_NAME = 64,
	COPY_BYTES = 1 << 20,
	STALE_SECONDS = 24 * 3600, /* a temporary file that nobody has written to for that long */
	NESTING_MAX = 32
};

struct folder {
	struct kvi_backend base;
	struct kvi_alloc alloc;
	int root, temp;
	int no_sync;
	/* The file that was read last. */
	int open_fd;
	char open_key[KVI_KEY_MAX + 1];
	uint64_t random; /* state of the generator of temporary names */
};

static struct folder *folder_of(struct kvi_backend *backend)
{
	return (struct folder *)backend;
}

/* IO, or MEM, for a system call about a key that has failed. */
static kvarc_ret fail_key(kvarc_error *error, const char *what, const char *key)
{
	return kvi_fail(error, errno == ENOMEM ? KVARC_MEM : KVARC_IO, "store: cannot %s %s: %s",
	                what, key, strerror(errno));
}

static int synchronise(const struct folder *folder, int fd)
{
	return folder->no_sync ? 0 : kvi_sync_file(fd);
}

static void forget_open(struct folder *folder)
{
	if (folder->open_fd >= 0)
		close(folder->open_fd);
	folder->open_fd = -1;
	folder->open_key[0] = 0;
}

/* The file of a key, open to read; it stays open until another one is. -1: errno. */
static int open_key(struct folder *folder, const char *key)
{
	if (folder->open_fd >= 0 && strcmp(folder->open_key, key) == 0)
		return folder->open_fd;
	struct stat st;
	/* a pipe or a device is not waited for */
	int fd = openat(folder->root, key, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return -1;
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
		close(fd);
		errno = EINVAL;
		return -1;
	}
	forget_open(folder);
	folder->open_fd = fd;
	memcpy(folder->open_key, key, strlen(key) + 1);
	return fd;
}

static int is_missing(void)
{
	return errno == ENOENT || errno == ENOTDIR;
}

static kvarc_ret folder_get(struct kvi_backend *backend, const char *key, uint64_t offset,
                            void *data, size_t n, size_t *got, kvarc_error *error)
{
	if (offset == 0)
		forget_open(folder_of(backend));
	int fd = open_key(folder_of(backend), key);
	*got = 0;
	if (fd < 0)
		return is_missing() ? KVARC_END : fail_key(error, "open", key);
	while (*got < n) {
		ssize_t k = pread(fd, (char *)data + *got, n - *got, (off_t)(offset + *got));
		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return fail_key(error, "read", key);
		if (k == 0)
			break;
		*got += (size_t)k;
	}
	return KVARC_OK;
}

static struct kvi_object describe(const char *key, const struct stat *st)
{
	return (struct kvi_object){ key, (uint64_t)st->st_size, st->st_mtime,
		                    (uint64_t)st->st_mtim.tv_sec * 1000000000 +
		                            (uint64_t)st->st_mtim.tv_nsec };
}

static kvarc_ret folder_stat(struct kvi_backend *backend, const char *key,
                             struct kvi_object *object, kvarc_error *error)
{
	struct stat st;
	if (fstatat(folder_of(backend)->root, key, &st, AT_SYMLINK_NOFOLLOW) != 0)
		return is_missing() ? KVARC_END : fail_key(error, "look at", key);
	if (!S_ISREG(st.st_mode))
		return kvi_fail(error, KVARC_IO, "store: %s is not a file", key);
	*object = describe(key, &st);
	return KVARC_OK;
}

/* Copies all bytes of a source into a file. */
static kvarc_ret copy_source(const struct folder *folder, const kvarc_source *source, int fd,
                             const char *key, kvarc_error *error)
{
	char *buffer = source->memory ? NULL : kvi_malloc(&folder->alloc, COPY_BYTES);
	kvarc_ret ret = KVARC_OK;
	if (source->memory)
		return kvi_write_file(fd, source->memory, (size_t)source->size) == 0
		               ? KVARC_OK
		               : fail_key(error, "write", key);
	if (!buffer)
		return kvi_fail_alloc(error, &folder->alloc);
	for (uint64_t at = 0; !ret && at < source->size;) {
		uint64_t left = source->size - at;
		int64_t k = source->read(source->opaque, buffer,
		                         left < COPY_BYTES ? (size_t)left : COPY_BYTES, at);
		if (k <= 0)
			ret = kvi_fail(error, KVARC_IO, "store: what becomes %s ends at byte %llu",
			               key, (unsigned long long)at);
		else if (kvi_write_file(fd, buffer, (size_t)k) != 0)
			ret = fail_key(error, "write", key);
		else
			at += (uint64_t)k;
	}
	kvi_free(&folder->alloc, buffer);
	return ret;
}

/* Synchronises the folder that a path is in. */
static int synchronise_above(const struct folder *folder, const char *path)
{
	char above[KVI_KEY_MAX + 1];
	memcpy(above, path, strlen(path) + 1);
	char *slash = strrchr(above, '/');
	if (slash)
		*slash = 0;
	int fd = openat(folder->root, slash ? above : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int bad = fd < 0 || synchronise(folder, fd) != 0;
	if (fd >= 0)
		close(fd);
	return bad ? -1 : 0;
}

/* Makes the folders of a key. Each is synchronised in the one above, also one that was there: who
 * has made it may not have come so far. */
static int make_folders(const struct folder *folder, const char *key)
{
	char path[KVI_KEY_MAX + 1];
	for (const char *slash = strchr(key, '/'); slash; slash = strchr(slash + 1, '/')) {
		size_t n = (size_t)(slash - key);
		memcpy(path, key, n);
		path[n] = 0;
		if ((mkdirat(folder->root, path, 0700) != 0 && errno != EEXIST) ||
		    synchronise_above(folder, path) != 0)
			return -1;
	}
	return 0;
}

/* Links a complete temporary file to its key. Returns OK, END (the key has an object), IO. */
static kvarc_ret publish(struct folder *folder, const char *temp, int fd, const char *key,
                         kvarc_error *error)
{
	struct stat st;
	if (make_folders(folder, key) != 0)
		return fail_key(error, "make the folder of", key);
	if (linkat(folder->temp, temp, folder->root, key, 0) != 0) {
		/* NFS may repeat a request that has been carried out */
		int taken = errno == EEXIST && !(fstat(fd, &st) == 0 && st.st_nlink == 2);
		if (taken)
			return KVARC_END;
		if (errno != EEXIST)
			return fail_key(error, "make", key);
	}
	if (synchronise_above(folder, key) == 0)
		return KVARC_OK;
	kvarc_ret ret = fail_key(error, "synchronise the folder of", key);
	/* The file was made by this call, and is not acknowledged. */
	unlinkat(folder->root, key, 0);
	return ret;
}

/* A name for a file in TEMP, which is not there yet. */
static void make_temp_name(struct folder *folder, char temp[TEMP_NAME])
{
	snprintf(temp, TEMP_NAME, "%ld-%016llx", (long)getpid(),
	         (unsigned long long)kvi_splitmix64(&folder->random));
}

static kvarc_ret folder_put(struct kvi_backend *backend, const char *key,
                            const kvarc_source *source, kvarc_error *error)
{
	struct folder *f = folder_of(backend);
	struct stat st;
	char temp[TEMP_NAME];
	int fd = -1;
	if (fstatat(f->root, key, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return KVARC_END;
	for (int tries = 0; fd < 0 && tries < 8; tries++) {
		make_temp_name(f, temp);
		fd = openat(f->temp, temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (fd < 0 && errno != EEXIST)
			break;
	}
	if (fd < 0)
		return fail_key(error, "make a temporary file for", key);
	kvarc_ret ret = copy_source(f, source, fd, key, error);
	if (!ret && synchronise(f, fd) != 0)
		ret = fail_key(error, "synchronise", key);
	if (!ret)
		ret = publish(f, temp, fd, key, error);
	if (close(fd) != 0 && !ret)
		ret = fail_key(error, "close", key);
	unlinkat(f->temp, temp, 0);
	return ret;
}

/* Removes without fsync: whoever finds an object that a crash has brought back removes it again. */
static kvarc_ret folder_remove(struct kvi_backend *backend, const char *key, kvarc_error *error)
{
	struct folder *f = folder_of(backend);
	if (strcmp(f->open_key, key) == 0)
		forget_open(f);
	if (unlinkat(f->root, key, 0) != 0 && !is_missing())
		return fail_key(error, "remove", key);
	return KVARC_OK;
}

/*
 * Checks the object first, then moves it to a temporary name, checks it again and removes it, so
 * that an object that somebody else puts under the key meanwhile stays. An object that differs was
 * exchanged between the two checks, and is moved back.
 */
static kvarc_ret folder_remove_if(struct kvi_backend *backend, const char *key, const void *data,
                                  size_t n, kvarc_error *error)
{
	struct folder *f = folder_of(backend);
	char temp[TEMP_NAME], moved[sizeof TEMP + TEMP_NAME];
	kvarc_ret ret = kvi_object_is(backend, key, data, n, error);
	forget_open(f);
	if (ret)
		return ret;
	make_temp_name(f, temp);
	snprintf(moved, sizeof moved, TEMP "/%s", temp);
	if (renameat(f->root, key, f->temp, temp) != 0)
		return is_missing() ? KVARC_END : fail_key(error, "remove", key);
	ret = kvi_object_is(backend, moved, data, n, error);
	forget_open(f);
	if (ret) {
		/* When another object has the key by now, both stay: this one under its temporary
		 * name. */
		if (linkat(f->temp, temp, f->root, key, 0) == 0)
			unlinkat(f->temp, temp, 0);
		return ret;
	}
	unlinkat(f->temp, temp, 0);
	return synchronise_above(f, key) == 0 ? KVARC_OK
	                                      : fail_key(error, "synchronise the folder of", key);
}

static kvarc_ret folder_touch(struct kvi_backend *backend, const char *key, kvarc_error *error)
{
	if (utimensat(folder_of(backend)->root, key, NULL, AT_SYMLINK_NOFOLLOW) == 0)
		return KVARC_OK;
	return is_missing() ? KVARC_END : fail_key(error, "set the time of", key);
}

/* A list on its way through the folders. */
struct folder_list {
	struct folder *f;
	const char *prefix;
	kvi_object_fn fn;
	void *opaque;
	kvarc_error *e;
	char key[KVI_KEY_MAX + 1]; /* key of the current folder, then of one of its entries */
};

static kvarc_ret list_folder(struct folder_list *list, size_t n, unsigned depth);

/* Reports or descends into one entry, whose name is at list->key + n. */
static kvarc_ret list_entry(struct folder_list *list, size_t n, size_t name_bytes, unsigned depth)
{
	struct stat st;
	size_t end = n + name_bytes, prefix = strlen(list->prefix);
	size_t common = end < prefix ? end : prefix;
	if (strncmp(list->key, list->prefix, common) != 0)
		return KVARC_OK;
	if (fstatat(list->f->root, list->key, &st, AT_SYMLINK_NOFOLLOW) != 0)
		return is_missing() ? KVARC_OK : fail_key(list->e, "look at", list->key);
	if (S_ISDIR(st.st_mode) && depth < NESTING_MAX && end < KVI_KEY_MAX) {
		list->key[end] = '/';
		list->key[end + 1] = 0;
		return list_folder(list, end + 1, depth + 1);
	}
	if (!S_ISREG(st.st_mode) || end < prefix)
		return KVARC_OK;
	const struct kvi_object object = describe(list->key, &st);
	if (list->fn(list->opaque, &object) == 0)
		return KVARC_OK;
	return kvi_fail(list->e, KVARC_IO, "store: listing %s was ended", list->prefix);
}

/* The folder whose key with a '/' at its end is the n bytes of list->key; n = 0: the root. */
static kvarc_ret list_folder(struct folder_list *list, size_t n, unsigned depth)
{
	const struct dirent *entry;
	kvarc_ret ret = KVARC_OK;
	int fd = openat(list->f->root, n ? list->key : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir) {
		ret = is_missing() ? KVARC_OK
		                   : fail_key(list->e, "list", n ? list->key : "the store");
		if (fd >= 0)
			close(fd);
		return ret;
	}
	while (!ret && (errno = 0, entry = readdir(dir))) {
		size_t bytes = strlen(entry->d_name);
		if (n + bytes > KVI_KEY_MAX)
			continue;
		memcpy(list->key + n, entry->d_name, bytes + 1);
		if (kvi_key_valid(list->key))
			ret = list_entry(list, n, bytes, depth);
	}
	list->key[n] = 0;
	if (!ret && errno)
		ret = fail_key(list->e, "list", n ? list->key : "the store");
	closedir(dir);
	return ret;
}

static kvarc_ret folder_list(struct kvi_backend *backend, const char *prefix, kvi_object_fn fn,
                             void *opaque, kvarc_error *error)
{
	struct folder_list l = { folder_of(backend), prefix, fn, opaque, error, { 0 } };
	const char *slash = strrchr(prefix, '/');
	size_t n = slash ? (size_t)(slash - prefix) + 1 : 0;
	if (n > KVI_KEY_MAX)
		return KVARC_OK;
	memcpy(l.key, prefix, n);
	return list_folder(&l, n, 0);
}

static void folder_close(struct kvi_backend *backend)
{
	struct folder *f = folder_of(backend);
	forget_open(f);
	if (f->temp >= 0)
		close(f->temp);
	if (f->root >= 0)
		close(f->root);
	kvi_free(&f->alloc, f);
}

static const struct kvi_backend_calls folder_calls = {
	folder_get,       folder_put,  folder_stat,  folder_remove,
	folder_remove_if, folder_list, folder_touch, NULL, /* promise */
	folder_close,
};

/* Removes what killed processes have left; what cannot be removed stays. */
static void remove_stale(const struct folder *folder)
{
	const struct dirent *entry;
	struct stat st;
	time_t now = time(NULL);
	int fd = openat(folder->temp, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	while (dir && (entry = readdir(dir))) {
		if (entry->d_name[0] != '.' &&
		    fstatat(folder->temp, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    S_ISREG(st.st_mode) && now - st.st_mtime > STALE_SECONDS)
			unlinkat(folder->temp, entry->d_name, 0);
	}
	if (dir)
		closedir(dir);
	else if (fd >= 0)
		close(fd);
}

/* Makes the folder `path`, and synchronises the one that it is in. */
static int make_folder(char *path, int no_sync)
{
	char *slash = strrchr(path, '/');
	if (mkdir(path, 0700) != 0)
		return errno == EEXIST ? 0 : -1;
	if (no_sync)
		return 0;
	if (slash)
		*slash = 0;
	int fd = open(!slash          ? "."
	              : slash == path ? "/"
	                              : path,
	              O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int bad = fd < 0 || kvi_sync_file(fd) != 0;
	if (fd >= 0)
		close(fd);
	if (slash)
		*slash = '/';
	return bad ? -1 : 0;
}

/* Makes a folder and those above it. */
static int make_root(const char *path, int no_sync)
{
	char all[4096];
	size_t n = strlen(path);
	while (n > 1 && path[n - 1] == '/')
		n--;
	if (access(path, F_OK) == 0)
		return 0;
	if (n >= sizeof all) {
		errno = ENAMETOOLONG;
		return -1;
	}
	memcpy(all, path, n);
	all[n] = 0;
	for (char *slash = strchr(all + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = 0;
		if (access(all, F_OK) != 0 && make_folder(all, no_sync) != 0)
			return -1;
		*slash = '/';
	}
	return make_folder(all, no_sync);
}

kvarc_ret kvi_backend_folder(struct kvi_backend **backend, const char *path,
                             const struct kvi_backend_options *options, kvarc_error *error)
{
	static atomic_uint_fast64_t opened;
	struct folder *f;
	kvarc_common common = { .allocator = options->allocator, .error = error };
	*backend = NULL;
	if (options->create && make_root(path, options->no_sync) != 0)
		return kvi_fail(error, KVARC_IO, "store %s: cannot be made: %s", path,
		                strerror(errno));
	kvarc_ret ret = kvi_handle_new(&f, sizeof *f, offsetof(struct folder, alloc), &common, 0);
	if (ret)
		return ret;
	f->base.calls = &folder_calls;
	f->no_sync = options->no_sync;
	f->open_fd = f->temp = -1;
	f->random = (uint64_t)time(NULL) << 20 ^ (uint64_t)getpid() << 8 ^
	            atomic_fetch_add(&opened, 1);
	f->root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (f->root < 0) {
		ret = is_missing() ? KVARC_OPTIONS : KVARC_IO;
		ret = kvi_fail(error, ret, "store %s: %s", path, strerror(errno));
	} else if (mkdirat(f->root, TEMP, 0700) != 0 && errno != EEXIST && errno != EROFS &&
	           errno != EACCES) {
		ret = kvi_fail(error, KVARC_IO, "store %s: %s", path, strerror(errno));
	} else {
		/* a store that cannot be written to can still be read: then there is none */
		f->temp = openat(f->root, TEMP, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (f->temp >= 0)
			remove_stale(f);
	}
	*backend = &f->base;
	if (ret)
		kvi_backend_close(backend);
	return ret;
}
