/* SPDX-License-Identifier: BSD-3-Clause */
/* outfile.c - files that appear complete under their name, or not at all; many in one folder */
#include "config.h"

#include "outfile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "infile.h"
#include "message.h"
#include "paths.h"
#include "signals.h"

/* ==== Temporary files and folders next to the output: made, locked, and stale ones removed ==== */

/* Folders beyond FOLDERS_MAX are left for another run. */
enum { LONGEST_NAME = 255, DIGITS = 8, STALE_SECONDS = 60, FOLDERS_MAX = 64, TRIES = 100 };

static const char mark[] = ".kvarc-", folder_mark[] = ".d";
enum { ENDING = sizeof(mark) - 1 + DIGITS, FOLDER_ENDING = sizeof(folder_mark) - 1 };

/* Differs by process, time and attempt. NULL: out of memory. */
static char *new_name(const char *base, bool is_folder, unsigned attempt)
{
	struct timespec t;
	size_t keep = strlen(base);
	char *name = malloc(LONGEST_NAME + 1);

	if (!name)
		return NULL;
	if (keep > LONGEST_NAME - 1 - ENDING - FOLDER_ENDING)
		keep = LONGEST_NAME - 1 - ENDING - FOLDER_ENDING;
	clock_gettime(CLOCK_MONOTONIC, &t);
	snprintf(name, LONGEST_NAME + 1, ".%.*s%s%08" PRIx32 "%s", (int)keep, base, mark,
	         (uint32_t)(((uint64_t)t.tv_nsec << 12) ^ ((uint64_t)getpid() * 2654435761u) ^
	                    attempt),
	         is_folder ? folder_mark : "");
	return name;
}

static bool is_temporary_name(const char *name, bool *is_folder)
{
	size_t n = strlen(name);

	*is_folder = n > FOLDER_ENDING && strcmp(name + n - FOLDER_ENDING, folder_mark) == 0;
	n -= *is_folder ? FOLDER_ENDING : 0;
	return name[0] == '.' && n > ENDING &&
	       memcmp(name + n - ENDING, mark, sizeof(mark) - 1) == 0 &&
	       strspn(name + n - DIGITS, "0123456789abcdef") == DIGITS;
}

static bool lock(int fd)
{
	return flock(fd, LOCK_EX | LOCK_NB) == 0;
}

static bool same_file(const struct stat *stat, const struct stat *b)
{
	return stat->st_dev == b->st_dev && stat->st_ino == b->st_ino;
}

/* Whether the folder was not looked at before. */
static bool is_new_folder(int dirfd)
{
	static struct stat seen[FOLDERS_MAX];
	static size_t n;
	struct stat st;

	if (n == FOLDERS_MAX || fstat(dirfd, &st) != 0)
		return false;
	for (size_t i = 0; i < n; i++) {
		if (same_file(&seen[i], &st))
			return false;
	}
	seen[n++] = st;
	return true;
}

/* Calls visit for all names in a folder. */
static void visit_names(int dirfd, void (*visit)(int dirfd, const char *name, time_t now),
                        time_t now)
{
	int again = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = again < 0 ? NULL : fdopendir(again);
	const struct dirent *entry;

	if (!d && again >= 0)
		close(again);
	while (d && (entry = readdir(d)) != NULL)
		visit(dirfd, entry->d_name, now);
	if (d)
		closedir(d);
}

static void remove_numbered(int dirfd, const char *name, time_t unused)
{
	(void)unused;
	if (name[strspn(name, "0123456789")] == '\0')
		unlinkat(dirfd, name, 0);
}

