/* SPDX-License-Identifier: BSD-3-Clause */
/* predictor_handle.h - the public handle of a predictor: a model and the engines made of it */
#ifndef KVI_PREDICTOR_HANDLE_H
#define KVI_PREDICTOR_HANDLE_H

#include "exact/engine.h"
#include "util/shared.h"

/* Gets an engine with this arithmetic, with a head if the predictor needs one (token_blind.h), made
 * at the first call and cached in the handle, after a test of the kernels that are to run it. Safe
 * in threads. Returns as kvi_engine_open, kvi_exact_test and kvi_engine_add_head. */
KVI_SHARED kvarc_ret kvi_predictor_engine(const kvarc_predictor *predictor,
                                          const struct kvi_arithmetic *arithmetic,
                                          uint32_t isa_mask, const struct kvi_engine **engine,
                                          kvarc_error *error);
/* Gets kvi_predictor_engine's engine with a head (head.h), which is made at the first such call and
 * cached; concurrent users of the engine are not disturbed. Returns as kvi_predictor_engine, and as
 * kvi_engine_add_head. */
KVI_SHARED kvarc_ret kvi_predictor_head(const kvarc_predictor *predictor,
                                        const struct kvi_arithmetic *arithmetic, uint32_t isa_mask,
                                        const struct kvi_engine **engine, kvarc_error *error);
/* Sets the kernels for all users, in place of those of their instruction sets; before the first
 * use. */
void kvi_predictor_use_kernels(kvarc_predictor *predictor, const struct kvi_exact_kernels *kernels);
/* The kernels of runs for a mask. */
KVI_SHARED const struct kvi_exact_kernels *kvi_predictor_kernels(const kvarc_predictor *predictor,
                                                                 uint32_t isa_mask);
/* The allocator for the memory of runs. */
const struct kvi_alloc *kvi_predictor_alloc(const kvarc_predictor *predictor);
/* The model file; NULL: the predictor is external. */
KVI_SHARED const struct kvi_model_file *kvi_predictor_file(const kvarc_predictor *predictor);
/* The external predictor; NULL: the predictor is a model. */
const kvarc_external *kvi_predictor_external(const kvarc_predictor *predictor);
/* Layers, heads and channels that the predictor predicts; owned by the handle. */
const kvarc_predictor_model *kvi_predictor_shape(const kvarc_predictor *predictor);
/* The digest of the weights, for which the engine is made, or the identity of an external one.
 * Returns as kvi_predictor_engine. */
kvarc_ret kvi_predictor_identify(const kvarc_predictor *predictor,
                                 const struct kvi_arithmetic *arithmetic, uint32_t isa_mask,
                                 struct kvi_h128 *digest, kvarc_error *error);
/* The kind of a predictor that does not see the current token (token_blind.h); 0: it sees the
 * token. */
KVI_SHARED unsigned kvi_predictor_token_blind(const kvarc_predictor *predictor);
/* The options that the caller of open gave. */
const kvarc_common *kvi_predictor_common(const kvarc_predictor *predictor);

#endif
