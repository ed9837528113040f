/* SPDX-License-Identifier: BSD-3-Clause */
/* decode_kernels.cu - the kernels that decode a batch of chunks (batch_run_body.h) */
#include "batch_run_body.h"

/* Warps of a block of the steps that take a warp a chunk or a token; chunks of a block of codec 5,
 * whose tables take 80 KB of shared memory; warps of a block of corrections, at most. */
enum { WARPS = 4, GRID_CHUNKS = 2, LOSSY_CHUNKS = 2, CORRECT_WARPS = 8 };

static __device__ __forceinline__ uint32_t warp_of_grid(void)
{
	return blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
}

extern "C" __global__ void __launch_bounds__(32 * WARPS)
kvi_gpu_open(const kvi_gpu_chunk *chunks, uint32_t n)
{
	const uint32_t i = warp_of_grid();
	if (i < n)
		run_open(&chunks[i]);
}

/* A block a chunk, a warp a stream. Shared memory: the tables of `tables` tables, then the ring. */
template <int D>
static __device__ __forceinline__ void exponent_block(const kvi_gpu_chunk *chunks, uint32_t tables)
{
	extern __shared__ __align__(16) uint32_t shared[];
	const kvi_gpu_chunk *c = &chunks[blockIdx.x];
	if (!runs(c, CODEC_EXPONENT, D) || params_of(c)->n_tables > tables)
		return;
	span<uint32_t> lut = { shared }, ring = { shared + tables * SLOTS };
	run_exponent_tables<D>(c, lut, ring, threadIdx.x / 32, blockDim.x / 32);
	__syncthreads();
	run_exponent<D>(c, span<const uint32_t>{ lut.p }, span<const uint32_t>{ ring.p },
	                threadIdx.x / 32);
}

#define EXPONENT(name, dtype)                                             \
	extern "C" __global__ void                                        \
	__launch_bounds__(32 * KVI_GPU_STREAMS, 4)                        \
	name(const kvi_gpu_chunk *chunks, uint32_t tables)                \
	{                                                                 \
		exponent_block<dtype>(chunks, tables);                    \
	}
EXPONENT(kvi_gpu_exponent_f32, 1)
EXPONENT(kvi_gpu_exponent_f16, 2)
EXPONENT(kvi_gpu_exponent_bf16, 3)
EXPONENT(kvi_gpu_exponent_e4m3, 4)
EXPONENT(kvi_gpu_exponent_e5m2, 5)

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
GRID(f32, 1)
GRID(f16, 2)
GRID(bf16, 3)
GRID(e4m3, 4)
GRID(e5m2, 5)

/* blockIdx.y: the chunk, here and in the next one, whose blockIdx.z are 32 tokens. */
extern "C" __global__ void __launch_bounds__(32 * WARPS)
kvi_gpu_angles(const kvi_gpu_chunk *chunks, const kvi_gpu_tables *t, uint32_t stage)
{
	run_angles(&chunks[blockIdx.y], t, stage, warp_of_grid());
}

extern "C" __global__ void __launch_bounds__(32 * WARPS)
kvi_gpu_sums(const kvi_gpu_chunk *chunks, uint32_t stage)
{
	run_sums(&chunks[blockIdx.y], stage, blockIdx.z, warp_of_grid());
}

/* A block a chunk, a warp a stream. Shared memory as of codec 5. */
template <int D>
static __device__ __forceinline__ void linear_block(const kvi_gpu_chunk *chunks,
                                                    const kvi_gpu_tables *tables, uint32_t stage)
{
	extern __shared__ __align__(16) uint32_t shared[];
	const kvi_gpu_chunk *c = &chunks[blockIdx.x];
	if (!decodes_linear(c, D, stage))
		return;
	const grid_shared t = SHARED_CODES(shared);
	grid_tables(&t, tables, threadIdx.x / 32, blockDim.x / 32);
	__syncthreads();
	run_linear<D>(c, tables, &t, threadIdx.x / 32);
}

#define LINEAR(name, dtype)                                                             \
	extern "C" __global__ void __launch_bounds__(32 * KVI_GPU_STREAMS, 2)           \
	kvi_gpu_linear_##name(const kvi_gpu_chunk *chunks, const kvi_gpu_tables *t,     \
	                      uint32_t stage)                                           \
	{                                                                               \
		linear_block<dtype>(chunks, t, stage);                                  \
	}                                                                               \
	extern "C" __global__ void __launch_bounds__(32 * KVI_GPU_STREAMS)              \
	kvi_gpu_features_##name(const kvi_gpu_chunk *chunks, const kvi_gpu_tables *t,   \
	                        uint32_t stage)                                         \
	{                                                                               \
		run_features<dtype>(&chunks[blockIdx.x], t, stage, threadIdx.x / 32);   \
	}
LINEAR(f32, 1)
LINEAR(f16, 2)
LINEAR(bf16, 3)
LINEAR(e4m3, 4)
LINEAR(e5m2, 5)

/* blockIdx.y: the chunk. */
extern "C" __global__ void __launch_bounds__(32 * WARPS)
kvi_gpu_lossy_turns(const kvi_gpu_chunk *chunks, const kvi_gpu_tables *t, uint32_t stage)
{
	run_lossy_turns(&chunks[blockIdx.y], t, stage, warp_of_grid());
}

