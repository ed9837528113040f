/* SPDX-License-Identifier: BSD-3-Clause */
/* frame_content.h - unpacks the content of a frame, and checks what needs no other frame */
#ifndef KVI_FRAME_CONTENT_H
#define KVI_FRAME_CONTENT_H

#include "chunk_header.h"
#include "frame_input.h"
#include "packed.h"
#include "params_header.h"

/* Leading bytes of a large frame's content that say which tensor or item it belongs to. */
enum { KVI_SKIM_BYTES = 64 };

/* Unpacks a frame's content. *owned is to be freed. */
kvarc_ret kvi_frame_content(struct kvi_packer *packer, const struct kvi_frame *frame,
                            const uint8_t **content, uint8_t **owned, kvarc_error *error);

/* Whether the first KVI_SKIM_BYTES of a frame's content are enough for a caller that looks for
 * frames: large PARAMS, BLOB and PROFILE frames. */
bool kvi_frame_skims(const struct kvi_frame_head *head);
/* Unpacks the first KVI_SKIM_BYTES of a frame's content. Returns OK, MEM, MEMLIMIT, DATA,
 * OPTIONS. */
kvarc_ret kvi_frame_skim(struct kvi_packer *packer, const struct kvi_frame *frame,
                         uint8_t head[KVI_SKIM_BYTES], kvarc_error *error);
/* Subtracts the decoded size of a frame from the remaining limit; NULL: there is no limit. Returns
 * OK, MEMLIMIT. */
kvarc_ret kvi_frame_spend(const struct kvi_frame *frame, uint64_t *left, kvarc_error *error);
/* Subtracts as kvi_frame_spend, but nothing for an INDEX or LIST whose entries can be of frames
 * behind offset `from`: they are smaller than these, and nobody keeps the content. */
kvarc_ret kvi_frame_spend_entries(const struct kvi_frame *frame, uint64_t from, uint64_t *left,
                                  kvarc_error *error);

/* Sets *error to `what` is wrong with a frame; returns DATA. */
kvarc_ret kvi_frame_bad(const struct kvi_frame *frame, kvarc_error *error, const char *what);
/* Sets *error to a frame that `does` something with a predictor of a later version, such as "is
 * predicted by"; returns OPTIONS. */
kvarc_ret kvi_frame_newer(const struct kvi_frame *frame, kvarc_error *error, const char *does);
/* Checks the meaning of a frame's header as kvi_frame_head_check does, and sets *error. Returns OK,
 * DATA, OPTIONS. */
kvarc_ret kvi_frame_meaning(const struct kvi_frame *frame, kvarc_error *error);

/* Checks a chunk header by itself and against its tensor (spec 7). Returns OK, DATA, OPTIONS. */
kvarc_ret kvi_chunk_check(const kvarc_geometry *geometry, const struct kvi_chunk_header *header,
                          const struct kvi_frame *frame, kvarc_error *error);
/* Checks the header of a PARAMS frame by itself and against its tensor (spec 8). Returns OK, DATA,
 * OPTIONS. */
kvarc_ret kvi_params_check(const kvarc_geometry *geometry, const struct kvi_params_header *header,
                           const struct kvi_frame *frame, kvarc_error *error);

#endif
