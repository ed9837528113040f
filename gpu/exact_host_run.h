/* SPDX-License-Identifier: BSD-3-Clause */
/* exact_host_run.h - runs the kernels of the exact engine on the host, for tests */
#ifndef KVI_GPU_EXACT_HOST_RUN_H
#define KVI_GPU_EXACT_HOST_RUN_H

#include "exact_job.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Each call runs all warps of a job, one after the other, with rounding as it is set
 * (util/fpmode.h). Accesses are checked; a wrong one prints a line and aborts, and so does a form
 * that no kernel has (exact_plan.h).
 */

/* Integers of rows. */
void kvi_gpu_host_quantise(const struct kvi_gpu_quantise *q);
/* Integers of values. */
void kvi_gpu_host_values(const struct kvi_gpu_values *v);
/* A product. */
void kvi_gpu_host_product(const struct kvi_gpu_product *p);
/* Rows of tables. */
void kvi_gpu_host_embed(const struct kvi_gpu_embed *e);
/* Norms. */
void kvi_gpu_host_norm(const struct kvi_gpu_norm *n);
/* RoPE. */
void kvi_gpu_host_rotate(const struct kvi_gpu_rotate *r);
/* Operations on rows. */
void kvi_gpu_host_rows(const struct kvi_gpu_rows *r);
/* Attention. */
void kvi_gpu_host_attention(const struct kvi_gpu_attention *a);

#ifdef __cplusplus
}
#endif

#endif
