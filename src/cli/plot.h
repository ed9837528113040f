/* SPDX-License-Identifier: BSD-3-Clause */
/* plot.h - a picture of bits per element by layer, and of the stages of a predictor */
#ifndef KVARC_CLI_PLOT_H
#define KVARC_CLI_PLOT_H

#include <stdio.h>

#include "kvarc.h"
#include "shape.h"
#include "stages.h"

/* Writes the SVG of this path, which force replaces; st may be empty. */
void plot_write(const char *path, bool force, const char *file, const struct shape *shape,
                const struct stages *st, kvarc_reader *r);

/* Draws the part of the picture below y: gains of stages and residuals; nothing if stages is
 * empty. */
void plot_stages(FILE *file, const struct stages *stages, int y);
/* Height of the part that plot_stages draws, in SVG user units; 0 if stages is empty. */
int plot_stages_height(const struct stages *stages);

#endif
