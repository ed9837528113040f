/* SPDX-License-Identifier: BSD-3-Clause */
/* writer_append.h - what a writer is given: tokens, segments of a store, rewinds */
#ifndef KVI_WRITER_APPEND_H
#define KVI_WRITER_APPEND_H

#include "kvarc.h"

/* Writes the tokens that wait. Returns OK, MEM, MEMLIMIT, IO. */
kvarc_ret kvi_writer_flush_tracks(kvarc_writer *w);
/* Checks the arguments of an append; t0: number of tokens that were appended before. Returns OK,
 * PROG, GEOMETRY. */
kvarc_ret kvi_writer_may_append(const kvarc_writer *w, uint32_t track, uint64_t t0, uint64_t n,
                                const int32_t *positions);

#endif
