/* SPDX-License-Identifier: BSD-3-Clause */
/* file_source.c - sources on paths, descriptors and FILEs */
#include "config.h"

#include "file_io.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/error.h"

/* Linux transfers no more in one call. */
enum { MOST = 1 << 30 };

kvarc_ret kvi_fail_system(kvarc_error *e, const char *what, const char *path)
{
	const char *why = strerror(errno);
	return path ? kvi_fail(e, KVARC_IO, "%s %s: %s", what, path, why)
	            : kvi_fail(e, KVARC_IO, "%s: %s", what, why);
}

kvarc_ret kvi_fd_size(int fd, bool *seekable, uint64_t *bytes)
{
	struct stat st;
	*seekable = false;
	*bytes = KVARC_UNKNOWN;
	if (fstat(fd, &st))
		return KVARC_IO;
	if (S_ISDIR(st.st_mode)) {
		errno = EISDIR;
		return KVARC_IO;
	}
	off_t end = st.st_size;
	if (S_ISBLK(st.st_mode)) {
		off_t here = lseek(fd, 0, SEEK_CUR);
		end = lseek(fd, 0, SEEK_END);
		if (here < 0 || end < 0 || lseek(fd, here, SEEK_SET) < 0)
			return KVARC_IO;
	} else if (!S_ISREG(st.st_mode)) {
		return KVARC_OK;
	}
	*seekable = true;
	*bytes = (uint64_t)end;
	return KVARC_OK;
}

bool kvi_file_seek(FILE *file, uint64_t offset)
{
	off_t at = (off_t)offset;
	if (at < 0 || (uint64_t)at != offset) {
		errno = EOVERFLOW;
		return false;
	}
	return fseeko(file, at, SEEK_SET) == 0;
}

kvarc_ret kvi_file_size(FILE *file, bool *seekable, uint64_t *bytes)
{
	*seekable = false;
	*bytes = KVARC_UNKNOWN;
	if (fseeko(file, 0, SEEK_END)) {
		if (errno != ESPIPE)
			return KVARC_IO;
		clearerr(file);
		return KVARC_OK;
	}
	off_t end = ftello(file);
	if (end < 0)
		return KVARC_IO;
	*seekable = true;
	*bytes = (uint64_t)end;
	return KVARC_OK;
}

/* kvarc_source.read of a descriptor that takes any offset. */
static int64_t read_at(void *opaque, void *buf, size_t bytes, uint64_t offset)
{
	off_t at = (off_t)offset;
	ssize_t n;
	if (at < 0 || (uint64_t)at != offset) {
		errno = EOVERFLOW;
		return -1;
	}
	do {
		n = pread(kvi_opaque_fd(opaque), buf, bytes < MOST ? bytes : MOST, at);
	} while (n < 0 && errno == EINTR);
	return n;
}

/* The same of one that only goes forward. */
static int64_t read_next(void *opaque, void *buf, size_t bytes, uint64_t offset)
{
	ssize_t n;
	(void)offset; /* a handle asks for the next bytes */
	do {
		n = read(kvi_opaque_fd(opaque), buf, bytes < MOST ? bytes : MOST);
	} while (n < 0 && errno == EINTR);
	return n;
}

/* The same two for descriptors that kvarc_source_close closes. */
static int64_t read_at_owned(void *opaque, void *buf, size_t bytes, uint64_t offset)
{
	return read_at(opaque, buf, bytes, offset);
}

static int64_t read_next_owned(void *opaque, void *buf, size_t bytes, uint64_t offset)
{
	return read_next(opaque, buf, bytes, offset);
}

/* The next bytes of a FILE that is locked. */
static int64_t read_file(FILE *file, void *buf, size_t bytes)
{
	size_t got = 0;
	clearerr(file);
	while (got < bytes) {
		errno = 0;
		got += fread((uint8_t *)buf + got, 1, bytes - got, file);
		if (got == bytes || feof(file))
			break;
		if (ferror(file) && errno != EINTR)
			return got ? (int64_t)got : -1;
		clearerr(file);
	}
	return (int64_t)got;
}

static int64_t read_file_at(void *opaque, void *buf, size_t bytes, uint64_t offset)
{
	FILE *file = opaque;
	flockfile(file);
	int64_t got = kvi_file_seek(file, offset) ? read_file(file, buf, bytes) : -1;
	funlockfile(file);
	return got;
}

static int64_t read_file_next(void *opaque, void *buf, size_t bytes, uint64_t offset)
{
	FILE *file = opaque;
	(void)offset;
	flockfile(file);
	int64_t got = read_file(file, buf, bytes);
	funlockfile(file);
	return got;
}

static kvarc_ret fd_source(kvarc_source *source, int fd, bool owned, const char *path,
                           kvarc_error *e)
{
	bool seekable;
	uint64_t bytes;
	if (kvi_fd_size(fd, &seekable, &bytes))
		return kvi_fail_system(e, "cannot read", path ? path : "the descriptor");
	*source = (kvarc_source){ .opaque = kvi_fd_opaque(fd), .size = bytes };
	if (owned)
		source->read = seekable ? read_at_owned : read_next_owned;
	else
		source->read = seekable ? read_at : read_next;
	return KVARC_OK;
}

kvarc_ret kvarc_source_open_path(kvarc_source *source, const char *path, const kvarc_common *common)
{
	kvarc_error *e = kvi_error_of(common);
	if (source)
		*source = (kvarc_source){ 0 };
	if (!source || !path)
		return kvi_fail(e, KVARC_PROG, "kvarc_source_open_path: source or path is NULL");
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (fd < 0)
		return kvi_fail_system(e, "cannot open", path);
	kvarc_ret ret = fd_source(source, fd, true, path, e);
	if (ret)
		close(fd);
	return ret;
}

kvarc_ret kvarc_source_fd(kvarc_source *source, int fd, const kvarc_common *common)
{
	kvarc_error *e = kvi_error_of(common);
	if (!source)
		return kvi_fail(e, KVARC_PROG, "kvarc_source_fd: source is NULL");
	*source = (kvarc_source){ 0 };
	return fd_source(source, fd, false, NULL, e);
}

kvarc_ret kvarc_source_file(kvarc_source *source, FILE *file, const kvarc_common *common)
{
	kvarc_error *e = kvi_error_of(common);
	bool seekable;
	uint64_t bytes;
	if (source)
		*source = (kvarc_source){ 0 };
	if (!source || !file)
		return kvi_fail(e, KVARC_PROG, "kvarc_source_file: source or file is NULL");
	if (kvi_file_size(file, &seekable, &bytes))
		return kvi_fail_system(e, "cannot read", "the FILE");
	*source = (kvarc_source){ .read = seekable ? read_file_at : read_file_next,
		                  .opaque = file,
		                  .size = bytes };
	return KVARC_OK;
}

int kvi_source_descriptor(const kvarc_source *source)
{
	return source->read == read_at || source->read == read_at_owned
	               ? kvi_opaque_fd(source->opaque)
	               : -1;
}

void kvarc_source_close(kvarc_source *source)
{
	if (!source)
		return;
	if (source->read == read_at_owned || source->read == read_next_owned)
		close(kvi_opaque_fd(source->opaque));
	*source = (kvarc_source){ 0 };
}
