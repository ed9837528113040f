/* SPDX-License-Identifier: BSD-3-Clause */
/* cmd_keygen.c - kvarc keygen: a new random key in a file that nobody else may read */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"
#include "kvarc.h"
#include "message.h"
#include "options.h"

enum { HEX = 2 * KVARC_KEY_BYTES };

/* Digits and a newline. False: errno is set. */
static bool make_key(char line[HEX + 1])
{
	unsigned char key[KVARC_KEY_BYTES];

	if (getentropy(key, sizeof(key)) != 0)
		return false;
	for (int i = 0; i < KVARC_KEY_BYTES; i++) {
		line[2 * i] = "0123456789abcdef"[key[i] >> 4];
		line[2 * i + 1] = "0123456789abcdef"[key[i] & 15];
	}
	line[HEX] = '\n';
	explicit_bzero(key, sizeof(key));
	return true;
}

void cmd_keygen(const struct options *options)
{
	char line[HEX + 1];
	const char *path = options->files[0];
	int fd;

	if (options->n_files > 1) {
		msg_usage("give one file");
		return;
	}
	if (!make_key(line)) {
		msg_error(NULL, "no random bytes: %s", strerror(errno));
		return;
	}
	/* A key that is lost loses archives: never over another. */
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0) {
		msg_error(path, "cannot make the key: %s",
		          errno == EEXIST
		                  ? "the file exists, and a key never overwrites another one"
		                  : strerror(errno));
	} else if (write(fd, line, sizeof(line)) != (ssize_t)sizeof(line) || fsync(fd) != 0) {
		msg_error(path, "cannot write the key: %s", strerror(errno));
		unlink(path);
	}
	if (fd >= 0)
		close(fd);
	explicit_bzero(line, sizeof(line));
}
