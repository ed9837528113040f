/* SPDX-License-Identifier: BSD-3-Clause */
/* eval_plot.c - a self-contained SVG: KL against bits per element, a line for each family of
 * tiers */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "chart.h"
#include "cmd_eval.h"
#include "models.h"
#include "message.h"

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

void eval_plot(const struct eval_run *r)
{
	if (r->tiers.n == 0)
		msg_usage("there is nothing to draw: give tiers with --tier");
	else
		chart_write(r->o->plot, r->o->force, draw, r);
}
