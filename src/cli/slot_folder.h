/* SPDX-License-Identifier: BSD-3-Clause */
/* slot_folder.h - the files of a folder, and which of them have settled */
#ifndef KVARC_CLI_SLOT_FOLDER_H
#define KVARC_CLI_SLOT_FOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

/* A regular file, as it was when the folder was read last. */
struct folder_file {
	char *name;
	struct stat st;
	int64_t since; /* when it had this state first, in milliseconds */
	bool closed;   /* its writer has closed it */
	bool open;     /* it is being written, and its writer may pause for longer */
	bool taken;    /* in this state */
	bool tried;    /* it was given out in this state, and is to be given out once more */
	bool there;    /* in the folder */
};

/* Hidden files and folders are left out. Begins with all zero but the path. */
struct slot_folder {
	const char *path;
	struct folder_file *list;
	size_t n, cap;
	size_t *table; /* by hashes of names: numbers in the list, plus 1; 0: free */
	size_t slots;  /* of the table, a power of 2 */
	size_t next;   /* that slot_folder_next looks at */
};

/* Reads the folder again. false: it cannot be read, a message was shown. */
bool slot_folder_scan(struct slot_folder *f);
/* An event of a file (folder_event_fn); opaque is the folder. */
void slot_folder_event(void *opaque, const char *name, bool closed);
/* The next file that has settled: unchanged for a second, for a fifth of one where it was closed,
 * or for ten where it is open, as the system may not report the end of that. It is not given out
 * again before it changes, or slot_folder_again and another scan. NULL: there is none. It stays
 * valid until the next scan or event. */
struct folder_file *slot_folder_next(struct slot_folder *f);
/* Gives the file out once more, when it has stayed as it is for some seconds. */
void slot_folder_again(struct folder_file *x);
/* How many files are still to settle. */
size_t slot_folder_waiting(const struct slot_folder *f);
/* Frees the list. */
void slot_folder_free(struct slot_folder *f);

#endif
