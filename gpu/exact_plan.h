/* SPDX-License-Identifier: BSD-3-Clause */
/* exact_plan.h - the host's part: operands of the exact engine as its kernels read them */
#ifndef KVI_GPU_EXACT_PLAN_H
#define KVI_GPU_EXACT_PLAN_H

#include <stdbool.h>
#include <stddef.h>

#include "exact/engine.h"
#include "exact_job.h"

/* Whether kernels compute what an arithmetic says of products and of attention: those of levels 4
 * to 8 and W8A8 throughout; nothing of E4M3. */
bool kvi_gpu_exact_takes(const struct kvi_arithmetic *a);

/* Bytes of a row of integers, for rows of columns in groups (exact_job.h). */
uint32_t kvi_gpu_operand_stride(size_t columns, unsigned group);

/* A weight operand in device memory. */
struct kvi_gpu_weights {
	uint64_t w[2], scale, minimum; /* as in kvi_gpu_product */
	uint32_t outputs, group, groups, stride;
};
/* Bytes of memory for an operand, which is not E4M3. */
size_t kvi_gpu_weights_bytes(const struct kvi_operand *w);
/* Fills *out and `memory` (kvi_gpu_weights_bytes, aligned to 16), which kernels find at
 * `address`. */
void kvi_gpu_weights_fill(struct kvi_gpu_weights *out, const struct kvi_operand *w, uint8_t *memory,
                          uint64_t address);

#endif
