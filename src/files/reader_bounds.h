/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_bounds.h - a caller's range, made exact and checked */
#ifndef KVI_READER_BOUNDS_H
#define KVI_READER_BOUNDS_H

#include <stdbool.h>

#include "kvarc.h"

/* Replaces "to the last" by numbers, and a range of zeros by what it means. Returns OK, OPTIONS (a
 * pipe), GEOMETRY. */
kvarc_ret kvi_range_resolve(kvarc_reader *r, kvarc_range *range);

/* Whether a tensor is in a range that kvi_range_resolve has made exact. */
static inline bool kvi_range_has(const kvarc_range *range, const kvarc_tensor *tensor)
{
	return tensor->track == range->track && tensor->layer >= range->layer0 &&
	       tensor->layer - range->layer0 < range->n_layers;
}

/* Finds whether token ids are stored for an exact range (kvi_range_resolve), by its first token. */
kvarc_ret kvi_range_has_ids(kvarc_reader *r, const kvarc_range *range, bool *ids);

#endif
