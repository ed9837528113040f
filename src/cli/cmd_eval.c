/* SPDX-License-Identifier: BSD-3-Clause */
/* cmd_eval.c - kvarc eval: what lossy caches do to what their model says next */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chart.h"
#include "commands.h"
#include "ids.h"
#include "library.h"
#include "message.h"
#include "models.h"
#include "outfile.h"
#include "paths.h"
#include "readers.h"
#include "report.h"
#include "score_files.h"
#include "tiers.h"
#include "units.h"
#include "kvarc/tools.h"

/* ==== Sequences of token ids out of the files of kvarc eval ==== */

/* Sequences one behind the other, all of the same length. */
struct eval_file {
	const char *name;
	int32_t *ids;
	size_t length, n, capacity; /* length: tokens of a sequence; n, capacity: sequences */
	size_t share;               /* sequences used from the file */
	unsigned dtype;             /* dtype of a cache; 0: a text, or none that eval makes */
};

/* A sequence: ids are borrowed, file names their source. */
struct eval_text {
	const int32_t *ids;
	const char *file;
};
/* The sequences and the files that own their ids. */
struct eval_texts {
	struct eval_text *list;
	size_t n;
	struct eval_file *files; /* own the ids */
	size_t n_files;
	unsigned dtype; /* kvarc_dtype of the first cache among the files; 0: there is none */
};

/* The results of one check or tier. Checks come first. */
struct eval_column {
	const char *name;
	kvarc_eval_result *results; /* one per sequence */
	kvarc_eval_summary summary;
	size_t failed; /* sequences that do not pass --max-kl */
};
/* Settings and results of one evaluation; cmd_eval.c owns them. */
struct eval_run {
	const struct options *o;
	struct eval_texts texts;
	unsigned dtype; /* kvarc_dtype of the caches that the model makes */
	struct tiers tiers;
	struct eval_column *columns;
	size_t n_columns;
	kvarc_predictor_model model;
	double seconds;
};

/* Adds the sequences of a text; tokens behind the last whole one are not used. */
static bool take(void *opaque, const int32_t *ids, size_t n)
{
	struct eval_file *f = opaque;
	size_t more = n / f->length;

	if (f->n + more > f->capacity) {
		size_t capacity = 2 * (f->n + more);
		int32_t *p = realloc(f->ids, capacity * f->length * sizeof(*p));
		if (!p) {
			msg_error(NULL, "out of memory");
			return false;
		}
		f->ids = p;
		f->capacity = capacity;
	}
	if (more)
		memcpy(f->ids + f->n * f->length, ids, more * f->length * sizeof(*ids));
	f->n += more;
	return true;
}

/* The ids of an archive, or of a cache that has some. */
static bool take_track(struct eval_file *file, kvarc_reader *r, kvarc_import *im,
                       const kvarc_error *error, const struct input *in)
{
	uint64_t n = r ? kvarc_reader_tokens(r, 0) : kvarc_import_tokens(im, 0);
	int32_t *ids = calloc(n + 1, sizeof(*ids));
	kvarc_ret ret = KVARC_MEM;
	bool ok = false;

	if (ids)
		ret = r ? kvarc_reader_read_tokens(r, 0, 0, n, ids, NULL)
		        : kvarc_import_read_tokens(im, 0, 0, n, ids, NULL);
	if (ret == KVARC_OK)
		ok = take(file, ids, (size_t)n);
	else
		library_error(file->name, ret, error, in, NULL);
	free(ids);
	return ok;
}

/* The element type of its keys and values, if a model's caches can have it. */
static unsigned dtype_of(const kvarc_geometry *geometry)
{
	for (size_t i = 0; i < geometry->n_tensors; i++) {
		const kvarc_tensor *t = &geometry->tensors[i];
		if (t->role == KVARC_WHOLE &&
		    (t->dtype == KVARC_F32 || t->dtype == KVARC_F16 || t->dtype == KVARC_BF16))
			return t->dtype;
	}
	return 0;
}

