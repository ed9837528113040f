/* SPDX-License-Identifier: BSD-3-Clause */
/* assembly.h - rows of several planes, kept until every plane has come */
#ifndef KVI_ASSEMBLY_H
#define KVI_ASSEMBLY_H

#include <stddef.h>
#include <stdint.h>

#include "kvarc.h"
#include "util/alloc.h"

/* Some rows of one area. */
struct kvi_token_rows {
	struct kvi_token_rows *next, *previous; /* of all rows */
	struct kvi_token_rows *next_in_area;
	size_t area;
	uint64_t t0;
	uint32_t n;
	size_t size, filled;    /* bytes */
	const kvarc_sink *sink; /* where they go, and the offset */
	uint64_t at;
	uint8_t *bytes; /* zero where nothing came yet */
};

/*
 * Not thread-safe: the caller holds its lock. However many areas wait for a plane, rows are found
 * among those of their own area: a few for each segment that is read at once.
 */
struct kvi_assembly {
	const struct kvi_alloc *alloc;
	struct kvi_token_rows *list;
	struct kvi_token_rows **of_area; /* the first one of each area */
};

/* For areas 0 to n_areas - 1. Returns OK, MEM, MEMLIMIT; alloc must outlive the assembly. */
kvarc_ret kvi_assembly_open(struct kvi_assembly *assembly, const struct kvi_alloc *alloc,
                            size_t n_areas);
/* The rows [t0, t0 + n) of an area, new if there are none; NULL: no memory. */
struct kvi_token_rows *kvi_assembly_get(struct kvi_assembly *assembly, size_t area, uint64_t t0,
                                        uint32_t n, size_t row_bytes);
/* Says that bytes more are filled in; complete rows are written and freed.
 * Not 0: the sink failed. */
int kvi_assembly_put(struct kvi_assembly *assembly, struct kvi_token_rows *rows, size_t bytes);
/* Writes what is there, incomplete rows as well. Not 0: the sink failed. */
int kvi_assembly_flush(struct kvi_assembly *assembly);
/* Frees rows without writing them. a may be all zeros. */
void kvi_assembly_free(struct kvi_assembly *assembly);

#endif
