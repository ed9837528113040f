/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * engine_trial.h - a sequence through an engine by the kernels of gpu/ on the host, all tokens of
 * a layer at once
 *
 * As struct kvi_run of exact/engine.h, but that a segment is the whole sequence.
 */
#ifndef KVI_TEST_ENGINE_TRIAL_H
#define KVI_TEST_ENGINE_TRIAL_H

#include "exact/engine.h"

struct engine_trial;

/* Puts n tokens at the first layer. The engine's arithmetic is one that kvi_gpu_exact_takes; ids
 * and positions are those of the model. Ends the program where memory is short. */
struct engine_trial *engine_trial_open(const struct kvi_engine *e, const int32_t *ids,
                                       const int32_t *positions, size_t n);
void engine_trial_close(struct engine_trial *t);
/* As kvi_run_predict. */
struct kvi_predicted engine_trial_predict(struct engine_trial *t);
/* As kvi_run_rotate: keys of all tokens. */
void engine_trial_rotate(struct engine_trial *t, float *k, size_t stride);
/* As kvi_run_hidden. */
struct kvi_hidden engine_trial_hidden(struct engine_trial *t);
/* As kvi_run_advance; the last layer is gone through, too. */
void engine_trial_advance(struct engine_trial *t, const float *k, const float *v, size_t stride,
                          bool corrected);

#endif
