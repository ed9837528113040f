/* SPDX-License-Identifier: BSD-3-Clause */
/* write_file.c - whole writes into files of a folder */
#include "config.h"

#include "write_file.h"

#include <errno.h>
#include <unistd.h>

int kvi_write_file(int fd, const void *bytes, size_t n)
{
	const char *p = bytes;
	while (n > 0) {
		ssize_t k = write(fd, p, n);
		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return -1;
		p += k;
		n -= (size_t)k;
	}
	return 0;
}

int kvi_sync_file(int fd)
{
	return fsync(fd) == 0 || errno == EINVAL ? 0 : -1;
}
