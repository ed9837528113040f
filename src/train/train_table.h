/* SPDX-License-Identifier: BSD-3-Clause */
/* train_table.h - the lowest layer from token ids (spec profile 3, flag bit 3) */
#ifndef KVI_TRAIN_TABLE_H
#define KVI_TRAIN_TABLE_H

#include "kvarc/tools.h"
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

/* Collects the ids of the fitted tokens of k's stack; ids->id is freed by the caller. Returns OK,
 * MEM, MEMLIMIT. */
kvarc_ret kvi_train_ids_collect(kvarc_trainer *trainer, const struct kvi_train_task *task,
                                struct kvi_train_ids *ids);

/* The row of a token id in the table of a model; -1: it has none. */
int32_t kvi_train_table_row(const struct kvi_model *model, int32_t id);

/*
 * The residual of the token tables of a layer's level 3 models: a copy of the layer with its own
 * z, and weights of its tokens. Freed by kvi_train_residual_free() in every case.
 */
struct kvi_train_residual {
	struct kvi_train_layer layer; /* z is its own, the rest is not */
	struct kvi_train_weights weights;
};
/* Fills the tables and *left. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_train_tables(kvarc_trainer *trainer, struct kvi_train_task *task,
                           struct kvi_train_residual *left);
/* Frees the z and weights of *left. */
void kvi_train_residual_free(kvarc_trainer *trainer, struct kvi_train_residual *left);

#endif
