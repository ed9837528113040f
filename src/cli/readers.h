/* SPDX-License-Identifier: BSD-3-Clause */
/* readers.h - archives and imports opened with the keys, profiles and models of the command line */
#ifndef KVARC_CLI_READERS_H
#define KVARC_CLI_READERS_H

#include <stdbool.h>

#include "infile.h"
#include "kvarc.h"
#include "options.h"

/* kvarc_reader_open with the keys, profiles and models of the command line; asks for a passphrase
 * where one is missing. ro: the rest, filled on. */
kvarc_ret readers_open_with(struct input *in, kvarc_reader_options *ro, kvarc_reader **r);
/* Opens an archive for reading. flags as in kvarc_reader_options. */
kvarc_reader *readers_open(const struct work_options *work, const struct reading_options *reading,
                           struct input *in, unsigned flags, kvarc_error *error);

/* Reads the archive of `in`: prints a report or writes output, and shows messages. first: it is the
 * first operand. */
typedef void readers_fn(const struct options *o, struct input *in, kvarc_reader *r,
                        kvarc_error *error, bool first);
/* Opens the archives that the command line names, one after the other, and calls fn for
 * each. seek as in input_open, flags as in readers_open; one that does not open has a
 * message instead. */
void readers_each(const struct options *options, bool seek, unsigned flags, readers_fn *fn);
/* Sets the options of importers that all verbs share: the common part, the rules for tensor names,
 * the model, the folder of temporary files. */
void readers_import_options(const struct work_options *work, const struct import_options *import,
                            kvarc_import_options *io, kvarc_error *error);

#endif
