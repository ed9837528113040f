/* SPDX-License-Identifier: BSD-3-Clause */
/* work_layout.h - divides work memory among the chunks of a plan, layer after layer */
#ifndef KVI_WORK_LAYOUT_H
#define KVI_WORK_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "linear_chunk_plan.h"

/*
 * Layers take turns in work memory. Behind it is what is kept for other layers, in as many turns as
 * it is needed. All chunks are gone through twice, ascending by layer: for the sizes of the largest
 * layers, and, behind kvi_work_again, for offsets. Zeros at first, but for reach.
 */
struct kvi_work_layout {
	uint32_t reach; /* how many layers below a source is, at most */
	uint32_t layer; /* of the last chunk */
	bool begun;
	uint64_t work, kept; /* that the chunks of the layer have taken */
	uint64_t most_work, most_kept;
};

/* Offsets of a chunk in work memory: of its own part, of its model's, of what is kept. */
struct kvi_work_part {
	uint64_t own, model, kept;
};

/* Takes memory for the next chunk: own bytes, and those of its model. */
struct kvi_work_part kvi_work_take(struct kvi_work_layout *l, uint32_t layer, uint64_t own,
                                   struct kvi_gpu_linear_bytes model);
/* Behind the last chunk: begins once more with the first one. */
void kvi_work_again(struct kvi_work_layout *l);
/* Bytes of all work memory, once all chunks have taken theirs. */
uint64_t kvi_work_bytes(const struct kvi_work_layout *l);

#endif
