/* SPDX-License-Identifier: BSD-3-Clause */
/* cmd_log.c - kvarc log: a line for each checkpoint of an archive */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chart.h"
#include "checkpoint_fields.h"
#include "commands.h"
#include "library.h"
#include "message.h"
#include "outfile.h"
#include "paths.h"
#include "readers.h"
#include "report.h"
#include "secrets.h"
#include "units.h"

/* ==== A picture: bytes of an archive by checkpoint, and of its files ==== */

/* Sizes in SVG user units. */
enum { WIDTH = 960, HEIGHT = 400, LEFT = 100, RIGHT = 180, TOP = 64, BOTTOM = 60 };
enum { RIGHT_EDGE = WIDTH - RIGHT, LOWER_EDGE = HEIGHT - BOTTOM, TEXT_HEIGHT = 40 };
enum { LABELS_MOST = 20, PARTS_MOST = 8 };

enum { FILES, ARCHIVE, LINES };
static const char *const names[LINES] = { "files", "archive" };
static const char *const labels[LINES] = { "each file as it is", "this archive" };
static const char *const colours[LINES] = { "#d9700d", "#1f6fb4" };

/* A checkpoint, and the bytes of all up to it. */
struct state {
	uint64_t number, tokens, bytes[LINES];
};

/* All checkpoints, and the scale of the picture. */
struct log_picture {
	const char *name;
	struct state *states;
	size_t n;
	double most, step; /* bytes: the upper edge, and between two lines of the grid */
};

/* Adds the bytes of the files of a checkpoint; they need no profile, model or store. */
static kvarc_ret add_files(const struct work_options *work, struct input *in, uint64_t number,
                           uint64_t *bytes)
{
	kvarc_reader_options ro = KVARC_READER_OPTIONS_INIT;
	kvarc_source source = input_source(in);
	kvarc_reader *r = NULL;
	kvarc_error error;
	kvarc_item item;
	kvarc_ret ret;

	library_common(work, &ro.common, &error);
	ro.keys = keys_given();
	ro.checkpoint = number;
	ret = kvarc_reader_open(&r, &source, &ro);
	for (size_t i = 0; ret == KVARC_OK; i++) {
		ret = kvarc_reader_item(r, i, &item);
		if (ret == KVARC_OK)
			*bytes += item.bytes;
	}
	if (ret != KVARC_END)
		library_error(in->name, ret, &error, in, NULL);
	kvarc_reader_close(&r);
	return ret;
}

/* Whether all checkpoints were read; a message was shown when not. */
static bool read_states(const struct work_options *work, struct input *in, kvarc_reader *r,
                        const kvarc_error *error, struct log_picture *picture)
{
	uint64_t files = 0;
	kvarc_checkpoint c;
	kvarc_ret ret;

	while ((ret = kvarc_reader_checkpoint(r, picture->n, &c)) == KVARC_OK) {
		struct state *more = realloc(picture->states, (picture->n + 1) * sizeof(*more));
		if (!more) {
			msg_error(NULL, "out of memory");
			return false;
		}
		picture->states = more;
		if (add_files(work, in, c.number, &files) != KVARC_END)
			return false;
		more[picture->n++] = (struct state){ c.number, c.tokens, { files, c.end } };
	}
	if (ret != KVARC_END)
		library_error(in->name, ret, error, in, NULL);
	return ret == KVARC_END;
}

/* A step of 1, 2 or 5 times a power of ten that divides the bytes into at most PARTS_MOST. */
static void find_scale(struct log_picture *picture)
{
	static const double factors[] = { 1, 2, 5, 10 };
	const uint64_t *last = picture->states[picture->n - 1].bytes;
	double bytes = (double)(last[FILES] > last[ARCHIVE] ? last[FILES] : last[ARCHIVE]);
	double power = pow(10, floor(log10(bytes / PARTS_MOST)));
	size_t i = 0;

	while (i < 3 && bytes / (factors[i] * power) > PARTS_MOST)
		i++;
	picture->step = factors[i] * power;
	picture->most = picture->step * ceil(bytes / picture->step);
}

