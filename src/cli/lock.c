/* SPDX-License-Identifier: BSD-3-Clause */
/* lock.c - one process at a time changes an archive in place */
#include "config.h"

#include "lock.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "message.h"
#include "paths.h"

bool lock_file(int fd, const char *name)
{
	if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
		if (errno == EWOULDBLOCK)
			msg_error(name, "another process is changing it; try again when that has "
			                "ended");
		else
			msg_error(name, "cannot lock: %s", strerror(errno));
		return false;
	}
	/* The process that had the lock before may have replaced the file. */
	if (paths_is_open(name, fd))
		return true;
	msg_error(name, "was replaced just now; try again");
	return false;
}

bool lock_replaced(const char *name, int *fd)
{
	struct stat st;

	/* O_NONBLOCK: a pipe does not wait for its other end */
	*fd = open(name, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (*fd < 0)
		return true;
	if (fstat(*fd, &st) == 0 && S_ISREG(st.st_mode) && !lock_file(*fd, name)) {
		close(*fd);
		*fd = -1;
		return false;
	}
	return true;
}
