/* SPDX-License-Identifier: BSD-3-Clause */
/* progress.c - one moving line on stderr, only if that is a terminal */
#include "config.h"

#include "progress.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "kvarc.h"
#include "message.h"
#include "units.h"

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
	} marks[2]; /* where the measurement of speed starts, and the next one */
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

/* Of the last 3 to 6 seconds. */
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

/* What a rate is of: elements of the cache, the tokens that a model goes through, or the unit. */
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
	if (start <= 0 || done < before) /* another one */
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

void progress_clear(void)
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
