/* SPDX-License-Identifier: BSD-3-Clause */
/* file_sink.c - sinks on paths, descriptors and FILEs */
#include "config.h"

#include "file_io.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "util/error.h"

enum { MOST = 1 << 30 };

/* All bytes, at an offset or, with offset KVARC_UNKNOWN, behind what was written. */
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

/* The same of one that kvarc_sink_close closes. */
static int write_at_owned(void *opaque, const void *buf, size_t bytes, uint64_t offset)
{
	return write_at(opaque, buf, bytes, offset);
}

/* The same of pipes. */
static int write_next(void *opaque, const void *buf, size_t bytes, uint64_t offset)
{
	(void)offset;
	return write_all(kvi_opaque_fd(opaque), buf, bytes, KVARC_UNKNOWN);
}

static int write_next_owned(void *opaque, const void *buf, size_t bytes, uint64_t offset)
{
	return write_next(opaque, buf, bytes, offset);
}

/* fsync; done where there is nothing to wait for. */
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
	bool good = kvi_file_seek(file, offset) && fwrite(buf, 1, bytes, file) == bytes;
	funlockfile(file);
	return good ? 0 : -1;
}

static int flush_file(void *opaque)
{
	FILE *file = opaque;
	if (fflush(file))
		return -1;
	int fd = fileno(file); /* none: it is in memory */
	return fd < 0 ? 0 : sync_descriptor(fd);
}

static int truncate_file(void *opaque, uint64_t bytes)
{
	FILE *file = opaque;
	if (fflush(file))
		return -1;
	int fd = fileno(file);
	return fd < 0 ? -1 : truncate_descriptor(kvi_fd_opaque(fd), bytes);
}

static kvarc_ret fd_sink(kvarc_sink *sink, int fd, bool owned, const char *path, kvarc_error *e)
{
	bool seekable;
	uint64_t bytes;
	if (kvi_fd_size(fd, &seekable, &bytes))
		return kvi_fail_system(e, "cannot write", path ? path : "the descriptor");
	*sink = (kvarc_sink){ .opaque = kvi_fd_opaque(fd), .flush = flush_descriptor };
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
	kvarc_error *e = kvi_error_of(common);
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
		return kvi_fail_system(e, "cannot open", path);
	kvarc_ret ret = fd_sink(sink, fd, true, path, e);
	if (ret)
		close(fd);
	return ret;
}

kvarc_ret kvarc_sink_fd(kvarc_sink *sink, int fd, const kvarc_common *common)
{
	kvarc_error *e = kvi_error_of(common);
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
	kvarc_error *e = kvi_error_of(common);
	bool seekable;
	uint64_t bytes;
	if (sink)
		*sink = (kvarc_sink){ 0 };
	if (!sink || !file)
		return kvi_fail(e, KVARC_PROG, "kvarc_sink_file: sink or file is NULL");
	if (kvi_file_size(file, &seekable, &bytes))
		return kvi_fail_system(e, "cannot write", "the FILE");
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
		ret = kvi_fail_system(error, "cannot close a file", NULL);
	*sink = (kvarc_sink){ 0 };
	return ret;
}
