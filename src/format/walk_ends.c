/* SPDX-License-Identifier: BSD-3-Clause */
/* walk_ends.c - how a walk begins, and whether it ended well (spec 3.4) */
#include "frame_walk.h"

kvarc_ret kvi_walk_first(struct kvi_walk *w, kvarc_error *error)
{
	kvarc_ret ret = KVARC_OK;
	while (!ret && !w->begun)
		ret = kvi_walk_next(w, error);
	return ret;
}

kvarc_ret kvi_walk_end(const struct kvi_walk *w, kvarc_error *error)
{
	if (w->last_type == KVI_FRAME_FOOTER || w->last_type == KVI_FRAME_COMMIT)
		return KVARC_OK;
	return kvi_reason(error, KVARC_REASON_SALVAGE,
	                  kvi_fail_at(error, KVARC_DATA, w->offset, w->sequence,
	                              "the file is cut at byte %llu: "
	                              "it ends without a commit; salvage gives what is before",
	                              (unsigned long long)w->offset));
}
