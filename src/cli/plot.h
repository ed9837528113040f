/* SPDX-License-Identifier: BSD-3-Clause */
/* plot.h - a picture of bits per element by layer */
#ifndef KVARC_CLI_PLOT_H
#define KVARC_CLI_PLOT_H

#include "kvarc.h"
#include "options.h"
#include "shape.h"

/* Writes the SVG that o->plot names. */
void plot_write(const struct options *o, const char *file,
                const struct shape *s, kvarc_reader *r);

#endif
