/* SPDX-License-Identifier: BSD-3-Clause */
/* describe.h - what list and info report of archives, profiles and encrypted archives */
#ifndef KVI_DESCRIBE_H
#define KVI_DESCRIBE_H

#include <stdbool.h>
#include <stdint.h>

#include "kvarc.h"
#include "cli/report.h"
#include "cli/shape.h"

/* Adds format, source, sizes, number of tokens, predictors and state of an archive to a report, and
 * prints them if it is text. */
void describe_archive(struct report *report, const char *file, const struct shape *shape,
                      kvarc_reader *r);
/* Cost of reading a layer: 0 that layer alone, 2 a value its key as well, 3 the layers below as
 * well, 4 these and all tokens before, by the model. */
unsigned describe_reach(const struct shape *shape, kvarc_reader *r);
/* Reports identity, size and contents of a profile on standard output. */
void describe_profile(const char *file, const kvarc_profile *profile, bool json);
/* Channels of a head as a model counts them, also of a block type's plane. */
uint32_t describe_channels(const kvarc_tensor *tensor);
/* Reports the parts of an encrypted archive that are readable without its key. */
void describe_envelope(const char *file, const kvarc_envelope *envelope, bool json);

#endif
