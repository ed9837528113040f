/* SPDX-License-Identifier: BSD-3-Clause */
/* bench_link.c - which level restores a cache soonest over a link or from a disk */
#include "config.h"

#include "bench_link.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "disk_speed.h"
#include "message.h"
#include "paths.h"
#include "report.h"
#include "units.h"

/* "2.5 Gbit/s (312 MB/s)" */
static void put_speed(char *out, size_t size, double bytes_per_second)
{
	static const char *const names[] = { "kbit", "Mbit", "Gbit", "Tbit" };
	double bits = 8 * bytes_per_second / 1e3;
	char rate[32];
	size_t i = 0;

	while (bits >= 999.5 && i < 3) {
		bits /= 1e3;
		i++;
	}
	units_rate(rate, sizeof(rate), bytes_per_second);
	snprintf(out, size, "%.3g %s/s (%s)", bits, names[i], rate);
}

bool bench_link_open(struct bench_link *l, const struct options *o)
{
	char speed[64];

	memset(l, 0, sizeof(*l));
	if (!o->link)
		return true;
	if (paths_is_folder(o->link)) {
		l->speed = disk_speed(o->link);
		put_speed(speed, sizeof(speed), l->speed);
		if (l->speed > 0)
			msg_note(o->link, "the disk reads %s", speed);
		return l->speed > 0;
	}
	if (units_parse_bits(o->link, &l->speed))
		return true;
	msg_error(NULL,
	          "bench: '%s' is not a value for --link; give bits per second, such as 100M, "
	          "1G or 2.5G, or a folder",
	          o->link);
	return false;
}

/* The time of a level over a link of another speed. */
static double restore_at(const struct link_row *r, double speed)
{
	return (double)r->bytes / speed + r->decode;
}

static void add_row(struct bench_link *l, struct link_row row)
{
	if (l->n == sizeof(l->rows) / sizeof(l->rows[0]))
		return;
	row.transfer = (double)row.bytes / l->speed;
	row.restore = row.transfer + row.decode;
	row.piped = row.transfer > row.decode ? row.transfer : row.decode;
	l->rows[l->n++] = row;
}

void bench_link_add(struct bench_link *l, const struct bench_cache *c, const struct bench_run *run)
{
	add_row(l, (struct link_row){ .level = run->level,
	                              .bytes = c->archive_bytes,
	                              .encode = run->encode_seconds,
	                              .decode = run->decode_seconds });
}

static uint64_t tokens_of(const struct bench_cache *c)
{
	uint64_t most = 0;

	for (size_t i = 0; i < c->geometry->n_tracks; i++)
		most = c->tokens[i] > most ? c->tokens[i] : most;
	return most;
}

static void put_name(char *out, size_t size, int level)
{
	if (level == LINK_RAW)
		snprintf(out, size, "raw");
	else if (level == LINK_PREFILL)
		snprintf(out, size, "prefill");
	else
		snprintf(out, size, "%d", level);
}

static const struct link_row *soonest(const struct bench_link *l, bool piped)
{
	const struct link_row *best = &l->rows[0];

	for (size_t i = 1; i < l->n; i++) {
		const struct link_row *r = &l->rows[i];
		if (piped ? r->piped < best->piped : r->restore < best->restore)
			best = r;
	}
	return best;
}

/* Milliseconds, or none for what does not happen. */
static double milliseconds(double seconds)
{
	return seconds > 0 ? 1e3 * seconds : NAN;
}

static void report_row(const struct options *o, const char *file, const struct bench_link *l,
                       const struct link_row *r)
{
	const double decode = r->level == LINK_PREFILL ? 0 : r->decode;
	char name[16];
	struct report x;

	put_name(name, sizeof(name), r->level);
	report_start(&x, o->json);
	report_string(&x, "file", file);
	report_string(&x, "level", name);
	report_real(&x, "link_bytes_per_second", l->speed, 0);
	report_u64(&x, "bytes", r->level == LINK_PREFILL ? KVARC_UNKNOWN : r->bytes);
	report_real(&x, "encode_seconds", r->encode > 0 ? r->encode : NAN, 6);
	report_real(&x, "transfer_seconds", r->transfer > 0 ? r->transfer : NAN, 6);
	report_real(&x, "decode_seconds", decode > 0 ? decode : NAN, 6);
	report_real(&x, "restore_seconds", r->restore, 6);
	report_real(&x, "piped_seconds", r->piped, 6);
	report_bool(&x, "soonest", r == soonest(l, false));
	report_real(&x, ".encode", milliseconds(r->encode), 0);
	report_real(&x, ".transfer", milliseconds(r->transfer), 0);
	report_real(&x, ".decode", milliseconds(decode), 0);
	report_real(&x, ".restore", milliseconds(r->restore), 0);
	report_real(&x, ".piped", milliseconds(r->piped), 0);
	report_print(&x, "{level:-7}  {bytes:9B}  {.encode:9.1f}  {.transfer:9.1f}  "
	                 "{.decode:9.1f}  {.restore:9.1f}  {.piped:9.1f}\n");
	report_end(&x);
}

