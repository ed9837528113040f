/* SPDX-License-Identifier: BSD-3-Clause */
/* plot.c - a self-contained SVG: bits per element by layer, key and value */
#include "config.h"

#include "plot.h"

#include <stdio.h>

#include "chart.h"
#include "message.h"
#include "paths.h"
#include "units.h"

/* Sizes in SVG user units. */
enum { WIDTH = 960, HEIGHT = 480, LEFT = 72, RIGHT = 24, TOP = 84, BOTTOM = 64 };
static const char *const colours[SHAPE_KINDS] = { "#1f6fb4", "#d9700d", "#5c8a3a" };

static double cell_bits(const struct shape *shape, size_t layer, unsigned kind)
{
	const struct shape_cell *c = &shape->layers[layer].cells[kind];

	return shape_bits(c->frame_bytes, c->elements);
}

static uint32_t layer_at(const void *data, size_t i)
{
	const struct shape *s = data;

	return s->layers[i].layer;
}

static double bits_at(const void *data, size_t i, unsigned kind)
{
	return cell_bits(data, i, kind);
}

static const char *name_at(const void *data, size_t i, unsigned kind)
{
	(void)data;
	(void)i;
	return shape_kind_name(kind);
}

static unsigned kinds_shown(const struct shape *shape)
{
	unsigned mask = 0;

	for (size_t i = 0; i < shape->n_layers; i++) {
		for (unsigned k = 0; k < SHAPE_KINDS; k++) {
			if (shape->layers[i].cells[k].elements)
				mask |= 1u << k;
		}
	}
	return mask;
}

static void put_legend(FILE *file, const struct shape *shape, unsigned shown)
{
	int x = LEFT;

	for (unsigned k = 0; k < SHAPE_KINDS; k++) {
		uint64_t bytes = 0, elements = 0;

		if (!(shown >> k & 1))
			continue;
		for (size_t i = 0; i < shape->n_layers; i++) {
			bytes += shape->layers[i].cells[k].frame_bytes;
			elements += shape->layers[i].cells[k].elements;
		}
		fprintf(file, "<rect x='%d' y='%d' width='14' height='14' fill='%s'/>\n", x,
		        TOP - 28, colours[k]);
		fprintf(file, "<text x='%d' y='%d'>%s, mean %.2f</text>\n", x + 20, TOP - 16,
		        shape_kind_name(k), shape_bits(bytes, elements));
		x += 180;
	}
	fprintf(file,
	        "<text x='%d' y='%d' text-anchor='end'>whole file %.2f, unpacked %.4g</text>\n",
	        WIDTH - RIGHT, TOP - 16, shape_bits(shape->info.file_bytes, shape->info.elements),
	        shape_bits(shape->total.raw_bytes, shape->total.elements));
}

static void put_svg(FILE *stream, const char *file, const struct shape *shape,
                    const struct stages *st, kvarc_reader *r)
{
	const char *model = kvarc_reader_identity(r, "model");
	struct chart c = { .left = LEFT,
		           .top = TOP,
		           .width = WIDTH - LEFT - RIGHT,
		           .height = HEIGHT - TOP - BOTTOM,
		           .n = shape->n_layers,
		           .n_lines = SHAPE_KINDS,
		           .shown = kinds_shown(shape),
		           .colours = colours,
		           .data = shape,
		           .layer = layer_at,
		           .bits = bits_at,
		           .name = name_at };
	char tokens[32];

	chart_range(&c, 0.25); /* range of the data alone: layers can be distinguished */
	chart_head(stream, WIDTH, HEIGHT + plot_stages_height(st), LEFT, paths_base(msg_name(file)),
	           st->n ? "Bits per element by layer, key and value, after each stage of "
	                   "prediction; residuals by layer and channel."
	                 : "Bits per element by layer, key and value.");
	if (model) {
		chart_text(stream, model);
		fputs(", ", stream);
	}
	fprintf(stream, "%s tokens, %zu layers, %s</tspan></text>\n",
	        units_count(tokens, shape->tokens), shape->n_layers,
	        shape_dtype(shape->total.tensor));
	put_legend(stream, shape, c.shown);
	chart_axes(stream, &c, 32, 46);
	chart_lines(stream, &c, c.n > 64 ? 2 : 4);
	plot_stages(stream, st, HEIGHT);
	fputs("</svg>\n", stream);
}

struct picture {
	const char *file;
	const struct shape *s;
	const struct stages *st;
	kvarc_reader *r;
};

static void draw(FILE *file, const void *opaque)
{
	const struct picture *p = opaque;

	put_svg(file, p->file, p->s, p->st, p->r);
}

void plot_write(const char *path, bool force, const char *file, const struct shape *shape,
                const struct stages *st, kvarc_reader *r)
{
	const struct picture p = { file, shape, st, r };

	if (!shape->total.tensor || shape->info.elements == 0)
		msg_error(file, "holds no tensors; there is nothing to draw");
	else
		chart_write(path, force, draw, &p);
}
