/* SPDX-License-Identifier: BSD-3-Clause */
/* rewrite.h - an archive out of another: copied, cut, compacted, transferred */
#ifndef KVI_REWRITE_H
#define KVI_REWRITE_H

#include <stdbool.h>
#include <stdint.h>

#include "kvarc.h"
#include "util/shared.h"

/* How kvi_keep_segments writes a segment: copied, or named as a segment of a store. */
struct kvi_kept {
	bool copied;        /* payloads are copied as they are; false: the segment is named */
	uint8_t digest[16]; /* named: content digest for a segment that the archive holds */
	bool has_ids;       /* named, from a store: ids and positions; false: no chain value */
	int32_t ids[256], positions[256];
};
/* Decides for each segment, in the order of the archive, with flags KVARC_SEGMENT_*; kept is all
 * zero. Anything but OK ends the copy, which returns it. */
typedef kvarc_ret (*kvi_keep_fn)(void *opaque, const kvarc_stored *segment, unsigned flags,
                                 struct kvi_kept *kept);

/*
 * Writes geometry and identity of an archive, and of each track the segments that begin before
 * token ends[track], as `keep` says; files and checkpoints are left out. Chain values stay as they
 * are. r can seek, and is not started. options: KVARC_WRITE_STORED, a level below 4, no profile, no
 * keys. Returns what readers, writers and `keep` return; OPTIONS: the archive is none that a store
 * has made.
 */
KVI_SHARED kvarc_ret kvi_keep_segments(kvarc_reader *r, const kvarc_sink *sink,
                                       const kvarc_writer_options *options, const uint64_t *ends,
                                       kvi_keep_fn keep, void *opaque);

#endif
