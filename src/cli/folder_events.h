/* SPDX-License-Identifier: BSD-3-Clause */
/* folder_events.h - waits until something happens to the files of a folder */
#ifndef KVARC_CLI_FOLDER_EVENTS_H
#define KVARC_CLI_FOLDER_EVENTS_H

#include <stdbool.h>

/* What the system reports of a folder; fd -1: nothing, folder_events_wait sleeps. */
struct folder_events {
	int fd;
};

/* closed: the file is complete as far as its writer is concerned, or has its final name now; else
 * it is being written. name NULL: there were more events than the system keeps, and some are
 * lost. */
typedef void folder_event_fn(void *opaque, const char *name, bool closed);

/* Starts to listen, with inotify where there is one. Never fails. */
void folder_events_open(struct folder_events *e, const char *folder, bool poll);
/* Calls fn for each event; returns after the first ones, or after this number of milliseconds. */
void folder_events_wait(struct folder_events *e, int milliseconds, folder_event_fn *fn,
                        void *opaque);
/* Stops listening. */
void folder_events_close(struct folder_events *e);

#endif
