/* SPDX-License-Identifier: BSD-3-Clause */
/* chart.h - SVG elements that all pictures share, and a line chart of bits by layer */
#ifndef KVARC_CLI_CHART_H
#define KVARC_CLI_CHART_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* A line chart: bits per element on the vertical axis, one position per layer on the horizontal
 * axis. Lengths are SVG user units. The caller owns data and colours. */
struct chart {
	int left, top, width, height; /* the area of the lines */
	double low, high, step;       /* bits; set by chart_range */
	size_t n;                     /* layers */
	unsigned n_lines, shown;      /* shown: a bit per line */
	const char *const *colours;   /* n_lines */
	const void *data;             /* passed to the functions below */
	uint32_t (*layer)(const void *data, size_t i);
	double (*bits)(const void *data, size_t i, unsigned line); /* -1: no point */
	/* The name of a point, for its title. */
	const char *(*name)(const void *data, size_t i, unsigned line);
};

/* Sets low, high and step from the bits of all points; margin is a share of a step. */
void chart_range(struct chart *chart, double margin);
/* Grid, labels (at most max_labels layers) and names of both axes; name_y: baseline of "layer",
 * below the area. */
void chart_axes(FILE *file, const struct chart *chart, size_t max_labels, int name_y);
/* A line for each that is shown, and a dot of this radius for each point. */
void chart_lines(FILE *file, const struct chart *chart, int radius);

/* A step of 0.1, 0.2, 0.5, 1, 2 or 5 that divides range into at most 7 parts, if 5 does. */
double chart_step(double range);
/* Starts the root element and the heading: name in bold at left, then an open <tspan>. */
void chart_head(FILE *file, int width, int height, int left, const char *name, const char *what);
/* The names of both axes, centred at (x, x_name_y) and, rotated, at (y_name_x, y). */
void chart_axis_names(FILE *file, int x, int x_name_y, const char *x_name, int y_name_x, int y,
                      const char *y_name);
/* Writes text with XML escaping; control characters are dropped. */
void chart_text(FILE *file, const char *text);
/* Writes what draw puts into f to the file of this path, which force replaces; shows a message when
 * that fails. */
void chart_write(const char *path, bool force, void (*draw)(FILE *f, const void *opaque),
                 const void *opaque);

#endif