static bool take_cache(struct eval_file *file, const struct options *options, struct input *in)
{
	kvarc_import_options io = KVARC_IMPORT_OPTIONS_INIT;
	kvarc_source source = input_source(in);
	kvarc_import *im = NULL;
	kvarc_reader *r = NULL;
	kvarc_error error;
	bool ok = false;

	if (input_is_archive(in)) {
		r = readers_open(&options->work, &options->reading, in, 0, &error);
		ok = r && take_track(file, r, NULL, &error, in);
		file->dtype = r ? dtype_of(kvarc_reader_geometry(r)) : 0;
		kvarc_reader_close(&r);
		return ok;
	}
	readers_import_options(&options->work, &options->import, &io, &error);
	if (kvarc_import_open(&im, &source, paths_base(in->name), &io) == KVARC_OK &&
	    kvarc_import_tokens(im, 0) && kvarc_import_geometry(im)->n_tensors)
		ok = take_track(file, NULL, im, &error, in);
	else
		msg_error(file->name, "no token ids: neither a text of them, nor a cache "
		                      "that has some");
	file->dtype = ok ? dtype_of(kvarc_import_geometry(im)) : 0;
	kvarc_import_close(&im);
	return ok;
}

static bool read_file(struct eval_file *file, const struct options *options)
{
	struct input in;
	bool ok;

	if (!input_open(&in, file->name, true))
		return false;
	ok = ids_is_text(&in) ? ids_read(&in, take, file) : take_cache(file, options, &in);
	input_close(&in);
	return ok;
}

/* Divides the wanted sequences among the files: each gets one more in turn, until there are enough
 * or all are used. */
static size_t share_out(struct eval_texts *texts, size_t wanted)
{
	size_t n = 0, before;

	do {
		before = n;
		for (size_t i = 0; i < texts->n_files && n < wanted; i++) {
			if (texts->files[i].share < texts->files[i].n) {
				texts->files[i].share++;
				n++;
			}
		}
	} while (n > before);
	return n;
}

static bool choose(struct eval_texts *texts, size_t wanted)
{
	size_t n = share_out(texts, wanted);

	texts->list = calloc(n + 1, sizeof(*texts->list));
	if (!texts->list) {
		msg_error(NULL, "out of memory");
		return false;
	}
	for (size_t i = 0; i < texts->n_files; i++) {
		const struct eval_file *f = &texts->files[i];
		for (size_t k = 0; k < f->share; k++) {
			size_t at = k * f->n / f->share;
			texts->list[texts->n].file = f->name;
			texts->list[texts->n++].ids = f->ids + at * f->length;
		}
	}
	return true;
}

/* Takes eval.sequences sequences of eval.prefix + eval.continuation tokens, fewer if there are no
 * more: of all files alike, and from all over each of them. false: a message was shown. */
static bool eval_texts_read(struct eval_texts *texts, const struct options *options)
{
	size_t length = (size_t)(options->eval.prefix + options->eval.continuation);

	texts->n_files = options->n_files;
	texts->files = calloc(options->n_files + 1, sizeof(*texts->files));
	if (!texts->files) {
		msg_error(NULL, "out of memory");
		return false;
	}
	for (size_t i = 0; i < options->n_files; i++) {
		texts->files[i].name = options->files[i];
		texts->files[i].length = length;
		if (!read_file(&texts->files[i], options))
			return false;
		texts->dtype = texts->dtype ? texts->dtype : texts->files[i].dtype;
	}
	if (!choose(texts, (size_t)options->eval.sequences))
		return false;
	if (texts->n == 0)
		msg_usage("no sequence of %zu tokens: give more text, or a smaller --prefix or "
		          "--continue",
		          length);
	else if (texts->n < options->eval.sequences)
		msg_warning(NULL, "only %zu sequences of %zu tokens, not %zu", texts->n, length,
		            (size_t)options->eval.sequences);
	return texts->n > 0;
}

