/* SPDX-License-Identifier: BSD-3-Clause */
/* exact_kernels.cu - kernels of the exact engine, for all tokens of a layer (exact_job.h) */
#include "exact_attention_body.h"

/* Warps of a block that share nothing; tiles of rows and of outputs of a block of products, whose
 * warps find what another one has loaded in the first cache; warps of a block of attention. */
enum { WARPS = 4, PRODUCT_ROWS = 4, PRODUCT_OUTPUTS = 2, ATTENTION_WARPS = 4 };

static __device__ __forceinline__ uint32_t warp_of_grid(void)
{
	return blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
}

/* A warp a row. */
extern "C" __global__ void __launch_bounds__(32 * WARPS) kvi_gpu_quantise(kvi_gpu_quantise q)
{
	run_quantise(&q, warp_of_grid());
}

/* blockIdx.y: the head of keys; a warp 32 tokens. */
extern "C" __global__ void __launch_bounds__(32 * WARPS) kvi_gpu_values(kvi_gpu_values v)
{
	run_values(&v, blockIdx.y, warp_of_grid());
}

/* blockIdx.x: PRODUCT_ROWS tiles of rows; blockIdx.y: PRODUCT_OUTPUTS times NS parts of 8 outputs:
 * registers hold no more of W15. */
template <int LIMBS, int PLANES, int STEPS, bool MINIMA, int NS>
static __device__ __forceinline__ void product_block(const kvi_gpu_product *p)
{
	const uint32_t warp = threadIdx.x / 32;
	run_product<LIMBS, PLANES, STEPS, MINIMA, NS>(
		p, blockIdx.x * PRODUCT_ROWS + warp % PRODUCT_ROWS,
		blockIdx.y * PRODUCT_OUTPUTS + warp / PRODUCT_ROWS);
}

/* A block has all registers of a multiprocessor. */
#define PRODUCT(name, limbs, planes, steps, minima, ns)                                      \
	extern "C" __global__ void __launch_bounds__(32 * PRODUCT_ROWS * PRODUCT_OUTPUTS, 1) \
		kvi_gpu_product_##name(kvi_gpu_product p)                                    \
	{                                                                                    \
		product_block<limbs, planes, steps, minima, ns>(&p);                         \
	}
PRODUCT(w8a8, 1, 1, 2, false, 8)
PRODUCT(w8a15, 2, 1, 2, false, 8)
PRODUCT(w15a15, 2, 2, 4, false, 4)
PRODUCT(groups_a8, 1, 1, 1, false, 8)
PRODUCT(groups_a15, 2, 1, 1, false, 8)
PRODUCT(minima_a8, 1, 1, 1, true, 8)
PRODUCT(minima_a15, 2, 1, 1, true, 8)

/* A warp a token. */
extern "C" __global__ void __launch_bounds__(32 * WARPS) kvi_gpu_embed(kvi_gpu_embed e)
{
	run_embed(&e, warp_of_grid());
}

/* A warp two rows. */
extern "C" __global__ void __launch_bounds__(32 * WARPS) kvi_gpu_norm(kvi_gpu_norm n)
{
	run_norm(&n, warp_of_grid());
}

/* A warp a token, here and in the next ones. */
extern "C" __global__ void __launch_bounds__(32 * WARPS) kvi_gpu_rotate(kvi_gpu_rotate r)
{
	run_rotate(&r, warp_of_grid());
}

#define ROWS(name, operation)                                                                   \
	extern "C" __global__ void __launch_bounds__(32 * WARPS) kvi_gpu_##name(kvi_gpu_rows r) \
	{                                                                                       \
		run_rows<operation>(&r, warp_of_grid());                                        \
	}
ROWS(silu, KVI_GPU_SILU)
ROWS(gelu, KVI_GPU_GELU)
ROWS(add, KVI_GPU_ADD)

/* blockIdx.y: the head of queries; a warp 16 tokens. Shared memory: attention_numbers for each
 * thread. The last tiles, which see most tokens, come first. */
template <int KEYS, int VALUES>
static __device__ __forceinline__ void attention_block(const kvi_gpu_attention *a)
{
	extern __shared__ __align__(16) uint32_t shared[];
	const uint32_t tiles = (a->tokens + KVI_GPU_QUERY_ROWS - 1) / KVI_GPU_QUERY_ROWS;
	const uint32_t numbers = kvi_gpu_attention_numbers(a->v_rows) * 32, warp = warp_of_grid();
	if (warp < tiles)
		run_attention<KEYS, VALUES>(a, blockIdx.y, tiles - 1 - warp,
		                            span<uint32_t>{ shared + threadIdx.x / 32 * numbers });
}

#define ATTENTION(name, keys, values)                                         \
	extern "C" __global__ void __launch_bounds__(32 * ATTENTION_WARPS, 1) \
		kvi_gpu_attention_##name(kvi_gpu_attention a)                 \
	{                                                                     \
		attention_block<keys, values>(&a);                            \
	}
ATTENTION(8, KEYS_8, VALUES_8)
ATTENTION(12, KEYS_12, VALUES_WIDE)
ATTENTION(12_15, KEYS_12, VALUES_15)
ATTENTION(15, KEYS_15, VALUES_15)
