/* SPDX-License-Identifier: BSD-3-Clause */
/* repair_view.h - a damaged archive with what was restored of it so far */
#ifndef KVI_REPAIR_VIEW_H
#define KVI_REPAIR_VIEW_H

#include "format/frame_input.h"
#include "util/list.h"

/* Bytes in place of those of the source. */
struct kvi_patch {
	uint64_t offset, bytes;
	uint8_t *p;
};

/* The source under its patches; behind its end, and in gaps, there are zeros. */
struct kvi_repair_view {
	const kvarc_source *source;
	const struct kvi_alloc *alloc;
	struct kvi_list patches; /* struct kvi_patch, the later ones above */
	uint64_t size;
	kvarc_error *error;
};

/* Takes over memory of the allocator. Returns OK, MEM, MEMLIMIT; then p is freed. */
kvarc_ret kvi_view_patch(struct kvi_repair_view *v, uint64_t offset, uint64_t bytes, uint8_t *p);
/* Frees all patches. */
void kvi_view_free(struct kvi_repair_view *v);
/* Bytes at an offset; *got: fewer at the end. Returns OK, IO. */
kvarc_ret kvi_view_read(const struct kvi_repair_view *v, void *buf, size_t bytes, uint64_t offset,
                        size_t *got);
/* H128 of bytes, in memory of the allocator. *there: false behind the end. Returns OK, MEM,
 * MEMLIMIT, IO. */
kvarc_ret kvi_view_hash(const struct kvi_repair_view *v, uint64_t offset, uint32_t bytes,
                        struct kvi_h128 *h, bool *there);
/* A source of the first `size` bytes of it; the view must stay where it is. */
kvarc_source kvi_view_source(struct kvi_repair_view *v, uint64_t size);

#endif
