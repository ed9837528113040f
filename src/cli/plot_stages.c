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
/* From dark to light: readable without colour vision. */
static const char *const shades[SHADES] = { "#440154", "#482878", "#3e4989", "#31688e", "#26828e",
	                                    "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725" };

/* What is drawn of one kind. */
struct panel {
	const struct stages *s;
	unsigned kind;
	const struct stage_row **rows;
	size_t n;
	int y;      /* of its top */
	char *name; /* POINT_NAME bytes: of one point */
};

static const char *stage_name(const struct panel *p, unsigned stage)
{
	bool all = true, none = true;

	for (size_t i = 0; i < p->n; i++) {
		all = all && p->rows[i]->m.table;
		none = none && !p->rows[i]->m.table;
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

static double mean_bits(const struct panel *p, unsigned stage)
{
	double sum = 0, n = 0;

	for (size_t i = 0; i < p->n; i++) {
		if (p->rows[i]->m.bits[stage] > 0) {
			sum += p->rows[i]->m.bits[stage] * p->rows[i]->channels;
			n += p->rows[i]->channels;
		}
	}
	return n > 0 ? sum / n : 0;
}

/* Two entries a line. */
static void put_key(FILE *f, const struct panel *p)
{
	int n = 0;

	for (unsigned k = 0; k < KVARC_STAGES; k++) {
		double bits = mean_bits(p, k);
		int x = LEFT + n % 2 * 216, y = p->y + 30 + n / 2 * 18;
		if (!(bits > 0))
			continue;
		fprintf(f,
		        "<rect x='%d' y='%d' width='12' height='12' fill='%s'/>"
		        "<text x='%d' y='%d' font-size='12'>%s, mean %.2f</text>\n",
		        x, y, colours[k], x + 18, y + 11, stage_name(p, k), bits);
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
static void put_chart(FILE *f, const struct panel *p)
{
	struct chart c = { .left = LEFT,
		           .top = p->y + TOP,
		           .width = LINES_WIDE,
		           .height = HIGH,
		           .n = p->n,
		           .n_lines = KVARC_STAGES,
		           .colours = colours,
		           .data = p,
		           .layer = layer_at,
		           .bits = bits_at,
		           .name = name_at };

	for (unsigned k = 0; k < KVARC_STAGES; k++)
		c.shown |= mean_bits(p, k) > 0 ? 1u << k : 0;
	chart_range(&c, 0);
	chart_axes(f, &c, 16, 42);
	chart_lines(f, &c, p->n > 48 ? 2 : 3);
}

/* ---- the map ---- */

struct map {
	size_t columns, channels; /* channels of the widest tensor */
	double low, high;
	uint8_t *shade; /* n x columns */
};

/* Mean over the channels of a column; -1: it has none. */
static double column_bits(const struct map *m, const struct stage_row *r, size_t column)
{
	size_t from = column * m->channels / m->columns;
	size_t to = (column + 1) * m->channels / m->columns;
	double sum = 0;

	if (to > r->channels)
		return -1;
	for (size_t i = from; i < to; i++)
		sum += r->m.channel_bits[i];
	return sum / (double)(to - from);
}

static bool make_map(struct map *m, const struct panel *p)
{
	*m = (struct map){ .low = 1e9 };
	for (size_t i = 0; i < p->n; i++) {
		if (p->rows[i]->channels > m->channels)
			m->channels = p->rows[i]->channels;
	}
	m->columns = m->channels < COLUMNS ? m->channels : COLUMNS;
	m->shade = malloc(p->n * m->columns);
	for (size_t i = 0; m->shade && i < p->n * m->columns; i++) {
		double bits = column_bits(m, p->rows[i / m->columns], i % m->columns);
		if (bits >= 0 && bits < m->low)
			m->low = bits;
		if (bits > m->high)
			m->high = bits;
	}
	m->low = floor(2 * m->low) / 2;
	m->high = ceil(2 * m->high) / 2;
	if (m->high <= m->low)
		m->high = m->low + 0.5;
	for (size_t i = 0; m->shade && i < p->n * m->columns; i++) {
		double bits = column_bits(m, p->rows[i / m->columns], i % m->columns);
		double at = SHADES * (bits - m->low) / (m->high - m->low);
		m->shade[i] = bits < 0 ? SHADES : at < SHADES ? (uint8_t)at : SHADES - 1;
	}
	return m->shade != NULL;
}

/* One path a shade, in units of one column and one layer. */
static void put_shade(FILE *f, const struct map *m, const struct panel *p, unsigned shade)
{
	double width = (m->high - m->low) / SHADES;

	fprintf(f, "<path fill='%s' d='", shades[shade]);
	for (size_t i = 0; i < p->n; i++) {
		const uint8_t *row = m->shade + i * m->columns;
		for (size_t c = 0, end; c < m->columns; c = end) {
			for (end = c + 1; end < m->columns && row[end] == row[c];)
				end++;
			if (row[c] == shade)
				fprintf(f, "M%zu %zuh%zuv1h-%zuz", c, i, end - c, end - c);
		}
	}
	fprintf(f, "'><title>%.2f to %.2f bits</title></path>\n", m->low + shade * width,
	        m->low + (shade + 1) * width);
}

static void put_map_axes(FILE *f, const struct map *m, const struct panel *p)
{
	int y = p->y + TOP + HIGH;
	size_t every = (p->n + 15) / 16;

	for (size_t i = 0; i < p->n; i += every)
		fprintf(f, "<text x='%d' y='%.1f' text-anchor='end'>%" PRIu32 "</text>\n",
		        MAP_LEFT - 8, p->y + TOP + 5 + HIGH * ((double)i + 0.5) / (double)p->n,
		        p->rows[i]->layer);
	fprintf(f,
	        "<text x='%d' y='%d'>0</text>\n"
	        "<text x='%d' y='%d' text-anchor='end'>%zu</text>\n",
	        MAP_LEFT, y + 20, MAP_LEFT + MAP_WIDE, y + 20, m->channels - 1);
	chart_axis_names(f, MAP_LEFT + MAP_WIDE / 2, y + 42, "channel, head after head",
	                 MAP_LEFT - 40, p->y + TOP + HIGH / 2, "layer");
	fprintf(f, "<text x='%d' y='%d' font-size='12'>%.1f bits</text>\n", MAP_LEFT, p->y + 59,
	        m->low);
	for (int i = 0; i < SHADES; i++)
		fprintf(f, "<rect x='%d' y='%d' width='24' height='12' fill='%s'/>\n",
		        MAP_LEFT + 64 + 24 * i, p->y + 48, shades[i]);
	fprintf(f, "<text x='%d' y='%d' font-size='12'>%.1f bits</text>\n",
	        MAP_LEFT + 72 + 24 * SHADES, p->y + 59, m->high);
}

static void put_map(FILE *f, const struct panel *p)
{
	struct map m;

	if (make_map(&m, p)) {
		fprintf(f,
		        "<g transform='translate(%d %d) scale(%.5f %.5f)' "
		        "shape-rendering='crispEdges'>\n",
		        MAP_LEFT, p->y + TOP, (double)MAP_WIDE / (double)m.columns,
		        (double)HIGH / (double)p->n);
		for (unsigned k = 0; k < SHADES; k++)
			put_shade(f, &m, p, k);
		fputs("</g>\n", f);
		put_map_axes(f, &m, p);
	}
	free(m.shade);
}

/* ---- all panels ---- */

static unsigned kinds_of(const struct stages *s)
{
	unsigned mask = 0;

	for (size_t i = 0; i < s->n; i++)
		mask |= 1u << s->rows[i].kind;
	return mask;
}

int plot_stages_height(const struct stages *s)
{
	int h = s->n ? FOOT : 0;

	for (unsigned mask = kinds_of(s); mask; mask >>= 1)
		h += mask & 1 ? ROW : 0;
	return h;
}

static void put_panel(FILE *f, const struct panel *p)
{
	const char *kind = shape_kind_name(p->kind);

	fprintf(f,
	        "<text x='%d' y='%d' font-weight='bold'>%s: gain of each "
	        "stage</text>\n<text x='%d' y='%d' font-weight='bold'>%s: size of "
	        "residuals</text>\n<text x='%d' y='%d' font-size='12'>bits per "
	        "element by layer and channel, all stages</text>\n",
	        LEFT, p->y + 18, kind, MAP_LEFT, p->y + 18, kind, MAP_LEFT, p->y + 38);
	put_key(f, p);
	put_chart(f, p);
	put_map(f, p);
}

void plot_stages(FILE *f, const struct stages *s, int y)
{
	unsigned mask = kinds_of(s);
	const struct stage_row **rows;
	char name[POINT_NAME];

	if (s->n == 0)
		return;
	rows = malloc(s->n * sizeof(*rows));
	for (unsigned kind = 0; rows && kind < SHAPE_KINDS; kind++) {
		struct panel p = { .s = s, .kind = kind, .rows = rows, .y = y, .name = name };
		if (!(mask >> kind & 1))
			continue;
		for (size_t i = 0; i < s->n; i++) {
			if (s->rows[i].kind == kind)
				rows[p.n++] = &s->rows[i];
		}
		put_panel(f, &p);
		y += ROW;
	}
	free(rows);
	fprintf(f,
	        "<text x='%d' y='%d' font-size='12'>Stages and residuals: ideal "
	        "code length of %" PRIu64 " tokens, spread over the archive, by the "
	        "models of the profile; the file adds a little.</text>\n",
	        LEFT, y + 20, s->tokens);
}