/* "level 1", "a prefill" */
static const char *describe(char out[24], const struct link_row *r)
{
	if (r->level >= 0)
		snprintf(out, 24, "level %d", r->level);
	else
		snprintf(out, 24, r->level == LINK_RAW ? "raw bytes" : "a prefill");
	return out;
}

/* The speed above which raw bytes are sooner than every level; 0: they always are. */
static double raw_from(const struct bench_link *l)
{
	const struct link_row *raw = &l->rows[l->n - 1];
	double from = 0;

	for (size_t i = 0; i < l->n; i++) {
		const struct link_row *r = &l->rows[i];
		double even = (double)raw->bytes - (double)r->bytes;
		if (r->level >= 0 && even > 0 && even / r->decode > from)
			from = even / r->decode;
	}
	return from;
}

/* The speed below which a prefill is sooner than everything else; 0: it never is; infinite: it
 * always is. */
static double prefill_to(const struct bench_link *l, double seconds)
{
	double to = INFINITY;

	for (size_t i = 0; i < l->n; i++) {
		const struct link_row *r = &l->rows[i];
		double left = seconds - r->decode;
		double even = left > 0 ? (double)r->bytes / left : INFINITY;
		if (r->level != LINK_PREFILL && even < to)
			to = even;
	}
	return to;
}

static void print_verdict(const struct bench_link *l, double prefill)
{
	const struct link_row *best = soonest(l, false), *piped = soonest(l, true);
	const struct link_row *raw = &l->rows[l->n - 1];
	char name[24], speed[64];
	double from = raw_from(l);

	printf("soonest: %s, %.1f ms", describe(name, best), 1e3 * best->restore);
	if (best != raw)
		printf(" (raw bytes %.1f ms)", 1e3 * restore_at(raw, l->speed));
	if (piped != best)
		printf("; through a pipe %s, %.1f ms", describe(name, piped), 1e3 * piped->piped);
	putchar('\n');
	put_speed(speed, sizeof(speed), from);
	if (from > 0)
		printf("raw bytes are sooner from %s on\n", speed);
	if (prefill <= 0)
		return;
	put_speed(speed, sizeof(speed), prefill_to(l, prefill));
	if (isfinite(prefill_to(l, prefill)))
		printf("a prefill is sooner below %s\n", speed);
	else
		printf("a prefill is always sooner\n");
}

void bench_link_report(struct bench_link *l, const struct options *o, const char *file,
                       const struct bench_cache *c)
{
	const double prefill = o->prefill ? (double)tokens_of(c) / (double)o->prefill : 0;
	char size[32], speed[64], tokens[32];

	if (prefill > 0) {
		add_row(l, (struct link_row){ .level = LINK_PREFILL, .decode = prefill });
	}
	add_row(l, (struct link_row){ .level = LINK_RAW, .bytes = c->raw_bytes });
	if (!o->json) {
		units_bytes(size, sizeof(size), c->raw_bytes);
		put_speed(speed, sizeof(speed), l->speed);
		msg_put_safe(stdout, msg_name(file));
		printf(": %s of tensors, %s tokens, over %s, %u thread%s, fastest of %u, times in "
		       "ms\n%-7s  %9s  %9s  %9s  %9s  %9s  %9s\n",
		       size, units_count(tokens, tokens_of(c)), speed, o->threads,
		       o->threads == 1 ? "" : "s", o->repeat, "level", "size", "encode", "transfer",
		       "decode", "restore", "piped");
	}
	for (size_t i = 0; i < l->n; i++)
		report_row(o, file, l, &l->rows[i]);
	if (!o->json)
		print_verdict(l, prefill);
	l->n = 0;
}