/* A block LOSSY_CHUNKS chunks, a warp a body. */
extern "C" __global__ void __launch_bounds__(32 * LOSSY_CHUNKS * KVI_GPU_BODIES, 4)
kvi_gpu_codes(const kvi_gpu_chunk *chunks, uint32_t n, const kvi_gpu_tables *tables,
              uint32_t stage)
{
	__shared__ uint32_t enc[CODES_MOST], starts[CODE_STARTS];
	__shared__ uint8_t first[KVI_GPU_CLASSES * CODE_FIRSTS];
	const code_shared t = { { enc }, { starts }, { first } };
	const uint32_t warp = threadIdx.x / 32;
	const uint32_t at = blockIdx.x * LOSSY_CHUNKS + warp / KVI_GPU_BODIES;
	code_tables(&t, tables, warp, blockDim.x / 32);
	__syncthreads();
	if (at < n)
		run_codes(&chunks[at], &t, stage, warp % KVI_GPU_BODIES);
}

/* blockIdx.y: the chunk, here and in the next ones; blockIdx.z: 32 tokens. */
extern "C" __global__ void __launch_bounds__(32 * WARPS)
kvi_gpu_transform(const kvi_gpu_chunk *chunks, uint32_t stage)
{
	run_transform(&chunks[blockIdx.y], stage, blockIdx.z, warp_of_grid());
}

#define ELEMENTS(name, dtype)                                                           \
	extern "C" __global__ void __launch_bounds__(32 * WARPS)                        \
	kvi_gpu_elements_##name(const kvi_gpu_chunk *chunks, uint32_t stage)            \
	{                                                                               \
		__shared__ uint32_t tiles[WARPS * TILE_WORDS];                          \
		run_elements<dtype>(&chunks[blockIdx.y], stage, warp_of_grid(),         \
		                    { tiles + threadIdx.x / 32 * TILE_WORDS });         \
	}
ELEMENTS(f32, 1)
ELEMENTS(f16, 2)
ELEMENTS(bf16, 3)
ELEMENTS(e4m3, 4)
ELEMENTS(e5m2, 5)

/* A block a chunk, a warp a stream. */
extern "C" __global__ void __launch_bounds__(32 * KVI_GPU_STREAMS)
kvi_gpu_finish(const kvi_gpu_chunk *chunks, uint32_t stage)
{
	run_finish(&chunks[blockIdx.x], stage, threadIdx.x / 32);
}

extern "C" __global__ void __launch_bounds__(32 * WARPS)
kvi_gpu_answer(const kvi_gpu_chunk *chunks, uint32_t n, uint32_t *status, uint32_t stage)
{
	const uint32_t i = warp_of_grid();
	if (i < n)
		run_answer(&chunks[i], stage, span<uint32_t>{ status }, i);
}

/* E, hashes and checks of what the exact engine predicts. blockIdx.y: the chunk; a warp a token. */
extern "C" __global__ void __launch_bounds__(32 * WARPS)
kvi_gpu_expect(const kvi_gpu_chunk *chunks)
{
	expect_token(&chunks[blockIdx.y], warp_of_grid());
}

/* A warp a chunk, here and in the next one. */
extern "C" __global__ void __launch_bounds__(32 * WARPS)
kvi_gpu_expect_hash(const kvi_gpu_chunk *chunks, uint32_t n)
{
	if (warp_of_grid() < n)
		hash_expected(&chunks[warp_of_grid()]);
}

extern "C" __global__ void __launch_bounds__(32 * WARPS)
kvi_gpu_expect_check(const kvi_gpu_chunk *chunks, uint32_t n)
{
	if (warp_of_grid() < n)
		run_expect_check(&chunks[warp_of_grid()]);
}

/* What attention looks at. blockIdx.y: the chunk; a warp a token. */
extern "C" __global__ void __launch_bounds__(32 * WARPS)
kvi_gpu_numbers(const kvi_gpu_chunk *chunks)
{
	run_numbers(&chunks[blockIdx.y], warp_of_grid());
}

/* blockIdx.y: the chunk; blockIdx.x and z: parts of correct_part_of. */
extern "C" __global__ void __launch_bounds__(32 * CORRECT_WARPS)
kvi_gpu_correct(const kvi_gpu_chunk *chunks)
{
	const correct_part p = correct_part_of(blockIdx.x, blockIdx.z, threadIdx.x / 32,
	                                       blockDim.x / 32);
	run_correct(&chunks[blockIdx.y], p.step, p.pair);
}

/* A warp a chunk. */
extern "C" __global__ void __launch_bounds__(32 * WARPS)
kvi_gpu_lose(const kvi_gpu_chunk *chunks, uint32_t n)
{
	if (warp_of_grid() < n)
		run_lose(&chunks[warp_of_grid()]);
}

/* One thread. */
extern "C" __global__ void kvi_gpu_lose_nothing(uint32_t *lost)
{
	*lost = ~0u;
}

/* blockIdx.y: the chunk. */
extern "C" __global__ void __launch_bounds__(32 * WARPS)
kvi_gpu_scatter(const kvi_gpu_chunk *chunks)
{
	run_scatter(&chunks[blockIdx.y], warp_of_grid());
}
