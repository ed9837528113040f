/* SPDX-License-Identifier: BSD-3-Clause */
/* workspace_pack.c - a folder becomes a pax tar, the same one for the same files */
#include "config.h"

#include "workspace_tar.h"

#ifdef HAVE_LIBARCHIVE

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/libarchive.h"
#include "util/list.h"

/* A folder on its way into a tar. */
struct packing_folder {
	struct kvi_workspace w;
	const kvarc_sink *sink;
	uint64_t offset;
	struct archive *tar;
	uint8_t *block;
	struct kvi_list left_out; /* struct file_id */
	char path[KVI_WORKSPACE_PATH];
	size_t n; /* bytes of path */
};

/* A file, whatever its name. */
struct file_id {
	dev_t dev;
	ino_t ino;
};

static kvarc_ret fail_path(struct packing_folder *x, const char *what)
{
	return kvi_fail(x->w.error, errno == ENOMEM ? KVARC_MEM : KVARC_IO,
	                "workspace: cannot %s '%s': %s", what, x->path, strerror(errno));
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

static kvarc_ret fail_tar(struct packing_folder *x)
{
	const char *why = x->tar ? archive_error_string(x->tar) : NULL;
	return kvi_fail(x->w.error, KVARC_IO, "workspace: writing its tar at '%s': %s", x->path,
	                why ? why : "the output cannot be written");
}

/* ----- names ------------------------------------------------ */

/* Appends a component; false: the path is too long. */
static bool enter(struct packing_folder *x, const char *name)
{
	const size_t n = strlen(name);
	if (x->n + n + 2 > sizeof x->path)
		return false;
	if (x->n)
		x->path[x->n++] = '/';
	memcpy(x->path + x->n, name, n + 1);
	x->n += n;
	return true;
}

static void leave(struct packing_folder *x, size_t n)
{
	x->n = n;
	x->path[n] = 0;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void free_names(struct packing_folder *x, struct kvi_list *names)
{
	for (size_t i = 0; i < names->n; i++)
		kvi_free(&x->w.alloc, *KVI_LIST(char *, *names, i));
	kvi_free(&x->w.alloc, names->p);
}

static kvarc_ret add_name(struct packing_folder *x, struct kvi_list *names, const char *name)
{
	const size_t n = strlen(name) + 1;
	char **to = kvi_list_add(names, &x->w.alloc, sizeof *to);
	if (to)
		*to = kvi_malloc(&x->w.alloc, n);
	if (!to || !*to) {
		names->n -= to != NULL;
		return kvi_fail_alloc(x->w.error, &x->w.alloc);
	}
	memcpy(*to, name, n);
	return KVARC_OK;
}

/* All names of a folder but "." and "..", in order. dir is closed. */
static kvarc_ret read_names(struct packing_folder *x, int fd, struct kvi_list *names)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	DIR *dir = copy < 0 ? NULL : fdopendir(copy);
	const struct dirent *entry;
	kvarc_ret ret = KVARC_OK;
	if (!dir) {
		ret = fail_path(x, "open");
		if (copy >= 0)
			close(copy);
		return ret;
	}
	for (errno = 0; !ret && (entry = readdir(dir)); errno = 0)
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			ret = add_name(x, names, entry->d_name);
	if (!ret && errno)
		ret = fail_path(x, "read");
	closedir(dir);
	if (names->n)
		qsort(names->p, names->n, sizeof(char *), by_text);
	return ret;
}

/* ----- entries ------------------------------------------------ */

/* link: NULL, or where it leads. */
static kvarc_ret put_header(struct packing_folder *x, const struct stat *st, const char *link)
{
	struct archive_entry *e = archive_entry_new();
	if (!e)
		return kvi_fail(x->w.error, KVARC_MEM, "workspace: no memory");
	archive_entry_set_pathname(e, x->path);
	archive_entry_set_filetype(e, st->st_mode & S_IFMT);
	archive_entry_set_perm(e, link ? 0777 : st->st_mode & 0777);
	archive_entry_set_size(e, S_ISREG(st->st_mode) ? st->st_size : 0);
	if (link)
		archive_entry_set_symlink(e, link);
	if (S_ISREG(st->st_mode))
		archive_entry_set_mtime(e, st->st_mtim.tv_sec, st->st_mtim.tv_nsec);
	/* A warning is about names that are not valid in the locale: they are bytes. */
	const bool good = archive_write_header(x->tar, e) >= ARCHIVE_WARN;
	archive_entry_free(e);
	return good ? KVARC_OK : fail_tar(x);
}

static kvarc_ret copy_file(struct packing_folder *x, int fd, uint64_t bytes)
{
	uint64_t at = 0;
	while (at < bytes) {
		const uint64_t left = bytes - at;
		ssize_t n = read(fd, x->block,
		                 left < KVI_WORKSPACE_BLOCK ? (size_t)left : KVI_WORKSPACE_BLOCK);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return fail_path(x, "read");
		if (n == 0)
			break;
		if (archive_write_data(x->tar, x->block, (size_t)n) != n)
			return fail_tar(x);
		at += (uint64_t)n;
	}
	return at == bytes ? KVARC_OK
	                   : kvi_fail(x->w.error, KVARC_IO,
	                              "workspace: '%s' became shorter while it was packed",
	                              x->path);
}

static kvarc_ret put_file(struct packing_folder *x, int dir, const char *name)
{
	struct stat st, after;
	int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return fail_path(x, "open");
	kvarc_ret ret = fstat(fd, &st) == 0 ? KVARC_OK : fail_path(x, "look at");
	if (!ret && !S_ISREG(st.st_mode))
		ret = kvi_fail(x->w.error, KVARC_IO, "workspace: '%s' was replaced meanwhile",
		               x->path);
	if (!ret)
		ret = put_header(x, &st, NULL);
	if (!ret)
		ret = copy_file(x, fd, (uint64_t)st.st_size);
	if (!ret && (fstat(fd, &after) != 0 || after.st_size != st.st_size ||
	             after.st_mtim.tv_sec != st.st_mtim.tv_sec ||
	             after.st_mtim.tv_nsec != st.st_mtim.tv_nsec))
		ret = kvi_fail(x->w.error, KVARC_IO,
		               "workspace: '%s' changed while it was packed; try again", x->path);
	close(fd);
	x->w.result->files += !ret;
	x->w.result->file_bytes += ret ? 0 : (uint64_t)st.st_size;
	return ret;
}

static kvarc_ret put_link(struct packing_folder *x, int dir, const char *name,
                          const struct stat *st)
{
	char to[KVI_WORKSPACE_PATH];
	ssize_t n = readlinkat(dir, name, to, sizeof to);
	if (n < 0 || n == (ssize_t)sizeof to)
		return fail_path(x, "read the link");
	to[n] = 0;
	x->w.result->links++;
	return put_header(x, st, to);
}

static bool is_left_out(const struct packing_folder *x, const struct stat *st)
{
	for (size_t i = 0; i < x->left_out.n; i++) {
		const struct file_id *id = KVI_LIST(struct file_id, x->left_out, i);
		if (id->dev == st->st_dev && id->ino == st->st_ino)
			return true;
	}
	return false;
}

static void note_left_out(struct packing_folder *x)
{
	char text[KVI_WORKSPACE_PATH + 64];
	x->w.result->left_out++;
	snprintf(text, sizeof text, "'%s' is a socket, pipe or device: it is left out", x->path);
	if (x->w.options.note)
		x->w.options.note(x->w.options.note_opaque, text);
}

/* ----- folders ------------------------------------------------ */

/* A folder that is open, by its names: on a stack of its own, as depth is the user's. */
struct level {
	int fd;
	struct kvi_list names;
	size_t next; /* name in hand */
	size_t n;    /* bytes of the path */
};

struct levels {
	struct level at[KVI_WORKSPACE_DEPTH];
	size_t n;
};

/* Opens a folder; it is entered also on failure, and closed by close_level. */
static kvarc_ret open_level(struct packing_folder *x, struct levels *l, int dir, const char *name)
{
	if (l->n == KVI_WORKSPACE_DEPTH)
		return kvi_fail(x->w.error, KVARC_OPTIONS,
		                "workspace: '%s' is more than %d folders deep", x->path,
		                KVI_WORKSPACE_DEPTH);
	struct level *to = &l->at[l->n++];
	*to = (struct level){ .n = x->n };
	to->fd = openat(dir, name,
	                O_RDONLY | O_DIRECTORY | O_CLOEXEC | (l->n > 1 ? O_NOFOLLOW : 0));
	return to->fd < 0 ? fail_path(x, "open") : read_names(x, to->fd, &to->names);
}

static void close_level(struct packing_folder *x, struct levels *l)
{
	struct level *last = &l->at[--l->n];
	free_names(x, &last->names);
	if (last->fd >= 0)
		close(last->fd);
}

static kvarc_ret put_entry(struct packing_folder *x, struct levels *l)
{
	struct level *last = &l->at[l->n - 1];
	const char *name = *KVI_LIST(char *, last->names, last->next++);
	struct stat st;
	leave(x, last->n);
	if (!kvi_workspace_name_safe(name) || !enter(x, name))
		return kvi_fail(x->w.error, KVARC_OPTIONS,
		                "workspace: a name below '%s' has a control character, or is too "
		                "long: rename it",
		                x->path);
	if (fstatat(last->fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
		return fail_path(x, "look at");
	if (is_left_out(x, &st))
		return KVARC_OK;
	if (S_ISREG(st.st_mode))
		return put_file(x, last->fd, name);
	if (S_ISLNK(st.st_mode))
		return put_link(x, last->fd, name, &st);
	if (!S_ISDIR(st.st_mode)) {
		note_left_out(x);
		return KVARC_OK;
	}
	x->w.result->folders++;
	kvarc_ret ret = put_header(x, &st, NULL);
	return ret ? ret : open_level(x, l, last->fd, name);
}

static kvarc_ret put_all(struct packing_folder *x, const char *folder)
{
	struct levels *l = kvi_calloc(&x->w.alloc, 1, sizeof *l);
	if (!l)
		return kvi_fail_alloc(x->w.error, &x->w.alloc);
	snprintf(x->path, sizeof x->path, "%s", folder);
	kvarc_ret ret = open_level(x, l, AT_FDCWD, folder);
	x->path[0] = 0;
	while (!ret && l->n) {
		const struct level *last = &l->at[l->n - 1];
		if (last->next == last->names.n)
			close_level(x, l);
		else
			ret = put_entry(x, l);
	}
	while (l->n)
		close_level(x, l);
	kvi_free(&x->w.alloc, l);
	return ret;
}

static kvarc_ret find_left_out(struct packing_folder *x)
{
	for (size_t i = 0; i < x->w.options.n_exclude; i++) {
		struct stat st;
		if (!x->w.options.exclude[i] || stat(x->w.options.exclude[i], &st) != 0)
			continue;
		struct file_id *to = kvi_list_add(&x->left_out, &x->w.alloc, sizeof *to);
		if (!to)
			return kvi_fail_alloc(x->w.error, &x->w.alloc);
		*to = (struct file_id){ st.st_dev, st.st_ino };
	}
	return KVARC_OK;
}

static kvarc_ret open_tar(struct packing_folder *x)
{
	x->block = kvi_malloc(&x->w.alloc, KVI_WORKSPACE_BLOCK);
	if (!x->block)
		return kvi_fail_alloc(x->w.error, &x->w.alloc);
	x->tar = archive_write_new();
	if (!x->tar || archive_write_set_format_pax(x->tar) != ARCHIVE_OK ||
	    archive_write_set_format_option(x->tar, "pax", "hdrcharset", "BINARY") != ARCHIVE_OK ||
	    archive_write_set_bytes_per_block(x->tar, KVI_WORKSPACE_BLOCK) != ARCHIVE_OK ||
	    archive_write_set_bytes_in_last_block(x->tar, 1) != ARCHIVE_OK ||
	    archive_write_open(x->tar, x, NULL, write_block, NULL) != ARCHIVE_OK)
		return fail_tar(x);
	return KVARC_OK;
}

kvarc_ret kvarc_workspace_pack(const char *folder, const kvarc_sink *sink,
                               const kvarc_workspace_options *options,
                               kvarc_workspace_result *result)
{
	struct packing_folder x = { .sink = sink };
	kvarc_ret ret = kvi_workspace_begin(&x.w, "kvarc_workspace_pack", options, result);
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
		ret = fail_tar(&x);
	if (x.tar)
		(void)archive_write_free(x.tar);
	kvi_free(&x.w.alloc, x.block);
	kvi_free(&x.w.alloc, x.left_out.p);
	return ret;
}

#else

kvarc_ret kvarc_workspace_pack(const char *folder, const kvarc_sink *sink,
                               const kvarc_workspace_options *options,
                               kvarc_workspace_result *result)
{
	(void)folder, (void)sink, (void)result;
	return kvi_workspace_without(options);
}

#endif
