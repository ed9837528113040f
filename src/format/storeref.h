/* SPDX-License-Identifier: BSD-3-Clause */
/* storeref.h - STOREREF content: segments that a store keeps (spec frames 12.3) */
#ifndef KVI_STOREREF_H
#define KVI_STOREREF_H

#include "chunk_order.h"
#include "util/bytes.h"
#include "util/list.h"

/* Most segments of a frame. */
enum { KVI_STOREREF_SEGMENTS = 4096 };

/* Bytes of all tensors of a track for one token. */
uint64_t kvi_track_bytes(const kvarc_geometry *geometry, const struct kvi_order *order,
                         uint32_t track);
/* Appends the content for n segments, 1..KVI_STOREREF_SEGMENTS, of one track that follow each
 * other. Test out->failed afterwards. */
void kvi_storeref_put(struct kvi_out *out, const kvarc_stored *segments, size_t n);
/* Puts the segments of a content into a list of kvarc_stored, in place of those that are there;
 * whether t0 of the first one fits is for the caller. Returns OK, MEM, MEMLIMIT, DATA. */
kvarc_ret kvi_storeref_parse(struct kvi_list *to, const struct kvi_alloc *alloc,
                             const kvarc_geometry *geometry, const struct kvi_order *order,
                             const uint8_t *content, size_t bytes);

#endif
