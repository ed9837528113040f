/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz_model.h - reads a model that was loaded from memory to its end */
#ifndef FUZZ_MODEL_H
#define FUZZ_MODEL_H

#include "fuzz_common.h"
#include "weights/model_internal.h"

/* An empty model in *m for a loader, or NULL where its allocation failed. */
void fuzz_model_begin(struct kvi_model_file **m, struct kvi_alloc *alloc, struct fuzz_env *env);
/* Checks the result of the loader; every row of what was loaded can be read, and lies in
 * the n bytes at p. Closes it. */
void fuzz_model_end(struct kvi_model_file **m, kvarc_ret ret, const uint8_t *p, size_t n,
                    struct fuzz_env *env);

#endif
