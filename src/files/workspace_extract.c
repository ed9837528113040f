/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * workspace_extract.c - a tar of a workspace becomes files, inside of one folder alone
 *
 * Two passes: the first one looks at all entries, the second one writes. Each component of a path
 * is opened in the one above without following links, so that no entry leads out of the folder,
 * whatever entries before it have made.
 */
#include "config.h"

#include "workspace_tar.h"

#ifdef HAVE_LIBARCHIVE

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/libarchive.h"

/* A tar on its way into a folder. */
struct extracting {
	struct kvi_workspace w;
	const kvarc_source *source;
	uint64_t offset;
	struct archive *tar;
	uint8_t *block, *data;
	int fd; /* of the folder; -1: not open yet */
	uint64_t bytes;
};

static la_ssize_t read_block(struct archive *tar, void *opaque, const void **p)
{
	struct extracting *x = opaque;
	const uint64_t left = x->source->size - x->offset;
	int64_t n = left ? x->source->read(x->source->opaque, x->block,
	                                   left < KVI_WORKSPACE_BLOCK ? (size_t)left
	                                                              : KVI_WORKSPACE_BLOCK,
	                                   x->offset)
	                 : 0;
	(void)tar;
	*p = x->block;
	x->offset += n > 0 ? (uint64_t)n : 0;
	return (la_ssize_t)n;
}

static kvarc_ret fail_tar(struct extracting *x)
{
	const char *why = x->tar ? archive_error_string(x->tar) : NULL;
	return kvi_fail(x->w.error, KVARC_DATA, "workspace: its tar is damaged: %s",
	                why ? why : "it ends too soon");
}

static kvarc_ret fail_entry(struct extracting *x, const char *name, const char *why)
{
	return kvi_fail(x->w.error, KVARC_DATA,
	                "workspace: entry '%.200s' %s: nothing was extracted", name, why);
}

static kvarc_ret fail_path(struct extracting *x, const char *what, const char *path)
{
	const char *why = errno == ELOOP || errno == ENOTDIR
	                          ? "there is a link or a file where a folder must be"
	                          : strerror(errno);
	return kvi_fail(x->w.error, errno == ENOMEM ? KVARC_MEM : KVARC_IO,
	                "workspace: cannot %s '%.200s': %s", what, path, why);
}

/* ----- what an entry is ------------------------------------------------ */

/* An entry; name without a slash at its end. */
struct extracted {
	char name[KVI_WORKSPACE_PATH];
	mode_t type, perm;
	uint64_t bytes;
	const char *link;
	struct timespec mtime;
};

/* What may be extracted; other entries are DATA. */
static kvarc_ret check_entry(struct extracting *x, struct archive_entry *e, struct extracted *to)
{
	const char *name = archive_entry_pathname(e);
	const int64_t bytes = archive_entry_size(e);
	size_t n = name ? strlen(name) : 0;
	if (n == 0 || n >= sizeof to->name)
		return fail_entry(x, "", "has no name, or one that is too long");
	memcpy(to->name, name, n + 1);
	to->type = archive_entry_filetype(e);
	if (to->type == AE_IFDIR && n > 1 && to->name[n - 1] == '/')
		to->name[n - 1] = 0;
	if (!kvi_workspace_name_safe(to->name))
		return fail_entry(x, "", "has a name that leads elsewhere or is not valid");
	if (archive_entry_hardlink(e))
		return fail_entry(x, to->name, "is a hard link");
	to->link = to->type == AE_IFLNK ? archive_entry_symlink(e) : NULL;
	if (to->type != AE_IFREG && to->type != AE_IFDIR && !(to->link && *to->link))
		return fail_entry(x, to->name, "is neither a file nor a folder nor a link");
	to->bytes = to->type == AE_IFREG && bytes > 0 ? (uint64_t)bytes : 0;
	/* A sparse file that is larger than what the tar has of it, too. */
	if (bytes < 0 || to->bytes > x->source->size - x->bytes)
		return fail_entry(x, to->name, "has more bytes than the tar");
	x->bytes += to->bytes;
	to->perm = archive_entry_perm(e) & 0777;
	to->mtime = (struct timespec){ archive_entry_mtime(e), archive_entry_mtime_nsec(e) };
	return KVARC_OK;
}

/* ----- writing ------------------------------------------------ */

