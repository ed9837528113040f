/* SPDX-License-Identifier: BSD-3-Clause */
/* compact_states.h - several checkpoints of an archive as a new archive */
#ifndef KVARC_CLI_COMPACT_STATES_H
#define KVARC_CLI_COMPACT_STATES_H

#include "infile.h"
#include "kvarc.h"
#include "options.h"
#include "outfile.h"

/* Whether --keep asks for more than the last state. */
bool compact_wants_states(const char *keep);
/* Writes the checkpoints that --keep names, of an archive that is open as r, to out: one by one,
 * what is new in each. stats: of the new archive. false: a message was shown. */
bool compact_states(const struct options *o, struct input *in, kvarc_reader *r, struct output *out,
                    const kvarc_writer_options *options, kvarc_writer_stats *stats);

#endif
