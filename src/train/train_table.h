/* SPDX-License-Identifier: BSD-3-Clause */
/* train_table.h - the lowest layer from token ids (spec profile 3, flag bit 3) */
#ifndef KVI_TRAIN_TABLE_H
#define KVI_TRAIN_TABLE_H

#include "train_fit.h"

/* The token ids that fitted tokens have, ascending. n 0: none, or not known everywhere. */
struct kvi_train_ids {
	uint32_t n;
	int32_t *id;
};

/* Fitted tokens whose ids count as unknown, so that what unknown ones cost is seen: one of eight.
 * */
static inline bool kvi_train_pretend(int32_t id)
{
	return ((uint32_t)id * 2654435761u) >> 29 == 0;
}

kvarc_ret kvi_train_ids_collect(kvarc_trainer *t, const struct kvi_train_task *k,
                                struct kvi_train_ids *ids);

/*
 * Fills the tables of the level 3 models of the layer, and gives a copy of it whose z are what
 * the tables leave, with weights for its tokens. Both are freed by kvi_train_residual_free, in
 * every case.
 */
struct kvi_train_residual {
	struct kvi_train_layer layer; /* z is its own, the rest is not */
	struct kvi_train_weights weights;
};
kvarc_ret kvi_train_tables(kvarc_trainer *t, struct kvi_train_task *k,
                           struct kvi_train_residual *left);
void kvi_train_residual_free(kvarc_trainer *t, struct kvi_train_residual *left);

#endif
