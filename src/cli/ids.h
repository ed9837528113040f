/* SPDX-License-Identifier: BSD-3-Clause */
/* ids.h - text files of token ids: decimal numbers with white space between, each line a sequence
 * */
#ifndef KVARC_CLI_IDS_H
#define KVARC_CLI_IDS_H

#include "infile.h"

/* Whether the file begins like one; needs a seekable input. */
bool ids_is_text(struct input *in);

/* Takes a sequence; false ends the reading. */
typedef bool (*ids_fn)(void *opaque, const int32_t *ids, size_t n);
/* fn for each line that has ids. false: a message was shown, or fn returned false. */
bool ids_read(struct input *in, ids_fn fn, void *opaque);

#endif