/* Opens the folder of a name, making what is missing; *base: its last component. -1: errno. */
static int open_parent(struct extracting *x, struct extracted *e, const char **base)
{
	int fd = fcntl(x->fd, F_DUPFD_CLOEXEC, 3);
	char *p = e->name, *slash;
	while (fd >= 0 && (slash = strchr(p, '/')) != NULL) {
		int next = -1;
		*slash = 0;
		if (mkdirat(fd, p, 0700) == 0 || errno == EEXIST)
			next = openat(fd, p, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		const int error = errno;
		*slash = '/';
		close(fd);
		errno = error;
		fd = next;
		p = slash + 1;
	}
	*base = p;
	return fd;
}

static kvarc_ret write_data(struct extracting *x, const struct extracted *e, int fd)
{
	uint64_t at = 0;
	while (at < e->bytes) {
		la_ssize_t n = archive_read_data(x->tar, x->data, KVI_WORKSPACE_BLOCK);
		if (n <= 0)
			return fail_tar(x);
		for (la_ssize_t done = 0; done < n;) {
			ssize_t k = write(fd, x->data + done, (size_t)(n - done));
			if (k < 0 && errno == EINTR)
				continue;
			if (k <= 0)
				return fail_path(x, "write", e->name);
			done += k;
		}
		at += (uint64_t)n;
	}
	return KVARC_OK;
}

static kvarc_ret write_file(struct extracting *x, const struct extracted *e, int dir,
                            const char *base)
{
	const struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, e->mtime };
	int fd = openat(dir, base, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return fail_path(x, "make", e->name);
	kvarc_ret ret = write_data(x, e, fd);
	if (!ret && (fchmod(fd, e->perm) != 0 || futimens(fd, times) != 0))
		ret = fail_path(x, "set mode and time of", e->name);
	if (close(fd) != 0 && !ret)
		ret = fail_path(x, "write", e->name);
	x->w.result->files += !ret;
	x->w.result->file_bytes += ret ? 0 : e->bytes;
	return ret;
}

static kvarc_ret write_folder(struct extracting *x, const struct extracted *e, int dir,
                              const char *base)
{
	if (mkdirat(dir, base, 0700) != 0 && errno != EEXIST)
		return fail_path(x, "make", e->name);
	int fd = openat(dir, base, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return fail_path(x, "make", e->name);
	const bool good = fchmod(fd, e->perm | 0700) == 0;
	kvarc_ret ret = good ? KVARC_OK : fail_path(x, "set the mode of", e->name);
	close(fd);
	x->w.result->folders += !ret;
	return ret;
}

static kvarc_ret write_entry(struct extracting *x, struct extracted *e)
{
	const char *base;
	int dir = open_parent(x, e, &base);
	kvarc_ret ret = KVARC_OK;
	if (dir < 0)
		return fail_path(x, "make the folder of", e->name);
	if (e->type != AE_IFDIR && x->w.options.replace && unlinkat(dir, base, 0) != 0 &&
	    errno != ENOENT)
		ret = fail_path(x, "replace", e->name);
	if (!ret && e->type == AE_IFDIR)
		ret = write_folder(x, e, dir, base);
	else if (!ret && e->type == AE_IFREG)
		ret = write_file(x, e, dir, base);
	else if (!ret && symlinkat(e->link, dir, base) != 0)
		ret = fail_path(x, "make the link", e->name);
	else if (!ret)
		x->w.result->links++;
	close(dir);
	return ret;
}

/* ----- all of it ------------------------------------------------ */

/* Goes through all entries; write: makes them. */
static kvarc_ret each_entry(struct extracting *x, bool write)
{
	struct archive_entry *entry;
	struct extracted e;
	kvarc_ret ret = KVARC_OK;
	x->offset = x->bytes = 0;
	x->tar = archive_read_new();
	if (!x->tar || archive_read_support_format_tar(x->tar) != ARCHIVE_OK ||
	    archive_read_open(x->tar, x, NULL, read_block, NULL) != ARCHIVE_OK)
		ret = fail_tar(x);
	while (!ret) {
		const int got = archive_read_next_header(x->tar, &entry);
		if (got == ARCHIVE_EOF)
			break;
		/* A warning is about names that are not valid in the locale: they are bytes. */
		ret = got < ARCHIVE_WARN ? fail_tar(x) : check_entry(x, entry, &e);
		if (!ret && write)
			ret = write_entry(x, &e);
		else if (!ret && archive_read_data_skip(x->tar) < ARCHIVE_WARN)
			ret = fail_tar(x);
	}
	if (x->tar)
		(void)archive_read_free(x->tar);
	x->tar = NULL;
	return ret;
}

static bool is_empty(int fd)
{
	int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = copy < 0 ? NULL : fdopendir(copy);
	size_t n = 0;
	if (!dir && copy >= 0)
		close(copy);
	while (dir && n < 3 && readdir(dir))
		n++;
	if (dir)
		closedir(dir);
	return dir && n <= 2;
}

static kvarc_ret open_target(struct extracting *x, const char *folder)
{
	if (mkdir(folder, 0700) != 0 && errno != EEXIST)
		return fail_path(x, "make", folder);
	x->fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (x->fd < 0)
		return fail_path(x, "open", folder);
	if (!x->w.options.replace && !is_empty(x->fd))
		return kvi_fail(x->w.error, KVARC_OPTIONS,
		                "workspace: '%.200s' is not empty; nothing was extracted",
		                folder);
	return KVARC_OK;
}

kvarc_ret kvarc_workspace_extract(const kvarc_source *source, const char *folder,
                                  const kvarc_workspace_options *options,
                                  kvarc_workspace_result *result)
{
	static const char call[] = "kvarc_workspace_extract";
	struct extracting x = { .source = source, .fd = -1 };
	kvarc_ret ret = kvi_workspace_begin(&x.w, call, options, result);
	if (!ret && (!folder || !source || !source->read || source->size == KVARC_UNKNOWN))
		ret = kvi_fail(x.w.error, KVARC_PROG,
		               "%s: give a folder and a source of known size", call);
	if (ret)
		return ret;
	x.block = kvi_malloc(&x.w.alloc, KVI_WORKSPACE_BLOCK);
	x.data = kvi_malloc(&x.w.alloc, KVI_WORKSPACE_BLOCK);
	if (!x.block || !x.data)
		ret = kvi_fail_alloc(x.w.error, &x.w.alloc);
	if (!ret)
		ret = each_entry(&x, false);
	if (!ret)
		ret = open_target(&x, folder);
	if (!ret)
		ret = each_entry(&x, true);
	if (x.fd >= 0)
		close(x.fd);
	kvi_free(&x.w.alloc, x.block);
	kvi_free(&x.w.alloc, x.data);
	return ret;
}

#else

kvarc_ret kvarc_workspace_extract(const kvarc_source *source, const char *folder,
                                  const kvarc_workspace_options *options,
                                  kvarc_workspace_result *result)
{
	(void)source, (void)folder, (void)result;
	return kvi_workspace_without(options);
}

#endif
