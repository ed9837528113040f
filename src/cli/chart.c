/* SPDX-License-Identifier: BSD-3-Clause */
/* chart.c - SVG elements that all pictures share, and a line chart of bits by layer */
#include "config.h"

#include "chart.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "message.h"
#include "outfile.h"

void chart_text(FILE *file, const char *text)
{
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;
		if (c == '&')
			fputs("&amp;", file);
		else if (c == '<')
			fputs("&lt;", file);
		else if (c == '>')
			fputs("&gt;", file);
		else if (c >= 0x20 && c != 0x7f)
			putc(c, file);
	}
}

static void save(const char *path, bool force, const char *text, size_t bytes)
{
	struct output out;
	kvarc_sink sink;

	if (!output_open(&out, path, force ? OUTPUT_FORCE : 0, 0))
		return;
	sink = output_sink(&out);
	if (sink.write(sink.opaque, text, bytes, 0) != 0) {
		output_report(&out);
		output_abort(&out);
	} else {
		output_commit(&out);
	}
}

void chart_write(const char *path, bool force, void (*draw)(FILE *f, const void *opaque),
                 const void *opaque)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *f = open_memstream(&text, &bytes);

	if (f)
		draw(f, opaque);
	if (!f || ferror(f) || fclose(f) != 0)
		msg_error(NULL, "out of memory");
	else
		save(path, force, text, bytes);
	free(text);
}

/* Colours for readers whose programs are dark. */
static const char dark[] =
	"@media (prefers-color-scheme: dark) {svg {fill: #e6e6e6} [fill='white'] {fill: #16191d} "
	"[stroke='#dddddd'], [stroke='#eeeeee'] {stroke: #3a3f45} [stroke='#444444'] {stroke: "
	"#a0a0a0} [fill='#1f6fb4'] {fill: #58a6f0} [stroke='#1f6fb4'] {stroke: #58a6f0} "
	"[fill='#d9700d'] {fill: #f0913a} [stroke='#d9700d'] {stroke: #f0913a}}";

void chart_head(FILE *file, int width, int height, int left, const char *name, const char *what)
{
	fprintf(file,
	        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %d %d' "
	        "width='%d' height='%d' font-family='sans-serif' font-size='14' "
	        "fill='#222222' role='img' aria-labelledby='name what'>\n"
	        "<title id='name'>",
	        width, height, width, height);
	chart_text(file, name);
	fprintf(file,
	        "</title>\n<desc id='what'>%s</desc>\n"
	        "<style>%s</style>\n"
	        "<rect width='100%%' height='100%%' fill='white'/>\n"
	        "<text x='%d' y='32' font-size='18' font-weight='bold'>",
	        what, dark, left);
	chart_text(file, name);
	fputs("<tspan font-size='14' font-weight='normal' dx='14'>", file);
}

void chart_axis_names(FILE *file, int x, int x_name_y, const char *x_name, int y_name_x, int y,
                      const char *y_name)
{
	fprintf(file,
	        "<text x='%d' y='%d' text-anchor='middle'>%s</text>\n"
	        "<text transform='translate(%d %d) rotate(-90)' text-anchor='middle'>%s</text>\n",
	        x, x_name_y, x_name, y_name_x, y, y_name);
}

double chart_step(double range)
{
	static const double steps[] = { 0.1, 0.2, 0.5, 1, 2, 5 };
	size_t i = 0;

	while (i < 5 && range / steps[i] > 7)
		i++;
	return steps[i];
}

void chart_range(struct chart *chart, double margin)
{
	double low = 1e9, high = 0;

	for (size_t i = 0; i < chart->n; i++) {
		for (unsigned k = 0; k < chart->n_lines; k++) {
			double bits = chart->bits(chart->data, i, k);
			if (bits >= 0 && bits < low)
				low = bits;
			if (bits > high)
				high = bits;
		}
	}
	chart->step = chart_step(high - low);
	chart->low = chart->step * floor(low / chart->step - margin);
	chart->high = chart->step * ceil(high / chart->step + margin);
	if (chart->low < 0)
		chart->low = 0;
	if (chart->high <= chart->low)
		chart->high = chart->low + chart->step;
}

static double chart_x(const struct chart *chart, size_t i)
{
	return chart->left + chart->width * ((double)i + 0.5) / (double)chart->n;
}

static double chart_y(const struct chart *chart, double bits)
{
	return chart->top + chart->height * (chart->high - bits) / (chart->high - chart->low);
}

/* A zigzag at the lower end of the axis of bits: it does not start at 0. */
static void put_cut(FILE *file, const struct chart *chart)
{
	fprintf(file,
	        "<path class='cut' fill='none' stroke='#444444' stroke-width='1.5' "
	        "d='M%d %dv-8l-5 -3l10 -5l-10 -5l5 -3v-8'/>\n",
	        chart->left, chart->top + chart->height);
}

void chart_axes(FILE *file, const struct chart *chart, size_t max_labels, int name_y)
{
	size_t every = (chart->n + max_labels - 1) / max_labels;
	char name[64] = "bits per element";

	if (chart->low > 0)
		snprintf(name, sizeof(name), "bits per element, from %g on", chart->low);
	for (double b = chart->low; b <= chart->high + 1e-9; b += chart->step)
		fprintf(file,
		        "<line x1='%d' x2='%d' y1='%.1f' y2='%.1f' stroke='%s'/>\n"
		        "<text x='%d' y='%.1f' text-anchor='end'>%g</text>\n",
		        chart->left, chart->left + chart->width, chart_y(chart, b),
		        chart_y(chart, b), b > chart->low ? "#dddddd" : "#444444", chart->left - 8,
		        chart_y(chart, b) + 5, b);
	if (chart->low > 0)
		put_cut(file, chart);
	for (size_t i = 0; i < chart->n; i += every)
		fprintf(file, "<text x='%.1f' y='%d' text-anchor='middle'>%" PRIu32 "</text>\n",
		        chart_x(chart, i), chart->top + chart->height + 20,
		        chart->layer(chart->data, i));
	chart_axis_names(file, chart->left + chart->width / 2, chart->top + chart->height + name_y,
	                 "layer", 22, chart->top + chart->height / 2, name);
}

static void put_line(FILE *file, const struct chart *chart, unsigned line, int radius)
{
	fprintf(file, "<polyline fill='none' stroke='%s' stroke-width='2' points='",
	        chart->colours[line]);
	for (size_t i = 0; i < chart->n; i++) {
		double bits = chart->bits(chart->data, i, line);
		if (bits >= 0)
			fprintf(file, "%.1f,%.1f ", chart_x(chart, i), chart_y(chart, bits));
	}
	fprintf(file, "'/>\n<g fill='%s'>\n", chart->colours[line]);
	for (size_t i = 0; i < chart->n; i++) {
		double bits = chart->bits(chart->data, i, line);
		if (bits >= 0)
			fprintf(file,
			        "<circle cx='%.1f' cy='%.1f' r='%d'><title>layer %" PRIu32
			        " %s: %.3f bits</title></circle>\n",
			        chart_x(chart, i), chart_y(chart, bits), radius,
			        chart->layer(chart->data, i), chart->name(chart->data, i, line),
			        bits);
	}
	fputs("</g>\n", file);
}

void chart_lines(FILE *file, const struct chart *chart, int radius)
{
	for (unsigned k = 0; k < chart->n_lines; k++) {
		if (chart->shown >> k & 1)
			put_line(file, chart, k, radius);
	}
}
