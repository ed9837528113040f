/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_segments.h - segments, of the file or of a store (frames.md 12.3) */
#ifndef KVI_READER_SEGMENTS_H
#define KVI_READER_SEGMENTS_H

#include "reader_jobs.h"

/*
 * The copy of a segment from the store of the options, with one more user: a cached copy, or asked
 * for now. By the calling thread alone; where memory is short it waits for all jobs.
 * Returns OK, STORE, MEM, MEMLIMIT, IO, DATA (a chain value without token ids), and what jobs
 * returned.
 */
kvarc_ret kvi_stored_get(kvarc_reader *r, const kvarc_stored *key, const char *ns,
                         struct kvi_stored_copy **copy, kvarc_error *error);
/* As kvi_stored_get, for a segment of the index. */
kvarc_ret kvi_stored_get_ref(kvarc_reader *r, const struct kvi_segment_ref *segment,
                             struct kvi_stored_copy **copy, kvarc_error *error);
/* Adds the segments of a STOREREF frame to the index; entry: what the INDEX or a walk says of it;
 * NULL: salvage, which takes what there is. Returns OK, MEM, MEMLIMIT, DATA. */
kvarc_ret kvi_reader_add_storeref(kvarc_reader *r, const struct kvi_frame *frame,
                                  const uint8_t *content, const struct kvi_index_entry *entry);
/* Elements of a tensor of a use, packed; NULL: a chunk of the file has them. */
const uint8_t *kvi_stored_elements(const struct kvi_segment_use *use, uint32_t tensor);
/* Frees all of it when the reader is closed. */
void kvi_stored_free(kvarc_reader *r);
/* Reads the SEGMENT frame that ref names. */
kvarc_ret kvi_reader_read_segment(kvarc_reader *r, struct kvi_packer *packer,
                                  const struct kvi_segment_ref *ref, struct kvi_segment *segment,
                                  kvarc_error *error);
/* As kvi_reader_read_segment, by the thread that has the reader: memory and kvarc_error are the
 * reader's. */
kvarc_ret kvi_reader_segment(kvarc_reader *r, const struct kvi_segment_ref *ref,
                             struct kvi_segment *segment);
/* A use of a segment with one user, read from its SEGMENT frame unless that is lost. The
 * caller releases it, also on failure, when it may be NULL. Returns OK, MEM, MEMLIMIT, DATA,
 * OPTIONS, IO. */
kvarc_ret kvi_segment_use_load(kvarc_reader *r, struct kvi_packer *packer,
                               const struct kvi_segment_ref *ref, struct kvi_segment_use **use,
                               kvarc_error *error);

#endif
