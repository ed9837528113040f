/* SPDX-License-Identifier: BSD-3-Clause */
/* workspace_tar.c - a folder as a pax tar, the same one for the same files, and back */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "import_internal.h"
#include "util/arguments.h"
#include "util/error.h"
#include "util/libarchive.h"
#include "util/list.h"

#ifdef HAVE_LIBARCHIVE

/* ==== What packing and extracting a workspace share ==== */

/* Limits and buffers. */
enum { WORKSPACE_PATH = 4096, WORKSPACE_DEPTH = 64, WORKSPACE_BLOCK = 1 << 18 };

/* A call on its way. */
struct workspace_walk {
	kvarc_workspace_options options;
	kvarc_error *error;
	kvarc_workspace_result *result, unused; /* never NULL */
	struct kvi_alloc alloc;
};

/* Takes options and result, which may be NULL. *w must not move. Returns OK, PROG,
 * OPTIONS (libarchive is not there). */
static kvarc_ret workspace_begin(struct workspace_walk *w, const char *call,
                                 const kvarc_workspace_options *options,
                                 kvarc_workspace_result *result)
{
	static const kvarc_workspace_options defaults = KVARC_WORKSPACE_OPTIONS_INIT;
	w->options = options ? *options : defaults;
	w->error = w->options.common.error;
	w->result = result ? result : &w->unused;
	memset(w->result, 0, sizeof *w->result);
	kvi_alloc_init(&w->alloc, w->options.common.allocator, w->options.common.memlimit);
	kvarc_ret ret = kvi_check_common(&w->options.common);
	if (!ret)
		ret = KVI_CHECK_RESERVED(w->error, call, "kvarc_workspace_options", &w->options);
	if (!ret && w->options.n_exclude && !w->options.exclude)
		ret = kvi_fail(w->error, KVARC_PROG, "%s: exclude is NULL", call);
	if (!ret && !kvi_libarchive(w->error))
		ret = KVARC_OPTIONS;
	return ret;
}

/* A component of a path, n bytes. */
static bool is_safe(const char *p, size_t n)
{
	if (n == 0 || n > 255 || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
		return false;
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)p[i] < 0x20 || p[i] == 0x7f)
			return false;
	return true;
}

/* Whether a name of an entry may become a file (spec 10.1). */
static bool workspace_name_safe(const char *name)
{
	const size_t bytes = strlen(name);
	size_t depth = 0;
	if (bytes >= WORKSPACE_PATH)
		return false;
	while (depth++ <= WORKSPACE_DEPTH) {
		const size_t n = strcspn(name, "/");
		if (!is_safe(name, n))
			return false;
		if (!name[n])
			return true;
		name += n + 1;
	}
	return false;
}

/* ==== A folder becomes a pax tar, the same one for the same files ==== */

/* A folder on its way into a tar. */
struct packing_folder {
	struct workspace_walk w;
	const kvarc_sink *sink;
	uint64_t offset;
	struct archive *tar;
	uint8_t *block;
	struct kvi_list left_out; /* struct file_id */
	char path[WORKSPACE_PATH];
	size_t n; /* bytes of path */
};

/* A file, whatever its name. */
struct file_id {
	dev_t dev;
	ino_t ino;
};

static kvarc_ret fail_pack_path(struct packing_folder *folder, const char *what)
{
	return kvi_fail(folder->w.error, errno == ENOMEM ? KVARC_MEM : KVARC_IO,
	                "workspace: cannot %s '%s': %s", what, folder->path, strerror(errno));
}

static la_ssize_t write_block(struct archive *tar, void *opaque, const void *p, size_t n)
{
	struct packing_folder *x = opaque;
	(void)tar;
	if (x->sink->write(x->sink->opaque, p, n, x->offset) != 0)
		return -1;
	x->offset += n;
	return (la_ssize_t)n;
}

