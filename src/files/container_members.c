/* SPDX-License-Identifier: BSD-3-Clause */
/* container_members.c - the files of a container as items of their own */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "container.h"
#include "member_names.h"
#include "util/error.h"
#include "util/libarchive.h"

/* What members may grow to: more than deflate can do with this many bytes. */
#define EXPANSION_MAX ((uint64_t)1100)

static bool is_file(const struct kvi_listed *x)
{
	return x->m.kind == KVI_MEMBER_STORED || x->m.kind == KVI_MEMBER_DEFLATED;
}

#ifdef HAVE_LIBARCHIVE

enum { BUFFER_BYTES = 64 << 10 };

/* The source as libarchive wants it. */
struct feed {
	const kvarc_source *src;
	uint64_t at;
	uint8_t buf[BUFFER_BYTES];
};

static la_ssize_t feed_read(struct archive *a, void *opaque, const void **buf)
{
	struct feed *f = opaque;
	*buf = f->buf;
	if (f->at >= f->src->size)
		return 0;
	int64_t got = f->src->read(f->src->opaque, f->buf, sizeof f->buf, f->at);
	if (got < 0 || got > BUFFER_BYTES) {
		archive_set_error(a, EIO, "read failed");
		return ARCHIVE_FATAL;
	}
	f->at += (uint64_t)got;
	return got;
}

static la_int64_t feed_skip(struct archive *a, void *opaque, la_int64_t n)
{
	struct feed *f = opaque;
	(void)a;
	uint64_t left = f->at < f->src->size ? f->src->size - f->at : 0;
	uint64_t k = n < 0 ? 0 : (uint64_t)n < left ? (uint64_t)n : left;
	f->at += k;
	return (la_int64_t)k;
}

static la_int64_t feed_seek(struct archive *a, void *opaque, la_int64_t offset, int whence)
{
	struct feed *f = opaque;
	int64_t base = whence == SEEK_SET   ? 0
	               : whence == SEEK_CUR ? (int64_t)f->at
	                                    : (int64_t)f->src->size;
	if (__builtin_add_overflow(base, offset, &base) || base < 0) {
		archive_set_error(a, EINVAL, "bad seek");
		return ARCHIVE_FATAL;
	}
	f->at = (uint64_t)base;
	return base;
}

/* A file without a name in temp_dir. */
static int open_spool(const char *dir)
{
	int fd = -1;
	char path[4096];
#ifdef O_TMPFILE
	fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
#endif
	if (fd < 0 && snprintf(path, sizeof path, "%s/kvarc-XXXXXX", dir) < (int)sizeof path) {
		fd = mkstemp(path);
		if (fd >= 0)
			(void)unlink(path);
	}
	return fd;
}

static int64_t spool_read(void *opaque, void *buf, size_t bytes, uint64_t offset)
{
	/* the descriptor is the pointer's value: items move in memory */
	return pread((int)(intptr_t)opaque, buf, bytes, (off_t)offset);
}

static bool write_all(int fd, const uint8_t *p, size_t n)
{
	while (n) {
		ssize_t k = write(fd, p, n);
		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return false;
		p += k;
		n -= (size_t)k;
	}
	return true;
}

static kvarc_ret bad_archive(kvarc_import *im, struct archive *a)
{
	/* The library's own text may quote the archive: it is not passed on. */
	if (archive_errno(a) == EIO)
		return KVARC_IO;
	return kvi_fail(im->error, KVARC_DATA,
	                "a member of the zip file is damaged; without "
	                "--members the file is packed as it is");
}

/* Copies the current member out, which says how long it is. */
static kvarc_ret spool_member(kvarc_import *im, struct archive *a, struct kvi_imp_item *item,
                              uint64_t bytes, uint8_t *buf)
{
	uint64_t size = 0;
	item->fd = open_spool(im->options.temp_dir);
	if (item->fd < 0)
		return kvi_fail(im->error, KVARC_IO, "cannot make a temporary file");
	for (;;) {
		la_ssize_t n = archive_read_data(a, buf, BUFFER_BYTES);
		if (n < 0 || (uint64_t)n > bytes - size)
			return bad_archive(im, a);
		if (n == 0)
			break;
		if (!write_all(item->fd, buf, (size_t)n))
			return kvi_fail(im->error, KVARC_IO, "writing a temporary file failed");
		size += (uint64_t)n;
	}
	if (size != bytes)
		return bad_archive(im, a);
	item->src = (kvarc_source){ .read = spool_read,
		                    .opaque = (void *)(intptr_t)item->fd,
		                    .size = size };
	return KVARC_OK;
}

/* Goes to the next member. It has to be x, and deflated for libarchive as well: other methods
 * may allocate without a bound. */
static kvarc_ret next_member(kvarc_import *im, struct archive *a, const struct kvi_listed *x)
{
	struct archive_entry *e;
	int r;
	do {
		r = archive_read_next_header(a, &e);
	} while (r == ARCHIVE_RETRY);
	if (r < ARCHIVE_WARN || r == ARCHIVE_EOF)
		return bad_archive(im, a);
	if (x->m.kind != KVI_MEMBER_DEFLATED)
		return KVARC_OK;
	const char *method = archive_format_name(a);
	if (!method || !strstr(method, "(deflation)") || !archive_entry_size_is_set(e) ||
	    (uint64_t)archive_entry_size(e) != x->m.bytes)
		return bad_archive(im, a);
	return KVARC_OK;
}

