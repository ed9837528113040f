/* SPDX-License-Identifier: BSD-3-Clause */
/* plot_stages.c - the gain of each stage by layer, residuals by layer and channel */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "chart.h"
#include "plot.h"

/* SVG user units. A row for keys, one for values, one for others: lines at the
 * left, a map at the right. */
enum {
	ROW = 360,
	TOP = 76,
	BOTTOM = 56,
	HIGH = ROW - TOP - BOTTOM,
	LEFT = 72,
	LINES_WIDE = 388,
	MAP_LEFT = 540,
	MAP_WIDE = 396,
	FOOT = 44,
	COLUMNS = 192,
	SHADES = 10,
	POINT_NAME = 64 /* bytes */
};

static const char *const colours[KVARC_STAGES] = { "#777777", "#1f6fb4", "#d9700d", "#5c8a3a" };
/* Shades from dark to light: readable without colour vision. */
static const char *const shades[SHADES] = { "#440154", "#482878", "#3e4989", "#31688e", "#26828e",
	                                    "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725" };

/* Drawing of one kind. */
struct panel {
	const struct stages *s;
	unsigned kind;
	const struct stage_row **rows;
	size_t n;
	int y;      /* y of its top */
	char *name; /* POINT_NAME bytes: of one point */
};

static const char *stage_name(const struct panel *panel, unsigned stage)
{
	bool all = true, none = true;

	for (size_t i = 0; i < panel->n; i++) {
		all = all && panel->rows[i]->m.table;
		none = none && !panel->rows[i]->m.table;
	}
	switch (stage) {
	case KVARC_STAGE_MEANS:
		return "means and scales";
	case KVARC_STAGE_LAYER:
		return "+ same layer";
	case KVARC_STAGE_SCALE:
		return "+ token's scale";
	default:
		return none ? "+ layers below" : all ? "+ token table" : "+ below, or token table";
	}
}

static double mean_bits(const struct panel *panel, unsigned stage)
{
	double sum = 0, n = 0;

	for (size_t i = 0; i < panel->n; i++) {
		if (panel->rows[i]->m.bits[stage] > 0) {
			sum += panel->rows[i]->m.bits[stage] * panel->rows[i]->channels;
			n += panel->rows[i]->channels;
		}
	}
	return n > 0 ? sum / n : 0;
}

/* Two entries a line. */
static void put_key(FILE *file, const struct panel *panel)
{
	int n = 0;

	for (unsigned k = 0; k < KVARC_STAGES; k++) {
		double bits = mean_bits(panel, k);
		int x = LEFT + n % 2 * 216, y = panel->y + 30 + n / 2 * 18;
		if (!(bits > 0))
			continue;
		fprintf(file,
		        "<rect x='%d' y='%d' width='12' height='12' fill='%s'/>"
		        "<text x='%d' y='%d' font-size='12'>%s, mean %.2f</text>\n",
		        x, y, colours[k], x + 18, y + 11, stage_name(panel, k), bits);
		n++;
	}
}

static uint32_t layer_at(const void *data, size_t i)
{
	const struct panel *p = data;

	return p->rows[i]->layer;
}

static double bits_at(const void *data, size_t i, unsigned stage)
{
	const struct panel *p = data;

	return p->rows[i]->m.bits[stage] > 0 ? p->rows[i]->m.bits[stage] : -1;
}

static const char *name_at(const void *data, size_t i, unsigned stage)
{
	const struct panel *p = data;
	const char *name = p->rows[i]->m.table ? "+ token table" : "+ layers below";

	snprintf(p->name, POINT_NAME, "%s, %s", shape_kind_name(p->kind),
	         stage < KVARC_STAGE_BELOW ? stage_name(p, stage) : name);
	return p->name;
}

