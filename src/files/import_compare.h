/* SPDX-License-Identifier: BSD-3-Clause */
/* import_compare.h - whether an archive gives the files of an import back */
#ifndef KVI_IMPORT_COMPARE_H
#define KVI_IMPORT_COMPARE_H

#include "kvarc.h"
#include "util/shared.h"

/* Unpacks all items of an archive, of which nothing was read before, and compares them, byte by
 * byte, with the files of an import. Returns OK; END: they are other ones; IO: a file cannot be
 * read; and what kvarc_unpack returns. Errors but END go to e, or to the reader's. */
KVI_SHARED kvarc_ret kvi_import_compare(const kvarc_import *im, kvarc_reader *r, kvarc_error *e);

#endif
