/* SPDX-License-Identifier: BSD-3-Clause */
/* repack_plan.h - which segments are needed of archives that no manifest names */
#ifndef KVI_REPACK_PLAN_H
#define KVI_REPACK_PLAN_H

#include "gc_steps.h"

/* A segment of an archive, by its first token. */
struct kvi_needed_segment {
	uint32_t track;
	uint64_t t0;
};

/* An archive that lives only because others name segments of it. */
struct kvi_candidate {
	struct kvi_map_pack *pack;
	struct kvi_list needed; /* struct kvi_needed_segment, ascending: what it alone is to hold */
	size_t unique;          /* of `needed`, when it was sorted last */
};

/*
 * Finds those of a gc's map that are old enough, neither encrypted nor named by a manifest, and
 * what is needed of them: of several archives that hold a segment those that have to stay count
 * before candidates, and of these the smallest. Sets `rank` in the map. Entries of candidates are
 * struct kvi_candidate; kvi_repack_plan_free frees them, also after a failure. Returns OK, MEM,
 * MEMLIMIT, IO, DATA.
 */
kvarc_ret kvi_repack_plan(struct kvi_gc *g, struct kvi_list *candidates);
/* Frees what kvi_repack_plan has made. */
void kvi_repack_plan_free(struct kvi_gc *g, struct kvi_list *candidates);

/* For qsort and bsearch over struct kvi_needed_segment. */
int kvi_needed_order(const void *a, const void *b);

#endif