static void remove_if_stale(int dirfd, const char *name, time_t now)
{
	struct stat st, again;
	bool is_folder;
	int fd;

	if (!is_temporary_name(name, &is_folder) ||
	    fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
	    (st.st_mode & S_IFMT) != (is_folder ? S_IFDIR : S_IFREG) || st.st_uid != geteuid() ||
	    now - st.st_mtime < STALE_SECONDS)
		return;
	/* O_RDWR: over NFS only a file that is open for writing can be locked. */
	fd = openat(dirfd, name,
	            (is_folder ? O_RDONLY | O_DIRECTORY : O_RDWR) | O_NOFOLLOW | O_NONBLOCK |
	                    O_CLOEXEC);
	if (fd < 0)
		return;
	if (lock(fd) && fstat(fd, &again) == 0 && same_file(&st, &again) &&
	    fstatat(dirfd, name, &again, AT_SYMLINK_NOFOLLOW) == 0 && same_file(&st, &again)) {
		if (is_folder)
			visit_names(fd, remove_numbered, now);
		unlinkat(dirfd, name, is_folder ? AT_REMOVEDIR : 0);
	}
	close(fd);
}

/* Makes and registers. O_EXCL and mkdir keep us off what someone else put there. */
static int make(int dirfd, const char *name, const unsigned *n_files, int *error)
{
	int flags = n_files ? O_RDONLY | O_DIRECTORY : O_RDWR | O_CREAT | O_EXCL;
	bool made = false;
	int fd = -1;

	signals_hold();
	if (!n_files || mkdirat(dirfd, name, 0700) == 0) {
		fd = openat(dirfd, name, flags | O_NOFOLLOW | O_CLOEXEC, 0600);
		made = n_files || fd >= 0;
	}
	*error = errno;
	if (fd >= 0 && !signals_remember(dirfd, name, fd, n_files)) {
		*error = ENOMEM;
		close(fd);
		fd = -1;
	}
	if (fd < 0 && made)
		unlinkat(dirfd, name, n_files ? AT_REMOVEDIR : 0);
	signals_release();
	return fd;
}

/*
 * Makes an empty file ".BASE.kvarc-1a2b3c4d" in the folder dirfd for an output file called base,
 * which is cut to what a folder can hold, or with n_files a folder ".BASE.kvarc-1a2b3c4d.d" for
 * files with the names "0" to *n_files - 1. Returns its descriptor (a file: open for reading and
 * writing) and in name its name, which the caller frees after signals_forget or signals_remove; -1:
 * errno is set.
 *
 * Registered (signals.h) and in use, by an advisory lock, until the descriptor and its duplicates
 * are closed, which the end of the process does, too; without locks in the file system nothing is.
 *
 * The first call in a folder removes what killed runs left there: files and folders of this user
 * with such names that nobody has locked, last changed a minute or more before the new one, by the
 * clock of the file system. What cannot be locked or removed stays; nothing is reported.
 */
static int tempfile_make(int dirfd, const char *base, const unsigned *n_files, char **name)
{
	struct stat own;
	int fd = -1, error = EEXIST;

	for (unsigned i = 0; i < TRIES && fd < 0 && error == EEXIST; i++) {
		*name = new_name(base, n_files, i);
		error = ENOMEM;
		if (*name)
			fd = make(dirfd, *name, n_files, &error);
		if (fd < 0)
			free(*name);
	}
	if (fd < 0) {
		*name = NULL;
		errno = error;
		return -1;
	}
	bool ignored = lock(fd);
	(void)ignored;
	if (is_new_folder(dirfd) && fstat(fd, &own) == 0)
		visit_names(dirfd, remove_if_stale, own.st_mtime);
	return fd;
}

/* Closes *fd unless it is -1, and sets it to -1. Returns 0 or the errno. */
static int tempfile_close(int *fd)
{
	int error = *fd >= 0 && close(*fd) != 0 ? errno : 0;

	*fd = -1;
	return error == EINTR ? 0 : error;
}

/* ==== A temporary folder for more files than there are descriptors ==== */

enum { MAX_OPEN = 32, NAME_SIZE = 16 };