/* libarchive goes through a zip file in the order of the members' headers, too. */
static kvarc_ret inflate_all(kvarc_import *im, struct archive *a, const struct kvi_container *c,
                             uint8_t *buf)
{
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0, item = 0; i < c->n && !ret; i++) {
		const struct kvi_listed *x = &c->list[i];
		ret = next_member(im, a, x);
		if (!ret && x->m.kind == KVI_MEMBER_DEFLATED)
			ret = spool_member(im, a, &im->items[item], x->m.bytes, buf);
		item += is_file(x);
	}
	return ret;
}

kvarc_ret kvi_members_inflate(kvarc_import *im, const struct kvi_container *c)
{
	kvarc_ret ret;
	struct feed *f = kvi_malloc(&im->alloc, sizeof *f);
	uint8_t *buf = kvi_malloc(&im->alloc, BUFFER_BYTES);
	struct archive *a = archive_read_new();
	if (!f || !buf || !a) {
		ret = kvi_fail_alloc(im->error, &im->alloc);
		goto out;
	}
	f->src = &im->container;
	f->at = 0;
	archive_read_support_format_zip_seekable(a);
	archive_read_set_callback_data(a, f);
	archive_read_set_read_callback(a, feed_read);
	archive_read_set_skip_callback(a, feed_skip);
	archive_read_set_seek_callback(a, feed_seek);
	if (archive_read_open1(a) != ARCHIVE_OK)
		ret = bad_archive(im, a);
	else
		ret = inflate_all(im, a, c, buf);
out:
	if (a)
		(void)archive_read_free(a);
	kvi_free(&im->alloc, f);
	kvi_free(&im->alloc, buf);
	return ret;
}

static const char *why_no_inflate(const kvarc_import *im)
{
	if (!im->options.temp_dir)
		return "no folder for temporary files was given";
	return kvi_libarchive(NULL) ? NULL : "this needs " LIBARCHIVE_MISSING;
}

#else

kvarc_ret kvi_members_inflate(kvarc_import *im, const struct kvi_container *c)
{
	(void)im;
	(void)c;
	return KVARC_END;
}

static const char *why_no_inflate(const kvarc_import *im)
{
	(void)im;
	return "libarchive was not built in";
}

#endif

/* ----- what can come back as files ------------------------------------ */

static int by_text(const void *a, const void *b)
{
	const char *const *x = a, *const *y = b;
	return strcmp(*x, *y);
}

/* Why the first of the members that cannot be restored as a file cannot; NULL: all n files can. */
static const char *why_not(kvarc_import *im, struct kvi_container *c, size_t n)
{
	uint64_t left = im->container.size < UINT64_MAX / EXPANSION_MAX
	                        ? im->container.size * EXPANSION_MAX
	                        : UINT64_MAX;
	size_t k = 0;
	const char **names = kvi_array(&im->alloc, n, sizeof *names);
	if (!names)
		return "there is not enough memory to compare their names";
	const char *why = NULL;
	for (size_t i = 0; i < c->n && !why; i++) {
		struct kvi_listed *x = &c->list[i];
		if (x->m.kind == KVI_MEMBER_FOLDER)
			continue;
		if (!is_file(x))
			why = "some are links or special, encrypted, or compressed by "
			      "another method than deflate";
		else if (x->m.bytes > left)
			why = "they are absurdly large";
		else if (!x->name || !kvi_member_name_tidy(x->name))
			why = "a name is not a relative path in UTF-8";
		else
			names[k++] = x->name;
		left -= x->m.bytes < left ? x->m.bytes : left;
	}
	if (!why) {
		qsort((void *)names, n, sizeof *names, by_text);
		if (!kvi_member_names_fit(names, n))
			why = "two of them have one name, or a file and a folder have";
	}
	kvi_free(&im->alloc, (void *)names);
	if (!why && c->packed)
		why = why_no_inflate(im);
	return why;
}

kvarc_ret kvi_members_take(kvarc_import *im, struct kvi_container *c)
{
	size_t n = 0;
	for (size_t i = 0; i < c->n; i++)
		n += c->list[i].m.kind != KVI_MEMBER_FOLDER;
	if (n == 0)
		return KVARC_END;
	const char *why = why_not(im, c, n);
	if (why) {
		kvi_import_note(im,
		                "its members cannot replace the %s file, "
		                "which is packed as a whole: %s",
		                c->what, why);
		return KVARC_END;
	}
	kvarc_ret ret = KVARC_OK;
	for (size_t i = 0; i < c->n && !ret; i++)
		if (is_file(&c->list[i]))
			ret = kvi_member_in_place(im, &c->list[i], c->list[i].name);
	return ret || !c->packed ? ret : kvi_members_inflate(im, c);
}