/* Releases sequences and files. */
static void eval_texts_free(struct eval_texts *texts)
{
	for (size_t i = 0; texts->files && i < texts->n_files; i++)
		free(texts->files[i].ids);
	free(texts->files);
	free(texts->list);
}

/* ==== A picture: KL against bits per element, by tier ==== */

/* Sizes in SVG user units. */
enum { WIDTH = 960, HEIGHT = 600, LEFT = 84, RIGHT = 150, TOP = 72, BOTTOM = 60 };
enum { RIGHT_EDGE = WIDTH - RIGHT, LOWER_EDGE = HEIGHT - BOTTOM, COLOURS = 8 };
/* A KL of 0 has no power of ten: it is drawn on a line of its own, below the others. */
enum { LOG_EDGE = LOWER_EDGE - 36, GAP = 14 };
static const char *const colours[COLOURS] = { "#1f6fb4", "#d9700d", "#5c8a3a", "#a8327d",
	                                      "#6a51a3", "#a0522d", "#137d7d", "#444444" };
static const double gates[] = { 1e-3, 1e-2, 0.1 };

/* KL by powers of ten. */
struct axes {
	double most, step; /* bits, from 0 on */
	int low, high;     /* powers */
};

static double x_of(const struct axes *axes, double bits)
{
	return LEFT + (RIGHT_EDGE - LEFT) * bits / axes->most;
}

/* Position of a KL; one that is too small for the powers is at their lower edge. */
static double y_of(const struct axes *axes, double kl)
{
	double power = kl > 0 ? log10(kl) : axes->low;

	if (!(power > axes->low))
		power = axes->low;
	if (!(power < axes->high))
		power = axes->high;
	return TOP + (LOG_EDGE - TOP) * (axes->high - power) / (axes->high - axes->low);
}

/* Position of a mean KL, which may be 0. */
static double y_of_mean(const struct axes *axes, double kl)
{
	return kl > 0 ? y_of(axes, kl) : LOWER_EDGE;
}

static struct axes find_axes(const struct eval_run *r)
{
	double bits = 0, low = 1e-3, high = 0.1;
	struct axes a;

	for (size_t c = KVARC_EVAL_CHECKS; c < r->n_columns; c++) {
		const kvarc_eval_summary *s = &r->columns[c].summary;
		bits = s->bits_per_element > bits ? s->bits_per_element : bits;
		if (s->low_kl > 0 && s->low_kl < low)
			low = s->low_kl;
		if (isfinite(s->high_kl) && s->high_kl > high)
			high = s->high_kl;
	}
	a.step = chart_step(bits);
	a.most = a.step * ceil(bits / a.step + 0.25);
	a.low = (int)floor(log10(low > 1e-12 ? low : 1e-12));
	a.high = (int)ceil(log10(high));
	return a;
}

