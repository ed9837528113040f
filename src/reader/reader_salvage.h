/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_salvage.h - the intact part of a damaged archive (spec 9.4) */
#ifndef KVI_READER_SALVAGE_H
#define KVI_READER_SALVAGE_H

#include "kvarc.h"

/* The first 64 bytes are damaged: finds the sync mark in the first frame. */
kvarc_ret kvi_salvage_superblock(kvarc_reader *r);
/* Fills the index from whatever frames are good. */
kvarc_ret kvi_salvage_load(kvarc_reader *r);
/* As kvarc_reader_next_segment, for a reader that salvages. */
kvarc_ret kvi_salvage_next(kvarc_reader *r, kvarc_segment *segment);
/* As kvarc_reader_segment_deliver, for a reader that salvages. */
kvarc_ret kvi_salvage_deliver(kvarc_reader *r, kvarc_deliver deliver, void *opaque);

#endif
