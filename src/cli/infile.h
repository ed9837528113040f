/* SPDX-License-Identifier: BSD-3-Clause */
/* infile.h - files and standard input as sources of the library */
#ifndef KVARC_CLI_INFILE_H
#define KVARC_CLI_INFILE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>

#include "kvarc.h"
#include "signals.h"

/* A file that is read, or standard input. */
struct input {
	const char *name; /* name as on the command line */
	int fd;
	int error; /* errno of a read that failed */
	bool is_stdin;
	bool seekable;
	mode_t mode; /* permission bits, for what is made from it */
	bool has_mtime;
	struct timespec mtime; /* time of a file that has a name, else zero */
	uint64_t base;         /* offset of its first byte */
	uint64_t size;         /* KVARC_UNKNOWN when not seekable */
	uint64_t position;
	struct mapped_file map; /* map of the whole file, or none: it is read */
	bool is_ahead;          /* the system is asked to read ahead, ... */
	atomic_ullong ahead;    /* ... up to here */
};

/* SLOT: of a folder that another program writes to: what has the name is no link. STDIN: "-" is
 * standard input. */
enum { INPUT_SLOT = 1, INPUT_STDIN = 2 };
/*
 * Opens a file for reading; every name that the command reads goes through this call, so that none
 * is waited for, or read without end: a regular file, or a pipe or socket that the command was
 * given open (standard input, /dev/fd/N of a shell's <(...)). *st is its state. -1: a message was
 * shown.
 */
int input_open_fd(const char *name, unsigned flags, struct stat *st);
/* Opens a text with input_open_fd. NULL: a message was shown. */
FILE *input_fopen(const char *name);
/*
 * Opens a file, "-" for standard input. With seek a pipe is first copied to an
 * unlinked temporary file. On failure a message was shown and nothing is open.
 */
bool input_open(struct input *in, const char *name, bool seek);
/* Opens a file as input_open does, with flags such as INPUT_SLOT. */
bool input_open_as(struct input *in, const char *name, bool seek, unsigned flags);
/* Makes an input of an open regular file, which input_close closes, with a name for messages.
 * False: a message was shown, and fd is closed. */
bool input_of_fd(struct input *in, const char *name, int fd);
/*
 * Maps a file that is read whole, from its first byte: sources made from now on are in memory, and
 * their reads copy from there. Where there is nothing to map, or too much, it is read as without a
 * map. Of a file that becomes shorter, or whose disk fails, the memory may have zeros: ask
 * input_is_gone behind the last use of it.
 */
void input_map(struct input *in);
/* Whether bytes that were read from the map of a file may be other ones. */
bool input_is_gone(const struct input *in);
/* Asks the system, from now on, to read ahead of reads that go through a file in no strict order,
 * which it does not notice itself. */
void input_read_ahead(struct input *in);
/* Closes the file; one that was never opened has fd -1. */
void input_close(struct input *in);
/* Makes a source of an input; in must stay where it is while the source is in use. */
kvarc_source input_source(struct input *in);
/* Whether the first 8 bytes are these; needs a seekable input. */
bool input_starts_with(struct input *in, const unsigned char magic[8]);
/* Whether the file starts like an archive; needs a seekable input. */
bool input_is_archive(struct input *in);

/* An open file in TMPDIR, /var/tmp or /tmp that has no name; -1: errno is set. */
int input_temporary(void);

#endif