static void put_axes(FILE *file, const struct axes *axes)
{
	for (double b = 0; b <= axes->most + 1e-9; b += axes->step) {
		fprintf(file,
		        "<line x1='%.1f' x2='%.1f' y1='%d' y2='%d' stroke='%s'/>\n"
		        "<text x='%.1f' y='%d' text-anchor='middle'>%g</text>\n",
		        x_of(axes, b), x_of(axes, b), TOP, LOWER_EDGE,
		        b > 0 ? "#eeeeee" : "#444444", x_of(axes, b), LOWER_EDGE + 20, b);
	}
	for (int p = axes->low; p <= axes->high; p++) {
		double y = y_of(axes, pow(10, p));
		fprintf(file,
		        "<line x1='%d' x2='%d' y1='%.1f' y2='%.1f' stroke='%s'/>\n"
		        "<text x='%d' y='%.1f' text-anchor='end'>10<tspan dy='-6' "
		        "font-size='10'>%d</tspan></text>\n",
		        LEFT, RIGHT_EDGE, y, y, p > axes->low ? "#eeeeee" : "#444444", LEFT - 8,
		        y + 5, p);
	}
	fprintf(file,
	        "<line class='zero' x1='%d' x2='%d' y1='%d' y2='%d' stroke='#444444'/>\n"
	        "<text x='%d' y='%d' text-anchor='end'>0</text>\n"
	        "<rect x='%d' y='%d' width='%d' height='%d' fill='white'/>\n",
	        LEFT, RIGHT_EDGE, LOWER_EDGE, LOWER_EDGE, LEFT - 8, LOWER_EDGE + 5, LEFT - 2,
	        LOG_EDGE + (LOWER_EDGE - LOG_EDGE - GAP) / 2, RIGHT_EDGE - LEFT + 4, GAP);
	for (size_t i = 0; i < sizeof(gates) / sizeof(gates[0]); i++)
		fprintf(file,
		        "<line class='gate' x1='%d' x2='%d' y1='%.1f' y2='%.1f' "
		        "stroke='#b03030' stroke-dasharray='5 4'/>\n"
		        "<text x='%d' y='%.1f' fill='#b03030' text-anchor='end' "
		        "font-size='12'>%g</text>\n",
		        LEFT, RIGHT_EDGE, y_of(axes, gates[i]), y_of(axes, gates[i]),
		        RIGHT_EDGE - 4, y_of(axes, gates[i]) - 4, gates[i]);
	chart_axis_names(file, (LEFT + RIGHT_EDGE) / 2, HEIGHT - 16,
	                 "bits per element, all bytes counted", 24, (TOP + LOWER_EDGE) / 2,
	                 "mean KL, nats a token");
}

/* Length of a tier's name before ':'. */
static size_t family_of(const char *name)
{
	return strcspn(name, ":");
}

static bool same_family(const struct eval_run *r, size_t a, size_t b)
{
	const char *x = r->columns[a].name, *y = r->columns[b].name;
	size_t n = family_of(x);

	return n == family_of(y) && strncmp(x, y, n) == 0;
}

/* The member of a family that has the next more bits; 0: none. */
static size_t next_of(const struct eval_run *r, size_t first, size_t last)
{
	size_t best = 0;

	for (size_t c = KVARC_EVAL_CHECKS; c < r->n_columns; c++) {
		double bits = r->columns[c].summary.bits_per_element;
		double before = last ? r->columns[last].summary.bits_per_element : -1;
		bool later = bits > before || (bits == before && c > last);
		if (same_family(r, first, c) && c != last && later &&
		    (!best || bits < r->columns[best].summary.bits_per_element))
			best = c;
	}
	return best;
}

static void put_point(FILE *file, const struct axes *axes, const struct eval_column *column)
{
	const kvarc_eval_summary *s = &column->summary;
	double x = x_of(axes, s->bits_per_element);
	double low = s->mean_kl > 0 ? y_of(axes, s->low_kl) : LOWER_EDGE;
	double high = s->mean_kl > 0 ? y_of(axes, s->high_kl) : LOWER_EDGE;

	fprintf(file,
	        "<path fill='none' stroke-width='1.5' d='M%.1f %.1fV%.1f"
	        "M%.1f %.1fh8M%.1f %.1fh8'/>\n<circle cx='%.1f' cy='%.1f' r='4' "
	        "stroke='none'><title>",
	        x, low, high, x - 4, low, x - 4, high, x, y_of_mean(axes, s->mean_kl));
	chart_text(file, column->name);
	fprintf(file, ": %.3f bits, KL %.3g (%.3g to %.3g)</title></circle>\n", s->bits_per_element,
	        s->mean_kl, s->low_kl, s->high_kl);
	fprintf(file, "<text x='%.1f' y='%.1f' font-size='11' stroke='none'>", x + 7,
	        y_of_mean(axes, s->mean_kl) - 6);
	chart_text(file, column->name);
	fputs("</text>\n", file);
}

