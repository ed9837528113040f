/* SPDX-License-Identifier: BSD-3-Clause */
/* infile.c - files and standard input as sources of the library */
#include "config.h"

#include "infile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "message.h"
#include "signals.h"

/* More than this is not mapped: its page tables and pages would count for this process. */
static const uint64_t map_max = (uint64_t)1 << 30;

int input_temporary(void)
{
	const char *folders[] = { getenv("TMPDIR"), "/var/tmp", "/tmp" };
	int fd = -1;

	for (int i = 0; i < 3 && fd < 0; i++) {
		char path[4096];
		int n;

		if (!folders[i] || !folders[i][0])
			continue;
		n = snprintf(path, sizeof(path), "%s/kvarc-XXXXXX", folders[i]);
		if (n < 0 || (size_t)n >= sizeof(path))
			continue;
		fd = mkstemp(path);
		if (fd >= 0)
			unlink(path);
	}
	return fd;
}

static int64_t read_some(int fd, void *buf, size_t bytes)
{
	ssize_t n;

	do {
		n = read(fd, buf, bytes);
	} while (n < 0 && errno == EINTR);
	return n;
}

/* Copies bytes from the map; false: they are not there. */
static bool copy_mapped(const struct input *in, void *buf, size_t bytes, uint64_t at)
{
	return in->map && at <= in->map_bytes && bytes <= in->map_bytes - at &&
	       signals_copy_mapped(buf, (const char *)in->map + at, bytes);
}

/* A kvarc_source read; pread, or read when the source only goes forward. */
static int64_t read_at(void *opaque, void *buf, size_t bytes, uint64_t offset)
{
	struct input *in = opaque;
	ssize_t n;

	if (bytes > 1 << 30)
		bytes = 1 << 30;
	if (in->seekable) {
		if (offset >= in->size)
			return 0;
		if (bytes > in->size - offset)
			bytes = (size_t)(in->size - offset);
		if (copy_mapped(in, buf, bytes, in->base + offset))
			return (int64_t)bytes;
		do {
			n = pread(in->fd, buf, bytes, (off_t)(in->base + offset));
		} while (n < 0 && errno == EINTR);
	} else {
		if (offset != in->position) {
			in->error = ESPIPE;
			return -1;
		}
		n = read_some(in->fd, buf, bytes);
		if (n > 0)
			in->position += (uint64_t)n;
	}
	if (n < 0)
		in->error = errno;
	return n;
}

kvarc_source input_source(struct input *in)
{
	kvarc_source s;

	if (!in->direct || !in->seekable || in->base || kvarc_source_fd(&s, in->fd, NULL))
		s = (kvarc_source){ .read = read_at, .opaque = in, .size = in->size };
	return s;
}

static bool write_whole(int fd, const char *buf, size_t bytes)
{
	while (bytes) {
		ssize_t n = write(fd, buf, bytes);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		buf += n;
		bytes -= (size_t)n;
	}
	return true;
}

/* Copies a pipe from its current position to a temporary file, which is read instead. */
static bool spool(struct input *in)
{
	enum { PIECE = 1 << 16 };
	char *buf = malloc(PIECE);
	int fd = input_temporary();
	uint64_t total = 0;
	int64_t n = -1;

	if (!buf || fd < 0) {
		msg_error(in->name, "cannot make a temporary file: %s",
		          strerror(buf ? errno : ENOMEM));
		goto fail;
	}
	while ((n = read_some(in->fd, buf, PIECE)) > 0) {
		if (!write_whole(fd, buf, (size_t)n)) {
			msg_error(in->name,
			          "cannot write a temporary file: %s; set "
			          "TMPDIR to a folder with space",
			          strerror(errno));
			goto fail;
		}
		total += (uint64_t)n;
	}
	if (n < 0) {
		msg_error(in->name, "cannot read: %s", strerror(errno));
		goto fail;
	}
	free(buf);
	close(in->fd);
	in->fd = fd;
	in->seekable = true;
	in->size = total;
	return true;
fail:
	free(buf);
	if (fd >= 0)
		close(fd);
	return false;
}

static bool open_fd(struct input *in)
{
	if (!in->is_stdin) {
		in->fd = open(in->name, O_RDONLY | O_CLOEXEC | O_NOCTTY);
		if (in->fd < 0)
			msg_error(in->name, "cannot open: %s", strerror(errno));
		return in->fd >= 0;
	}
	if (isatty(STDIN_FILENO)) {
		msg_error(NULL, "standard input is a terminal; give a file, or connect a pipe");
		return false;
	}
	in->fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
	if (in->fd < 0)
		msg_error(in->name, "cannot read: %s", strerror(errno));
	return in->fd >= 0;
}

bool input_open(struct input *in, const char *name, bool seek)
{
	struct stat st;
	off_t here;

	memset(in, 0, sizeof(*in));
	in->name = name;
	in->is_stdin = strcmp(name, "-") == 0;
	in->fd = -1;
	in->size = KVARC_UNKNOWN;
	if (!open_fd(in))
		return false;
	if (fstat(in->fd, &st) != 0) {
		msg_error(name, "cannot read: %s", strerror(errno));
	} else if (S_ISDIR(st.st_mode)) {
		msg_error(name, "is a folder; give the files in it");
	} else {
		here = lseek(in->fd, 0, SEEK_CUR);
		in->mode = in->is_stdin ? 0 : st.st_mode & 0777;
		in->has_mtime = !in->is_stdin && S_ISREG(st.st_mode);
		if (in->has_mtime)
			in->mtime = st.st_mtim;
		if (S_ISREG(st.st_mode) && here >= 0) {
			in->seekable = true;
			in->base = (uint64_t)here;
			in->size = st.st_size > here ? (uint64_t)(st.st_size - here) : 0;
			return true;
		}
		if (!seek || spool(in))
			return true;
	}
	input_close(in);
	return false;
}

void input_map(struct input *in)
{
	if (in->fd < 0 || !in->seekable || !in->size || in->base || in->size > map_max)
		return;
	void *p = mmap(NULL, (size_t)in->size, PROT_READ, MAP_SHARED, in->fd, 0);
	if (p == MAP_FAILED)
		return;
	signals_catch_bus_error();
	in->map = p;
	in->map_bytes = (size_t)in->size;
#ifdef MADV_POPULATE_READ
	/* one call instead of a page fault for every few pages; without it they come */
	(void)madvise(p, in->map_bytes, MADV_POPULATE_READ);
#endif
}

void input_close(struct input *in)
{
	if (in->map)
		munmap(in->map, in->map_bytes);
	in->map = NULL;
	if (in->fd >= 0)
		close(in->fd);
	in->fd = -1;
}

bool input_starts_with(struct input *in, const unsigned char magic[8])
{
	unsigned char head[8];

	return in->size != KVARC_UNKNOWN && in->size >= 8 && read_at(in, head, 8, 0) == 8 &&
	       memcmp(head, magic, 8) == 0;
}

bool input_is_archive(struct input *in)
{
	/* spec 2 */
	static const unsigned char magic[8] = { 0x89, 'K', 'V', 'A', '\r', '\n', 0x1a, '\n' };
	return input_starts_with(in, magic);
}