struct staging {
	int parent, folder;
	char *name;       /* name of folder in parent */
	unsigned n_files; /* number of files that were made */
	struct {
		int fd; /* -1: none */
		unsigned number;
	} open[MAX_OPEN]; /* file i at i % MAX_OPEN */
};

struct staging *staging_open(int dirfd, const char *base)
{
	struct staging *g = calloc(1, sizeof(*g));
	int error;

	if (!g)
		return NULL;
	for (size_t i = 0; i < MAX_OPEN; i++)
		g->open[i].fd = -1;
	g->folder = -1;
	g->parent = fcntl(dirfd, F_DUPFD_CLOEXEC, 3);
	if (g->parent >= 0)
		g->folder = tempfile_make(g->parent, base, &g->n_files, &g->name);
	if (g->folder >= 0)
		return g;
	error = errno;
	staging_close(g);
	errno = error;
	return NULL;
}

void staging_close(struct staging *staging)
{
	if (!staging)
		return;
	for (size_t i = 0; i < MAX_OPEN; i++)
		tempfile_close(&staging->open[i].fd);
	if (staging->name)
		signals_remove(staging->name);
	tempfile_close(&staging->folder);
	tempfile_close(&staging->parent);
	free(staging->name);
	free(staging);
}

bool staging_reaches(const struct staging *staging, int dirfd)
{
	struct stat here, there;

	return fstat(staging->folder, &here) == 0 && fstat(dirfd, &there) == 0 &&
	       here.st_dev == there.st_dev;
}

static int open_file(struct staging *staging, unsigned number, int flags, char name[NAME_SIZE])
{
	unsigned i = number % MAX_OPEN;

	snprintf(name, NAME_SIZE, "%u", number);
	errno = tempfile_close(&staging->open[i].fd);
	if (errno != 0)
		return -1;
	staging->open[i].number = number;
	staging->open[i].fd = openat(staging->folder, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | flags,
	                             0600);
	return staging->open[i].fd;
}

/* Makes an empty file. Returns its name, which the caller frees; NULL: errno is set. */
static char *staging_make(struct staging *staging, unsigned *number)
{
	char *name = malloc(NAME_SIZE);
	int fd = -1, error = errno;

	if (name) {
		*number = staging->n_files;
		signals_hold();
		fd = open_file(staging, *number, O_CREAT | O_EXCL, name);
		error = errno;
		staging->n_files += fd >= 0;
		signals_release();
	}
	if (fd < 0)
		free(name);
	errno = error;
	return fd < 0 ? NULL : name;
}

/* Opens the file for reading and writing, unless it is; the descriptor stays that of staging, until
 * the next call. -1: errno is set, also by a failure to close another file. */
static int staging_fd(struct staging *staging, unsigned number)
{
	unsigned i = number % MAX_OPEN;
	char name[NAME_SIZE];

	if (staging->open[i].fd >= 0 && staging->open[i].number == number)
		return staging->open[i].fd;
	return open_file(staging, number, 0, name);
}

/* Closes the file if it is open. Returns 0 or the errno. */
static int staging_close_file(struct staging *staging, unsigned number)
{
	unsigned i = number % MAX_OPEN;

	return staging->open[i].number == number ? tempfile_close(&staging->open[i].fd) : 0;
}

/* ==== Files that appear complete under their name, or not at all ==== */

/* appends: the command names its archive without -o. */
static const char *advice(int error, bool appends)
{
	switch (error) {
	case ENOSPC:
		return appends ? "; free some space"
		               : "; free some space, or choose another place with -o";
	case EDQUOT:
		return "; your quota is used up";
	case EFBIG:
		return "; a file size limit is set (ulimit -f)";
	case EROFS:
	case EACCES:
		return appends ? "; choose another place for the archive"
		               : "; choose another place with -o";
	default:
		return "";
	}
}

