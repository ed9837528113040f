/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_stored.h - segments that lie in a store: fetched, checked, kept while they are used */
#ifndef KVI_READER_STORED_H
#define KVI_READER_STORED_H

#include "reader_state.h"

/* What a store gave for a segment; its content digest was right. The calling thread counts users;
 * any thread may read it. */
struct kvi_stored_copy {
	unsigned users; /* the reader that keeps it, and uses of the segment */
	kvarc_stored key;
	struct kvi_segment segment;
	kvarc_view *views; /* a tensor of the geometry, packed; others than the track's are zero */
	uint8_t *data;     /* NULL: the track has no tensors */
};

/*
 * What the store of the options has for a segment, with one more user: from the last ones that it
 * gave, or asked for now. By the calling thread alone; where memory is short it waits for all jobs.
 * Returns OK, STORE, MEM, MEMLIMIT, IO, DATA (a chain value without token ids), and what jobs
 * returned.
 */
kvarc_ret kvi_stored_get(kvarc_reader *r, const kvarc_stored *key, const char *ns,
                         struct kvi_stored_copy **copy, kvarc_error *e);
/* The same for a segment of the index. */
kvarc_ret kvi_stored_get_ref(kvarc_reader *r, const struct kvi_segment_ref *s,
                             struct kvi_stored_copy **copy, kvarc_error *e);

#endif
