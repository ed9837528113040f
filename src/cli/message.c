/* SPDX-License-Identifier: BSD-3-Clause */
/* message.c - lines on stderr, the exit status that they imply, and one moving line of progress */
#include "config.h"

#include "message.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "kvarc.h"
#include "units.h"
#include "kvarc/store.h"

/* ==== Human-readable lines on stderr, and the exit status they imply ==== */

static int verbosity;
static const char *verb; /* NULL: none yet */
static int status = EXIT_OK;
static unsigned long n_errors;
static int stdout_error; /* errno of the first failure */

void msg_init(int level)
{
	verbosity = level;
}

void msg_set_verb(const char *name)
{
	verb = name;
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

void msg_put_safe(FILE *file, const char *text)
{
	const unsigned char *p = (const unsigned char *)text;

	for (; *p; p++) {
		/* U+0080 to U+009F are control characters too. */
		if (*p == 0xc2 && p[1] >= 0x80 && p[1] <= 0x9f) {
			fprintf(file, "\\xc2\\x%02x", p[1]);
			p++;
		} else if (*p < 0x20 || *p == 0x7f) {
			fprintf(file, "\\x%02x", *p);
		} else {
			putc(*p, file);
		}
	}
}

/* The name that a message is about; of a URL, given where a file belongs, without its password. */
static void put_name(const char *file)
{
	char *shown = strstr(file, "://") ? strdup(file) : NULL;

	msg_put_safe(stderr,
	             shown ? kvarc_store_shown(file, shown, strlen(file) + 1) : msg_name(file));
	free(shown);
	fputs(": ", stderr);
}

static void progress_clear(void);

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

static void error(const char *file, const char *format, va_list args)
{
	n_errors++;
	status = EXIT_ERROR;
	line("kvarc: ", file, format, args);
}

void msg_error(const char *file, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	error(file, format, args);
	va_end(args);
}

void msg_usage(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	error(verb, format, args);
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

/* ==== One moving line on stderr, only if that is a terminal ==== */

/* Jobs that end sooner are not worth a line. */
static const double first_after = 0.4, then_every = 0.1;
/* Speed is that of the last seconds: work is not evenly distributed. Before that nothing is said
 * of the time that is left. */
static const double speed_of = 3, left_after = 1;

static struct {
	const char *label;
	bool active, drawn;
	double start, last;
	uint64_t total, tokens; /* tokens 0: not shown */
	const char *unit;       /* NULL: bytes, "": none */
	const char *phase;      /* NULL: the only one */
	struct {
		double when;
		uint64_t done;
	} marks[2]; /* starts of the current measurement of speed, and of the next one */
} bar;

void progress_start(const char *label, uint64_t total)
{
	memset(&bar, 0, sizeof(bar));
	if (msg_level() < 0 || !isatty(STDERR_FILENO))
		return;
	bar.label = msg_name(label);
	bar.active = true;
	bar.total = total;
	bar.start = units_now();
	bar.marks[0].when = bar.marks[1].when = bar.start;
}

void progress_tokens(uint64_t tokens)
{
	bar.tokens = tokens;
}

void progress_unit(const char *unit)
{
	bar.unit = unit;
}

void progress_phase(const char *phase)
{
	bar.phase = phase;
}

static unsigned columns(void)
{
	struct winsize w;

	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &w) != 0 || w.ws_col < 20)
		return 80;
	return w.ws_col;
}

static void put_bar(double part, unsigned width)
{
	unsigned filled = (unsigned)(part * width);

	fputs(" [", stderr);
	for (unsigned i = 0; i < width; i++)
		putc(i < filled ? '=' : i == filled ? '>' : ' ', stderr);
	putc(']', stderr);
}

/* Speed over the last 3 to 6 seconds. */
static double measure_speed(uint64_t done, double now)
{
	if (now - bar.marks[1].when >= speed_of) {
		bar.marks[0] = bar.marks[1];
		bar.marks[1].when = now;
		bar.marks[1].done = done;
	}
	if (done <= bar.marks[0].done || now <= bar.marks[0].when)
		return 0;
	return (double)(done - bar.marks[0].done) / (now - bar.marks[0].when);
}

