/* SPDX-License-Identifier: BSD-3-Clause */
/* plot.c - a self-contained SVG: bits per element by layer, key and value */
#include "plot.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "message.h"
#include "paths.h"
#include "svg.h"
#include "units.h"

/* Everything in SVG user units. */
enum { WIDTH = 960, HEIGHT = 480, LEFT = 72, RIGHT = 24, TOP = 84, BOTTOM = 64 };
static const char *const colours[SHAPE_KINDS] = { "#1f6fb4", "#d9700d", "#5c8a3a" };

struct scale {
	double low, high, step; /* bits */
	size_t n;               /* layers */
};

static double x_of(const struct scale *sc, size_t i)
{
	double w = WIDTH - LEFT - RIGHT;

	return LEFT + w * ((double)i + 0.5) / (double)sc->n;
}

static double y_of(const struct scale *sc, double bits)
{
	double h = HEIGHT - TOP - BOTTOM;

	return TOP + h * (sc->high - bits) / (sc->high - sc->low);
}

static double cell_bits(const struct shape *s, size_t layer, unsigned kind)
{
	const struct shape_cell *c = &s->layers[layer].cells[kind];

	return shape_bits(c->frame_bytes, c->elements);
}

double plot_step(double range)
{
	static const double steps[] = { 0.1, 0.2, 0.5, 1, 2, 5 };
	size_t i = 0;

	while (i < 5 && range / steps[i] > 7)
		i++;
	return steps[i];
}

/* Just what is there, so that the layers can be told apart. */
static void find_scale(struct scale *sc, const struct shape *s)
{
	double low = 1e9, high = 0;

	for (size_t i = 0; i < s->n_layers; i++) {
		for (unsigned k = 0; k < SHAPE_KINDS; k++) {
			double bits = cell_bits(s, i, k);
			if (bits >= 0 && bits < low)
				low = bits;
			if (bits > high)
				high = bits;
		}
	}
	sc->n = s->n_layers;
	sc->step = plot_step(high - low);
	sc->low = sc->step * floor(low / sc->step - 0.25);
	sc->high = sc->step * ceil(high / sc->step + 0.25);
	if (sc->low < 0)
		sc->low = 0;
}

