/* SPDX-License-Identifier: BSD-3-Clause */
/* watch.c - whether a file changes while it is read, and its removal when it does not */
#include "config.h"

#include "watch.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "message.h"

/* Longer than the tick of the clock that time stamps of files come from. */
enum { TICK_NS = 20000000, TRIES = 5 };

static bool same_time(const struct timespec *time, const struct timespec *when)
{
	return time->tv_sec == when->tv_sec && time->tv_nsec == when->tv_nsec;
}

/* Two writes within one tick of the clock have the same time stamp. */
static bool is_fresh(const struct stat *st)
{
	struct timespec now;
	int64_t age;

	if (clock_gettime(CLOCK_REALTIME, &now) != 0 || now.tv_sec - st->st_ctim.tv_sec > 1)
		return false;
	age = (int64_t)(now.tv_sec - st->st_ctim.tv_sec) * 1000000000 +
	      (now.tv_nsec - st->st_ctim.tv_nsec);
	return age < TICK_NS;
}

/* A lease for readers on an open file: the system gives none while any process has the file open
 * for writing, or maps it so. EAGAIN: that is so; 0: it is given; others: leases are not possible
 * (the file is another user's, or its file system has none). */
static int take_lease(int fd)
{
#ifdef F_SETLEASE
	return fcntl(fd, F_SETLEASE, F_RDLCK) == 0 ? 0 : errno;
#else
	(void)fd;
	return ENOSYS;
#endif
}

static void give_lease(int fd)
{
#ifdef F_SETLEASE
	(void)!fcntl(fd, F_SETLEASE, F_UNLCK);
#else
	(void)fd;
#endif
}

/* The system sends it to who has a lease when a writer waits for the file: not for long, here. */
static void ignore_lease_signal(void)
{
#ifdef SIGIO
	signal(SIGIO, SIG_IGN);
#endif
}

static bool has_writer(const struct input *in)
{
	int error;

	ignore_lease_signal();
	error = take_lease(in->fd);
	if (error == 0)
		give_lease(in->fd);
	return error == EAGAIN;
}

void watch_start(struct watch *w, const struct input *in)
{
	const struct timespec tick = { 0, TICK_NS };

	memset(w, 0, sizeof(*w));
	for (int i = 0; i < TRIES; i++) {
		if (fstat(in->fd, &w->st) != 0 || !S_ISREG(w->st.st_mode) || w->st.st_nlink == 0)
			return; /* a copy without a name cannot change */
		if (!is_fresh(&w->st))
			break;
		nanosleep(&tick, NULL);
	}
	w->active = true;
}

/* Behind watch_start: a writer that opens the file later changes its times with its first write,
 * and one that had it open before that may not, where its pages were written before. */
void watch_start_removal(struct watch *w, const struct input *in)
{
	watch_start(w, in);
	w->has_writer = w->active && has_writer(in);
}

static bool differs(const struct stat *was, const struct stat *is, char *what, size_t bytes)
{
	if (was->st_dev != is->st_dev || was->st_ino != is->st_ino)
		snprintf(what, bytes, "the name now stands for another file");
	else if (was->st_size != is->st_size)
		snprintf(what, bytes, "its size went from %" PRId64 " to %" PRId64 " bytes",
		         (int64_t)was->st_size, (int64_t)is->st_size);
	else if (!same_time(&was->st_mtim, &is->st_mtim))
		snprintf(what, bytes, "it was written to");
	else if (!same_time(&was->st_ctim, &is->st_ctim))
		snprintf(what, bytes, "its name, links or attributes were changed");
	else
		return false;
	return true;
}

static bool is_gone(const struct input *in, char *what, size_t bytes)
{
	if (!input_is_gone(in))
		return false;
	snprintf(what, bytes, "a part of it could not be read");
	return true;
}

bool watch_changed(const struct watch *w, const struct input *in, char *what, size_t bytes)
{
	struct stat st;

	if (!w->active)
		return is_gone(in, what, bytes);
	if (fstat(in->fd, &st) != 0) {
		snprintf(what, bytes, "%s", strerror(errno));
		return true;
	}
	/* input_open looked at the size before watch_start; 0 is also the size of what starts
	 * behind the end */
	if (in->base + in->size != (uint64_t)st.st_size &&
	    (in->size || (uint64_t)st.st_size > in->base)) {
		snprintf(what, bytes, "its size went from %" PRIu64 " to %" PRId64 " bytes",
		         in->base + in->size, (int64_t)st.st_size);
		return true;
	}
	return differs(&w->st, &st, what, bytes) || is_gone(in, what, bytes);
}

/* Whether the file that the input's name stands for now has changed, as watch_changed does for the
 * open file (symbolic links are not followed); also true when there is none. */
static bool watch_name_changed(const struct watch *w, const struct input *in, char *what,
                               size_t bytes)
{
	struct stat st;

	if (lstat(in->name, &st) != 0) {
		snprintf(what, bytes, "%s", strerror(errno));
		return true;
	}
	return !w->active || differs(&w->st, &st, what, bytes);
}

bool watch_input_changed(const struct input *in, char *what, size_t bytes)
{
	struct watch w = { .active = true };
	struct stat st;

	if (in->fd < 0 || !in->has_mtime || fstat(in->fd, &st) != 0)
		return false;
	w.st = st;
	w.st.st_mtim = in->mtime;
	return watch_changed(&w, in, what, bytes);
}

static const char has_writer_text[] = "another process has it open for writing, or maps it so: "
				      "what it writes later would be lost";

void watch_remove(const struct watch *w, const struct input *in)
{
	char what[96];
	bool written = w->has_writer;

	ignore_lease_signal();
	/* The lease makes a writer that comes now wait until the file is closed. */
	written = take_lease(in->fd) == EAGAIN || written;
	if (watch_name_changed(w, in, what, sizeof(what)))
		msg_warning(in->name, "not removed: %s", what);
	else if (written)
		msg_warning(in->name, "not removed: %s", has_writer_text);
	else if (unlink(in->name) != 0)
		msg_warning(in->name, "not removed: %s", strerror(errno));
	give_lease(in->fd);
}
