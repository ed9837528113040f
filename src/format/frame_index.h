/* SPDX-License-Identifier: BSD-3-Clause */
/* frame_index.h - content of INDEX and LIST frames, entry by entry (spec 9.2) */
#ifndef KVI_FRAME_INDEX_H
#define KVI_FRAME_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/bytes.h"
#include "util/hash.h"

/* A writer puts an INDEX behind the COMMIT at which it has this many entries, and a LIST behind the
 * one at which it has this many of CHUNK frames. */
enum { KVI_INDEX_ENTRIES = 65536, KVI_LIST_ENTRIES = 16384 };

/* The entry of a frame in an INDEX or LIST. Comments name the frame types that a member is for. */
struct kvi_index_entry {
	uint8_t type;    /* frame type; 0 for types above 255 */
	uint8_t codec;   /* PARAMS; CHUNK: not in the content */
	uint32_t tensor; /* CHUNK, PARAMS; SEGMENT, STOREREF, FORK: track */
	uint32_t n;      /* SEGMENT; STOREREF: of all its segments; LIST: its entries */
	uint32_t bytes;  /* the whole frame */
	uint16_t head, heads;
	uint64_t offset, sequence;
	uint64_t segment; /* CHUNK: sequence of its SEGMENT; SEGMENT, STOREREF: t0; FORK: tokens */
	uint64_t params;  /* CHUNK: sequence of its PARAMS; PARAMS: of the
	                    * frame it copies, 0 for an original; FORK: the other track */
	uint64_t number;  /* COMMIT: of the checkpoint, 0: none */
	bool has_chain;   /* SEGMENT */
	struct kvi_h128 chain;
};

/* Where the frame of the entry before ends, and its sequence number; both 0 at the start. */
struct kvi_index_delta {
	uint64_t end, sequence;
};

/* Appends one entry; entries come in ascending order. */
void kvi_index_put(struct kvi_out *out, struct kvi_index_delta *delta,
                   const struct kvi_index_entry *entry);

/* Entries that no INDEX has yet. */
struct kvi_pending_entries {
	struct kvi_out entries;
	struct kvi_index_delta delta;
	uint64_t n;
	uint64_t chunks; /* entries of CHUNK frames among them that a LIST may take */
	/* The first ones, which the last INDEX has, too, and offset and size of the INDEX that it
	 * follows; 0: none. */
	uint64_t restated, follows;
	uint32_t follows_bytes;
};

/* Starts without entries. kvi_out_free(&to->entries) frees them. */
void kvi_pending_init(struct kvi_pending_entries *to, const struct kvi_alloc *alloc);
/* Adds the entry of a frame. False: out of memory. */
bool kvi_pending_add(struct kvi_pending_entries *to, const struct kvi_index_entry *entry);
/* Copies all entries. False: out of memory. */
bool kvi_pending_copy(struct kvi_pending_entries *to, const struct kvi_pending_entries *from);
/* Moves the entries of the `chunks` into the content of a LIST. False: out of memory. */
bool kvi_pending_take_chunks(struct kvi_pending_entries *from, struct kvi_out *list);
/* Forgets the restated entries. False: out of memory. */
bool kvi_pending_drop_restated(struct kvi_pending_entries *entries);
/* Forgets all entries. */
void kvi_pending_clear(struct kvi_pending_entries *entries);

/* Fields of an INDEX before its entries. */
struct kvi_index_head {
	uint64_t follows;       /* offset of the INDEX frame that it follows, 0: none */
	uint32_t follows_bytes; /* its size */
	uint64_t codecs;        /* kvi_codec_bit of all CHUNK frames before it in the file */
};
/* Appends the fields that an INDEX of n entries begins with. */
void kvi_index_put_head(struct kvi_out *out, const struct kvi_index_head *head, uint64_t n);
/* The bit of a chunk's codec; those above 62 share one. */
static inline uint64_t kvi_codec_bit(uint8_t codec)
{
	return UINT64_C(1) << (codec < 63 ? codec : 63);
}

/* Walks a content. */
struct kvi_index_reader {
	struct kvi_in in;
	struct kvi_index_delta d;
	struct kvi_index_head head; /* LIST: zeros */
	bool chunks;                /* LIST: all entries are of CHUNK frames */
	uint64_t left;
};

/* Starts to read an INDEX content, which must stay in memory. False: it is not valid. */
bool kvi_index_begin(struct kvi_index_reader *r, const uint8_t *content, size_t bytes);
/* As kvi_index_begin, for a LIST. */
bool kvi_list_begin(struct kvi_index_reader *r, const uint8_t *content, size_t bytes);
/* True: *entry is the next entry. False: the end, or damage; kvi_index_end says which. */
bool kvi_index_next(struct kvi_index_reader *r, struct kvi_index_entry *entry);
/* True when everything was read and nothing was wrong. */
bool kvi_index_end(const struct kvi_index_reader *r);

#endif
