/* SPDX-License-Identifier: BSD-3-Clause */
/* train_run.h - layer after layer: fit, measure, and the profile in the end */
#ifndef KVI_TRAIN_RUN_H
#define KVI_TRAIN_RUN_H

#include <stddef.h>
#include <string.h>

#include "kvarc/tools.h"
#include "profile/profile_io.h"
#include "train/trainer.h"

#endif
