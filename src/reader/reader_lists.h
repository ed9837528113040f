/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_lists.h - chunks that LIST frames name, read when a segment of theirs is first needed */
#ifndef KVI_READER_LISTS_H
#define KVI_READER_LISTS_H

#include "reader_index.h"

/* Adds a LIST to the index while that is built, for the segments that have no chunks yet. beyond:
 * it may have more entries, behind those of the last segment. Returns OK, MEM, MEMLIMIT, DATA (the
 * segments have no chunks, or theirs are not all in one place). */
kvarc_ret kvi_reader_add_list(kvarc_reader *r, const struct kvi_index_entry *entry, bool beyond);
/* Whether the chunks of all segments before one are in the index or in a LIST of it. */
bool kvi_reader_all_listed(const kvarc_reader *r, size_t segment);
/*
 * Makes the chunks of a segment known: reads the LIST that has them, if one has, or where it is
 * damaged the headers of the chunks. Any thread. Returns OK, MEM, MEMLIMIT, DATA, OPTIONS, IO.
 */
kvarc_ret kvi_reader_list_segment(kvarc_reader *r, const struct kvi_segment_ref *segment,
                                  kvarc_error *error);
/* As kvi_reader_list_segment, for the segments with tokens t0 to end - 1 of a track that are left;
 * their LIST frames are read in one request. By the thread that has the reader. */
kvarc_ret kvi_reader_list_range(kvarc_reader *r, uint32_t track, uint64_t t0, uint64_t end);
/* Makes all chunks known, and puts them into kvi_reader_index.chunks in the order of the file. By
 * the thread that has the reader; waits for its jobs. Returns as kvi_reader_list_segment. */
kvarc_ret kvi_reader_list_all(kvarc_reader *r);
/* Frees the LIST frames of the index, and what was read of them. */
void kvi_reader_free_lists(kvarc_reader *r);

#endif
