/* SPDX-License-Identifier: BSD-3-Clause */
/* sensitivity.h - head sensitivity: the KL that a change of one head causes */
#ifndef KVI_SENSITIVITY_H
#define KVI_SENSITIVITY_H

#include "kvarc/tools.h"

/* The geometry of the caches of an evaluation. */
const kvarc_geometry *kvi_sensitivity_geometry(const kvarc_eval *eval);
/* The number of heads of all its tensors. */
size_t kvi_sensitivity_heads(const kvarc_eval *eval);
/* The number of tokens of a sequence: prefix and continuation. */
size_t kvi_sensitivity_tokens(const kvarc_eval *eval);
/*
 * Adds to sensitivity, one number per head in the order of the geometry's tensors: the mean KL of a
 * sequence after a cache in which this head alone was coded with had:3. Each tensor changes by the
 * same part of its variance about its means. ids, return codes: see kvarc_eval_sequence().
 */
kvarc_ret kvi_sensitivity_add(kvarc_eval *eval, const int32_t *ids, double *sensitivity);

#endif
