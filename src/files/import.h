/* SPDX-License-Identifier: BSD-3-Clause */
/* import.h - looks at files and containers and finds the caches in them */
#ifndef KVI_IMPORT_H
#define KVI_IMPORT_H

#include <stdbool.h>

#include "kvarc.h"
#include "util/shared.h"

/* ==== Heads and RoPEs of an import as an earlier archive of the same cache has them ==== */

/* Gives the tensors of an import the heads, channels and RoPEs of a valid geometry, so that both
 * have the same chain values. False: they are of other caches, and nothing has changed. */
KVI_SHARED bool kvi_import_adopt(kvarc_import *im, const kvarc_geometry *geometry);

/* ==== Whether an archive gives the files of an import back ==== */

/* Unpacks all items of an archive, of which nothing was read before, and compares them, byte by
 * byte, with the files of an import. Returns OK; END: they are other ones; IO: a file cannot be
 * read; and what kvarc_unpack returns. Errors but END go to error, or to the reader's. */
KVI_SHARED kvarc_ret kvi_import_compare(const kvarc_import *im, kvarc_reader *r,
                                        kvarc_error *error);

#endif