static void put_family(FILE *file, const struct axes *axes, const struct eval_run *r, size_t first,
                       size_t number)
{
	const char *colour = colours[number % COLOURS], *name = r->columns[first].name;

	fprintf(file, "<g fill='%s' stroke='%s'>\n<polyline fill='none' stroke-width='2' points='",
	        colour, colour);
	for (size_t c = 0; (c = next_of(r, first, c)) != 0;) {
		const kvarc_eval_summary *s = &r->columns[c].summary;
		fprintf(file, "%.1f,%.1f ", x_of(axes, s->bits_per_element),
		        y_of_mean(axes, s->mean_kl));
	}
	fputs("'/>\n", file);
	for (size_t c = 0; (c = next_of(r, first, c)) != 0;)
		put_point(file, axes, &r->columns[c]);
	fprintf(file,
	        "<rect x='%d' y='%zu' width='14' height='14' stroke='none'/>\n"
	        "</g>\n<text class='family' x='%d' y='%zu'>",
	        RIGHT_EDGE + 20, TOP + 24 * number, RIGHT_EDGE + 40, TOP + 24 * number + 12);
	for (size_t i = 0; i < family_of(name); i++) {
		const char letter[2] = { name[i], '\0' };
		chart_text(file, letter);
	}
	fputs("</text>\n", file);
}

static void put_head(FILE *file, const struct eval_run *r)
{
	chart_head(file, WIDTH, HEIGHT, LEFT, models_name(),
	           "Mean KL of the exact distribution of the next token to that after a lossy "
	           "cache, against bits per element, by tier.");
	fprintf(file, "%zu sequence%s of %zu + %zu tokens, %s, 95 %% intervals</tspan></text>\n",
	        r->texts.n, r->texts.n == 1 ? "" : "s", (size_t)r->o->eval.prefix,
	        (size_t)r->o->eval.continuation, kvarc_dtype_name(r->dtype));
}

static void draw(FILE *file, const void *opaque)
{
	const struct eval_run *r = opaque;
	struct axes a = find_axes(r);
	size_t number = 0;

	put_head(file, r);
	put_axes(file, &a);
	for (size_t c = KVARC_EVAL_CHECKS; c < r->n_columns; c++) {
		size_t before = KVARC_EVAL_CHECKS;
		while (!same_family(r, before, c))
			before++;
		if (before == c)
			put_family(file, &a, r, c, number++);
	}
	fputs("</svg>\n", file);
}

/* Draws KL against bits per element into the file o->plot. */
static void eval_plot(const struct eval_run *r)
{
	if (r->tiers.n == 0)
		msg_usage("there is nothing to draw: give tiers with --tier");
	else
		chart_write(r->o->plot, r->o->force, draw, r);
}

/* ==== What tiers cost and save, as a table or as JSON ==== */

enum { EVAL_SEED = 1 }; /* seed of the bootstrap */

enum { DIGITS = 12 }; /* digits of a KL */

struct running;
static void run(struct running *running);

static void report_sequence(struct report *r, const struct eval_run *run,
                            const struct eval_column *column, size_t i)
{
	const kvarc_eval_result *x = &column->results[i];

	report_start(r, true);
	report_string(r, "type", "sequence");
	report_string(r, "tier", column->name);
	report_u64(r, "sequence", i + 1);
	report_string(r, "file", run->texts.list[i].file);
	report_real(r, "mean_kl", x->mean_kl, DIGITS);
	report_real(r, "p99_kl", x->p99_kl, DIGITS);
	report_real(r, "p999_kl", x->p999_kl, DIGITS);
	report_real(r, "max_kl", x->max_kl, DIGITS);
	report_real(r, "agreement", x->agreement, 6);
	report_real(r, "delta_nll", x->delta_nll, DIGITS);
	report_u64(r, "first_diverging", x->first_diverging);
	report_u64(r, "kept_tokens", x->kept_tokens);
	report_u64(r, "archive_bytes", x->archive_bytes);
	report_real(r, "bits_per_element", 8 * (double)x->archive_bytes / (double)x->elements, 4);
	if (run->o->lossy.max_kl > 0)
		report_bool(r, "passes", kvarc_eval_passes(x, run->o->lossy.max_kl));
	report_end(r);
}

