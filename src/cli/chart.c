/* SPDX-License-Identifier: BSD-3-Clause */
/* chart.c - SVG elements that all pictures share, and a line chart of bits by layer */
#include "config.h"

#include "chart.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "message.h"
#include "outfile.h"

void chart_text(FILE *f, const char *text)
{
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;
		if (c == '&')
			fputs("&amp;", f);
		else if (c == '<')
			fputs("&lt;", f);
		else if (c == '>')
			fputs("&gt;", f);
		else if (c >= 0x20 && c != 0x7f)
			putc(c, f);
	}
}

static void save(const struct options *o, const char *text, size_t bytes)
{
	struct output out;
	kvarc_sink sink;

	if (!output_open(&out, o->plot, o->force ? OUTPUT_FORCE : 0, 0))
		return;
	sink = output_sink(&out);
	if (sink.write(sink.opaque, text, bytes, 0) != 0) {
		output_report(&out);
		output_abort(&out);
	} else {
		output_commit(&out);
	}
}

void chart_write(const struct options *o, void (*draw)(FILE *f, const void *opaque),
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
		save(o, text, bytes);
	free(text);
}

/* Colours for readers whose programs are dark. */
static const char dark[] =
	"@media (prefers-color-scheme: dark) {svg {fill: #e6e6e6} [fill='white'] {fill: #16191d} "
	"[stroke='#dddddd'], [stroke='#eeeeee'] {stroke: #3a3f45} [stroke='#444444'] {stroke: "
	"#a0a0a0} [fill='#1f6fb4'] {fill: #58a6f0} [stroke='#1f6fb4'] {stroke: #58a6f0} "
	"[fill='#d9700d'] {fill: #f0913a} [stroke='#d9700d'] {stroke: #f0913a}}";

void chart_head(FILE *f, int width, int height, int left, const char *name, const char *what)
{
	fprintf(f,
	        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %d %d' "
	        "width='%d' height='%d' font-family='sans-serif' font-size='14' "
	        "fill='#222222' role='img' aria-labelledby='name what'>\n"
	        "<title id='name'>",
	        width, height, width, height);
	chart_text(f, name);
	fprintf(f,
	        "</title>\n<desc id='what'>%s</desc>\n"
	        "<style>%s</style>\n"
	        "<rect width='100%%' height='100%%' fill='white'/>\n"
	        "<text x='%d' y='32' font-size='18' font-weight='bold'>",
	        what, dark, left);
	chart_text(f, name);
	fputs("<tspan font-size='14' font-weight='normal' dx='14'>", f);
}

void chart_axis_names(FILE *f, int x, int x_name_y, const char *x_name, int y_name_x, int y,
                      const char *y_name)
{
	fprintf(f,
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

void chart_range(struct chart *c, double margin)
{
	double low = 1e9, high = 0;

	for (size_t i = 0; i < c->n; i++) {
		for (unsigned k = 0; k < c->n_lines; k++) {
			double bits = c->bits(c->data, i, k);
			if (bits >= 0 && bits < low)
				low = bits;
			if (bits > high)
				high = bits;
		}
	}
	c->step = chart_step(high - low);
	c->low = c->step * floor(low / c->step - margin);
	c->high = c->step * ceil(high / c->step + margin);
	if (c->low < 0)
		c->low = 0;
	if (c->high <= c->low)
		c->high = c->low + c->step;
}

static double chart_x(const struct chart *c, size_t i)
{
	return c->left + c->width * ((double)i + 0.5) / (double)c->n;
}

static double chart_y(const struct chart *c, double bits)
{
	return c->top + c->height * (c->high - bits) / (c->high - c->low);
}

/* A zigzag at the lower end of the axis of bits: it does not start at 0. */
static void put_cut(FILE *f, const struct chart *c)
{
	fprintf(f,
	        "<path class='cut' fill='none' stroke='#444444' stroke-width='1.5' "
	        "d='M%d %dv-8l-5 -3l10 -5l-10 -5l5 -3v-8'/>\n",
	        c->left, c->top + c->height);
}

void chart_axes(FILE *f, const struct chart *c, size_t max_labels, int name_y)
{
	size_t every = (c->n + max_labels - 1) / max_labels;
	char name[64] = "bits per element";

	if (c->low > 0)
		snprintf(name, sizeof(name), "bits per element, from %g on", c->low);
	for (double b = c->low; b <= c->high + 1e-9; b += c->step)
		fprintf(f,
		        "<line x1='%d' x2='%d' y1='%.1f' y2='%.1f' stroke='%s'/>\n"
		        "<text x='%d' y='%.1f' text-anchor='end'>%g</text>\n",
		        c->left, c->left + c->width, chart_y(c, b), chart_y(c, b),
		        b > c->low ? "#dddddd" : "#444444", c->left - 8, chart_y(c, b) + 5, b);
	if (c->low > 0)
		put_cut(f, c);
	for (size_t i = 0; i < c->n; i += every)
		fprintf(f, "<text x='%.1f' y='%d' text-anchor='middle'>%" PRIu32 "</text>\n",
		        chart_x(c, i), c->top + c->height + 20, c->layer(c->data, i));
	chart_axis_names(f, c->left + c->width / 2, c->top + c->height + name_y, "layer", 22,
	                 c->top + c->height / 2, name);
}

static void put_line(FILE *f, const struct chart *c, unsigned line, int radius)
{
	fprintf(f, "<polyline fill='none' stroke='%s' stroke-width='2' points='", c->colours[line]);
	for (size_t i = 0; i < c->n; i++) {
		double bits = c->bits(c->data, i, line);
		if (bits >= 0)
			fprintf(f, "%.1f,%.1f ", chart_x(c, i), chart_y(c, bits));
	}
	fprintf(f, "'/>\n<g fill='%s'>\n", c->colours[line]);
	for (size_t i = 0; i < c->n; i++) {
		double bits = c->bits(c->data, i, line);
		if (bits >= 0)
			fprintf(f,
			        "<circle cx='%.1f' cy='%.1f' r='%d'><title>layer %" PRIu32
			        " %s: %.3f bits</title></circle>\n",
			        chart_x(c, i), chart_y(c, bits), radius, c->layer(c->data, i),
			        c->name(c->data, i, line), bits);
	}
	fputs("</g>\n", f);
}

void chart_lines(FILE *f, const struct chart *c, int radius)
{
	for (unsigned k = 0; k < c->n_lines; k++) {
		if (c->shown >> k & 1)
			put_line(f, c, k, radius);
	}
}
