/* SPDX-License-Identifier: BSD-3-Clause */
/* input_hash.h - one hash of all bytes of an import */
#ifndef KVI_INPUT_HASH_H
#define KVI_INPUT_HASH_H

#include "import_internal.h"
#include "util/hash.h"

/* Folds all bytes of all items into hash. Returns OK, MEM, MEMLIMIT, IO, END (an item is shorter
 * than its size). */
kvarc_ret kvi_input_hash(const kvarc_import *im, struct kvi_h128 *hash);

#endif