static void report_tier(struct report *r, const struct eval_run *run,
                        const struct eval_column *column)
{
	const kvarc_eval_summary *s = &column->summary;
	const struct options *o = run->o;
	double bits = s->bits_per_element;
	char interval[32], diverging[48];

	snprintf(interval, sizeof(interval), "%.3g-%.3g", s->low_kl, s->high_kl);
	snprintf(diverging, sizeof(diverging), "%" PRIu64 "/%" PRIu64, s->diverging, s->sequences);
	report_start(r, o->json);
	report_string(r, "type", "tier");
	report_string(r, "tier", column->name);
	report_u64(r, "sequences", s->sequences);
	report_u64(r, "prefix", o->eval.prefix);
	report_u64(r, "continuation", o->eval.continuation);
	report_string(r, "dtype", kvarc_dtype_name(run->dtype));
	report_real(r, "bits_per_element", bits, 4);
	report_real(r, ".bits", bits > 0 ? bits : NAN, 0);
	report_real(r, "ratio", 8 * (double)kvarc_dtype_bytes(run->dtype) / bits, 4);
	report_real(r, "kept", s->kept, 6);
	report_real(r, "mean_kl", s->mean_kl, DIGITS);
	report_real(r, "low_kl", s->low_kl, DIGITS);
	report_real(r, "high_kl", s->high_kl, DIGITS);
	report_string(r, ".interval", interval);
	report_real(r, "deviation_kl", s->deviation_kl, DIGITS);
	report_real(r, "p95_kl", s->p95_kl, DIGITS);
	report_real(r, "worst_kl", s->worst_kl, DIGITS);
	report_u64(r, "worst", s->worst + 1);
	report_real(r, "p99_kl", s->p99_kl, DIGITS);
	report_real(r, "p999_kl", s->p999_kl, DIGITS);
	report_real(r, "max_kl", s->max_kl, DIGITS);
	report_real(r, "agreement", s->agreement, 6);
	report_real(r, ".agreement", 100 * s->agreement, 0);
	report_real(r, "delta_nll", s->delta_nll, DIGITS);
	report_u64(r, "diverging", s->diverging);
	report_string(r, ".diverging", diverging);
	if (o->lossy.max_kl > 0)
		report_u64(r, "failed", column->failed);
	report_u64(r, "seed", EVAL_SEED);
	report_print(r, "{tier:-16} {.bits:8.3f} {ratio:7.2fx}  {mean_kl:9.3g} {.interval:19} "
	                "{worst_kl:9.3g} {worst:5} {p99_kl:9.3g} {max_kl:9.3g} {.agreement:5.1f}% "
	                "{delta_nll:8.4f} {.diverging:8}\n");
	report_end(r);
}

static void print_title(const struct eval_run *r)
{
	const kvarc_predictor_model *m = &r->model;

	msg_put_safe(stdout, models_name());
	printf(" (%s, %" PRIu32 " layers of %" PRIu32 " x %" PRIu32 "): %zu "
	       "sequence%s of %" PRIu64 " + %" PRIu64 " tokens, caches of %s\n",
	       m->arch, m->layers, m->heads, m->channels, r->texts.n, r->texts.n == 1 ? "" : "s",
	       r->o->eval.prefix, r->o->eval.continuation, kvarc_dtype_name(r->dtype));
	printf("%-16s %8s %7s  %9s %19s %9s %5s %9s %9s %6s %8s %8s\n", "tier", "bits/el.", "ratio",
	       "mean KL", "95 % interval", "worst", "no.", "p99", "max", "top-1", "+NLL",
	       "diverge");
}

static void print_notes(const struct eval_run *r)
{
	printf("KL of the exact distribution to the tier's, nats a token, each "
	       "sequence counting once; 95 %% of 2000\nmeans of sequences drawn "
	       "again (seed %d); p99 and max of all tokens. diverge: sequences "
	       "with another likeliest\ntoken somewhere. Bits of all bytes of the "
	       "archives, for all elements. %.0f s\n",
	       EVAL_SEED, r->seconds);
}

