/* SPDX-License-Identifier: BSD-3-Clause */
/* describe.h - what list and info report of archives and profiles */
#ifndef KVARC_CLI_DESCRIBE_H
#define KVARC_CLI_DESCRIBE_H

#include "kvarc.h"
#include "report.h"
#include "shape.h"

/* Adds format, source, sizes, number of tokens, predictors and state of an archive to a report, and
 * prints them if it is text. */
void describe_archive(struct report *report, const char *file, const struct shape *shape,
                      kvarc_reader *r);
/* Adds or prints the predictors, or "none". */
void describe_predictors(struct report *report, kvarc_reader *r);
/* Cost of reading a layer: 0 that layer alone, 2 a value its key as well, 3 the layers below as
 * well, 4 these and all tokens before, by the model. */
unsigned describe_reach(const struct shape *shape, kvarc_reader *r);
/* Reports identity, size and contents of a profile on standard output. */
void describe_profile(const char *file, const kvarc_profile *profile, bool json);
/* Channels of a head as a model counts them, also of a block type's plane. */
uint32_t describe_channels(const kvarc_tensor *tensor);
/* Writes a RoPE description to out (size bytes): "half-split pairs, 64 channels, theta 100000" */
void describe_rope(char *out, size_t size, const kvarc_rope *rope);

/* Reports the parts of an encrypted archive that are readable without its key
 * (describe_envelope.c). */
void describe_envelope(const char *file, const kvarc_envelope *envelope, bool json);

#endif
