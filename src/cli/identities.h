/* SPDX-License-Identifier: BSD-3-Clause */
/* identities.h - what pack records about a file, and the time that unpack restores */
#ifndef KVARC_CLI_IDENTITIES_H
#define KVARC_CLI_IDENTITIES_H

#include <stdbool.h>
#include <time.h>

#include "infile.h"
#include "kvarc.h"
#include "options.h"

/* Makes kvarc_pack record the time of the input's last change, or that of SOURCE_DATE_EPOCH, and
 * the pairs of --identity, which have precedence; error is that of the import. false: a message was
 * shown. */
bool identities_record(const struct option_list *identity, const struct input *in, kvarc_import *im,
                       const kvarc_error *error);
/* The time that restored files get: that of the checkpoint that r was opened at, or the last one,
 * else the one that the archive records, else that of its own file, or none (zero) when it has no
 * file. */
struct timespec identities_time(const struct input *in, kvarc_reader *r);

#endif
