/* SPDX-License-Identifier: BSD-3-Clause */
/* message.c - human-readable lines on stderr, and the exit status they imply */
#include "config.h"

#include "message.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kvarc/store.h"

#include "progress.h"

static int verbosity;
static int status = EXIT_OK;
static unsigned long n_errors;
static int stdout_error; /* errno of the first failure */

void msg_init(int level)
{
	verbosity = level;
}

int msg_level(void)
{
	return verbosity;
}

int msg_status(void)
{
	return status;
}

unsigned long msg_errors(void)
{
	return n_errors;
}

const char *msg_name(const char *file)
{
	return strcmp(file, "-") == 0 ? "(stdin)" : file;
}

void msg_put_safe(FILE *f, const char *text)
{
	const unsigned char *p = (const unsigned char *)text;

	for (; *p; p++) {
		/* U+0080 to U+009F are control characters too. */
		if (*p == 0xc2 && p[1] >= 0x80 && p[1] <= 0x9f) {
			fprintf(f, "\\xc2\\x%02x", p[1]);
			p++;
		} else if (*p < 0x20 || *p == 0x7f) {
			fprintf(f, "\\x%02x", *p);
		} else {
			putc(*p, f);
		}
	}
}

static void line(const char *prefix, const char *file, const char *format, va_list args)
	__attribute__((format(printf, 3, 0)));

/* The name that a message is about; of a URL, given where a file belongs, without its password. */
static void put_name(const char *file)
{
	char *shown = strstr(file, "://") ? strdup(file) : NULL;

	msg_put_safe(stderr, shown ? kvarc_store_shown(file, shown, strlen(file) + 1)
	                           : msg_name(file));
	free(shown);
	fputs(": ", stderr);
}

static void line(const char *prefix, const char *file, const char *format, va_list args)
{
	char text[2048];

	progress_clear();
	vsnprintf(text, sizeof(text), format, args);
	fputs(prefix, stderr);
	if (file)
		put_name(file);
	msg_put_safe(stderr, text);
	putc('\n', stderr);
}

void msg_error(const char *file, const char *format, ...)
{
	va_list args;

	n_errors++;
	status = EXIT_ERROR;
	va_start(args, format);
	line("kvarc: ", file, format, args);
	va_end(args);
}

void msg_warning(const char *file, const char *format, ...)
{
	va_list args;

	if (status == EXIT_OK)
		status = EXIT_WARNING;
	if (verbosity < 0)
		return;
	va_start(args, format);
	line("kvarc: ", file, format, args);
	va_end(args);
}

void msg_note(const char *file, const char *format, ...)
{
	va_list args;

	if (verbosity < 0 || (verbosity == 0 && !isatty(STDERR_FILENO)))
		return;
	va_start(args, format);
	line("", file, format, args);
	va_end(args);
}

void msg_result(const char *file, const char *format, ...)
{
	va_list args;

	if (verbosity < 0)
		return;
	va_start(args, format);
	line("", file, format, args);
	va_end(args);
}

void msg_flush(void)
{
	if (fflush(stdout) != 0 && stdout_error == 0)
		stdout_error = errno;
}

void msg_finish(void)
{
	bool failed;

	msg_flush();
	failed = ferror(stdout) != 0;
	if (fclose(stdout) != 0 && errno != EBADF) {
		failed = true;
		stdout_error = stdout_error ? stdout_error : errno;
	}
	if (failed)
		msg_error(NULL, "cannot write to standard output: %s",
		          strerror(stdout_error ? stdout_error : EIO));
}
