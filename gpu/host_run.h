/* SPDX-License-Identifier: BSD-3-Clause */
/* host_run.h - runs the kernels of a batch on the host, for tests */
#ifndef KVI_GPU_HOST_RUN_H
#define KVI_GPU_HOST_RUN_H

#include "encode_job.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Decodes a batch as a GPU does; shared_bytes: of each block. Each access is checked; a
 * wrong one prints a line and aborts. */
void kvi_gpu_host_decode(const struct kvi_gpu_batch *batch, uint32_t blocks, uint32_t shared_bytes);
/* Encodes one, likewise. */
void kvi_gpu_host_encode(const struct kvi_gpu_batch *batch, uint32_t blocks, uint32_t shared_bytes);
/* H64 of n bytes, 1 at least, as kernels make it. */
uint64_t kvi_gpu_host_hash(const void *bytes, uint32_t n);

#ifdef __cplusplus
}
#endif

#endif
