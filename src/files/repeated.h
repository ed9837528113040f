/* SPDX-License-Identifier: BSD-3-Clause */
/* repeated.h - which segments of an archive have chunks that others repeat */
#ifndef KVI_REPEATED_H
#define KVI_REPEATED_H

#include <stdbool.h>

#include "kvarc.h"

/*
 * Marks segments, by their number in the index of a reader that can seek: those of
 * KVI_PREFIX_LEAST tokens or more whose first chunk is a REPEAT of that of a segment of another
 * track, and the other one. Coded in other segments they would not be alike. marks: false for each
 * segment. Behind a damaged chunk nothing is marked, as the call that decodes it reports that.
 * Returns OK, MEM, MEMLIMIT, IO.
 */
kvarc_ret kvi_mark_repeated(kvarc_reader *r, bool *marks);

#endif
