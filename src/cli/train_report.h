/* SPDX-License-Identifier: BSD-3-Clause */
/* train_report.h - bits per element with a new profile, layer by layer */
#ifndef KVARC_CLI_TRAIN_REPORT_H
#define KVARC_CLI_TRAIN_REPORT_H

#include "kvarc/tools.h"
#include "options.h"

/* Writes the names of the inputs to text: "2 inputs and text of its own". */
void train_inputs(char *text, size_t capacity, const struct options *o, size_t n);
/* Prints a table, or JSON, on standard output. n_profiles of the inputs are profiles that were
 * merged, not data. */
void train_report(const struct options *o, const kvarc_trainer *t, size_t n_profiles,
                  const kvarc_profile *p, double seconds);

#endif
