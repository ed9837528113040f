/* SPDX-License-Identifier: BSD-3-Clause */
/* log_plot.h - a picture of what each checkpoint of an archive took, beside its files */
#ifndef KVARC_CLI_LOG_PLOT_H
#define KVARC_CLI_LOG_PLOT_H

#include "infile.h"
#include "kvarc.h"
#include "options.h"

/* Writes the SVG that options->plot names: the bytes of the archive up to each checkpoint, and
 * those of the files of all checkpoints up to it. in: the seekable input of r, which is opened
 * once more for each checkpoint. Shows a message when that fails, or when there is nothing to
 * draw. */
void log_plot(const struct options *options, struct input *in, kvarc_reader *r,
              const kvarc_error *error);

#endif
