/* SPDX-License-Identifier: BSD-3-Clause */
/* train_report.h - what a new profile is worth, layer by layer */
#ifndef KVARC_CLI_TRAIN_REPORT_H
#define KVARC_CLI_TRAIN_REPORT_H

#include "kvarc.h"
#include "options.h"

/* "2 inputs and text of its own". */
void train_inputs(char *text, size_t capacity, const struct options *o, size_t n);
/* After the run: a table, or JSON, on standard output. n_profiles of the inputs were
 * not fitted to, but merged. */
void train_report(const struct options *o, const kvarc_trainer *t, size_t n_profiles,
                  const kvarc_profile *p, double seconds);

#endif
