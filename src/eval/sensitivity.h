/* SPDX-License-Identifier: BSD-3-Clause */
/* sensitivity.h - what a model's answers lose where one head of its cache is changed */
#ifndef KVI_SENSITIVITY_H
#define KVI_SENSITIVITY_H

#include "kvarc.h"

/* Of the caches of an evaluation: tensors, and heads of all of them. */
const kvarc_geometry *kvi_sensitivity_geometry(const kvarc_eval *e);
/* Number of KV heads of all layers, keys and values counted apart. */
size_t kvi_sensitivity_heads(const kvarc_eval *e);
/* A sequence, prefix and continuation. */
size_t kvi_sensitivity_tokens(const kvarc_eval *e);
/*
 * Adds to harm, one number a head, tensor after tensor of the geometry: the mean KL of a sequence
 * after a cache of which this head alone is as had:3 gives it back. Each tensor is changed
 * by the same part of its variance about its means. ids: as kvarc_eval_sequence, which it returns
 * as.
 */
kvarc_ret kvi_sensitivity_add(kvarc_eval *e, const int32_t *ids, double *sensitivity);

#endif
