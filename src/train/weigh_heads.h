/* SPDX-License-Identifier: BSD-3-Clause */
/* weigh_heads.h - finer steps for the heads that a model's answers depend on most */
#ifndef KVI_WEIGH_HEADS_H
#define KVI_WEIGH_HEADS_H

#include "kvarc/tools.h"
#include "trainer.h"

/* How large a change of a head may be, against that of an average one with the same variance, in
 * sixteenths of an octave. */
struct kvi_train_unit {
	uint32_t layer, head;
	uint8_t kind;
	int16_t unit;
};

/* Measures it where the options have a predictor; else, and without token ids, all are alike.
 * Returns OK, and as kvarc_trainer_run. */
kvarc_ret kvi_train_weigh(kvarc_trainer *t);
/* As a factor; 1 where nothing is known. */
double kvi_train_unit_of(const kvarc_trainer *t, const struct kvi_model *m, size_t head);

#endif
