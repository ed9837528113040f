/* SPDX-License-Identifier: BSD-3-Clause */
/* library.h - options for the library, and its errors as messages */
#ifndef KVARC_CLI_LIBRARY_H
#define KVARC_CLI_LIBRARY_H

#include "infile.h"
#include "kvarc.h"
#include "options.h"
#include "outfile.h"

/* The common part of every handle; error stays as long as the handle. */
void library_common(const struct options *o, kvarc_common *c, kvarc_error *error);
/*
 * Shows what a call returned: what is wrong, where, what to do. in and out may
 * be NULL; when one of them failed, the message is about that.
 */
void library_error(const char *file, kvarc_ret ret, const kvarc_error *error,
                   const struct input *in, const struct output *out);

/* Opens an archive for reading. flags as in kvarc_reader_options. */
kvarc_reader *library_open(const struct options *o, struct input *in, unsigned flags,
                           kvarc_error *error);

/* "closed", "open", "cut", "damaged", "unknown" */
const char *library_state_name(kvarc_state state);
/* Tokens of the cache: of its longest track. */
uint64_t library_tokens(const kvarc_reader *r);
/* Warns when an archive does not end as it should; tokens: that it holds. */
void library_warn_state(const char *file, const kvarc_info *info, uint64_t tokens);
/* "grid"; "?" for a codec that is not known. */
const char *library_codec_name(unsigned codec);

#endif
