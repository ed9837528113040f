/* SPDX-License-Identifier: BSD-3-Clause */
/* decode_kernels.cu - the kernels that decode a batch of chunks (batch_run_body.h) */
#include "batch_run_body.h"

/* Warps of a block of the steps that take a warp a chunk or a token; chunks of a block of codec 5,
 * whose tables take 80 KB of shared memory. */
enum { WARPS = 4, GRID_CHUNKS = 2 };

static __device__ __forceinline__ uint32_t warp_of_grid(void)
{
	return blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
}

/* Eight blocks at once leave 64 registers, without which sm_86 spills. */
extern "C" __global__ void __launch_bounds__(32 * WARPS, 8)
kvi_gpu_open(const kvi_gpu_chunk *chunks, uint32_t n)
{
	const uint32_t i = warp_of_grid();
	if (i < n)
		run_open(&chunks[i]);
}

/* A block a chunk, a warp a stream. */
#define LAYERS_OF(name, dtype)                                              \
	extern "C" __global__ void __launch_bounds__(32 * KVI_GPU_STREAMS)  \
	kvi_gpu_layers_##name(const kvi_gpu_chunk *chunks)                  \
	{                                                                   \
		const kvi_gpu_chunk *c = &chunks[blockIdx.x];               \
		if (runs(c, CODEC_LAYERS, dtype))                           \
			run_layers<dtype>(c, threadIdx.x / 32);             \
	}
LAYERS_OF(f16, 2)
LAYERS_OF(bf16, 3)
LAYERS_OF(e4m3, 4)

/* blockIdx.y: the chunk. */
template <int D>
static __device__ __forceinline__ void contexts_block(const kvi_gpu_chunk *chunks,
                                                      const kvi_gpu_tables *tables)
{
	const kvi_gpu_chunk *c = &chunks[blockIdx.y];
	if (runs(c, CODEC_GRID, D))
		run_contexts<D>(c, tables, warp_of_grid());
}

/* enc, token and first in shared memory. Not a function: on sm_80 to 89 a step of codec 5 would
 * have 4 instructions more. */
#define SHARED_CODES(shared)                                                 \
	{                                                                    \
		{ shared }, { shared + GRID_TABLES * GRID_SYMBOLS },         \
		{                                                            \
			(uint8_t *)(shared + GRID_TABLES * GRID_SYMBOLS + 64) \
		}                                                            \
	}

/* A block GRID_CHUNKS chunks, a warp a stream. Shared memory: enc, token, first. */
template <int D>
static __device__ __forceinline__ void grid_block(const kvi_gpu_chunk *chunks, uint32_t n,
                                                  const kvi_gpu_tables *tables)
{
	extern __shared__ __align__(16) uint32_t shared[];
	const grid_shared t = SHARED_CODES(shared);
	const uint32_t warp = threadIdx.x / 32;
	const uint32_t at = blockIdx.x * GRID_CHUNKS + warp / KVI_GPU_STREAMS;
	grid_tables(&t, tables, warp, blockDim.x / 32);
	__syncthreads();
	if (at < n && runs(&chunks[at], CODEC_GRID, D))
		run_grid<D>(&chunks[at], &t, warp % KVI_GPU_STREAMS);
}

#define GRID(name, dtype)                                                             \
	extern "C" __global__ void __launch_bounds__(32 * WARPS)                      \
	kvi_gpu_contexts_##name(const kvi_gpu_chunk *chunks, const kvi_gpu_tables *t) \
	{                                                                             \
		contexts_block<dtype>(chunks, t);                                     \
	}                                                                             \
	extern "C" __global__ void                                                    \
	__launch_bounds__(32 * GRID_CHUNKS * KVI_GPU_STREAMS, 2)                      \
	kvi_gpu_grid_##name(const kvi_gpu_chunk *chunks, uint32_t n,                  \
	                    const kvi_gpu_tables *t)                                  \
	{                                                                             \
		grid_block<dtype>(chunks, n, t);                                      \
	}
GRID(f16, 2)
GRID(bf16, 3)
GRID(e4m3, 4)

/* A block a chunk, a warp a stream. */
template <int D>
static __device__ __forceinline__ void cells_block(const kvi_gpu_chunk *c,
                                                   const kvi_gpu_tables *tables)
{
	__shared__ uint32_t shared[CELL_SHARED];
	const cells_shared t = cells_shared_of(span<uint32_t>{ shared });
	if (!runs(c, CODEC_CELLS, D))
		return;
	run_cells_begin<D>(c, &t, tables, threadIdx.x / 32, KVI_GPU_STREAMS);
	__syncthreads();
	run_cells<D>(c, &t, threadIdx.x / 32);
}
#define CELLS(name, dtype)                                                         \
	extern "C" __global__ void __launch_bounds__(32 * KVI_GPU_STREAMS)         \
	kvi_gpu_cells_##name(const kvi_gpu_chunk *chunks, const kvi_gpu_tables *t) \
	{                                                                          \
		cells_block<dtype>(&chunks[blockIdx.x], t);                        \
	}
CELLS(f16, 2)
CELLS(bf16, 3)

/* A block a chunk, a warp a stream. */
extern "C" __global__ void __launch_bounds__(32 * KVI_GPU_STREAMS)
kvi_gpu_finish(const kvi_gpu_chunk *chunks)
{
	run_finish(&chunks[blockIdx.x], threadIdx.x / 32);
}

extern "C" __global__ void __launch_bounds__(32 * WARPS)
kvi_gpu_answer(const kvi_gpu_chunk *chunks, uint32_t n, uint32_t *status)
{
	const uint32_t i = warp_of_grid();
	if (i < n)
		run_answer(&chunks[i], span<uint32_t>{ status }, i);
}

/* blockIdx.y: the chunk. */
extern "C" __global__ void __launch_bounds__(32 * WARPS)
kvi_gpu_scatter(const kvi_gpu_chunk *chunks)
{
	run_scatter(&chunks[blockIdx.y], warp_of_grid());
}