static double x_of(const struct log_picture *picture, size_t i)
{
	return LEFT + (RIGHT_EDGE - LEFT) * ((double)i + 1) / (double)picture->n;
}

static double y_of(const struct log_picture *picture, double bytes)
{
	return LOWER_EDGE - (LOWER_EDGE - TOP) * bytes / picture->most;
}

static void put_axes(FILE *file, const struct log_picture *picture)
{
	static const char *const units[] = { "B", "kB", "MB", "GB", "TB", "PB" };
	size_t every = (picture->n + LABELS_MOST - 1) / LABELS_MOST, unit = 0;
	double divisor = 1;

	for (; picture->most >= 1000 * divisor && unit < 5; unit++)
		divisor *= 1000;
	for (double bytes = 0; bytes <= picture->most * 1.001; bytes += picture->step)
		fprintf(file,
		        "<line x1='%d' x2='%d' y1='%.1f' y2='%.1f' stroke='%s'/>\n"
		        "<text x='%d' y='%.1f' text-anchor='end'>%g %s</text>\n",
		        LEFT, RIGHT_EDGE, y_of(picture, bytes), y_of(picture, bytes),
		        bytes > 0 ? "#dddddd" : "#444444", LEFT - 8, y_of(picture, bytes) + 5,
		        bytes / divisor, bytes > 0 ? units[unit] : "");
	for (size_t i = every - 1; i < picture->n; i += every)
		fprintf(file, "<text x='%.1f' y='%d' text-anchor='middle'>%" PRIu64 "</text>\n",
		        x_of(picture, i), LOWER_EDGE + 20, picture->states[i].number);
	chart_axis_names(file, (LEFT + RIGHT_EDGE) / 2, HEIGHT - 16, "checkpoint", 20,
	                 (TOP + LOWER_EDGE) / 2, "bytes stored in all");
}

/* A line from nothing on, a dot for each checkpoint, and beside the last one, at y, what it is. */
static void put_line(FILE *file, const struct log_picture *picture, unsigned line, double y)
{
	char bytes[32] = "";

	fprintf(file,
	        "<g class='%s' fill='%s'>\n<polyline fill='none' stroke='%s' stroke-width='2.5' "
	        "points='%d,%d",
	        names[line], colours[line], colours[line], LEFT, LOWER_EDGE);
	for (size_t i = 0; i < picture->n; i++)
		fprintf(file, " %.1f,%.1f", x_of(picture, i),
		        y_of(picture, (double)picture->states[i].bytes[line]));
	fputs("'/>\n", file);
	for (size_t i = 0; i < picture->n; i++) {
		const struct state *s = &picture->states[i];
		units_bytes(bytes, sizeof(bytes), s->bytes[line]);
		fprintf(file,
		        "<circle cx='%.1f' cy='%.1f' r='%d'><title>checkpoint %" PRIu64
		        ": %s</title></circle>\n",
		        x_of(picture, i), y_of(picture, (double)s->bytes[line]),
		        i + 1 < picture->n ? 2 : 4, s->number, bytes);
	}
	fprintf(file,
	        "<text x='%d' y='%.1f' font-weight='bold'>%s</text>\n"
	        "<text x='%d' y='%.1f'>%s</text>\n</g>\n",
	        RIGHT_EDGE + 12, y, bytes, RIGHT_EDGE + 12, y + 17, labels[line]);
}