/* Formats a rate: bytes of the cache, tokens that a model is run over, or the unit, a second. */
static void put_rate(char *out, size_t size, double speed, uint64_t total)
{
	char bytes[32];

	out[0] = '\0';
	if (bar.unit && bar.unit[0]) {
		snprintf(out, size, "  %.0f %s/s", speed, bar.unit);
	} else if (!bar.unit && bar.tokens && total != KVARC_UNKNOWN && total) {
		snprintf(out, size, "  %.0f tokens/s", speed * (double)bar.tokens / (double)total);
	} else if (!bar.unit) {
		units_rate(bytes, sizeof(bytes), speed);
		snprintf(out, size, "  %s of cache", bytes);
	}
}

static void draw(uint64_t done, uint64_t total, double now)
{
	char rate[64], label[32], left[32] = "", tail[120];
	unsigned width = columns(), used = 5;
	double speed = measure_speed(done, now);

	put_rate(rate, sizeof(rate), speed, total);
	units_short_name(label, sizeof(label), bar.label);
	fputs("\r\033[K", stderr);
	msg_put_safe(stderr, label);
	if (bar.phase)
		used += (unsigned)fprintf(stderr, ": %s", bar.phase);
	if (total == KVARC_UNKNOWN || total == 0) {
		char size[32];
		units_bytes(size, sizeof(size), done);
		if (!bar.unit)
			fprintf(stderr, "  %s%s", size, rate);
		else if (bar.unit[0])
			fprintf(stderr, "  %" PRIu64 " %s%s", done, bar.unit, rate);
	} else {
		double part = (double)done / (double)total;
		double eta = speed > 0 ? (double)(total - done) / speed : 0;
		if (speed > 0 && now - bar.start >= left_after)
			snprintf(left, sizeof(left), "  ETA %u:%02u", (unsigned)(eta / 60),
			         (unsigned)eta % 60);
		int n = snprintf(tail, sizeof(tail), " %5.1f %%%s%s", 100 * part, rate, left);
		used += (unsigned)strlen(label) + (unsigned)n;
		if (width > used + 8)
			put_bar(part, width - used < 40 ? width - used : 40);
		fputs(tail, stderr);
	}
	fflush(stderr);
	bar.drawn = true;
}

int progress_update(void *opaque, uint64_t done, uint64_t total)
{
	double now;

	(void)opaque;
	if (!bar.active)
		return 0;
	now = units_now();
	if (now - bar.start < first_after || now - bar.last < then_every)
		return 0;
	bar.last = now;
	if (total == KVARC_UNKNOWN)
		total = bar.total;
	draw(done > total ? total : done, total, now);
	return 0;
}

int progress_opening(void *opaque, uint64_t done, uint64_t total)
{
	static double start, last;
	static uint64_t before;
	char label[32];
	double now = units_now();

	if (msg_level() < 0 || !isatty(STDERR_FILENO))
		return 0;
	if (start <= 0 || done < before) /* the opening of another model */
		start = now;
	before = done;
	if (done >= total) {
		progress_clear();
	} else if (now - start >= first_after && now - last >= then_every) {
		units_short_name(label, sizeof(label), opaque);
		fputs("\r\033[Kopening ", stderr);
		msg_put_safe(stderr, label);
		fprintf(stderr, " ... %.0f %%", 100 * (double)done / (double)total);
		fflush(stderr);
		bar.drawn = true;
		last = now;
	}
	return 0;
}

/* Removes the line if there is one. */
static void progress_clear(void)
{
	if (!bar.drawn)
		return;
	fputs("\r\033[K", stderr);
	fflush(stderr);
	bar.drawn = false;
}

void progress_stop(void)
{
	progress_clear();
	bar.active = false;
}
