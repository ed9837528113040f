/* SPDX-License-Identifier: BSD-3-Clause */
/* read_ahead.h - bytes of a source that are in memory before they are asked for */
#ifndef KVI_READ_AHEAD_H
#define KVI_READ_AHEAD_H

#include <stdbool.h>

#include "kvarc.h"
#include "util/alloc.h"
#include "util/list.h"

/* Uses of blocks, which decide how long they stay. */
enum kvi_ahead_group {
	KVI_AHEAD_KEPT,    /* blocks until close */
	KVI_AHEAD_OPENING, /* blocks while the file is opened */
	KVI_AHEAD_EVEN,    /* the frames of a batch of segments, in turns: */
	KVI_AHEAD_ODD,     /* the next batch is fetched while jobs decode this one */
	KVI_AHEAD_GROUPS
};

/* Cost of a request by default, in bytes: what 50 Mbit/s transfer in a round trip of 10 ms. */
enum { KVI_AHEAD_COST = 64 << 10 };

/* Bytes [offset, offset + bytes) of the source. */
struct kvi_ahead_block {
	uint64_t offset, bytes;
	const uint8_t *p; /* memory of its group */
	enum kvi_ahead_group group;
};

/* The blocks of a source. One thread changes them, any may copy from them. */
struct kvi_ahead {
	const struct kvi_alloc *alloc;
	uint64_t cost; /* cost of a request in bytes: ranges that lie closer are read in one */
	struct kvi_ahead_lock *lock;              /* lock of many readers or one writer */
	struct kvi_list blocks;                   /* ascending, disjoint */
	struct kvi_list memory[KVI_AHEAD_GROUPS]; /* uint8_t *, what blocks point into */
};

/* Opens an empty set of blocks; cost 0: the default. False: the lock cannot be made. */
bool kvi_ahead_open(struct kvi_ahead *ahead, const struct kvi_alloc *alloc, uint64_t cost);
/* Frees all blocks; also of one that is all zero. */
void kvi_ahead_close(struct kvi_ahead *ahead);

/* Copies the bytes in memory from an offset on, up to `bytes`; returns their number. 0: *until is
 * the offset of the next byte in memory, or offset + bytes. Any thread. */
size_t kvi_ahead_copy(struct kvi_ahead *ahead, void *buf, size_t bytes, uint64_t offset,
                      uint64_t *until);

/* Bytes that a fetch may read now: a share of the memory that the limit still allows. */
uint64_t kvi_ahead_budget(const struct kvi_ahead *ahead);

/*
 * Sorts the n ranges of a list (offsets and bytes, in any order, also overlapping), removes bytes
 * that are in memory already and joins ranges that lie close together. Returns the new number of
 * ranges; the list must have capacity for all pieces: 2 * n + the number of blocks is enough.
 */
size_t kvi_ahead_join(const struct kvi_ahead *ahead, kvarc_byte_range *list, size_t n,
                      size_t capacity);

/*
 * Reads n ranges of a joined list into a group, in one call where the source has read_ranges.
 * Ranges beyond the budget are left out. Returns OK, MEM, IO.
 */
kvarc_ret kvi_ahead_fetch(struct kvi_ahead *ahead, const kvarc_source *source,
                          kvarc_byte_range *list, size_t n, enum kvi_ahead_group group,
                          kvarc_error *error);
/* Joins the ranges of a list (kvarc_byte_range), which grows for that, and fetches them. An empty
 * list reads nothing. Returns OK, MEM, MEMLIMIT, IO. */
kvarc_ret kvi_ahead_read(struct kvi_ahead *ahead, const kvarc_source *source,
                         struct kvi_list *ranges, enum kvi_ahead_group group, kvarc_error *error);
/* As kvi_ahead_read, without reading. False: out of memory. */
bool kvi_ahead_join_list(const struct kvi_ahead *ahead, struct kvi_list *ranges);
/* Drops the blocks of a group. */
void kvi_ahead_drop(struct kvi_ahead *ahead, enum kvi_ahead_group group);

#endif
