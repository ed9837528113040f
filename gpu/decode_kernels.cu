/* SPDX-License-Identifier: BSD-3-Clause */
/* decode_kernels.cu - the kernel that decodes a batch of chunks (batch_run_body.h) */
#include "batch_run_body.h"

/* Blocks take chunks in turn; kvi_gpu_shared_bytes says what they share. */
extern "C" __global__ void __launch_bounds__(32 * BLOCK_WARPS, 3)
kvi_gpu_decode(const __grid_constant__ kvi_gpu_batch batch)
{
	decode_block(&batch, blockIdx.x, gridDim.x);
}
