/* SPDX-License-Identifier: BSD-3-Clause */
/* frame_index.h - INDEX content, entry by entry (spec 9.2) */
#ifndef KVI_FRAME_INDEX_H
#define KVI_FRAME_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/bytes.h"
#include "util/hash.h"

/* A writer emits an INDEX before it holds more entries than this. */
enum { KVI_INDEX_ENTRIES = 65536 };

/* The entry of a frame in an INDEX. Comments name the frame types that a member is for. */
struct kvi_index_entry {
	uint8_t type;    /* frame type; 0 for types above 255 */
	uint8_t codec;   /* PARAMS */
	uint32_t tensor; /* CHUNK, PARAMS; SEGMENT, STOREREF: track */
	uint32_t n;      /* SEGMENT; STOREREF: of all its segments */
	uint16_t head, heads;
	uint64_t offset, sequence;
	uint64_t segment; /* CHUNK: sequence of its SEGMENT; SEGMENT, STOREREF: t0 */
	uint64_t params;  /* CHUNK: sequence of its PARAMS; PARAMS: of the
	                    * frame it copies, 0 for an original */
	uint64_t number;  /* COMMIT: of the checkpoint, 0: none */
	bool has_chain;   /* SEGMENT */
	struct kvi_h128 chain;
};

/* Offset and sequence of the entry before, both 0 at the start. */
struct kvi_index_delta {
	uint64_t offset, sequence;
};

/* Appends one entry; entries come in ascending order. */
void kvi_index_put(struct kvi_out *out, struct kvi_index_delta *delta,
                   const struct kvi_index_entry *entry);

/* Walks a content. */
struct kvi_index_reader {
	struct kvi_in in;
	struct kvi_index_delta d;
	uint64_t previous; /* offset of the INDEX frame before, 0: none */
	uint64_t left;
};

/* Starts to read an INDEX content, which must stay in memory. False: it is not valid. */
bool kvi_index_begin(struct kvi_index_reader *r, const uint8_t *content, size_t bytes);
/* True: *entry is the next entry. False: the end, or damage; kvi_index_end says which. */
bool kvi_index_next(struct kvi_index_reader *r, struct kvi_index_entry *entry);
/* True when everything was read and nothing was wrong. */
bool kvi_index_end(const struct kvi_index_reader *r);

#endif
