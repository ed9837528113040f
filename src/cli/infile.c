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

/* Largest size of a map: its page tables and pages count for this process. */
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
	const struct mapped_file *map = &in->map;

	if (!map->p || input_is_gone(in) || at > map->bytes || bytes > map->bytes - at)
		return false;
	memcpy(buf, (const char *)map->p + at, bytes);
	return !input_is_gone(in);
}

/* Asks for the bytes behind a read that is not far behind those that were asked for. */
static void read_ahead(struct input *in, uint64_t offset)
{
	enum { STEP = 32 << 20 };
	unsigned long long from = atomic_load(&in->ahead);

	if (offset < from + STEP && offset + STEP > from && from < in->size &&
	    atomic_compare_exchange_strong(&in->ahead, &from, from + STEP))
		(void)posix_fadvise(in->fd, (off_t)(in->base + from), STEP, POSIX_FADV_WILLNEED);
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
		if (in->is_ahead)
			read_ahead(in, offset + bytes);
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
	return (kvarc_source){
		.read = read_at, .opaque = in, .size = in->size, .memory = in->map.p
	};
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

/* The number in the name of a descriptor that the command was given: what a shell makes of <(...),
 * and standard input. -1: another name. */
static int inherited(const char *name)
{
	static const char *const folders[] = { "/dev/fd/", "/proc/self/fd/" };

	if (strcmp(name, "/dev/stdin") == 0)
		return STDIN_FILENO;
	for (int i = 0; i < 2; i++) {
		const char *digits = name + strlen(folders[i]);
		if (strncmp(name, folders[i], strlen(folders[i])) == 0 && *digits &&
		    strlen(digits) < 7 && digits[strspn(digits, "0123456789")] == '\0')
			return atoi(digits);
	}
	return -1;
}

/* Reason why no file of this kind is read; NULL: it is. stream: a pipe that somebody has connected,
 * and that is not found by its name. */
static const char *wrong_kind(mode_t mode, bool stream)
{
	if (S_ISREG(mode) || (stream && (S_ISFIFO(mode) || S_ISSOCK(mode))))
		return NULL;
	if (S_ISDIR(mode))
		return "is a folder; give the files in it";
	if (S_ISFIFO(mode))
		return "is a pipe with a name, which is never waited for: connect it to standard "
		       "input (kvarc ... - < PIPE)";
	if (S_ISSOCK(mode))
		return "is a socket, and no file";
	if (S_ISLNK(mode))
		return "is a symbolic link where a server writes slots, and is not followed";
	return "is a device, and no file";
}

/* Opens a file by its name, and looks at it before: to open a device or a pipe may wait, or do
 * something. -1: errno; 0 where st says what else is there. */
static int open_regular(const char *name, int more, struct stat *st)
{
	const struct timespec pause = { 0, 100000000 };
	const int flags = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | more;
	int fd = -1, tries = 50;

	if (fstatat(AT_FDCWD, name, st, more & O_NOFOLLOW ? AT_SYMLINK_NOFOLLOW : 0) != 0)
		return -1;
	errno = 0;
	if (wrong_kind(st->st_mode, false))
		return -1;
	/* EAGAIN: another program has a lease of it, which it gives up now */
	while ((fd = open(name, flags)) < 0 && errno == EAGAIN && tries-- > 0)
		nanosleep(&pause, NULL);
	if (fd >= 0 && fstat(fd, st) == 0 && !wrong_kind(st->st_mode, false))
		return fd;
	if (fd >= 0) {
		close(fd);
		errno = 0;
	}
	return -1;
}

int input_open_fd(const char *name, unsigned flags, struct stat *st)
{
	const bool is_stdin = flags & INPUT_STDIN && strcmp(name, "-") == 0;
	const int number = is_stdin ? STDIN_FILENO : inherited(name);
	const char *wrong = NULL;
	int fd;

	memset(st, 0, sizeof(*st));
	if (is_stdin && isatty(STDIN_FILENO)) {
		msg_error(NULL, "standard input is a terminal; give a file, or connect a pipe");
		return -1;
	}
	errno = 0;
	if (number >= 0 && fstat(number, st) == 0 && (is_stdin || !S_ISREG(st->st_mode)))
		fd = wrong_kind(st->st_mode, true) ? -1 : fcntl(number, F_DUPFD_CLOEXEC, 3);
	else
		fd = open_regular(name, flags & INPUT_SLOT ? O_NOFOLLOW : 0, st);
	if (fd >= 0)
		return fd;
	if (errno == 0)
		wrong = wrong_kind(st->st_mode, number >= 0);
	if (wrong && flags & INPUT_SLOT && S_ISFIFO(st->st_mode))
		wrong = "is a pipe with a name where a server writes slots, and is not waited for";
	if (wrong)
		msg_error(name, "%s", wrong);
	else
		msg_error(name, "cannot open: %s", strerror(errno ? errno : EAGAIN));
	return -1;
}

FILE *input_fopen(const char *name)
{
	struct stat st;
	int fd = input_open_fd(name, 0, &st);
	FILE *f = fd >= 0 ? fdopen(fd, "r") : NULL;

	if (fd >= 0 && !f) {
		msg_error(name, "cannot open: %s", strerror(errno));
		close(fd);
	}
	return f;
}

bool input_open(struct input *in, const char *name, bool seek)
{
	return input_open_as(in, name, seek, 0);
}

bool input_open_as(struct input *in, const char *name, bool seek, unsigned flags)
{
	struct stat st;
	off_t here;

	memset(in, 0, sizeof(*in));
	in->name = name;
	in->is_stdin = strcmp(name, "-") == 0;
	in->fd = -1;
	in->size = KVARC_UNKNOWN;
	in->fd = input_open_fd(name, flags | INPUT_STDIN, &st);
	if (in->fd < 0)
		return false;
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
	input_close(in);
	return false;
}

bool input_of_fd(struct input *in, const char *name, int fd)
{
	struct stat st;

	memset(in, 0, sizeof(*in));
	in->name = name;
	in->fd = fd;
	in->seekable = true;
	if (fstat(fd, &st) == 0) {
		in->size = (uint64_t)st.st_size;
		return true;
	}
	msg_error(name, "cannot read: %s", strerror(errno));
	input_close(in);
	return false;
}

void input_map(struct input *in)
{
	if (in->fd < 0 || !in->seekable || in->base || in->size > map_max ||
	    !signals_map(&in->map, in->fd, (size_t)in->size))
		return;
#ifdef MADV_POPULATE_READ
	/* one call instead of a page fault for every few pages; without it they come */
	(void)madvise(in->map.p, in->map.bytes, MADV_POPULATE_READ);
#endif
}

void input_read_ahead(struct input *in)
{
	in->is_ahead = in->seekable && in->size > 0;
}

bool input_is_gone(const struct input *in)
{
	return in->map.p && atomic_load(&in->map.gone);
}

void input_close(struct input *in)
{
	signals_unmap(&in->map);
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
