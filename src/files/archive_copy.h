/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * archive_copy.h - segments of an archive into another one with their payloads as they are, so that
 * chunks of a lossy tier are neither decoded nor quantised again
 */
#ifndef KVI_ARCHIVE_COPY_H
#define KVI_ARCHIVE_COPY_H

#include <stdbool.h>
#include <stdint.h>

#include "kvarc.h"

/* Of a tensor that is left out. */
#define KVI_COPY_OUT UINT32_MAX

struct kvi_copy;
/* What a copy finds at a token of the source. */
struct kvi_copy_found {
	uint64_t t0, n; /* its tokens in the reader's track; n = 0: there is none */
	bool lossy;     /* it has chunks of a lossy tier */
	bool copied;    /* it can be taken as it is */
	uint64_t segment;
	kvarc_ret ret; /* MEM, MEMLIMIT, IO: the rest is not known */
};

/*
 * A track of a reader that can seek goes to track to_track of a writer that has a geometry. to: the
 * writer's number of each of the reader's tensors; the caller's until close. On failure *c is NULL.
 * Returns OK, or what opening a reader does (KVARC_WRITE_VERIFY needs another one).
 */
kvarc_ret kvi_copy_open(struct kvi_copy **c, kvarc_reader *r, kvarc_writer *w, uint32_t track,
                        uint32_t to_track, const uint32_t *to);
void kvi_copy_close(struct kvi_copy *c); /* NULL-safe */

/* The first segment with tokens in t0 .. end - 1 that has lossy chunks. */
struct kvi_copy_found kvi_copy_find(struct kvi_copy *c, uint64_t t0, uint64_t end);

/* Appends the segment that was found to the writer's track; none of its tokens may wait there.
 * ids may be NULL. Returns what readers and writers return. */
kvarc_ret kvi_copy_segment(struct kvi_copy *c, const struct kvi_copy_found *found,
                           const int32_t *ids, const int32_t *positions);

#endif
