/* SPDX-License-Identifier: BSD-3-Clause */
/* encode_kernels.cu - the kernel that encodes a batch of chunks (output_run_body.h), and one that
 * collects the elements of a chunk for the host */
#include "output_run_body.h"

/* Blocks take chunks in turn; kvi_gpu_encode_shared says what they share. */
extern "C" __global__ void __launch_bounds__(32 * BLOCK_WARPS, 2)
	kvi_gpu_encode_chunks(const __grid_constant__ kvi_gpu_batch batch)
{
	encode_block(&batch, blockIdx.x, gridDim.x);
}

/* A warp a token. The chunk's `decoded` is an address. */
extern "C" __global__ void __launch_bounds__(128)
	kvi_gpu_collect(const __grid_constant__ kvi_gpu_chunk chunk)
{
	const uint32_t token = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
	const uint32_t size = element_bytes(chunk.dtype);
	if (token >= chunk.tokens)
		return;
	if (size == 4)
		collect_token<4>(&chunk, token);
	else if (size == 2)
		collect_token<2>(&chunk, token);
	else
		collect_token<1>(&chunk, token);
}
