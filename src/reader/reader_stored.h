/* SPDX-License-Identifier: BSD-3-Clause */
/* reader_stored.h - segments that lie in a store: fetched, checked, kept while they are used; by
 * the calling thread alone, but for what says otherwise */
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

/* Adds the segments of a STOREREF frame to the index; entry: what the INDEX or a walk says of it;
 * NULL: salvage, which takes what there is. Returns OK, MEM, MEMLIMIT, DATA. */
kvarc_ret kvi_reader_add_storeref(kvarc_reader *r, const struct kvi_frame *f,
                                  const uint8_t *content, const struct kvi_index_entry *entry);
/* Counts the tokens of the state that lie in a store. */
void kvi_reader_count_stored(kvarc_reader *r);
/* A segment of the index that lies in a store. Returns as kvi_stored_get. */
kvarc_ret kvi_stored_segment(kvarc_reader *r, const struct kvi_segment_ref *ref,
                             struct kvi_segment *s, kvarc_error *e);
/* The same, with its elements, as use->segment and use->stored. */
kvarc_ret kvi_stored_use(kvarc_reader *r, const struct kvi_segment_ref *ref,
                         struct kvi_segment_use *use, kvarc_error *e);
/* Elements of a tensor of a use, packed; NULL: a chunk of the file has them. */
const uint8_t *kvi_stored_elements(const struct kvi_segment_use *use, uint32_t tensor);
/* Ends a use of a copy; NULL-safe. */
void kvi_stored_release(kvarc_reader *r, struct kvi_stored_copy *copy);
/* Frees all of it when the reader is closed. */
void kvi_stored_free(kvarc_reader *r);
/* Chunks of a segment: from s->first to here. Where it lies in a store, one a tensor of the track
 * stands for its elements (spec frames 12.3). */
uint64_t kvi_segment_chunks_end(const kvarc_reader *r, const struct kvi_segment_ref *s);
/* Chunk i of these. */
struct kvi_chunk_ref kvi_segment_chunk(const kvarc_reader *r, const struct kvi_segment_ref *s,
                                       uint64_t i);

#endif