/* The table; or, with o->json, an object for each sequence and tier, and for each tier. */
static void eval_report(const struct eval_run *r)
{
	struct report report;

	if (!r->o->json)
		print_title(r);
	for (size_t c = 0; c < r->n_columns; c++) {
		for (size_t i = 0; i < r->texts.n && r->o->json; i++)
			report_sequence(&report, r, &r->columns[c], i);
		report_tier(&report, r, &r->columns[c]);
	}
	if (!r->o->json && msg_level() >= 0)
		print_notes(r);
}

/* ==== kvarc eval: what lossy caches do to what their model says next ==== */

/* A run in progress. */
struct running {
	struct eval_run r;
	kvarc_eval *eval;
	kvarc_error error;
	kvarc_writer_options *writers;
	kvarc_eval_result *results; /* results of all columns */
	double *token_kl;
	size_t sequence;
};

/* A kvarc_progress of one sequence, as one of all. */
static int update(void *opaque, uint64_t done, uint64_t total)
{
	const struct running *x = opaque;

	return progress_update(NULL, x->sequence * total + done, x->r.texts.n * total);
}

/* The scores that the tiers need: H2O's unless others are asked for; none if no tier uses
 * scores. */
static kvarc_score kind_of(const struct eval_run *r)
{
	for (size_t i = 0; i < r->tiers.n; i++) {
		if (scores_wanted(&r->tiers.list[i].lossy))
			return r->o->lossy.scores ? scores_kind(r->o->lossy.scores)
			                          : KVARC_SCORE_H2O;
	}
	return KVARC_SCORE_NONE;
}

static bool open_eval(struct running *running)
{
	const struct options *o = running->r.o;
	kvarc_eval_options eo = KVARC_EVAL_OPTIONS_INIT;
	kvarc_ret ret;

	library_common(&o->work, &eo.common, &running->error);
	eo.common.progress = update;
	eo.common.progress_opaque = running;
	eo.predictor = models_given();
	eo.arithmetic = (kvarc_arithmetic)o->coding.arithmetic;
	eo.dtype = running->r.dtype;
	eo.prefix = (uint32_t)o->eval.prefix;
	eo.continuation = (uint32_t)o->eval.continuation;
	eo.scores = kind_of(&running->r);
	ret = kvarc_eval_open(&running->eval, &eo);
	if (ret != KVARC_OK)
		library_error(o->coding.model, ret, &running->error, NULL, NULL);
	return ret == KVARC_OK;
}

/* Allocates results: one per column and sequence, each with an array for its tokens. */
static bool open_columns(struct running *running)
{
	struct eval_run *r = &running->r;
	size_t n = r->texts.n, tokens = (size_t)r->o->eval.continuation;

	r->n_columns = KVARC_EVAL_CHECKS + r->tiers.n;
	r->columns = calloc(r->n_columns, sizeof(*r->columns));
	running->results = calloc(r->n_columns * n, sizeof(*running->results));
	running->token_kl = calloc(r->n_columns * n, tokens * sizeof(*running->token_kl));
	running->writers = calloc(r->tiers.n + 1, sizeof(*running->writers));
	if (!r->columns || !running->results || !running->token_kl || !running->writers) {
		msg_error(NULL, "out of memory");
		return false;
	}
	for (size_t i = 0; i < r->n_columns * n; i++)
		running->results[i].token_kl = running->token_kl + i * tokens;
	for (size_t i = 0; i < r->n_columns; i++)
		r->columns[i].results = running->results + i * n;
	r->columns[KVARC_EVAL_FLOOR].name = "(lossless)";
	r->columns[KVARC_EVAL_ZEROED].name = "(zeroed)";
	for (size_t i = 0; i < r->tiers.n; i++) {
		r->columns[KVARC_EVAL_CHECKS + i].name = r->tiers.list[i].name;
		running->writers[i] = r->tiers.list[i].writer;
		if (r->tiers.list[i].lossy.tier)
			running->writers[i].lossy = &r->tiers.list[i].lossy;
	}
	return true;
}

