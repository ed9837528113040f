/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_frames_check.c - every frame of an archive and its check, without decoding chunks */
#include "reader_state.h"

static kvarc_ret walk_frames(kvarc_reader *r, struct kvi_walk *w)
{
	kvarc_ret ret;
	kvi_walk_all(w);
	do {
		ret = kvi_walk_next(w, r->error);
		if (!ret && w->sequence == 1)
			ret = kvi_walk_geometry(w, &r->geometry, &r->order, r->error);
	} while (!ret);
	return ret == KVARC_END ? kvi_walk_end(w, r->error) : ret;
}

kvarc_ret kvi_reader_check_frames(kvarc_reader *r)
{
	struct kvi_walk w;
	kvi_walk_init(&w, &r->in, &r->packer);
	kvarc_ret ret = walk_frames(r, &w);
	kvi_walk_free(&w);
	return kvi_reader_set_error(r, ret);
}
