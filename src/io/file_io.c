/* SPDX-License-Identifier: BSD-3-Clause */
/* file_io.c - sources and sinks on files */
#include "config.h"

#include "file_io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/error.h"

/* ==== Sources on paths, descriptors and FILEs ==== */

/* The kvarc_error of common options, NULL: there is none. */
static inline kvarc_error *error_of(const kvarc_common *common)
{
	return common ? common->error : NULL;
}

/* A descriptor as the opaque pointer of callbacks. */
static inline void *fd_opaque(int fd)
{
	return (void *)(intptr_t)fd;
}

/* Linux transfers no more in one call. */
enum { MOST = 1 << 30 };

/* IO, with the text of errno. what: "cannot open", ...; path: NULL, or for the text. */
static kvarc_ret fail_system(kvarc_error *error, const char *what, const char *path)
{
	const char *why = strerror(errno);
	return path ? kvi_fail(error, KVARC_IO, "%s %s: %s", what, path, why)
	            : kvi_fail(error, KVARC_IO, "%s: %s", what, why);
}

/* Whether a descriptor takes any offset; *bytes: the size of what it is, then. errno on failure.
 * Returns OK, IO. */
static kvarc_ret fd_size(int fd, bool *seekable, uint64_t *bytes)
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

/* Moves a FILE to an offset. False: errno says why. */
static bool file_seek(FILE *file, uint64_t offset)
{
	off_t at = (off_t)offset;
	if (at < 0 || (uint64_t)at != offset) {
		errno = EOVERFLOW;
		return false;
	}
	return fseeko(file, at, SEEK_SET) == 0;
}

/* Size and offsets of a FILE, as of a descriptor; its position moves. */
static kvarc_ret file_size(FILE *file, bool *seekable, uint64_t *bytes)
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

/* kvarc_source.read of a descriptor that only goes forward. */
static int64_t read_next(void *opaque, void *buf, size_t bytes, uint64_t offset)
{
	ssize_t n;
	(void)offset; /* a handle asks for the next bytes */
	do {
		n = read(kvi_opaque_fd(opaque), buf, bytes < MOST ? bytes : MOST);
	} while (n < 0 && errno == EINTR);
	return n;
}

/* read_at and read_next for descriptors that kvarc_source_close closes, which knows them by these
 * functions. */
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
	int64_t got = file_seek(file, offset) ? read_file(file, buf, bytes) : -1;
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
                           kvarc_error *error)
{
	bool seekable;
	uint64_t bytes;
	if (fd_size(fd, &seekable, &bytes))
		return fail_system(error, "cannot read", path ? path : "the descriptor");
	*source = (kvarc_source){ .opaque = fd_opaque(fd), .size = bytes };
	if (owned)
		source->read = seekable ? read_at_owned : read_next_owned;
	else
		source->read = seekable ? read_at : read_next;
	return KVARC_OK;
}

kvarc_ret kvarc_source_open_path(kvarc_source *source, const char *path, const kvarc_common *common)
{
	kvarc_error *e = error_of(common);
	if (source)
		*source = (kvarc_source){ 0 };
	if (!source || !path)
		return kvi_fail(e, KVARC_PROG, "kvarc_source_open_path: source or path is NULL");
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (fd < 0)
		return fail_system(e, "cannot open", path);
	kvarc_ret ret = fd_source(source, fd, true, path, e);
	if (ret)
		close(fd);
	return ret;
}

kvarc_ret kvarc_source_fd(kvarc_source *source, int fd, const kvarc_common *common)
{
	kvarc_error *e = error_of(common);
	if (!source)
		return kvi_fail(e, KVARC_PROG, "kvarc_source_fd: source is NULL");
	*source = (kvarc_source){ 0 };
	return fd_source(source, fd, false, NULL, e);
}

kvarc_ret kvarc_source_file(kvarc_source *source, FILE *file, const kvarc_common *common)
{
	kvarc_error *e = error_of(common);
	bool seekable;
	uint64_t bytes;
	if (source)
		*source = (kvarc_source){ 0 };
	if (!source || !file)
		return kvi_fail(e, KVARC_PROG, "kvarc_source_file: source or file is NULL");
	if (file_size(file, &seekable, &bytes))
		return fail_system(e, "cannot read", "the FILE");
	*source = (kvarc_source){ .read = seekable ? read_file_at : read_file_next,
		                  .opaque = file,
		                  .size = bytes };
	return KVARC_OK;
}

