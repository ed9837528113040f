/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * feature_table.h - the features of one segment's tensors, from the job that
 * makes them to the jobs that predict from them
 *
 * Jobs run in the order of the chunks, so that a job that waits for an earlier
 * one waits for something that has begun. Features are freed after their last use.
 */
#ifndef KVI_FEATURE_TABLE_H
#define KVI_FEATURE_TABLE_H

#include <pthread.h>

#include "codecs/codec.h"
#include "format/segment.h"
#include "profile/linear_model.h"
#include "profile/linear_plan.h"
#include "util/pool.h"

/* Flags of a tensor's chunk, set before the jobs begin. */
enum {
	KVI_SLOT_WANTED = 1,    /* a caller asked for the tensor */
	KVI_SLOT_LINEAR = 2,    /* the chunk has codec linear, or may have */
	KVI_SLOT_WHOLE = 4,     /* the chunk is there, with all heads */
	KVI_SLOT_PREDICTION = 8 /* a model observes its features (prediction.h) */
};

/* Parts of a tensor's features that are there, or asked for. */
enum { KVI_FEATURES_NONE = 0, KVI_FEATURES_Z, KVI_FEATURES_ALL };

/* The features of one tensor in the segment that jobs work on. */
struct kvi_feature_slot {
	struct kvi_features *f;
	uint32_t users;      /* jobs that still use f, its maker included */
	uint8_t have, asked; /* KVI_FEATURES_* */
	bool lost;           /* will never be there */
	bool reads;          /* the job uses the features of its sources */
	uint8_t flags;
};

/* Features of all tensors of a track in one segment, shared by its jobs. */
struct kvi_feature_table {
	const struct kvi_alloc *alloc;
	const struct kvi_linear_plan *plan;
	struct kvi_pool *pool; /* pool of the jobs, which help it while they wait; NULL: they
	                        * sleep */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	uint32_t first, n; /* the track's indices in the order of chunks */
	struct kvi_feature_slot slots[];
};

/* Makes the table of a track: slots without flags, no pool. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_feature_table_open(struct kvi_feature_table **t, const struct kvi_alloc *alloc,
                                 const struct kvi_linear_plan *plan, const struct kvi_order *order,
                                 uint32_t track);
/* Frees the table, which no job uses any more. NULL-safe. */
void kvi_feature_table_close(struct kvi_feature_table *table);

/* The slot of a tensor of the table's track by its index in the order of chunks. */
static inline struct kvi_feature_slot *kvi_feature_slot(struct kvi_feature_table *table,
                                                        uint32_t order_index)
{
	return &table->slots[order_index - table->first];
}

/* Counts the users of each slot and finds the features that are asked for, once the flags are set.
 * Slots that are WANTED or asked for afterwards need a job each. */
void kvi_feature_table_plan(struct kvi_feature_table *table);
/* Whether a job has to decode the tensor. */
static inline bool kvi_feature_slot_needed(const struct kvi_feature_slot *slot)
{
	return (slot->flags & KVI_SLOT_WANTED) || (slot->asked && (slot->flags & KVI_SLOT_WHOLE));
}

/* Functions for jobs. */

/* Sets all members of in but the sources. known: the segment's ids and positions are known. */
void kvi_linear_in_init(struct kvi_linear_in *in, const struct kvi_linear_plan *plan,
                        uint32_t order_index, const kvarc_geometry *geometry, uint32_t tensor,
                        const struct kvi_segment *segment, bool known);
/* Waits for the sources of a tensor whose slot reads, and fills them in. False: one is lost. */
bool kvi_feature_table_wait(struct kvi_feature_table *table, uint32_t order_index,
                            struct kvi_linear_in *in);
/* Makes the features that this job has to fill. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_feature_table_make(struct kvi_feature_table *table, uint32_t order_index,
                                 size_t n_tokens, struct kvi_features **features);
/* Publishes the features of a tensor, as far as `have` says, and wakes the jobs that wait. */
void kvi_feature_table_publish(struct kvi_feature_table *table, uint32_t order_index,
                               unsigned have);
/* Ends the use of the table by a job: features that it did not publish are lost, and its sources
 * are released. */
void kvi_feature_table_leave(struct kvi_feature_table *table, uint32_t order_index);

#endif
