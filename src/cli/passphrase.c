/* SPDX-License-Identifier: BSD-3-Clause */
/* passphrase.c - reads a passphrase from the terminal without echo */
#include "config.h"

#include "passphrase.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "signals.h"

/* While echo is off. */
static int terminal = -1;
static struct termios before;

static void restore(void)
{
	if (terminal >= 0)
		tcsetattr(terminal, TCSANOW, &before);
}

bool passphrase_can_ask(void)
{
	int fd = isatty(STDERR_FILENO) ? open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY) : -1;

	if (fd < 0)
		return false;
	close(fd);
	return true;
}

static void show(int fd, const char *text)
{
	ssize_t ignored = write(fd, text, strlen(text));

	(void)ignored;
}

/* Reads a line; bytes behind the first `size` are read and dropped. */
static size_t read_line(int fd, char *buf, size_t size)
{
	size_t n = 0;
	char c;

	for (;;) {
		ssize_t got = read(fd, &c, 1);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0 || c == '\n')
			break;
		if (n < size)
			buf[n++] = c;
	}
	c = '\0';
	return n;
}

size_t passphrase_ask(const char *what, char *buf, size_t size)
{
	struct termios quiet;
	size_t n = 0;
	int fd = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);

	if (fd < 0 || tcgetattr(fd, &before) != 0) {
		if (fd >= 0)
			close(fd);
		return 0;
	}
	quiet = before;
	quiet.c_lflag &= ~(tcflag_t)(ECHO | ECHONL);
	terminal = fd;
	signals_at_end(restore);
	show(fd, what);
	if (tcsetattr(fd, TCSAFLUSH, &quiet) == 0)
		n = read_line(fd, buf, size);
	restore();
	terminal = -1;
	show(fd, "\n");
	close(fd);
	return n;
}
