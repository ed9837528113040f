/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_bounds.c - a caller's range, made exact and checked */
#include "reader_bounds.h"

#include "reader/reader_internal.h"

kvarc_ret kvi_range_resolve(kvarc_reader *r, kvarc_range *range)
{
	const kvarc_geometry *g = kvarc_reader_geometry(r);
	const kvarc_range given = *range;
	uint64_t tokens = kvarc_reader_tokens(r, range->track);
	kvi_range_of(range, &given);
	if (!kvi_reader_can_seek(r))
		return kvi_reader_fail(r, KVARC_OPTIONS,
		                       "this needs an archive that can be read at any place, not a "
		                       "pipe");
	if (range->track >= g->n_tracks || range->t0 > tokens)
		return KVARC_GEOMETRY;
	if (range->n == UINT64_MAX)
		range->n = tokens - range->t0;
	if (range->n == 0 || range->n > tokens - range->t0)
		return KVARC_GEOMETRY;
	return KVARC_OK;
}

kvarc_ret kvi_range_has_ids(kvarc_reader *r, const kvarc_range *range, bool *ids)
{
	int32_t one;
	kvarc_ret ret = kvarc_reader_read_tokens(r, range->track, range->t0, 1, &one, NULL);
	*ids = ret == KVARC_OK;
	return ret == KVARC_OPTIONS ? KVARC_OK : ret;
}
