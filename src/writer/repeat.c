/* SPDX-License-Identifier: BSD-3-Clause */
/* repeat.c - a set-associative table of chunk hashes */

#include "repeat.h"
#include "writer_state.h"
#include "format/frame.h"

enum { SETS = 4096, WAYS = 4 };

struct kvi_repeat_table {
	struct kvi_repeat order_index[SETS][WAYS]; /* newest first */
};

struct kvi_repeat_table *kvi_repeat_open(const struct kvi_alloc *alloc)
{
	return kvi_calloc(alloc, 1, sizeof(struct kvi_repeat_table));
}

void kvi_repeat_close(struct kvi_repeat_table *table, const struct kvi_alloc *alloc)
{
	kvi_free(alloc, table);
}

const struct kvi_repeat *kvi_repeat_find(const struct kvi_repeat_table *table, struct kvi_h128 hash,
                                         uint64_t bytes, uint32_t n_tokens)
{
	const struct kvi_repeat *set = table->order_index[hash.lo % SETS];
	for (int i = 0; i < WAYS; i++)
		if (set[i].bytes == bytes && set[i].n_tokens == n_tokens &&
		    kvi_h128_equal(set[i].hash, hash))
			return &set[i];
	return NULL;
}

void kvi_repeat_add(struct kvi_repeat_table *table, const struct kvi_repeat *r)
{
	struct kvi_repeat *set = table->order_index[r->hash.lo % SETS];
	for (int i = WAYS - 1; i > 0; i--)
		set[i] = set[i - 1];
	set[0] = *r;
}
