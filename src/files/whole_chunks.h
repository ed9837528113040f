/* SPDX-License-Identifier: BSD-3-Clause */
/* whole_chunks.h - whether chunks of an archive are whole, by the checks of their frames */
#ifndef KVI_WHOLE_CHUNKS_H
#define KVI_WHOLE_CHUNKS_H

#include "reader/reader_index.h"

/* What is known of the frames that several chunks use. */
struct kvi_whole {
	kvarc_reader *r;
	_Atomic uint8_t *params; /* of each PARAMS frame of the index: what whole_chunks.c knows */
};

/* Memory of a worker. */
struct kvi_whole_memory {
	struct kvi_buffer chunk, other;
};

/* For chunks of a reader that can seek. To be closed, also on failure. Returns OK, MEM,
 * MEMLIMIT. */
kvarc_ret kvi_whole_open(struct kvi_whole *whole, kvarc_reader *r);
/* Frees what it knows. */
void kvi_whole_close(struct kvi_whole *whole);
/* Frees the memory of a worker. */
void kvi_whole_free(const struct kvi_whole *whole, struct kvi_whole_memory *memory);
/*
 * Whether the frame of a chunk, and those that decoding it needs, are as they were written: its
 * PARAMS, an embedded profile, the chunk that it repeats or refers to. *header: its header. False
 * also where only decoding can say it. From any thread.
 */
bool kvi_whole_chunk(struct kvi_whole *whole, const struct kvi_segment_ref *segment,
                     const struct kvi_chunk_ref *ref, struct kvi_whole_memory *memory,
                     struct kvi_chunk_header *header);

#endif
