/* SPDX-License-Identifier: BSD-3-Clause */
/* work_layout.c - divides work memory among the chunks of a plan, layer after layer */
#include "config.h"

#include "work_layout.h"

#include "plan_state.h"

struct kvi_work_part kvi_work_take(struct kvi_work_layout *l, uint32_t layer, uint64_t own,
                                   struct kvi_gpu_linear_bytes model)
{
	if (!l->begun || l->layer != layer)
		l->work = l->kept = 0;
	l->begun = true;
	l->layer = layer;
	const struct kvi_work_part part = {
		.own = l->work,
		.model = l->work + kvi_part_aligned(own),
		.kept = l->most_work + layer % (l->reach + 1) * l->most_kept + l->kept,
	};
	l->work = part.model + model.work;
	l->kept += model.kept;
	l->most_work = l->work > l->most_work ? l->work : l->most_work;
	l->most_kept = l->kept > l->most_kept ? l->kept : l->most_kept;
	return part;
}

void kvi_work_again(struct kvi_work_layout *l)
{
	l->begun = false;
}

uint64_t kvi_work_bytes(const struct kvi_work_layout *l)
{
	return l->most_work + (l->reach + (uint64_t)1) * l->most_kept;
}
