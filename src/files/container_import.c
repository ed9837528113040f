/* SPDX-License-Identifier: BSD-3-Clause */
/* container_import.c - members of zip (npz) and tar files, spooled to temporary files */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "import_internal.h"
#include "util/error.h"
#ifdef HAVE_LIBARCHIVE
#include <archive.h>
#include <archive_entry.h>
#endif

enum { TAR_MAGIC_AT = 257, SNIFF_BYTES = TAR_MAGIC_AT + 5 };

/* "zip", "tar" or NULL. */
static const char *sniff(const kvarc_source *src, kvarc_ret *ret)
{
	uint8_t head[SNIFF_BYTES];
	size_t n = src->size < sizeof head ? (size_t)src->size : sizeof head;
	*ret = kvi_source_read(src, head, n, 0);
	if (*ret)
		*ret = KVARC_IO;
	else if (n >= 4 && !memcmp(head, "PK\3\4", 4))
		return "zip";
	else if (n == sizeof head && !memcmp(head + TAR_MAGIC_AT, "ustar", 5))
		return "tar";
	return NULL;
}

#ifdef HAVE_LIBARCHIVE

enum { BUFFER_BYTES = 64 << 10 };
/* What members may grow to: more than deflate can do with this many bytes. */
#define EXPANSION_MAX ((uint64_t)1100)

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

static la_int64_t feed_seek(struct archive *a, void *opaque, la_int64_t offset,
                            int whence)
{
	struct feed *f = opaque;
	int64_t base = whence == SEEK_SET ? 0
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
	if (fd < 0 && snprintf(path, sizeof path, "%s/kvarc-XXXXXX", dir) <
	              (int)sizeof path) {
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
	return kvi_fail(im->error, KVARC_DATA, KVARC_UNKNOWN, KVARC_UNKNOWN,
	                "the zip or tar file is damaged or of a kind that "
	                "cannot be read");
}

/* Copies the current member out; *left is what all members may still take. */
static kvarc_ret spool_member(kvarc_import *im, struct archive *a,
                              struct kvi_imp_item *item, uint64_t *left,
                              uint8_t *buf)
{
	uint64_t size = 0;
	item->fd = open_spool(im->options.temp_dir);
	if (item->fd < 0)
		return kvi_fail(im->error, KVARC_IO, KVARC_UNKNOWN,
		                KVARC_UNKNOWN, "cannot make a temporary file");
	for (;;) {
		la_ssize_t n = archive_read_data(a, buf, BUFFER_BYTES);
		if (n < 0)
			return bad_archive(im, a);
		if (n == 0)
			break;
		if ((uint64_t)n > *left)
			return kvi_fail(im->error, KVARC_DATA, KVARC_UNKNOWN,
			                KVARC_UNKNOWN, "the members of the "
			                "archive are absurdly large");
		if (!write_all(item->fd, buf, (size_t)n))
			return kvi_fail(im->error, KVARC_IO, KVARC_UNKNOWN,
			                KVARC_UNKNOWN, "writing a temporary "
			                "file failed");
		*left -= (uint64_t)n;
		size += (uint64_t)n;
	}
	item->src = (kvarc_source){ .read = spool_read,
		                    .opaque = (void *)(intptr_t)item->fd,
		                    .size = size };
	return KVARC_OK;
}

static kvarc_ret spool_all(kvarc_import *im, struct archive *a,
                           uint64_t archive_bytes, uint8_t *buf)
{
	uint64_t left = archive_bytes < UINT64_MAX / EXPANSION_MAX / 2
	                ? archive_bytes * EXPANSION_MAX : UINT64_MAX;
	struct archive_entry *e;
	for (;;) {
		int r = archive_read_next_header(a, &e);
		if (r == ARCHIVE_EOF)
			return KVARC_OK;
		if (r == ARCHIVE_RETRY)
			continue;
		if (r < ARCHIVE_WARN)
			return bad_archive(im, a);
		const char *name = archive_entry_pathname(e);
		if (archive_entry_filetype(e) == AE_IFDIR)
			continue;
		if (archive_entry_filetype(e) != AE_IFREG ||
		    archive_entry_hardlink(e) || !name ||
		    strlen(name) > UINT16_MAX) {
			kvi_import_note(im, "links and special files in the "
			                "archive were left out");
			continue;
		}
		if (im->n_items >= KVI_IMPORT_ITEMS_MAX)
			return kvi_fail(im->error, KVARC_DATA, KVARC_UNKNOWN,
			                KVARC_UNKNOWN, "the archive has more "
			                "than %d files", KVI_IMPORT_ITEMS_MAX);
		struct kvi_imp_item *item = kvi_import_add_item(im, name);
		if (!item)
			return kvi_fail_alloc(im->error, &im->alloc);
		kvarc_ret ret = spool_member(im, a, item, &left, buf);
		if (ret)
			return ret;
	}
}

static kvarc_ret read_archive(kvarc_import *im, const kvarc_source *src)
{
	kvarc_ret ret = KVARC_MEM;
	struct feed *f = kvi_malloc(&im->alloc, sizeof *f);
	uint8_t *buf = kvi_malloc(&im->alloc, BUFFER_BYTES);
	struct archive *a = archive_read_new();
	if (!f || !buf || !a) {
		ret = kvi_fail_alloc(im->error, &im->alloc);
		goto out;
	}
	f->src = src;
	f->at = 0;
	archive_read_support_format_zip(a);
	archive_read_support_format_tar(a);
	archive_read_set_callback_data(a, f);
	archive_read_set_read_callback(a, feed_read);
	archive_read_set_skip_callback(a, feed_skip);
	archive_read_set_seek_callback(a, feed_seek);
	if (archive_read_open1(a) != ARCHIVE_OK)
		ret = bad_archive(im, a);
	else
		ret = spool_all(im, a, src->size, buf);
out:
	if (a)
		(void)archive_read_free(a);
	kvi_free(&im->alloc, f);
	kvi_free(&im->alloc, buf);
	return ret;
}

kvarc_ret kvi_import_container(kvarc_import *im, const kvarc_source *src)
{
	kvarc_ret ret;
	const char *what = sniff(src, &ret);
	if (ret || !what)
		return ret ? ret : KVARC_END;
	if (!im->options.temp_dir) {
		kvi_import_note(im, "no folder for temporary files was given: "
		                "the %s file is kept as it is", what);
		return KVARC_END;
	}
	ret = read_archive(im, src);
	if (ret == KVARC_OK && im->n_items == 0)
		return KVARC_END;
	im->container = what;
	return ret;
}

#else

kvarc_ret kvi_import_container(kvarc_import *im, const kvarc_source *src)
{
	kvarc_ret ret;
	const char *what = sniff(src, &ret);
	if (what)
		kvi_import_note(im, "%s files were not built in (libarchive): "
		                "kept as an opaque file", what);
	return ret ? ret : KVARC_END;
}

#endif
