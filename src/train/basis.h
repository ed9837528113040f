/* SPDX-License-Identifier: BSD-3-Clause */
/* basis.h - bases of lossy profiles, and the weights of heads */
#ifndef KVI_BASIS_H
#define KVI_BASIS_H

#include <stdint.h>
#include <string.h>

#include "kvarc.h"
#include "kvarc/tools.h"
#include "train/trainer.h"

/* ==== Finer steps for the heads that a model's answers depend on most ==== */

/* Allowed size of a change of a head, against that of an average one with the same variance, in
 * sixteenths of an octave. */
struct kvi_train_unit {
	uint32_t layer, head;
	uint8_t kind;
	int16_t unit;
};

/* Measures the units where the options have a predictor; otherwise, and without token ids, all are
 * alike. Returns OK, and as kvarc_trainer_run. */
kvarc_ret kvi_train_weigh(kvarc_trainer *trainer);

/* ==== Transforms of codec klt, tensor after tensor ==== */

/* Adds the models of level 9 of a stack's keys and values to the profile. */
kvarc_ret kvi_train_bases(kvarc_trainer *trainer, const struct kvi_train_stack *stack);

#endif
