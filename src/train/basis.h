/* SPDX-License-Identifier: BSD-3-Clause */
/* basis.h - transforms of codec klt, tensor after tensor */
#ifndef KVI_TRAIN_BASIS_H
#define KVI_TRAIN_BASIS_H

#include "kvarc/tools.h"
#include "trainer.h"

/* Adds the models of level 9 of a stack's keys and values to the profile. */
kvarc_ret kvi_train_bases(kvarc_trainer *t, const struct kvi_train_stack *s);

#endif