static kvarc_ret fail_pack_tar(struct packing_folder *folder)
{
	const char *why = folder->tar ? archive_error_string(folder->tar) : NULL;
	return kvi_fail(folder->w.error, KVARC_IO, "workspace: writing its tar at '%s': %s",
	                folder->path, why ? why : "the output cannot be written");
}

/* ----- names ------------------------------------------------ */

/* Appends a component; false: the path is too long. */
static bool enter(struct packing_folder *folder, const char *name)
{
	const size_t n = strlen(name);
	if (folder->n + n + 2 > sizeof folder->path)
		return false;
	if (folder->n)
		folder->path[folder->n++] = '/';
	memcpy(folder->path + folder->n, name, n + 1);
	folder->n += n;
	return true;
}

static void leave(struct packing_folder *folder, size_t n)
{
	folder->n = n;
	folder->path[n] = 0;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void free_names(struct packing_folder *folder, struct kvi_list *names)
{
	for (size_t i = 0; i < names->n; i++)
		kvi_free(&folder->w.alloc, *KVI_LIST(char *, *names, i));
	kvi_free(&folder->w.alloc, names->p);
}

static kvarc_ret add_name(struct packing_folder *folder, struct kvi_list *names, const char *name)
{
	const size_t n = strlen(name) + 1;
	char **to = kvi_list_add(names, &folder->w.alloc, sizeof *to);
	if (to)
		*to = kvi_malloc(&folder->w.alloc, n);
	if (!to || !*to) {
		names->n -= to != NULL;
		return kvi_fail_alloc(folder->w.error, &folder->w.alloc);
	}
	memcpy(*to, name, n);
	return KVARC_OK;
}

/* Reads all names of a folder but "." and "..", in order. */
static kvarc_ret read_names(struct packing_folder *folder, int fd, struct kvi_list *names)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	DIR *dir = copy < 0 ? NULL : fdopendir(copy);
	const struct dirent *entry;
	kvarc_ret ret = KVARC_OK;
	if (!dir) {
		ret = fail_pack_path(folder, "open");
		if (copy >= 0)
			close(copy);
		return ret;
	}
	for (errno = 0; !ret && (entry = readdir(dir)); errno = 0)
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			ret = add_name(folder, names, entry->d_name);
	if (!ret && errno)
		ret = fail_pack_path(folder, "read");
	closedir(dir);
	if (names->n)
		qsort(names->p, names->n, sizeof(char *), by_text);
	return ret;
}

/* ----- entries ------------------------------------------------ */

/* Writes the header of an entry. link: target of a symbolic link, or NULL. */
static kvarc_ret put_header(struct packing_folder *folder, const struct stat *st, const char *link)
{
	struct archive_entry *e = archive_entry_new();
	if (!e)
		return kvi_fail(folder->w.error, KVARC_MEM, "workspace: no memory");
	archive_entry_set_pathname(e, folder->path);
	archive_entry_set_filetype(e, st->st_mode & S_IFMT);
	archive_entry_set_perm(e, link ? 0777 : st->st_mode & 0777);
	archive_entry_set_size(e, S_ISREG(st->st_mode) ? st->st_size : 0);
	if (link)
		archive_entry_set_symlink(e, link);
	if (S_ISREG(st->st_mode))
		archive_entry_set_mtime(e, st->st_mtim.tv_sec, st->st_mtim.tv_nsec);
	/* A warning is about names that are not valid in the locale: they are bytes. */
	const bool good = archive_write_header(folder->tar, e) >= ARCHIVE_WARN;
	archive_entry_free(e);
	return good ? KVARC_OK : fail_pack_tar(folder);
}

static kvarc_ret copy_file(struct packing_folder *folder, int fd, uint64_t bytes)
{
	uint64_t at = 0;
	while (at < bytes) {
		const uint64_t left = bytes - at;
		ssize_t n = read(fd, folder->block,
		                 left < WORKSPACE_BLOCK ? (size_t)left : WORKSPACE_BLOCK);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return fail_pack_path(folder, "read");
		if (n == 0)
			break;
		if (archive_write_data(folder->tar, folder->block, (size_t)n) != n)
			return fail_pack_tar(folder);
		at += (uint64_t)n;
	}
	return at == bytes ? KVARC_OK
	                   : kvi_fail(folder->w.error, KVARC_IO,
	                              "workspace: '%s' became shorter while it was packed",
	                              folder->path);
}