void output_report(const struct output *out)
{
	if (out->error == EEXIST) {
		msg_error(out->name, "%s",
		          out->appends ? "another program has made it meanwhile, or it is a link "
		                         "to nothing; try again"
		                       : "exists already; use -f to overwrite it");
		return;
	}
	msg_error(out->name, "cannot write: %s%s", strerror(out->error),
	          advice(out->error, out->appends));
}

static bool fail(struct output *out, int error)
{
	out->error = error;
	output_report(out);
	output_abort(out);
	return false;
}

bool output_check(const char *path, bool force)
{
	struct stat st;

	if (force || strcmp(path, "-") == 0 || lstat(path, &st) != 0)
		return true;
	/* A device or a pipe is written to, not replaced. */
	if (stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
		return true;
	msg_error(path, "exists already; use -f to overwrite it");
	return false;
}

static bool make_temporary(struct output *out)
{
	out->tempdir = out->dirfd;
	out->fd = tempfile_make(out->dirfd, out->base, NULL, &out->temp);
	return out->fd >= 0 ? true : fail(out, errno);
}

/* Splits path; opens its folder. */
static bool open_folder(struct output *out, const char *path)
{
	char *folder = paths_folder(path);

	out->base = strdup(paths_base(path));
	if (!out->base || !folder) {
		free(folder);
		return fail(out, ENOMEM);
	}
	out->dirfd = open(*folder ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	free(folder);
	return out->dirfd >= 0 ? true : fail(out, errno);
}

static bool open_stream(struct output *out, const char *path, bool random)
{
	int fd;

	if (out->is_stdout) {
		if (isatty(STDOUT_FILENO)) {
			msg_error(NULL, "binary data is not written to a terminal; "
			                "redirect standard output, or use -o FILE");
			return false;
		}
		fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
	} else {
		fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
	}
	if (fd < 0)
		return fail(out, errno);
	out->direct = !random;
	if (!random) {
		out->fd = fd;
		return true;
	}
	out->stream = fd;
	out->fd = input_temporary();
	return out->fd >= 0 ? true : fail(out, errno);
}

bool output_open(struct output *out, const char *path, unsigned flags, mode_t mode)
{
	bool random = flags & OUTPUT_RANDOM;
	struct stat st;

	memset(out, 0, sizeof(*out));
	out->dirfd = out->fd = out->stream = -1;
	out->is_stdout = strcmp(path, "-") == 0;
	out->name = out->is_stdout ? "(stdout)" : path;
	out->force = flags & OUTPUT_FORCE;
	out->appends = flags & OUTPUT_APPENDS;
	out->random = random;
	out->mode = mode;
	if (out->is_stdout)
		return open_stream(out, path, random);
	if (flags & OUTPUT_NEW) {
		if (lstat(path, &st) == 0 && (S_ISDIR(st.st_mode) || !out->force))
			return fail(out, S_ISDIR(st.st_mode) ? EISDIR : EEXIST);
	} else if (stat(path, &st) == 0) {
		if (S_ISDIR(st.st_mode))
			return fail(out, EISDIR);
		/* A device or a named pipe is written to, never replaced. */
		if (!S_ISREG(st.st_mode))
			return open_stream(out, path, random);
	}
	if (!(flags & (OUTPUT_NEW | OUTPUT_APPENDS)) && !output_check(path, out->force))
		return false;
	return open_folder(out, path) && make_temporary(out);
}

bool output_open_at(struct output *out, int dirfd, const char *base, const char *name,
                    unsigned flags, mode_t mode, struct staging *staging)
{
	struct stat st;

	memset(out, 0, sizeof(*out));
	out->dirfd = out->fd = out->stream = -1;
	out->name = name;
	out->force = flags & OUTPUT_FORCE;
	out->random = flags & OUTPUT_RANDOM;
	out->mode = mode;
	if (!out->force && fstatat(dirfd, base, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return fail(out, EEXIST);
	out->base = strdup(base);
	if (!out->base)
		return fail(out, ENOMEM);
	if (staging) {
		out->temp = staging_make(staging, &out->number);
		out->tempdir = staging->folder;
		out->staging = out->temp ? staging : NULL;
		return out->temp ? true : fail(out, errno);
	}
	out->dirfd = fcntl(dirfd, F_DUPFD_CLOEXEC, 3);
	return out->dirfd >= 0 ? make_temporary(out) : fail(out, errno);
}

/* As output_fd, without the bytes of a group. */
static int fd_of(const struct output *out)
{
	return out->staging ? staging_fd(out->staging, out->number) : out->fd;
}

/* Starts to write back data that is written in order, so that the fsync at the end finds little to
 * do. Only a hint: fsync does the rest. */
static void start_writeback(struct output *out, int fd, uint64_t from, uint64_t end)
{
	enum { AT_ONCE = 8 << 20 };

	if (out->direct || from != out->without_gap)
		return;
	out->without_gap = end;
	if (end - out->on_its_way < AT_ONCE)
		return;
#ifdef HAVE_SYNC_FILE_RANGE
	(void)sync_file_range(fd, (off_t)out->on_its_way, (off_t)(end - out->on_its_way),
	                      SYNC_FILE_RANGE_WRITE);
#else
	(void)fd;
#endif
	out->on_its_way = end;
}

/* Writes bytes as they are. Returns 0, -1: out->error says why. */
static int write_now(struct output *out, const char *p, size_t bytes, uint64_t offset)
{
	const uint64_t from = offset;
	int fd = fd_of(out);

	if (fd < 0 || (out->direct && offset != out->position)) {
		out->error = fd < 0 ? errno : ESPIPE;
		return -1;
	}
	while (bytes) {
		ssize_t n = out->direct ? write(fd, p, bytes) : pwrite(fd, p, bytes, (off_t)offset);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			out->error = n < 0 ? errno : EIO;
			return -1;
		}
		p += n;
		bytes -= (size_t)n;
		offset += (uint64_t)n;
		out->position = offset;
	}
	start_writeback(out, fd, from, offset);
	return 0;
}

/* Writes the group, if there is one. */
static int write_group(struct output *out)
{
	const size_t n = out->group_bytes;

	out->group_bytes = 0;
	return n ? write_now(out, out->group, n, out->group_at) : 0;
}

/*
 * A file that is written in order is written in groups that begin and end at multiples of their
 * size: fewer calls, and large pieces of the page cache. A pipe gets all at once, as somebody may
 * wait for it.
 */
static int write_at(void *opaque, const void *buf, size_t bytes, uint64_t offset)
{
	enum { GROUP = 128 << 10, ALIGN = 4096 };
	struct output *out = opaque;
	const char *p = buf;

	if (offset + bytes > out->size)
		out->size = offset + bytes;
	if (!out->group && !out->direct && !out->random)
		out->group = aligned_alloc(ALIGN, GROUP);
	if (!out->group)
		return write_now(out, p, bytes, offset);
	if (offset != out->group_at + out->group_bytes && write_group(out) != 0)
		return -1;
	while (bytes) {
		size_t left = GROUP - (size_t)(offset % GROUP), n = bytes < left ? bytes : left;

		if (out->group_bytes == 0)
			out->group_at = offset;
		memcpy(out->group + out->group_bytes, p, n);
		out->group_bytes += n;
		if (n == left && write_group(out) != 0)
			return -1;
		p += n;
		offset += n;
		bytes -= n;
	}
	return 0;
}

int output_fd(struct output *out)
{
	if (write_group(out) == 0)
		return fd_of(out);
	errno = out->error;
	return -1;
}

kvarc_sink output_sink(struct output *out)
{
	kvarc_sink s = { .write = write_at, .opaque = out };

	return s;
}

bool output_truncate(struct output *out, uint64_t size)
{
	int fd = output_fd(out);

	if (out->direct || (fd >= 0 && ftruncate(fd, (off_t)size) == 0))
		return true;
	out->error = errno;
	output_report(out);
	return false;
}

/* Copies the unlinked temporary file to the stream. */
static int copy_out(struct output *out)
{
	enum { PIECE = 1 << 16 };
	char *buf = malloc(PIECE);
	struct output to = { .fd = out->stream, .direct = true };
	ssize_t n = -1;
	int error = buf ? 0 : ENOMEM;

	while (error == 0 && (n = pread(out->fd, buf, PIECE, (off_t)to.position)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			error = errno;
		else if (write_at(&to, buf, (size_t)n, to.position) != 0)
			error = to.error;
	}
	free(buf);
	return error;
}

static int close_written(struct output *out)
{
	return out->staging ? staging_close_file(out->staging, out->number)
	                    : tempfile_close(&out->fd);
}

/* Gives the file its name, without replacing another one, except with --force. */
static int publish(struct output *out)
{
	int error = 0;

	if (out->force)
		return renameat(out->tempdir, out->temp, out->dirfd, out->base) == 0 ? 0 : errno;
	if (linkat(out->tempdir, out->temp, out->dirfd, out->base, 0) == 0) {
		unlinkat(out->tempdir, out->temp, 0);
		return 0;
	}
	error = errno;
	if (error == EEXIST)
		return error;
	/* The file system has no hard links: reserve the name, then rename over it. */
	int fd = openat(out->dirfd, out->base, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
	                0600);
	if (fd < 0)
		return errno;
	close(fd);
	if (renameat(out->tempdir, out->temp, out->dirfd, out->base) == 0)
		return 0;
	error = errno;
	unlinkat(out->dirfd, out->base, 0);
	return error;
}

/* Gives it its name while it is locked: without a lock another run could take it for stale. */
static int publish_locked(struct output *out, int fd)
{
	int locked = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	int error = close_written(out);

	if (error == 0) {
		signals_hold();
		error = publish(out);
		if (error == 0) {
			signals_forget(out->temp);
			free(out->temp);
			out->temp = NULL;
		}
		signals_release();
	}
	tempfile_close(&locked);
	return error;
}

static int commit_file(struct output *out)
{
	const struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, out->mtime };
	mode_t mode = out->mode;
	int fd = output_fd(out), error;

	if (fd < 0)
		return errno;
	if (mode == 0) {
		mode_t mask = umask(077);
		umask(mask);
		mode = 0666 & ~mask;
	}
	/* File systems without permissions fail here. */
	if (fchmod(fd, mode) != 0 && errno != EPERM && errno != ENOTSUP)
		return errno;
	/* File systems may have no times, or not every time. */
	if (out->mtime.tv_sec || out->mtime.tv_nsec)
		(void)futimens(fd, times);
	if (fsync(fd) != 0 && errno != EINVAL)
		return errno;
	error = publish_locked(out, fd);
	if (error == 0 && fsync(out->dirfd) != 0 && errno != EINVAL && errno != EACCES)
		error = errno;
	return error;
}

bool output_commit(struct output *out)
{
	int error;

	if (out->temp) {
		error = commit_file(out);
	} else {
		error = out->direct ? 0 : copy_out(out);
		if (error == 0)
			error = tempfile_close(out->direct ? &out->fd : &out->stream);
	}
	if (error)
		return fail(out, error);
	output_abort(out);
	return true;
}

void output_abort(struct output *out)
{
	free(out->group);
	out->group = NULL;
	out->group_bytes = 0;
	close_written(out);
	tempfile_close(&out->stream);
	if (out->temp) {
		if (out->staging)
			unlinkat(out->tempdir, out->temp, 0);
		else
			signals_remove(out->temp);
		free(out->temp);
		out->temp = NULL;
	}
	tempfile_close(&out->dirfd);
	free(out->base);
	out->base = NULL;
}
