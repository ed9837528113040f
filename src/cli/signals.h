/* SPDX-License-Identifier: BSD-3-Clause */
/* signals.h - temporary files are removed when the command is interrupted */
#ifndef KVARC_CLI_SIGNALS_H
#define KVARC_CLI_SIGNALS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * Call once, before any other thread starts. SIGINT, SIGTERM and SIGHUP, unless
 * they are ignored, go to a thread that waits for them, removes the remembered
 * files and lets the signal end the process.
 */
void signals_init(void);

/*
 * Sets the message, with its newline, for a mapped file that cannot be read any more (SIGBUS): it
 * became shorter, or its disk failed. The remembered files are removed then, and the exit status is
 * 1. Without a message SIGBUS ends the process as usual. message stays until the process ends; call
 * before a file is mapped.
 */
void signals_explain_bus_error(const char *message);

/* A file that is mapped to be read. */
struct mapped_file {
	void *p; /* NULL: there is none */
	size_t bytes;
	atomic_bool gone; /* a page could not be read: from there on there are zeros */
};
/*
 * Maps the first bytes of a file. Where they cannot be read, as above, SIGBUS ends nothing: `gone`
 * is set in place of that, before any thread sees zeros. map stays where it is until signals_unmap.
 * False: there are too many, or the system has no map.
 */
bool signals_map(struct mapped_file *map, int fd, size_t bytes);
/* Ends a map, if there is one. */
void signals_unmap(struct mapped_file *map);

/* fn is called before a signal ends the command, in another thread. The last call counts. */
void signals_at_end(void (*fn)(void));

/* Holds signals: no file is removed until signals_release. Hold them while a temporary file comes
 * or goes together with its registration. */
void signals_hold(void);
/* Lets signals through again; one that came meanwhile is delivered now. */
void signals_release(void);

/*
 * A temporary file, or with n_files the folder fd, in which there may be files with the names "0"
 * to *n_files - 1. All stay until _forget or _remove; dirfd holds name. Call this and _forget while
 * held. false: out of memory.
 */
bool signals_remember(int dirfd, const char *name, int fd, const unsigned *n_files);
/* Forgets a file that was published or removed. */
void signals_forget(const char *name);
/* Removes and forgets, a folder with its files, and holds signals meanwhile. */
void signals_remove(const char *name);

#endif
