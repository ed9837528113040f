/* SPDX-License-Identifier: BSD-3-Clause */
/* file_io.h - what sources and sinks on files share */
#ifndef KVI_FILE_IO_H
#define KVI_FILE_IO_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "kvarc.h"

/* The kvarc_error of common options, NULL: there is none. */
static inline kvarc_error *kvi_error_of(const kvarc_common *common)
{
	return common ? common->error : NULL;
}

/* A descriptor as the opaque pointer of callbacks. */
static inline void *kvi_fd_opaque(int fd)
{
	return (void *)(intptr_t)fd;
}
/* The descriptor of such a pointer. */
static inline int kvi_opaque_fd(const void *opaque)
{
	return (int)(intptr_t)opaque;
}

/* Whether a descriptor takes any offset; *bytes: the size of what it is, then. errno on failure.
 * Returns OK, IO. */
kvarc_ret kvi_fd_size(int fd, bool *seekable, uint64_t *bytes);
/* The descriptor of a source on one that takes any offset; -1: the source is none. */
int kvi_source_descriptor(const kvarc_source *source);
/* Size and offsets of a FILE, as of a descriptor; its position moves. */
kvarc_ret kvi_file_size(FILE *file, bool *seekable, uint64_t *bytes);
/* Moves a FILE to an offset. False: errno says why. */
bool kvi_file_seek(FILE *file, uint64_t offset);
/* IO, with the text of errno. what: "cannot open", ...; path: NULL, or for the text. */
kvarc_ret kvi_fail_system(kvarc_error *e, const char *what, const char *path);

#endif