/* A line for each stage: the distance of two lines is the gain. */
static void put_chart(FILE *file, const struct panel *panel)
{
	struct chart c = { .left = LEFT,
		           .top = panel->y + TOP,
		           .width = LINES_WIDE,
		           .height = HIGH,
		           .n = panel->n,
		           .n_lines = KVARC_STAGES,
		           .colours = colours,
		           .data = panel,
		           .layer = layer_at,
		           .bits = bits_at,
		           .name = name_at };

	for (unsigned k = 0; k < KVARC_STAGES; k++)
		c.shown |= mean_bits(panel, k) > 0 ? 1u << k : 0;
	chart_range(&c, 0);
	chart_axes(file, &c, 16, 42);
	chart_lines(file, &c, panel->n > 48 ? 2 : 3);
}

/* ---- the map ---- */

struct map {
	size_t columns, channels; /* channels of the widest tensor */
	double low, high;
	uint8_t *shade; /* n x columns */
};

/* Mean over the channels of a column; -1: it has none. */
static double column_bits(const struct map *map, const struct stage_row *r, size_t column)
{
	size_t from = column * map->channels / map->columns;
	size_t to = (column + 1) * map->channels / map->columns;
	double sum = 0;

	if (to > r->channels)
		return -1;
	for (size_t i = from; i < to; i++)
		sum += r->m.channel_bits[i];
	return sum / (double)(to - from);
}

static bool make_map(struct map *map, const struct panel *panel)
{
	*map = (struct map){ .low = 1e9 };
	for (size_t i = 0; i < panel->n; i++) {
		if (panel->rows[i]->channels > map->channels)
			map->channels = panel->rows[i]->channels;
	}
	map->columns = map->channels < COLUMNS ? map->channels : COLUMNS;
	map->shade = malloc(panel->n * map->columns);
	for (size_t i = 0; map->shade && i < panel->n * map->columns; i++) {
		double bits = column_bits(map, panel->rows[i / map->columns], i % map->columns);
		if (bits >= 0 && bits < map->low)
			map->low = bits;
		if (bits > map->high)
			map->high = bits;
	}
	map->low = floor(2 * map->low) / 2;
	map->high = ceil(2 * map->high) / 2;
	if (map->high <= map->low)
		map->high = map->low + 0.5;
	for (size_t i = 0; map->shade && i < panel->n * map->columns; i++) {
		double bits = column_bits(map, panel->rows[i / map->columns], i % map->columns);
		double at = SHADES * (bits - map->low) / (map->high - map->low);
		map->shade[i] = bits < 0 ? SHADES : at < SHADES ? (uint8_t)at : SHADES - 1;
	}
	return map->shade != NULL;
}

/* Draws one path per shade, in units of one column and one layer. */
static void put_shade(FILE *file, const struct map *map, const struct panel *panel, unsigned shade)
{
	double width = (map->high - map->low) / SHADES;

	fprintf(file, "<path fill='%s' d='", shades[shade]);
	for (size_t i = 0; i < panel->n; i++) {
		const uint8_t *row = map->shade + i * map->columns;
		for (size_t c = 0, end; c < map->columns; c = end) {
			for (end = c + 1; end < map->columns && row[end] == row[c];)
				end++;
			if (row[c] == shade)
				fprintf(file, "M%zu %zuh%zuv1h-%zuz", c, i, end - c, end - c);
		}
	}
	fprintf(file, "'><title>%.2f to %.2f bits</title></path>\n", map->low + shade * width,
	        map->low + (shade + 1) * width);
}

