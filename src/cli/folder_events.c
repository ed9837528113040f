/* SPDX-License-Identifier: BSD-3-Clause */
/* folder_events.c - waits until something happens to the files of a folder */
#include "config.h"

#include "folder_events.h"

#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>
#ifdef HAVE_SYS_INOTIFY_H
#include <sys/inotify.h>
#endif

void folder_events_open(struct folder_events *e, const char *folder, bool poll)
{
	e->fd = -1;
#ifdef HAVE_SYS_INOTIFY_H
	if (poll)
		return;
	e->fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	if (e->fd >= 0 &&
	    inotify_add_watch(e->fd, folder, IN_CLOSE_WRITE | IN_MOVED_TO | IN_MODIFY) < 0)
		folder_events_close(e);
#else
	(void)folder;
	(void)poll;
#endif
}

#ifdef HAVE_SYS_INOTIFY_H
static void report(const char *buf, size_t n, folder_event_fn *fn, void *opaque)
{
	struct inotify_event x;

	for (size_t at = 0; at + sizeof(x) <= n; at += sizeof(x) + x.len) {
		memcpy(&x, buf + at, sizeof(x));
		if (x.mask & IN_Q_OVERFLOW)
			fn(opaque, NULL, false);
		else if (x.len)
			fn(opaque, buf + at + sizeof(x), !(x.mask & IN_MODIFY));
	}
}
#endif

void folder_events_wait(struct folder_events *e, int milliseconds, folder_event_fn *fn,
                        void *opaque)
{
	struct pollfd p = { .fd = e->fd, .events = POLLIN };

	if (poll(&p, 1, milliseconds) <= 0)
		return;
#ifdef HAVE_SYS_INOTIFY_H
	char buf[4096];
	ssize_t n;

	while ((n = read(e->fd, buf, sizeof(buf))) > 0)
		report(buf, (size_t)n, fn, opaque);
#else
	(void)fn;
	(void)opaque;
#endif
}

void folder_events_close(struct folder_events *e)
{
	if (e->fd >= 0)
		close(e->fd);
	e->fd = -1;
}