void kvarc_source_close(kvarc_source *source)
{
	if (!source)
		return;
	if (source->read == read_at_owned || source->read == read_next_owned)
		close(kvi_opaque_fd(source->opaque));
	*source = (kvarc_source){ 0 };
}

/* ==== Sinks on paths, descriptors and FILEs ==== */

/* Writes all bytes at an offset or, with offset KVARC_UNKNOWN, behind the bytes that were
 * written. */
static int write_all(int fd, const uint8_t *p, size_t bytes, uint64_t offset)
{
	bool forward = offset == KVARC_UNKNOWN;
	uint64_t end = offset + bytes;
	if (!forward && (end < offset || (off_t)end < 0 || (uint64_t)(off_t)end != end)) {
		errno = EFBIG;
		return -1;
	}
	while (bytes) {
		size_t step = bytes < MOST ? bytes : MOST;
		ssize_t n = forward ? write(fd, p, step) : pwrite(fd, p, step, (off_t)offset);
		if (n < 0 && errno == EINTR)
			continue;
		if (n == 0)
			errno = EIO;
		if (n <= 0)
			return -1;
		p += n;
		bytes -= (size_t)n;
		offset += forward ? 0 : (uint64_t)n;
	}
	return 0;
}

/* kvarc_sink.write of a descriptor that takes any offset. */
static int write_at(void *opaque, const void *buf, size_t bytes, uint64_t offset)
{
	return write_all(kvi_opaque_fd(opaque), buf, bytes, offset);
}

/* write_at for descriptors that kvarc_sink_close closes. */
static int write_at_owned(void *opaque, const void *buf, size_t bytes, uint64_t offset)
{
	return write_at(opaque, buf, bytes, offset);
}

/* kvarc_sink.write of pipes. */
static int write_next(void *opaque, const void *buf, size_t bytes, uint64_t offset)
{
	(void)offset;
	return write_all(kvi_opaque_fd(opaque), buf, bytes, KVARC_UNKNOWN);
}

static int write_next_owned(void *opaque, const void *buf, size_t bytes, uint64_t offset)
{
	return write_next(opaque, buf, bytes, offset);
}

/* fsync; succeeds where there is nothing to wait for. */
static int sync_descriptor(int fd)
{
	int ret;
	do {
		ret = fsync(fd);
	} while (ret && errno == EINTR);
	return ret && errno != EINVAL && errno != EROFS && errno != ENOTSUP ? -1 : 0;
}

static int flush_descriptor(void *opaque)
{
	return sync_descriptor(kvi_opaque_fd(opaque));
}

static int truncate_descriptor(void *opaque, uint64_t bytes)
{
	off_t to = (off_t)bytes;
	int ret;
	if (to < 0 || (uint64_t)to != bytes) {
		errno = EFBIG;
		return -1;
	}
	do {
		ret = ftruncate(kvi_opaque_fd(opaque), to);
	} while (ret && errno == EINTR);
	return ret;
}

static int write_file_next(void *opaque, const void *buf, size_t bytes, uint64_t offset)
{
	FILE *file = opaque;
	(void)offset;
	flockfile(file);
	bool good = fwrite(buf, 1, bytes, file) == bytes;
	funlockfile(file);
	return good ? 0 : -1;
}

static int write_file_at(void *opaque, const void *buf, size_t bytes, uint64_t offset)
{
	FILE *file = opaque;
	flockfile(file);
	bool good = file_seek(file, offset) && fwrite(buf, 1, bytes, file) == bytes;
	funlockfile(file);
	return good ? 0 : -1;
}

static int flush_file(void *opaque)
{
	FILE *file = opaque;
	if (fflush(file))
		return -1;
	int fd = fileno(file); /* below 0: the FILE is in memory */
	return fd < 0 ? 0 : sync_descriptor(fd);
}