static void put_map_axes(FILE *file, const struct map *map, const struct panel *panel)
{
	int y = panel->y + TOP + HIGH;
	size_t every = (panel->n + 15) / 16;

	for (size_t i = 0; i < panel->n; i += every)
		fprintf(file, "<text x='%d' y='%.1f' text-anchor='end'>%" PRIu32 "</text>\n",
		        MAP_LEFT - 8,
		        panel->y + TOP + 5 + HIGH * ((double)i + 0.5) / (double)panel->n,
		        panel->rows[i]->layer);
	fprintf(file,
	        "<text x='%d' y='%d'>0</text>\n"
	        "<text x='%d' y='%d' text-anchor='end'>%zu</text>\n",
	        MAP_LEFT, y + 20, MAP_LEFT + MAP_WIDE, y + 20, map->channels - 1);
	chart_axis_names(file, MAP_LEFT + MAP_WIDE / 2, y + 42, "channel, head after head",
	                 MAP_LEFT - 40, panel->y + TOP + HIGH / 2, "layer");
	fprintf(file, "<text x='%d' y='%d' font-size='12'>%.1f bits</text>\n", MAP_LEFT,
	        panel->y + 59, map->low);
	for (int i = 0; i < SHADES; i++)
		fprintf(file, "<rect x='%d' y='%d' width='24' height='12' fill='%s'/>\n",
		        MAP_LEFT + 64 + 24 * i, panel->y + 48, shades[i]);
	fprintf(file, "<text x='%d' y='%d' font-size='12'>%.1f bits</text>\n",
	        MAP_LEFT + 72 + 24 * SHADES, panel->y + 59, map->high);
}

static void put_map(FILE *file, const struct panel *panel)
{
	struct map m;

	if (make_map(&m, panel)) {
		fprintf(file,
		        "<g transform='translate(%d %d) scale(%.5f %.5f)' "
		        "shape-rendering='crispEdges'>\n",
		        MAP_LEFT, panel->y + TOP, (double)MAP_WIDE / (double)m.columns,
		        (double)HIGH / (double)panel->n);
		for (unsigned k = 0; k < SHADES; k++)
			put_shade(file, &m, panel, k);
		fputs("</g>\n", file);
		put_map_axes(file, &m, panel);
	}
	free(m.shade);
}

/* ---- all panels ---- */

static unsigned kinds_of(const struct stages *stages)
{
	unsigned mask = 0;

	for (size_t i = 0; i < stages->n; i++)
		mask |= 1u << stages->rows[i].kind;
	return mask;
}

int plot_stages_height(const struct stages *stages)
{
	int h = stages->n ? FOOT : 0;

	for (unsigned mask = kinds_of(stages); mask; mask >>= 1)
		h += mask & 1 ? ROW : 0;
	return h;
}

static void put_panel(FILE *file, const struct panel *panel)
{
	const char *kind = shape_kind_name(panel->kind);

	fprintf(file,
	        "<text x='%d' y='%d' font-weight='bold'>%s: gain of each "
	        "stage</text>\n<text x='%d' y='%d' font-weight='bold'>%s: size of "
	        "residuals</text>\n<text x='%d' y='%d' font-size='12'>bits per "
	        "element by layer and channel, all stages</text>\n",
	        LEFT, panel->y + 18, kind, MAP_LEFT, panel->y + 18, kind, MAP_LEFT, panel->y + 38);
	put_key(file, panel);
	put_chart(file, panel);
	put_map(file, panel);
}

void plot_stages(FILE *file, const struct stages *stages, int y)
{
	unsigned mask = kinds_of(stages);
	const struct stage_row **rows;
	char name[POINT_NAME];

	if (stages->n == 0)
		return;
	rows = malloc(stages->n * sizeof(*rows));
	for (unsigned kind = 0; rows && kind < SHAPE_KINDS; kind++) {
		struct panel p = { .s = stages, .kind = kind, .rows = rows, .y = y, .name = name };
		if (!(mask >> kind & 1))
			continue;
		for (size_t i = 0; i < stages->n; i++) {
			if (stages->rows[i].kind == kind)
				rows[p.n++] = &stages->rows[i];
		}
		put_panel(file, &p);
		y += ROW;
	}
	free(rows);
	fprintf(file,
	        "<text x='%d' y='%d' font-size='12'>Stages and residuals: ideal "
	        "code length of %" PRIu64 " tokens, spread over the archive, by the "
	        "models of the profile; the file adds a little.</text>\n",
	        LEFT, y + 20, stages->tokens);
}
