/* SPDX-License-Identifier: BSD-3-Clause */
/* train_fit.h - the coefficients of a layer's models */
#ifndef KVI_TRAIN_FIT_H
#define KVI_TRAIN_FIT_H

#include "kvarc/tools.h"
#include "train_layer.h"

/* Sources that the models of a layer may use, and the cost of coefficients. */
struct kvi_train_plan {
	bool head;               /* all sources by head */
	bool self;               /* earlier slots, and tensors of the layer */
	double ridge_a, ridge_b; /* ridges, in parts of the diagonal */
	double tokens; /* number to be coded: a coefficient must save its cost over these */
};

/* A layer with its models: of levels 2 and 3 [level - 2], NULL: not wanted. */
struct kvi_train_task {
	const struct kvi_train_stack *stack;
	size_t first; /* index of the first of its shapes */
	struct kvi_train_layer *layer;
	const struct kvi_train_layer *below[KVI_TRAIN_BELOW]; /* next lower first */
	size_t n_below;
	const struct kvi_train_weights *weights;
	struct kvi_train_plan plan;
	struct kvi_model *models[2][KVI_TRAIN_TENSORS];
};

/* Level of the profile and of the report: models of levels above 3 are fitted like those of level
 * 2, to the residual of the transformer's predictions. */
unsigned kvi_train_level(const kvarc_trainer *trainer, unsigned level);

struct kvi_train_ids;
/* Adds the layer's models of the levels wanted to the profile: shapes, sources, steps, means;
 * level 3 with a table of these ids, if there are any. */
kvarc_ret kvi_train_add_models(kvarc_trainer *trainer, struct kvi_train_task *task,
                               const struct kvi_train_ids *ids);
/* Fits A and B of levels (bit 2: level 2, bit 3: level 3). */
kvarc_ret kvi_train_fit(kvarc_trainer *trainer, struct kvi_train_task *task, unsigned levels);

/* Index of the first entry of a source in a row of A (lower) or B (same); for the slot's own
 * tensor: n_same. */
size_t kvi_train_entry(const struct kvi_model *model, bool lower, unsigned source);

#endif