static int truncate_file(void *opaque, uint64_t bytes)
{
	FILE *file = opaque;
	if (fflush(file))
		return -1;
	int fd = fileno(file);
	return fd < 0 ? -1 : truncate_descriptor(fd_opaque(fd), bytes);
}

static kvarc_ret fd_sink(kvarc_sink *sink, int fd, bool owned, const char *path, kvarc_error *error)
{
	bool seekable;
	uint64_t bytes;
	if (fd_size(fd, &seekable, &bytes))
		return fail_system(error, "cannot write", path ? path : "the descriptor");
	*sink = (kvarc_sink){ .opaque = fd_opaque(fd), .flush = flush_descriptor };
	if (seekable)
		sink->truncate = truncate_descriptor;
	if (owned)
		sink->write = seekable ? write_at_owned : write_next_owned;
	else
		sink->write = seekable ? write_at : write_next;
	return KVARC_OK;
}

kvarc_ret kvarc_sink_open_path(kvarc_sink *sink, const char *path, unsigned flags,
                               const kvarc_common *common)
{
	const unsigned both = KVARC_SINK_TRUNCATE | KVARC_SINK_KEEP;
	kvarc_error *e = error_of(common);
	if (sink)
		*sink = (kvarc_sink){ 0 };
	if (!sink || !path)
		return kvi_fail(e, KVARC_PROG, "kvarc_sink_open_path: sink or path is NULL");
	if (flags & ~both || flags == both)
		return kvi_fail(e, KVARC_PROG,
		                "kvarc_sink_open_path: flags %#x are unknown, or are not for each "
		                "other",
		                flags);
	int how = O_CREAT | O_EXCL;
	if (flags)
		how = flags & KVARC_SINK_KEEP ? 0 : O_CREAT | O_TRUNC;
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NOCTTY | how, 0666);
	if (fd < 0)
		return fail_system(e, "cannot open", path);
	kvarc_ret ret = fd_sink(sink, fd, true, path, e);
	if (ret)
		close(fd);
	return ret;
}

kvarc_ret kvarc_sink_fd(kvarc_sink *sink, int fd, const kvarc_common *common)
{
	kvarc_error *e = error_of(common);
	if (!sink)
		return kvi_fail(e, KVARC_PROG, "kvarc_sink_fd: sink is NULL");
	*sink = (kvarc_sink){ 0 };
	kvarc_ret ret = fd_sink(sink, fd, false, NULL, e);
	if (ret || !sink->truncate || !(fcntl(fd, F_GETFL) & O_APPEND))
		return ret;
	*sink = (kvarc_sink){ 0 };
	return kvi_fail(e, KVARC_PROG, "kvarc_sink_fd: fd has O_APPEND");
}

kvarc_ret kvarc_sink_file(kvarc_sink *sink, FILE *file, const kvarc_common *common)
{
	kvarc_error *e = error_of(common);
	bool seekable;
	uint64_t bytes;
	if (sink)
		*sink = (kvarc_sink){ 0 };
	if (!sink || !file)
		return kvi_fail(e, KVARC_PROG, "kvarc_sink_file: sink or file is NULL");
	if (file_size(file, &seekable, &bytes))
		return fail_system(e, "cannot write", "the FILE");
	int fd = fileno(file);
	if (seekable && fd >= 0 && fcntl(fd, F_GETFL) & O_APPEND)
		return kvi_fail(e, KVARC_PROG, "kvarc_sink_file: file is in append mode");
	*sink = (kvarc_sink){ .write = seekable ? write_file_at : write_file_next,
		              .flush = flush_file,
		              .opaque = file,
		              .truncate = seekable ? truncate_file : NULL };
	return KVARC_OK;
}

kvarc_ret kvarc_sink_close(kvarc_sink *sink, kvarc_error *error)
{
	kvarc_ret ret = KVARC_OK;
	if (!sink)
		return ret;
	bool owned = sink->write == write_at_owned || sink->write == write_next_owned;
	if (owned && close(kvi_opaque_fd(sink->opaque)) && errno != EINTR)
		ret = fail_system(error, "cannot close a file", NULL);
	*sink = (kvarc_sink){ 0 };
	return ret;
}
