/* SPDX-License-Identifier: BSD-3-Clause */
/* plot.h - a picture of bits per element by layer, and of the stages of a predictor */
#ifndef KVARC_CLI_PLOT_H
#define KVARC_CLI_PLOT_H

#include <stdio.h>

#include "kvarc.h"
#include "options.h"
#include "shape.h"
#include "stages.h"

/* Writes the SVG that o->plot names; st may be empty. */
void plot_write(const struct options *o, const char *file, const struct shape *s,
                const struct stages *st, kvarc_reader *r);

/* The part of the picture below y, and how high it is. */
void plot_stages(FILE *f, const struct stages *s, int y);
/* The height of that part in pixels. */
int plot_stages_height(const struct stages *s);

/* Steps of 0.1, 0.2, 0.5, 1, 2, 5 bits: about six of them. */
double plot_step(double range);

#endif
