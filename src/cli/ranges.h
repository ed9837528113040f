/* SPDX-License-Identifier: BSD-3-Clause */
/* ranges.h - --layers, --tokens and --track as a range of an archive */
#ifndef KVARC_CLI_RANGES_H
#define KVARC_CLI_RANGES_H

#include <stdbool.h>

#include "kvarc.h"
#include "options.h"

/* false: the archive has no such layers or tokens, a message was shown. */
bool ranges_from_options(const struct extract_options *extract, const char *file, kvarc_reader *r,
                         kvarc_range *range);

#endif
