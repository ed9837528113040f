/* SPDX-License-Identifier: BSD-3-Clause */
/* self_test.h - a known answer of the exact arithmetic */
#ifndef KVI_SELF_TEST_H
#define KVI_SELF_TEST_H

#include "exact/elementwise.h"
#include "exact/matmul.h"
#include "util/alloc.h"
#include "util/hash.h"
#include "util/shared.h"

/* Computes the hash of the results of all kernels on fixed inputs. Returns OK, MEM, MEMLIMIT. */
kvarc_ret kvi_exact_answer(const struct kvi_alloc *alloc, const struct kvi_exact_kernels *kernels,
                           const struct kvi_elementwise *elementwise, struct kvi_h128 *answer);
/* Whether these kernels compute what spec/arithmetic.md says; takes a millisecond or two.
 * Returns OK, MEM, MEMLIMIT, PREDICTOR (they do not; error has the text). */
KVI_SHARED kvarc_ret kvi_exact_test(const struct kvi_alloc *alloc,
                                    const struct kvi_exact_kernels *kernels,
                                    const struct kvi_elementwise *elementwise, kvarc_error *error);

#endif
