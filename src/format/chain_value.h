/* SPDX-License-Identifier: BSD-3-Clause */
/* chain_value.h - chain values of segments (spec 5.3) */
#ifndef KVI_CHAIN_VALUE_H
#define KVI_CHAIN_VALUE_H

#include "identity.h"
#include "segment.h"
#include "util/hash.h"

/* A chain value, if there is one. */
struct kvi_chain {
	bool known;
	struct kvi_h128 value;
};

/* Computes the value that chain values begin with; geometry: B128 of the content of GEOMETRY.
 * scratch: memory. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_chain_root(struct kvi_h128 *root, struct kvi_out *scratch, struct kvi_h128 geometry,
                         const struct kvi_identity *id);
/* The chain value of a segment's first n tokens, whose ids are known; before: of those before them.
 * scratch: memory. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_chain_link(struct kvi_h128 *value, struct kvi_out *scratch, struct kvi_h128 before,
                         const struct kvi_segment *segment, uint32_t n);

#endif