static kvarc_ret put_file(struct packing_folder *folder, int dir, const char *name)
{
	struct stat st, after;
	int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return fail_pack_path(folder, "open");
	kvarc_ret ret = fstat(fd, &st) == 0 ? KVARC_OK : fail_pack_path(folder, "look at");
	if (!ret && !S_ISREG(st.st_mode))
		ret = kvi_fail(folder->w.error, KVARC_IO, "workspace: '%s' was replaced meanwhile",
		               folder->path);
	if (!ret)
		ret = put_header(folder, &st, NULL);
	if (!ret)
		ret = copy_file(folder, fd, (uint64_t)st.st_size);
	if (!ret && (fstat(fd, &after) != 0 || after.st_size != st.st_size ||
	             after.st_mtim.tv_sec != st.st_mtim.tv_sec ||
	             after.st_mtim.tv_nsec != st.st_mtim.tv_nsec))
		ret = kvi_fail(folder->w.error, KVARC_IO,
		               "workspace: '%s' changed while it was packed; try again",
		               folder->path);
	close(fd);
	folder->w.result->files += !ret;
	folder->w.result->file_bytes += ret ? 0 : (uint64_t)st.st_size;
	return ret;
}

static kvarc_ret put_link(struct packing_folder *folder, int dir, const char *name,
                          const struct stat *st)
{
	char to[WORKSPACE_PATH];
	ssize_t n = readlinkat(dir, name, to, sizeof to);
	if (n < 0 || n == (ssize_t)sizeof to)
		return fail_pack_path(folder, "read the link");
	to[n] = 0;
	folder->w.result->links++;
	return put_header(folder, st, to);
}

static bool is_left_out(const struct packing_folder *folder, const struct stat *st)
{
	for (size_t i = 0; i < folder->left_out.n; i++) {
		const struct file_id *id = KVI_LIST(struct file_id, folder->left_out, i);
		if (id->dev == st->st_dev && id->ino == st->st_ino)
			return true;
	}
	return false;
}

static void note_left_out(struct packing_folder *folder)
{
	char text[WORKSPACE_PATH + 64];
	folder->w.result->left_out++;
	snprintf(text, sizeof text, "'%s' is a socket, pipe or device: it is left out",
	         folder->path);
	if (folder->w.options.note)
		folder->w.options.note(folder->w.options.note_opaque, text);
}

/* ----- folders ------------------------------------------------ */

/* A folder that is open, by its names: on a stack of its own, as depth is the user's. */
struct level {
	int fd;
	struct kvi_list names;
	size_t next; /* index of the current name */
	size_t n;    /* bytes of the path */
};

struct levels {
	struct level at[WORKSPACE_DEPTH];
	size_t n;
};

/* Opens a folder; it is entered also on failure, and closed by close_level. */
static kvarc_ret open_level(struct packing_folder *folder, struct levels *levels, int dir,
                            const char *name)
{
	if (levels->n == WORKSPACE_DEPTH)
		return kvi_fail(folder->w.error, KVARC_OPTIONS,
		                "workspace: '%s' is more than %d folders deep", folder->path,
		                WORKSPACE_DEPTH);
	struct level *to = &levels->at[levels->n++];
	*to = (struct level){ .n = folder->n };
	to->fd = openat(dir, name,
	                O_RDONLY | O_DIRECTORY | O_CLOEXEC | (levels->n > 1 ? O_NOFOLLOW : 0));
	return to->fd < 0 ? fail_pack_path(folder, "open") : read_names(folder, to->fd, &to->names);
}

static void close_level(struct packing_folder *folder, struct levels *levels)
{
	struct level *last = &levels->at[--levels->n];
	free_names(folder, &last->names);
	if (last->fd >= 0)
		close(last->fd);
}

