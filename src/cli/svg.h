/* SPDX-License-Identifier: BSD-3-Clause */
/* svg.h - what pictures have in common */
#ifndef KVARC_CLI_SVG_H
#define KVARC_CLI_SVG_H

#include <stdio.h>

#include "options.h"

/* XML escaping; control characters are dropped. */
void svg_text(FILE *f, const char *text);
/* Writes what fn draws to the file that o->plot names. */
void svg_write(const struct options *o, void (*fn)(FILE *f, const void *opaque),
               const void *opaque);

#endif