static void put_axes(FILE *f, const struct scale *sc, const struct shape *s)
{
	size_t every = sc->n <= 32 ? 1 : (sc->n + 31) / 32;

	for (double b = sc->low; b <= sc->high + 1e-9; b += sc->step) {
		fprintf(f, "<line x1='%d' x2='%d' y1='%.1f' y2='%.1f' stroke='%s'/>\n", LEFT,
		        WIDTH - RIGHT, y_of(sc, b), y_of(sc, b),
		        b > sc->low ? "#dddddd" : "#444444");
		fprintf(f, "<text x='%d' y='%.1f' text-anchor='end'>%g</text>\n", LEFT - 8,
		        y_of(sc, b) + 5, b);
	}
	for (size_t i = 0; i < sc->n; i += every)
		fprintf(f, "<text x='%.1f' y='%d' text-anchor='middle'>%" PRIu32 "</text>\n",
		        x_of(sc, i), HEIGHT - BOTTOM + 20, s->layers[i].layer);
	fprintf(f, "<text x='%d' y='%d' text-anchor='middle'>layer</text>\n",
	        (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 18);
	fprintf(f,
	        "<text transform='translate(22 %d) rotate(-90)' "
	        "text-anchor='middle'>bits per element</text>\n",
	        (TOP + HEIGHT - BOTTOM) / 2);
}

static unsigned kinds_shown(const struct shape *s)
{
	unsigned mask = 0;

	for (size_t i = 0; i < s->n_layers; i++) {
		for (unsigned k = 0; k < SHAPE_KINDS; k++) {
			if (s->layers[i].cells[k].elements)
				mask |= 1u << k;
		}
	}
	return mask;
}

/* A line for each kind with a dot for each layer; its title has the number. */
static void put_lines(FILE *f, const struct scale *sc, const struct shape *s, unsigned shown)
{
	for (unsigned k = 0; k < SHAPE_KINDS; k++) {
		if (!(shown >> k & 1))
			continue;
		fprintf(f,
		        "<polyline fill='none' stroke='%s' stroke-width='2' "
		        "points='",
		        colours[k]);
		for (size_t i = 0; i < sc->n; i++) {
			double bits = cell_bits(s, i, k);
			if (bits >= 0)
				fprintf(f, "%.1f,%.1f ", x_of(sc, i), y_of(sc, bits));
		}
		fprintf(f, "'/>\n<g fill='%s'>\n", colours[k]);
		for (size_t i = 0; i < sc->n; i++) {
			double bits = cell_bits(s, i, k);
			if (bits < 0)
				continue;
			fprintf(f,
			        "<circle cx='%.1f' cy='%.1f' r='%s'><title>layer %" PRIu32
			        " %s: %.3f bits</title></circle>\n",
			        x_of(sc, i), y_of(sc, bits), sc->n > 64 ? "2" : "4",
			        s->layers[i].layer, shape_kind_name(k), bits);
		}
		fputs("</g>\n", f);
	}
}

static void put_legend(FILE *f, const struct shape *s, unsigned shown)
{
	int x = LEFT;

	for (unsigned k = 0; k < SHAPE_KINDS; k++) {
		uint64_t bytes = 0, elements = 0;

		if (!(shown >> k & 1))
			continue;
		for (size_t i = 0; i < s->n_layers; i++) {
			bytes += s->layers[i].cells[k].frame_bytes;
			elements += s->layers[i].cells[k].elements;
		}
		fprintf(f, "<rect x='%d' y='%d' width='14' height='14' fill='%s'/>\n", x, TOP - 28,
		        colours[k]);
		fprintf(f, "<text x='%d' y='%d'>%s, mean %.2f</text>\n", x + 20, TOP - 16,
		        shape_kind_name(k), shape_bits(bytes, elements));
		x += 180;
	}
	fprintf(f,
	        "<text x='%d' y='%d' text-anchor='end'>whole file %.2f, "
	        "unpacked %.4g</text>\n",
	        WIDTH - RIGHT, TOP - 16, shape_bits(s->info.file_bytes, s->info.elements),
	        shape_bits(s->info.raw_bytes, s->info.elements));
}

/* The root element, and what it is for those who cannot see it. */
static void put_head(FILE *f, const char *file, const struct stages *st)
{
	int height = HEIGHT + plot_stages_height(st);

	fprintf(f,
	        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %d %d' "
	        "width='%d' height='%d' font-family='sans-serif' font-size='14' "
	        "fill='#222222' role='img' aria-labelledby='name what'>\n"
	        "<title id='name'>",
	        WIDTH, height, WIDTH, height);
	svg_text(f, paths_base(msg_name(file)));
	fprintf(f,
	        "</title>\n<desc id='what'>Bits per element by layer, key and "
	        "value%s.</desc>\n<rect width='100%%' height='100%%' "
	        "fill='white'/>\n",
	        st->n ? ", after each stage of prediction; "
	                "residuals by layer and channel"
	              : "");
}

static void put_svg(FILE *f, const char *file, const struct shape *s, const struct stages *st,
                    kvarc_reader *r)
{
	const char *model = kvarc_reader_identity(r, "model");
	struct scale sc;
	unsigned shown = kinds_shown(s);
	char tokens[32];

	find_scale(&sc, s);
	put_head(f, file, st);
	fprintf(f, "<text x='%d' y='32' font-size='18' font-weight='bold'>", LEFT);
	svg_text(f, paths_base(msg_name(file)));
	fprintf(f, "<tspan font-size='14' font-weight='normal' dx='14'>");
	if (model) {
		svg_text(f, model);
		fputs(", ", f);
	}
	fprintf(f, "%s tokens, %zu layers, %s</tspan></text>\n", units_count(tokens, s->tokens),
	        s->n_layers, shape_dtype(s->total.tensor));
	put_legend(f, s, shown);
	put_axes(f, &sc, s);
	put_lines(f, &sc, s, shown);
	plot_stages(f, st, HEIGHT);
	fputs("</svg>\n", f);
}

struct picture {
	const char *file;
	const struct shape *s;
	const struct stages *st;
	kvarc_reader *r;
};

static void draw(FILE *f, const void *opaque)
{
	const struct picture *p = opaque;

	put_svg(f, p->file, p->s, p->st, p->r);
}

void plot_write(const struct options *o, const char *file, const struct shape *s,
                const struct stages *st, kvarc_reader *r)
{
	const struct picture p = { file, s, st, r };

	if (!s->total.tensor || s->info.elements == 0)
		msg_error(file, "holds no tensors; there is nothing to draw");
	else
		svg_write(o, draw, &p);
}
