/* SPDX-License-Identifier: BSD-3-Clause */
/* outfile.h - files that appear complete under their name, or not at all; many in one folder */
#ifndef KVI_OUTFILE_H
#define KVI_OUTFILE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "kvarc.h"

/* ==== A temporary folder for more files than there are descriptors ==== */

/* A folder with files "0", "1", ..., the last used of which are open. One thread at a time. */
struct staging;

/* Makes the folder in the folder dirfd, named after base. The caller frees it with
 * staging_close. NULL: errno is set. */
struct staging *staging_open(int dirfd, const char *base);
/* Removes the folder with its files, frees; staging may be NULL. */
void staging_close(struct staging *staging);
/* Whether files can get a name in the folder dirfd: the same file system. */
bool staging_reaches(const struct staging *staging, int dirfd);

/* ==== Files that appear complete under their name, or not at all ==== */

/*
 * A regular file is written under a temporary name (0600, O_EXCL) in its
 * folder, then synchronised, closed and renamed. Standard output, pipes and
 * devices are written as they are; what needs random access goes through an
 * unlinked temporary file first.
 */
struct output {
	const char *name; /* name for messages */
	char *base;       /* last component of the path */
	char *temp;       /* NULL: there is no temporary name */
	int tempdir;      /* folder of temp; not owned */
	int dirfd, fd;    /* fd is where bytes go */
	int stream;       /* the copy's target, -1: none */
	int error;        /* errno of a write that failed */
	bool force, direct, is_stdout, appends, random;
	mode_t mode;             /* mode of the finished file, 0: by the umask */
	struct timespec mtime;   /* set by users: time of a finished file with a name; zero: none */
	uint64_t position;       /* position in a direct stream */
	uint64_t size;           /* end of the furthest write */
	uint64_t without_gap;    /* bytes from the start on that are written, in order */
	uint64_t on_its_way;     /* bytes of these that are on their way to the disk */
	char *group;             /* bytes that are written at once; NULL: there are none */
	uint64_t group_at;       /* offset of the first of them in the file */
	size_t group_bytes;
	struct staging *staging; /* has the file until it has its name; NULL: none */
	unsigned number;         /* number of the file in staging */
};

/*
 * FORCE: an existing file is replaced. RANDOM: writes come at any offset. NEW: of a name that the
 * user did not give: what has it already, be it a link, a pipe or a device, is never written to;
 * with FORCE it is replaced. APPENDS: of a file that was not there just now, and is not replaced by
 * the command: -f is no advice where it is there at the end.
 */
enum { OUTPUT_FORCE = 1, OUTPUT_RANDOM = 2, OUTPUT_NEW = 4, OUTPUT_APPENDS = 8 };

/*
 * Opens "-" or a path. On failure a message was shown and nothing is left.
 */
bool output_open(struct output *out, const char *path, unsigned flags, mode_t mode);
/*
 * A file called base in a folder that is open; name is for messages and stays. With staging (else
 * NULL) the output holds no descriptor: set out->dirfd, which output_commit closes, to the folder
 * again before that call.
 */
bool output_open_at(struct output *out, int dirfd, const char *base, const char *name,
                    unsigned flags, mode_t mode, struct staging *staging);
/* Returns a descriptor from which the bytes written so far can be read, until the next call for any
 * output; -1: errno. */
int output_fd(struct output *out);
/* Makes a sink of an output; out must stay where it is while the sink is in use. */
kvarc_sink output_sink(struct output *out);
/* Makes the file exactly size bytes long. */
bool output_truncate(struct output *out, uint64_t size);
/* Finishes the file and frees. false: a message was shown, no file is left. */
bool output_commit(struct output *out);
/* Removes what there is and frees. */
void output_abort(struct output *out);
/* Shows the message that a failed write deserves. */
void output_report(const struct output *out);
/* false, with a message, when the file exists and may not be replaced. */
bool output_check(const char *path, bool force);

#endif
