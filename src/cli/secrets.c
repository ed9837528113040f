/* SPDX-License-Identifier: BSD-3-Clause */
/* secrets.c - keys and passphrases: from files, or from the terminal without showing them */
#include "config.h"

#include "secrets.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "infile.h"
#include "message.h"
#include "signals.h"

/* ==== Reads a passphrase from the terminal without echo ==== */

/* While echo is off. */
static int terminal = -1;
static struct termios before;

static void restore(void)
{
	if (terminal >= 0)
		tcsetattr(terminal, TCSANOW, &before);
}

/* Whether there is a terminal to ask on, to which messages go, too. */
static bool passphrase_can_ask(void)
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

/* Shows `what`, which ends with a blank, and reads a line without its end into a buffer. Echo comes
 * back also when a signal ends the command. Returns its bytes, 0 at the end of the input; it is
 * `size` when the line is longer than that. */
static size_t passphrase_ask(const char *what, char *buf, size_t size)
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

/* ==== Keys and passphrases: from files, or from the terminal ==== */

enum { SECRET_MAX = 4096, HEX = 2 * KVARC_KEY_BYTES };

/* A key and its bytes. */
struct secret {
	char bytes[SECRET_MAX + 2]; /* the secret, and the end of a line */
};
static struct secret *secrets[KVARC_KEYS_MAX];
static kvarc_key list[KVARC_KEYS_MAX];
static kvarc_keys all;
static bool asked;

const kvarc_keys *keys_given(void)
{
	return all.n ? &all : NULL;
}

void keys_close(void)
{
	while (all.n) {
		all.n--;
		explicit_bzero(secrets[all.n], sizeof(*secrets[all.n]));
		free(secrets[all.n]);
	}
}

/* Memory for one more key; keys_close wipes it. NULL: a message was shown. */
static struct secret *add(kvarc_key_kind kind)
{
	struct secret *s = all.n < KVARC_KEYS_MAX ? calloc(1, sizeof(*s)) : NULL;

	if (!s) {
		msg_error(NULL, "%s",
		          all.n < KVARC_KEYS_MAX ? "out of memory" : "more than 64 keys");
		return NULL;
	}
	all.list = list;
	secrets[all.n] = s;
	list[all.n++] = (kvarc_key){ .kind = kind, .bytes = s->bytes };
	return s;
}

/* Reads a whole file that nobody else may read. Returns its bytes; -1: a message was shown. */
static ssize_t read_private(const char *path, struct secret *secret)
{
	struct stat st;
	size_t n = 0;
	ssize_t got = 1;
	int fd = input_open_fd(path, 0, &st);

	if (fd < 0)
		return -1;
	if (S_ISREG(st.st_mode) && st.st_mode & 077) {
		msg_error(path, "others may read or change this key; use it after 'chmod 600'");
		got = -1;
	} else {
		while (got > 0 && n < sizeof(secret->bytes)) {
			got = read(fd, secret->bytes + n, sizeof(secret->bytes) - n);
			if (got > 0)
				n += (size_t)got;
			else if (got < 0 && errno == EINTR)
				got = 1;
		}
		if (got < 0)
			msg_error(path, "cannot read the key: %s", strerror(errno));
	}
	close(fd);
	return got < 0 ? -1 : (ssize_t)n;
}

/* Length of a line without its end. */
static size_t line_bytes(const char *p, size_t n)
{
	n -= n && p[n - 1] == '\n';
	n -= n && p[n - 1] == '\r';
	return n;
}

static int digit(char c)
{
	const char *digits = "0123456789abcdef", *at;

	if (c >= 'A' && c <= 'F')
		c = (char)(c - 'A' + 'a');
	at = c ? strchr(digits, c) : NULL;
	return at ? (int)(at - digits) : -1;
}

/* 64 digits become 32 bytes, in place. */
static bool from_hex(char *p)
{
	for (int i = 0; i < KVARC_KEY_BYTES; i++) {
		int high = digit(p[2 * i]), low = digit(p[2 * i + 1]);
		if (high < 0 || low < 0)
			return false;
		p[i] = (char)(high * 16 + low);
	}
	return true;
}

static bool add_key(const char *path)
{
	struct secret *s = add(KVARC_KEY_GIVEN);
	ssize_t n = s ? read_private(path, s) : -1;

	if (n < 0)
		return false;
	list[all.n - 1].n = KVARC_KEY_BYTES;
	if (n == KVARC_KEY_BYTES || (line_bytes(s->bytes, (size_t)n) == HEX && from_hex(s->bytes)))
		return true;
	msg_error(path, "is no key: 32 bytes, or 64 hexadecimal digits; 'kvarc keygen' makes one");
	return false;
}

static bool add_passphrase(const char *path)
{
	struct secret *s = add(KVARC_KEY_PASSPHRASE);
	ssize_t n = s ? read_private(path, s) : -1;

	if (n < 0)
		return false;
	list[all.n - 1].n = line_bytes(s->bytes, (size_t)n);
	if (list[all.n - 1].n >= 1 && list[all.n - 1].n <= SECRET_MAX)
		return true;
	msg_error(path, "is no passphrase: a line of 1 to 4096 bytes");
	return false;
}

bool keys_open(const struct key_options *options)
{
	bool ok = true;

	for (size_t i = 0; i < options->files.n && ok; i++)
		ok = add_key(options->files.p[i]);
	for (size_t i = 0; i < options->passphrase_files.n && ok; i++)
		ok = add_passphrase(options->passphrase_files.p[i]);
	return ok;
}

static bool ask(const char *what)
{
	struct secret *s = add(KVARC_KEY_PASSPHRASE);
	size_t n = s ? passphrase_ask(what, s->bytes, sizeof(s->bytes)) : 0;

	if (s)
		list[all.n - 1].n = n;
	if (s && (n < 1 || n > SECRET_MAX))
		msg_error(NULL, "no passphrase of 1 to 4096 bytes was given");
	return s && n >= 1 && n <= SECRET_MAX;
}

bool keys_ask(const char *archive)
{
	if (all.n || asked || !passphrase_can_ask())
		return false;
	asked = true;
	msg_note(archive, "is encrypted");
	return ask("Passphrase: ");
}

/* Asks twice, and compares; one passphrase is left. */
static bool ask_twice(void)
{
	bool same = ask("New passphrase: ") && ask("The same again: ");

	if (!same)
		return false;
	same = list[all.n - 1].n == list[all.n - 2].n &&
	       memcmp(secrets[all.n - 1], secrets[all.n - 2], sizeof(*secrets[0])) == 0;
	if (!same)
		msg_error(NULL, "the two passphrases differ");
	all.n--;
	explicit_bzero(secrets[all.n], sizeof(*secrets[all.n]));
	free(secrets[all.n]);
	return same;
}

bool keys_writer(const struct key_options *options, bool encrypted, const kvarc_keys **keys)
{
	*keys = NULL;
	if (options->decrypt || !(encrypted || options->encrypt))
		return true;
	if (!all.n && !passphrase_can_ask()) {
		msg_usage("--encrypt needs --key-file or --passphrase-file, or a terminal to ask "
		          "for a passphrase");
		return false;
	}
	if (!all.n && !ask_twice())
		return false;
	*keys = keys_given();
	return true;
}

void keys_note(const char *archive, const kvarc_reader *r)
{
	kvarc_info info;

	if (all.n && kvarc_reader_get_info(r, &info) == KVARC_OK && !info.encrypted)
		msg_result(archive, "is not encrypted: the key was not needed");
}
