/* SPDX-License-Identifier: BSD-3-Clause */
/* profile_internal.h - what the parts of a profile's code share */
#ifndef KVI_PROFILE_INTERNAL_H
#define KVI_PROFILE_INTERNAL_H

#include "profile_tensors.h"
#include "util/shared.h"

/*
 * Stored coefficients of row c of a matrix, in the order of the file, as runs
 * that lie in one piece in memory (spec profile 3).
 */
typedef void kvi_run(void *ctx, int16_t *p, size_t n);
/* Visits the coefficients of a row of matrix A, B, D or M. */
void kvi_model_row_a(const struct kvi_model *m, size_t c, kvi_run *run, void *ctx);
void kvi_model_row_b(const struct kvi_model *m, size_t c, kvi_run *run, void *ctx);
void kvi_model_row_d(const struct kvi_model *m, size_t i, kvi_run *run, void *ctx);
void kvi_model_row_m(const struct kvi_model *m, size_t c, kvi_run *run, void *ctx);
/* The number of coefficients in all rows of a matrix; sources are resolved. */
uint64_t kvi_model_entries_a(const struct kvi_model *m);
uint64_t kvi_model_entries_b(const struct kvi_model *m);
uint64_t kvi_model_entries_d(const struct kvi_model *m);
uint64_t kvi_model_entries_m(const struct kvi_model *m);
/* Entries a row in memory; sources are resolved. */
size_t kvi_model_stride_a(const struct kvi_model *m);
size_t kvi_model_stride_b(const struct kvi_model *m);
size_t kvi_model_stride_d(const struct kvi_model *m);
size_t kvi_model_stride_m(const struct kvi_model *m);
/* kvi_model_reserve for a model that is resolved. */
kvarc_ret kvi_model_make_arrays(const struct kvi_profile *p, struct kvi_model *m);
/* Frees the arrays of a model; NULL arrays are fine. */
KVI_SHARED void kvi_model_free(const struct kvi_profile *p, struct kvi_model *m);

/* Ascending by (level, layer, kind); for qsort. */
int kvi_model_compare(const void *a, const void *b);
/* Shape, flags and numbers of one model, before its arrays. Sets C, rotary and the models of
 * its sources, which are in p already. Returns OK, DATA, OPTIONS. */
kvarc_ret kvi_model_resolve(const struct kvi_profile *p, struct kvi_model *m);
/* Arrays of a resolved model: false when spec profile 3 is not kept. */
bool kvi_model_values_good(const struct kvi_model *m);

#endif
