/* SPDX-License-Identifier: BSD-3-Clause */
/* library.h - options for the library, and its errors as messages */
#ifndef KVARC_CLI_LIBRARY_H
#define KVARC_CLI_LIBRARY_H

#include <stdbool.h>

#include "infile.h"
#include "kvarc.h"
#include "options.h"
#include "outfile.h"

/* The common part of every handle; error stays as long as the handle. */
void library_common(const struct work_options *work, kvarc_common *common, kvarc_error *error);
/* Whether the archive of an input has parity, with which it may be repaired; only of a file. */
bool library_has_parity(const struct input *in);
/*
 * Shows what a call returned: what is wrong, where, what to do. in and out may
 * be NULL; when one of them failed, or in is a file that has changed since it was opened, the
 * message is about that.
 */
void library_error(const char *file, kvarc_ret ret, const kvarc_error *error,
                   const struct input *in, const struct output *out);

/* Sets what adds a clause to messages of PREDICTOR, such as which option gives the profile. It
 * returns "" for none. */
void library_set_hint(const char *(*hint)(const kvarc_error *error));
/* Sets the flags of a writer by --verify and --streamable, or direct: the output is a pipe; *parity
 * to the values of --parity, and wo->parity to it if there is any. parity stays as long as wo. */
void library_archive(const struct archive_options *archive, bool direct, kvarc_parity *parity,
                     kvarc_writer_options *wo);
/* Tokens of an import: of its longest sequence; rows of windows, indexers and states are none. */
uint64_t library_import_tokens(const kvarc_import *im);
/* Writes the reason why the file of an import is packed as plain bytes, without the clause on the
 * result; "": it is not, or is no cache at all. */
void library_import_cause(const kvarc_import *im, char *why, size_t bytes);
/* Warns when an import has no cache, or not all of what the file seems to have. */
void library_warn_import(const char *file, const kvarc_import *im);
/* The message about a file without tokens where `to` has some; done: what was not, "saved". */
void library_refuse_import(const char *file, const kvarc_import *im, const char *to,
                           uint64_t tokens, const char *done);

/* "closed", "open", "cut", "damaged", "unknown" */
const char *library_state_name(kvarc_state state);
/* Tokens of the cache: of its longest track. */
uint64_t library_tokens(const kvarc_reader *r);
/* Warns when an archive does not end as it should; tokens: that it holds. */
void library_warn_state(const char *file, const kvarc_info *info, uint64_t tokens);
/* "grid"; "?" for a codec that is not known. */
const char *library_codec_name(unsigned codec);

#endif
