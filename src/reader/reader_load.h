/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_load.h - where the frames are: from the index, else by a scan (spec 9) */
#ifndef KVI_READER_LOAD_H
#define KVI_READER_LOAD_H

#include "format/frame_index.h"
#include "format/frame_input.h"
#include "kvarc.h"

/* Fills chunks, segments, params, tokens and state of a source that can seek. */
kvarc_ret kvi_reader_load(kvarc_reader *r);
/* Takes GEOMETRY's content. */
kvarc_ret kvi_reader_geometry(kvarc_reader *r, const struct kvi_frame *frame,
                              const uint8_t *content, size_t bytes);
/* Bytes and elements of n tokens of a track are added to the totals. */
void kvi_reader_count(kvarc_reader *r, uint32_t track, uint64_t n);
/* Sets the totals of an index that is complete. Elements of tokens that forks share count once,
 * bytes for each track. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_reader_count_all(kvarc_reader *r);

#endif
