/* SPDX-License-Identifier: BSD-3-Clause */
/* slots_util.h - llama.cpp slots that are packed, and shorter ones that are compared with them */
#ifndef SLOTS_UTIL_H
#define SLOTS_UTIL_H

#include "import_files.h"

/* The archive of a slot, in segments of 32 tokens. */
struct blob slot_pack(struct blob *slot);
/* An import of a slot that is understood; the test fails when it is not. */
kvarc_import *slot_open(struct blob *b);
/* Fails the test unless every token of the shorter slot is the slot's own, and track 0 begins
 * with `tokens` of them, at most 64. */
void slot_check_prefix(struct blob *slot, struct blob *shorter, uint64_t tokens);

#endif