/* Results of a sequence, one a column, are where those of columns begin. */
static bool run_sequence(struct running *running, size_t i, kvarc_eval_result *row)
{
	struct eval_run *r = &running->r;
	kvarc_ret ret;

	running->sequence = i;
	for (size_t c = 0; c < r->n_columns; c++)
		row[c] = r->columns[c].results[i];
	ret = kvarc_eval_sequence(running->eval, r->texts.list[i].ids, r->tiers.n, running->writers,
	                          row + KVARC_EVAL_CHECKS, row);
	for (size_t c = 0; c < r->n_columns; c++)
		r->columns[c].results[i] = row[c];
	if (ret != KVARC_OK)
		library_error(r->texts.list[i].file, ret, &running->error, NULL, NULL);
	return ret == KVARC_OK;
}

static bool run_all(struct running *running)
{
	struct eval_run *r = &running->r;
	kvarc_eval_result *row = calloc(r->n_columns, sizeof(*row));
	double start = units_now();
	bool ok = row != NULL;

	if (!ok)
		msg_error(NULL, "out of memory");
	progress_start(r->o->coding.model, KVARC_UNKNOWN);
	progress_unit("tokens");
	for (size_t i = 0; i < r->texts.n && ok; i++)
		ok = run_sequence(running, i, row);
	progress_stop();
	free(row);
	r->seconds = units_now() - start;
	return ok;
}

static bool summarise(struct running *running)
{
	struct eval_run *r = &running->r;

	for (size_t c = 0; c < r->n_columns; c++) {
		struct eval_column *k = &r->columns[c];
		if (kvarc_eval_summarise(&k->summary, k->results, r->texts.n, EVAL_SEED) !=
		    KVARC_OK) {
			msg_error(NULL, "out of memory");
			return false;
		}
		for (size_t i = 0; i < r->texts.n && r->o->lossy.max_kl > 0; i++)
			k->failed += !kvarc_eval_passes(&k->results[i], r->o->lossy.max_kl);
	}
	return true;
}

/* Messages after the table, which shows by how much. */
static void judge(struct running *running)
{
	const struct eval_run *r = &running->r;
	kvarc_ret ret = kvarc_eval_trusted(running->eval, r->o->lossy.max_kl);

	msg_flush();
	if (ret != KVARC_OK)
		library_error(NULL, ret, &running->error, NULL, NULL);
	for (size_t c = KVARC_EVAL_CHECKS; c < r->n_columns; c++) {
		if (r->columns[c].failed)
			msg_error(r->columns[c].name,
			          "%zu of %zu sequences do not pass --max-kl %g",
			          r->columns[c].failed, r->texts.n, r->o->lossy.max_kl);
	}
}

static void run(struct running *running)
{
	struct eval_run *r = &running->r;

	if (!tiers_parse(&r->tiers, &r->o->lossy.tiers) || !eval_texts_read(&r->texts, r->o))
		return;
	r->dtype = r->o->dtype_given || !r->texts.dtype ? r->o->dtype : r->texts.dtype;
	if (!open_columns(running) || !open_eval(running) || !run_all(running) ||
	    !summarise(running))
		return;
	if (kvarc_predictor_get_model(models_given(), &r->model) != KVARC_OK)
		return;
	eval_report(r);
	if (r->o->plot)
		eval_plot(r);
	judge(running);
}

static bool check(const struct options *options)
{
	if (!paths_check_reading(options))
		return false;
	if (options->lossy.scores && !scores_kind(options->lossy.scores)) {
		msg_usage("--scores is h2o or surprisal");
		return false;
	}
	return !options->plot || output_check(options->plot, options->force);
}

void cmd_eval(const struct options *options)
{
	struct running x = { .r = { .o = options } };

	if (!check(options))
		return;
	run(&x);
	kvarc_eval_close(&x.eval);
	tiers_free(&x.r.tiers);
	eval_texts_free(&x.r.texts);
	free(x.r.columns);
	free(x.results);
	free(x.token_kl);
	free(x.writers);
}
