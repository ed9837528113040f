/* SPDX-License-Identifier: BSD-3-Clause */
/* write_file.h - whole writes into files of a folder */
#ifndef KVI_WRITE_FILE_H
#define KVI_WRITE_FILE_H

#include <stddef.h>

/* Writes n bytes at the position of a file. Returns 0, or -1 with errno. Any thread. */
int kvi_write_file(int fd, const void *bytes, size_t n);

/* fsync, where the file system has it. Returns 0, or -1 with errno. Any thread. */
int kvi_sync_file(int fd);

#endif
