/* SPDX-License-Identifier: BSD-3-Clause */
/* repeat.h - finds chunks whose bytes were written before, in bounded memory */
#ifndef KVI_REPEAT_H
#define KVI_REPEAT_H

#include <stdbool.h>

#include "util/alloc.h"
#include "util/hash.h"

/* A chunk that later chunks may repeat. */
struct kvi_repeat {
	struct kvi_h128 hash;
	uint64_t bytes; /* 0: an empty place */
	uint64_t sequence, offset;
	uint64_t raw_check; /* this and the next two: from its chunk header */
	uint32_t n_tokens;
	uint8_t stream_size;
};

struct kvi_repeat_table;

/* An empty table; NULL when memory ran out. */
struct kvi_repeat_table *kvi_repeat_open(const struct kvi_alloc *alloc);
/* Frees the table; NULL-safe. */
void kvi_repeat_close(struct kvi_repeat_table *table, const struct kvi_alloc *alloc);
/* NULL: not seen, or forgotten. */
const struct kvi_repeat *kvi_repeat_find(const struct kvi_repeat_table *table, struct kvi_h128 hash,
                                         uint64_t bytes, uint32_t n_tokens);
/* Adds a chunk; an older one with the same slot of the table is dropped. */
void kvi_repeat_add(struct kvi_repeat_table *table, const struct kvi_repeat *r);

#endif