static kvarc_ret put_entry(struct packing_folder *folder, struct levels *levels)
{
	struct level *last = &levels->at[levels->n - 1];
	const char *name = *KVI_LIST(char *, last->names, last->next++);
	struct stat st;
	leave(folder, last->n);
	if (!workspace_name_safe(name) || !enter(folder, name))
		return kvi_fail(folder->w.error, KVARC_OPTIONS,
		                "workspace: a name below '%s' has a control character, or is too "
		                "long: rename it",
		                folder->path);
	if (fstatat(last->fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
		return fail_pack_path(folder, "look at");
	if (is_left_out(folder, &st))
		return KVARC_OK;
	if (S_ISREG(st.st_mode))
		return put_file(folder, last->fd, name);
	if (S_ISLNK(st.st_mode))
		return put_link(folder, last->fd, name, &st);
	if (!S_ISDIR(st.st_mode)) {
		note_left_out(folder);
		return KVARC_OK;
	}
	folder->w.result->folders++;
	kvarc_ret ret = put_header(folder, &st, NULL);
	return ret ? ret : open_level(folder, levels, last->fd, name);
}

static kvarc_ret put_all(struct packing_folder *packing_folder, const char *folder)
{
	struct levels *l = kvi_calloc(&packing_folder->w.alloc, 1, sizeof *l);
	if (!l)
		return kvi_fail_alloc(packing_folder->w.error, &packing_folder->w.alloc);
	snprintf(packing_folder->path, sizeof packing_folder->path, "%s", folder);
	kvarc_ret ret = open_level(packing_folder, l, AT_FDCWD, folder);
	packing_folder->path[0] = 0;
	while (!ret && l->n) {
		const struct level *last = &l->at[l->n - 1];
		if (last->next == last->names.n)
			close_level(packing_folder, l);
		else
			ret = put_entry(packing_folder, l);
	}
	while (l->n)
		close_level(packing_folder, l);
	kvi_free(&packing_folder->w.alloc, l);
	return ret;
}

static kvarc_ret find_left_out(struct packing_folder *folder)
{
	for (size_t i = 0; i < folder->w.options.n_exclude; i++) {
		struct stat st;
		if (!folder->w.options.exclude[i] || stat(folder->w.options.exclude[i], &st) != 0)
			continue;
		struct file_id *to = kvi_list_add(&folder->left_out, &folder->w.alloc, sizeof *to);
		if (!to)
			return kvi_fail_alloc(folder->w.error, &folder->w.alloc);
		*to = (struct file_id){ st.st_dev, st.st_ino };
	}
	return KVARC_OK;
}

static kvarc_ret open_tar(struct packing_folder *folder)
{
	folder->block = kvi_malloc(&folder->w.alloc, WORKSPACE_BLOCK);
	if (!folder->block)
		return kvi_fail_alloc(folder->w.error, &folder->w.alloc);
	folder->tar = archive_write_new();
	if (!folder->tar || archive_write_set_format_pax(folder->tar) != ARCHIVE_OK ||
	    archive_write_set_format_option(folder->tar, "pax", "hdrcharset", "BINARY") !=
	            ARCHIVE_OK ||
	    archive_write_set_bytes_per_block(folder->tar, WORKSPACE_BLOCK) != ARCHIVE_OK ||
	    archive_write_set_bytes_in_last_block(folder->tar, 1) != ARCHIVE_OK ||
	    archive_write_open(folder->tar, folder, NULL, write_block, NULL) != ARCHIVE_OK)
		return fail_pack_tar(folder);
	return KVARC_OK;
}

kvarc_ret kvarc_workspace_pack(const char *folder, const kvarc_sink *sink,
                               const kvarc_workspace_options *options,
                               kvarc_workspace_result *result)
{
	struct packing_folder x = { .sink = sink };
	kvarc_ret ret = workspace_begin(&x.w, "kvarc_workspace_pack", options, result);
	if (!ret && (!folder || !sink || !sink->write))
		ret = kvi_fail(x.w.error, KVARC_PROG, "kvarc_workspace_pack: an argument is NULL");
	if (ret)
		return ret;
	ret = find_left_out(&x);
	if (!ret)
		ret = open_tar(&x);
	if (!ret)
		ret = put_all(&x, folder);
	if (!ret && archive_write_close(x.tar) != ARCHIVE_OK)
		ret = fail_pack_tar(&x);
	if (x.tar)
		(void)archive_write_free(x.tar);
	kvi_free(&x.w.alloc, x.block);
	kvi_free(&x.w.alloc, x.left_out.p);
	return ret;
}

/* ==== A tar of a workspace becomes files, inside of one folder alone ==== */

/*
 * Two passes: the first one looks at all entries, the second one writes. Each component of a path
 * is opened in the one above without following links, so that no entry leads out of the folder,
 * whatever entries before it have made.
 */

/* A tar on its way into a folder. */
struct extracting {
	struct workspace_walk w;
	const kvarc_source *source;
	uint64_t offset;
	struct archive *tar;
	uint8_t *block, *data;
	int fd; /* descriptor of the folder; -1: not open yet */
	uint64_t bytes;
};

static la_ssize_t read_block(struct archive *tar, void *opaque, const void **p)
{
	struct extracting *x = opaque;
	const uint64_t left = x->source->size - x->offset;
	int64_t n = left ? x->source->read(x->source->opaque, x->block,
	                                   left < WORKSPACE_BLOCK ? (size_t)left : WORKSPACE_BLOCK,
	                                   x->offset)
	                 : 0;
	(void)tar;
	*p = x->block;
	x->offset += n > 0 ? (uint64_t)n : 0;
	return (la_ssize_t)n;
}

static kvarc_ret fail_extract_tar(struct extracting *extracting)
{
	const char *why = extracting->tar ? archive_error_string(extracting->tar) : NULL;
	return kvi_fail(extracting->w.error, KVARC_DATA, "workspace: its tar is damaged: %s",
	                why ? why : "it ends too soon");
}

static kvarc_ret fail_entry(struct extracting *extracting, const char *name, const char *why)
{
	return kvi_fail(extracting->w.error, KVARC_DATA,
	                "workspace: entry '%.200s' %s: nothing was extracted", name, why);
}

static kvarc_ret fail_extract_path(struct extracting *extracting, const char *what,
                                   const char *path)
{
	const char *why = errno == ELOOP || errno == ENOTDIR
	                          ? "there is a link or a file where a folder must be"
	                          : strerror(errno);
	return kvi_fail(extracting->w.error, errno == ENOMEM ? KVARC_MEM : KVARC_IO,
	                "workspace: cannot %s '%.200s': %s", what, path, why);
}

/* ----- what an entry is ------------------------------------------------ */

/* An entry; name without a slash at its end. */
struct extracted {
	char name[WORKSPACE_PATH];
	mode_t type, perm;
	uint64_t bytes;
	const char *link;
	struct timespec mtime;
};

/* Checks that an entry may be extracted. DATA: it may not. */
static kvarc_ret check_entry(struct extracting *extracting, struct archive_entry *entry,
                             struct extracted *to)
{
	const char *name = archive_entry_pathname(entry);
	const int64_t bytes = archive_entry_size(entry);
	size_t n = name ? strlen(name) : 0;
	if (n == 0 || n >= sizeof to->name)
		return fail_entry(extracting, "", "has no name, or one that is too long");
	memcpy(to->name, name, n + 1);
	to->type = archive_entry_filetype(entry);
	if (to->type == AE_IFDIR && n > 1 && to->name[n - 1] == '/')
		to->name[n - 1] = 0;
	if (!workspace_name_safe(to->name))
		return fail_entry(extracting, "",
		                  "has a name that leads elsewhere or is not valid");
	if (archive_entry_hardlink(entry))
		return fail_entry(extracting, to->name, "is a hard link");
	to->link = to->type == AE_IFLNK ? archive_entry_symlink(entry) : NULL;
	if (to->type != AE_IFREG && to->type != AE_IFDIR && !(to->link && *to->link))
		return fail_entry(extracting, to->name,
		                  "is neither a file nor a folder nor a link");
	to->bytes = to->type == AE_IFREG && bytes > 0 ? (uint64_t)bytes : 0;
	/* A sparse file that is larger than what the tar has of it, too. */
	if (bytes < 0 || to->bytes > extracting->source->size - extracting->bytes)
		return fail_entry(extracting, to->name, "has more bytes than the tar");
	extracting->bytes += to->bytes;
	to->perm = archive_entry_perm(entry) & 0777;
	to->mtime = (struct timespec){ archive_entry_mtime(entry),
		                       archive_entry_mtime_nsec(entry) };
	return KVARC_OK;
}

/* ----- writing ------------------------------------------------ */

/* Opens the folder of a name, making what is missing; *base: its last component. -1: errno. */
static int open_parent(struct extracting *extracting, struct extracted *extracted,
                       const char **base)
{
	int fd = fcntl(extracting->fd, F_DUPFD_CLOEXEC, 3);
	char *p = extracted->name, *slash;
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

static kvarc_ret write_data(struct extracting *extracting, const struct extracted *extracted,
                            int fd)
{
	uint64_t at = 0;
	while (at < extracted->bytes) {
		la_ssize_t n = archive_read_data(extracting->tar, extracting->data,
		                                 WORKSPACE_BLOCK);
		if (n <= 0)
			return fail_extract_tar(extracting);
		for (la_ssize_t done = 0; done < n;) {
			ssize_t k = write(fd, extracting->data + done, (size_t)(n - done));
			if (k < 0 && errno == EINTR)
				continue;
			if (k <= 0)
				return fail_extract_path(extracting, "write", extracted->name);
			done += k;
		}
		at += (uint64_t)n;
	}
	return KVARC_OK;
}

static kvarc_ret write_file(struct extracting *extracting, const struct extracted *extracted,
                            int dir, const char *base)
{
	const struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, extracted->mtime };
	int fd = openat(dir, base, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return fail_extract_path(extracting, "make", extracted->name);
	kvarc_ret ret = write_data(extracting, extracted, fd);
	if (!ret && (fchmod(fd, extracted->perm) != 0 || futimens(fd, times) != 0))
		ret = fail_extract_path(extracting, "set mode and time of", extracted->name);
	if (close(fd) != 0 && !ret)
		ret = fail_extract_path(extracting, "write", extracted->name);
	extracting->w.result->files += !ret;
	extracting->w.result->file_bytes += ret ? 0 : extracted->bytes;
	return ret;
}

static kvarc_ret write_folder(struct extracting *extracting, const struct extracted *extracted,
                              int dir, const char *base)
{
	if (mkdirat(dir, base, 0700) != 0 && errno != EEXIST)
		return fail_extract_path(extracting, "make", extracted->name);
	int fd = openat(dir, base, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return fail_extract_path(extracting, "make", extracted->name);
	const bool good = fchmod(fd, extracted->perm | 0700) == 0;
	kvarc_ret ret = good ? KVARC_OK
	                     : fail_extract_path(extracting, "set the mode of", extracted->name);
	close(fd);
	extracting->w.result->folders += !ret;
	return ret;
}

static kvarc_ret write_entry(struct extracting *extracting, struct extracted *extracted)
{
	const char *base;
	int dir = open_parent(extracting, extracted, &base);
	kvarc_ret ret = KVARC_OK;
	if (dir < 0)
		return fail_extract_path(extracting, "make the folder of", extracted->name);
	if (extracted->type != AE_IFDIR && extracting->w.options.replace &&
	    unlinkat(dir, base, 0) != 0 && errno != ENOENT)
		ret = fail_extract_path(extracting, "replace", extracted->name);
	if (!ret && extracted->type == AE_IFDIR)
		ret = write_folder(extracting, extracted, dir, base);
	else if (!ret && extracted->type == AE_IFREG)
		ret = write_file(extracting, extracted, dir, base);
	else if (!ret && symlinkat(extracted->link, dir, base) != 0)
		ret = fail_extract_path(extracting, "make the link", extracted->name);
	else if (!ret)
		extracting->w.result->links++;
	close(dir);
	return ret;
}

/* ----- all of it ------------------------------------------------ */

/* Goes through all entries; write: makes them. */
static kvarc_ret each_entry(struct extracting *extracting, bool write)
{
	struct archive_entry *entry;
	struct extracted e;
	kvarc_ret ret = KVARC_OK;
	extracting->offset = extracting->bytes = 0;
	extracting->tar = archive_read_new();
	if (!extracting->tar || archive_read_support_format_tar(extracting->tar) != ARCHIVE_OK ||
	    archive_read_open(extracting->tar, extracting, NULL, read_block, NULL) != ARCHIVE_OK)
		ret = fail_extract_tar(extracting);
	while (!ret) {
		const int got = archive_read_next_header(extracting->tar, &entry);
		if (got == ARCHIVE_EOF)
			break;
		/* A warning is about names that are not valid in the locale: they are bytes. */
		ret = got < ARCHIVE_WARN ? fail_extract_tar(extracting)
		                         : check_entry(extracting, entry, &e);
		if (!ret && write)
			ret = write_entry(extracting, &e);
		else if (!ret && archive_read_data_skip(extracting->tar) < ARCHIVE_WARN)
			ret = fail_extract_tar(extracting);
	}
	if (extracting->tar)
		(void)archive_read_free(extracting->tar);
	extracting->tar = NULL;
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

static kvarc_ret open_target(struct extracting *extracting, const char *folder)
{
	if (mkdir(folder, 0700) != 0 && errno != EEXIST)
		return fail_extract_path(extracting, "make", folder);
	extracting->fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (extracting->fd < 0)
		return fail_extract_path(extracting, "open", folder);
	if (!extracting->w.options.replace && !is_empty(extracting->fd))
		return kvi_fail(extracting->w.error, KVARC_OPTIONS,
		                "workspace: '%.200s' is not empty; nothing was extracted", folder);
	return KVARC_OK;
}

kvarc_ret kvarc_workspace_extract(const kvarc_source *source, const char *folder,
                                  const kvarc_workspace_options *options,
                                  kvarc_workspace_result *result)
{
	static const char call[] = "kvarc_workspace_extract";
	struct extracting x = { .source = source, .fd = -1 };
	kvarc_ret ret = workspace_begin(&x.w, call, options, result);
	if (!ret && (!folder || !source || !source->read || source->size == KVARC_UNKNOWN))
		ret = kvi_fail(x.w.error, KVARC_PROG,
		               "%s: give a folder and a source of known size", call);
	if (ret)
		return ret;
	x.block = kvi_malloc(&x.w.alloc, WORKSPACE_BLOCK);
	x.data = kvi_malloc(&x.w.alloc, WORKSPACE_BLOCK);
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

/* Reports that libarchive was not built in. Returns OPTIONS. */
static kvarc_ret workspace_without(const kvarc_workspace_options *options)
{
	(void)kvi_libarchive(options ? options->common.error : NULL);
	return KVARC_OPTIONS;
}

kvarc_ret kvarc_workspace_pack(const char *folder, const kvarc_sink *sink,
                               const kvarc_workspace_options *options,
                               kvarc_workspace_result *result)
{
	(void)folder, (void)sink, (void)result;
	return workspace_without(options);
}

kvarc_ret kvarc_workspace_extract(const kvarc_source *source, const char *folder,
                                  const kvarc_workspace_options *options,
                                  kvarc_workspace_result *result)
{
	(void)source, (void)folder, (void)result;
	return workspace_without(options);
}

#endif
