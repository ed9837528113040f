/* SPDX-License-Identifier: BSD-3-Clause */
/* progress.c - one moving line on stderr, only if that is a terminal */
#include "config.h"

#include "progress.h"

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

static struct {
	const char *label;
	bool active, drawn;
	double start, last;
	uint64_t total, tokens; /* tokens 0: not shown */
	const char *unit;       /* NULL: bytes, "": none */
	const char *phase;      /* NULL: the only one */
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

static void draw(uint64_t done, uint64_t total, double seconds)
{
	char rate[32] = "", label[32], tokens[40] = "", tail[120];
	unsigned width = columns(), used = 5;
	double speed = seconds > 0 ? (double)done / seconds : 0;

	if (!bar.unit)
		units_rate(rate, sizeof(rate), speed);
	else if (bar.unit[0])
		snprintf(rate, sizeof(rate), "%.0f %s/s", speed, bar.unit);
	units_short_name(label, sizeof(label), bar.label);
	fputs("\r\033[K", stderr);
	msg_put_safe(stderr, label);
	if (bar.phase)
		used += (unsigned)fprintf(stderr, ": %s", bar.phase);
	if (total == KVARC_UNKNOWN || total == 0) {
		char size[32];
		units_bytes(size, sizeof(size), done);
		fprintf(stderr, "  %s  %s", size, rate);
	} else {
		double part = (double)done / (double)total;
		double left = speed > 0 ? (double)(total - done) / speed : 0;
		if (bar.tokens && seconds > 0)
			snprintf(tokens, sizeof(tokens), "  %.0f tokens/s",
			         part * (double)bar.tokens / seconds);
		int n = snprintf(tail, sizeof(tail), " %5.1f %%%s%s%s  ETA %u:%02u", 100 * part,
		                 rate[0] ? "  " : "", rate, tokens, (unsigned)(left / 60),
		                 (unsigned)left % 60);
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
	draw(done > total ? total : done, total, now - bar.start);
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