static void draw(FILE *file, const void *opaque)
{
	const struct log_picture *p = opaque;
	const struct state *last = &p->states[p->n - 1];
	unsigned larger = last->bytes[ARCHIVE] > last->bytes[FILES] ? ARCHIVE : FILES;
	double upper = y_of(p, (double)last->bytes[larger]) + 5;
	double lower = y_of(p, (double)last->bytes[1 - larger]) - 12;
	char tokens[32];

	chart_head(file, WIDTH, HEIGHT, LEFT, p->name,
	           "Bytes of an archive up to each of its checkpoints, and of the files of these "
	           "checkpoints.");
	fprintf(file, "%zu checkpoint%s, the last one of %s tokens</tspan></text>\n", p->n,
	        p->n == 1 ? "" : "s", units_count(tokens, last->tokens));
	put_axes(file, p);
	put_line(file, p, larger, upper);
	put_line(file, p, 1 - larger, lower - upper < TEXT_HEIGHT ? upper + TEXT_HEIGHT : lower);
	fputs("</svg>\n", file);
}

/* Writes the SVG that options->plot names: the bytes of the archive up to each checkpoint, and
 * those of the files of all checkpoints up to it. in: the seekable input of r, which is opened
 * once more for each checkpoint. Shows a message when that fails, or when there is nothing to
 * draw. */
static void log_plot(const struct options *options, struct input *in, kvarc_reader *r,
                     const kvarc_error *error)
{
	struct log_picture p = { .name = paths_base(msg_name(in->name)) };

	if (!read_states(&options->work, in, r, error, &p)) {
		free(p.states);
		return;
	}
	if (p.n == 0) {
		msg_error(in->name, "has no checkpoint; there is nothing to draw");
	} else {
		find_scale(&p);
		chart_write(options->plot, options->force, draw, &p);
	}
	free(p.states);
}

/* ==== kvarc log: the checkpoints of archives ==== */

/* A checkpoint; before: bytes of the archive up to the one before. */
static void report_one(struct report *report, const kvarc_checkpoint *checkpoint, uint64_t before)
{
	struct checkpoint_texts texts;

	report_object(report, NULL);
	checkpoint_fields(report, checkpoint, "-", &texts);
	report_u64(report, "tokens", checkpoint->tokens);
	report_u64(report, "new_tokens", checkpoint->new_tokens);
	report_u64(report, "bytes", checkpoint->end - before);
	report_print(report, "{number:5}  {.when:-16}  {tokens:9C} tokens  {new_tokens:9C} new  "
	                     "{bytes:9B}[  {label}]\n");
	report_end_object(report);
	free(texts.label);
}

/* Reports all checkpoints of an archive. */
static void report_all(const struct options *options, struct input *in, kvarc_reader *r,
                       kvarc_error *error, bool first)
{
	kvarc_checkpoint c;
	kvarc_info info;
	struct report x;
	uint64_t before = 0;
	kvarc_ret ret;

	report_start(&x, options->json);
	report_string(&x, "file", in->name);
	if (options->n_files > 1) {
		report_string(&x, ".before", first ? "" : "\n");
		report_print(&x, "{.before}{file}\n");
	}
	report_array(&x, "checkpoints");
	for (size_t i = 0; (ret = kvarc_reader_checkpoint(r, i, &c)) == KVARC_OK; i++) {
		report_one(&x, &c, before);
		before = c.end;
	}
	report_end_array(&x);
	report_end(&x);
	if (ret != KVARC_END)
		library_error(in->name, ret, error, in, NULL);
	else if (before == 0)
		msg_note(in->name, "has no checkpoint; 'kvarc append' makes them");
	if (ret == KVARC_END && kvarc_reader_get_info(r, &info) == KVARC_OK)
		library_warn_state(in->name, &info, library_tokens(r));
}

static void log_one(const struct options *options, struct input *in, kvarc_reader *r,
                    kvarc_error *error, bool first)
{
	if (options->json || msg_level() >= 0)
		report_all(options, in, r, error, first);
	if (options->plot) {
		msg_flush();
		log_plot(options, in, r, error);
	}
}

void cmd_log(const struct options *options)
{
	if (!paths_check_operands(options))
		return;
	if (options->plot && options->n_files > 1)
		msg_usage("--plot draws one archive");
	else if (!options->plot ||
	         output_check(options->plot, options->force)) /* done before the work */
		readers_each(options, true, 0, log_one);
}
