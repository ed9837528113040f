/* SPDX-License-Identifier: BSD-3-Clause */
/* encode_kernels.cu - the kernels that encode a batch of chunks, in the order of their steps */
#include "model_exact_body.h"

/* As in decode_kernels.cu. */
enum { WARPS = 4, GRID_CHUNKS = 2, CORRECT_WARPS = 8 };

static __device__ __forceinline__ uint32_t warp_of_grid(void)
{
	return blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
}

static __device__ __forceinline__ bool open(const kvi_gpu_encode *e)
{
	return encoding_of(e)->o.status == KVI_GPU_OPEN;
}

/* Calls a step with the size of a chunk's elements. */
#define BY_SIZE(e, call, argument)                      \
	do {                                            \
		switch (element_bytes((e)->job.dtype)) { \
		case 1: call<1>(e, argument); break;    \
		case 2: call<2>(e, argument); break;    \
		default: call<4>(e, argument);          \
		}                                       \
	} while (0)

/* Step 0, blockIdx.y: the chunk; a warp a token. */
extern "C" __global__ void __launch_bounds__(32 * WARPS)
kvi_gpu_collect(const kvi_gpu_encode *chunks)
{
	const kvi_gpu_encode *e = &chunks[blockIdx.y];
	if (warp_of_grid() < e->job.tokens)
		BY_SIZE(e, collect_token, warp_of_grid());
}

/* Step 1, blockIdx.y: the chunk; a warp 32 channels. */
extern "C" __global__ void __launch_bounds__(32 * WARPS)
kvi_gpu_find_channels(const kvi_gpu_encode *chunks)
{
	const kvi_gpu_encode *e = &chunks[blockIdx.y];
	if (warp_of_grid() * 32 < channels_of(e))
		BY_SIZE(e, find_channels, warp_of_grid());
}

/* Step 2, a warp a chunk. */
extern "C" __global__ void __launch_bounds__(32 * WARPS)
kvi_gpu_list_columns(const kvi_gpu_encode *chunks, uint32_t n)
{
	if (warp_of_grid() < n)
		list_columns(&chunks[warp_of_grid()]);
}

/* Step 3, blockIdx.y: the chunk; a warp a token. */
extern "C" __global__ void __launch_bounds__(32 * WARPS)
kvi_gpu_find_rows(const kvi_gpu_encode *chunks)
{
	const kvi_gpu_encode *e = &chunks[blockIdx.y];
	if (warp_of_grid() < e->job.tokens)
		BY_SIZE(e, find_row, warp_of_grid());
}

/* Step 4, a warp a chunk. */
extern "C" __global__ void __launch_bounds__(32 * WARPS)
kvi_gpu_write_section(const kvi_gpu_encode *chunks, uint32_t n)
{
	const kvi_gpu_encode *e = &chunks[warp_of_grid()];
	if (warp_of_grid() >= n)
		return;
	const uint32_t size = element_bytes(e->job.dtype);
	if (size == 1)
		write_section<1>(e);
	else if (size == 2)
		write_section<2>(e);
	else
		write_section<4>(e);
}

/* Step 5, blockIdx.y: the chunk; a warp a token that remains. */
extern "C" __global__ void __launch_bounds__(32 * WARPS)
kvi_gpu_gather(const kvi_gpu_encode *chunks)
{
	const kvi_gpu_encode *e = &chunks[blockIdx.y];
	if (open(e) && warp_of_grid() < encoding_of(e)->o.rows)
		BY_SIZE(e, gather_row, warp_of_grid());
}

/* Step 6, blockIdx.y: the chunk; a warp 32 tokens, and of codec 5 contexts. */
template <int D> static __device__ __forceinline__ void planes_block(const kvi_gpu_encode *chunks)
{
	const kvi_gpu_encode *e = &chunks[blockIdx.y];
	if (open(e) && e->job.dtype == D && warp_of_grid() * 32 < encoding_of(e)->o.rows)
		write_planes<D>(e, warp_of_grid());
}
template <int D>
static __device__ __forceinline__ void encode_contexts(const kvi_gpu_encode *chunks,
                                                       const kvi_gpu_tables *tables)
{
	const kvi_gpu_chunk *c = &chunks[blockIdx.y].job;
	if (runs(c, CODEC_GRID, D))
		run_contexts<D>(c, tables, warp_of_grid());
}

/* E of what the exact engine predicts, and its hashes, before features; numbers for attention and
 * corrections behind them. As in decode_kernels.cu. */
extern "C" __global__ void __launch_bounds__(32 * WARPS)
kvi_gpu_encode_expect(const kvi_gpu_encode *chunks)
{
	expect_token(&chunks[blockIdx.y].job, warp_of_grid());
}
extern "C" __global__ void __launch_bounds__(32 * WARPS)
kvi_gpu_encode_expect_hash(const kvi_gpu_encode *chunks, uint32_t n)
{
	if (warp_of_grid() < n)
		hash_expected(&chunks[warp_of_grid()].job);
}
extern "C" __global__ void __launch_bounds__(32 * WARPS)
kvi_gpu_encode_numbers(const kvi_gpu_encode *chunks)
{
	const kvi_gpu_chunk *c = &chunks[blockIdx.y].job;
	number_elements(c, c->decoded, warp_of_grid());
}
extern "C" __global__ void __launch_bounds__(32 * CORRECT_WARPS)
kvi_gpu_encode_correct(const kvi_gpu_encode *chunks)
{
	const correct_part p = correct_part_of(blockIdx.x, blockIdx.z, threadIdx.x / 32,
	                                       blockDim.x / 32);
	correct_panels(&chunks[blockIdx.y].job, p.step, p.pair);
}

/* Features and contexts of codecs 7 and 8, before step 7; blockIdx.y: the chunk. Stage after
 * stage. */
extern "C" __global__ void __launch_bounds__(32 * WARPS)
kvi_gpu_encode_angles(const kvi_gpu_encode *chunks, const kvi_gpu_tables *t, uint32_t stage)
{
	encode_angles(&chunks[blockIdx.y], t, stage, warp_of_grid());
}
extern "C" __global__ void __launch_bounds__(32 * WARPS)
kvi_gpu_encode_sums(const kvi_gpu_encode *chunks, uint32_t stage)
{
	encode_sums(&chunks[blockIdx.y], stage, blockIdx.z, warp_of_grid());
}

/* Steps 7 and 8, a warp a chunk and a warp a stream: with tables in shared memory. */
template <int D, bool CHOOSE>
static __device__ __forceinline__ void exponent_block(const kvi_gpu_encode *chunks)
{
	extern __shared__ __align__(16) uint32_t shared[];
	constexpr uint32_t entries = KVI_GPU_TABLES * EXP_SYMBOLS;
	const kvi_gpu_encode *e = &chunks[blockIdx.x];
	const encode_shared t = { { shared }, { shared + entries }, { shared + 2 * entries }, {} };
	const uint32_t warp = threadIdx.x / 32, warps = blockDim.x / 32;
	if (!runs(&e->job, CODEC_EXPONENT, D) || params_of(&e->job)->n_tables > KVI_GPU_TABLES)
		return;
	exp_encode_shared<D>(e, &t, warp, warps);
	__syncthreads();
	inverse_tables(&t, params_of(&e->job)->n_tables * EXP_SYMBOLS, warp, warps);
	__syncthreads();
	if (CHOOSE && warp == 0)
		choose_streams<D, CODEC_EXPONENT>(e, &t);
	if (!CHOOSE && warp < encoding_of(e)->o.n_streams)
		encode_stream<D, CODEC_EXPONENT>(e, &t, warp);
}
template <int D, uint32_t CODEC, bool CHOOSE>
static __device__ __forceinline__ void grid_block(const kvi_gpu_encode *chunks, uint32_t n,
                                                  const kvi_gpu_tables *tables)
{
	extern __shared__ __align__(16) uint32_t shared[];
	constexpr uint32_t entries = GRID_TABLES * GRID_SYMBOLS;
	const encode_shared t = { { shared },
		                  { shared + entries },
		                  {},
		                  { { shared }, { shared + 2 * entries }, {} } };
	const uint32_t warp = threadIdx.x / 32, each = CHOOSE ? 1 : KVI_GPU_STREAMS;
	const uint32_t at = blockIdx.x * (blockDim.x / 32 / each) + warp / each;
	grid_codes(&t.grid, tables, warp, blockDim.x / 32);
	__syncthreads();
	inverse_tables(&t, entries, warp, blockDim.x / 32);
	__syncthreads();
	if (at >= n || !runs(&chunks[at].job, CODEC, D))
		return;
	if (CHOOSE)
		choose_streams<D, CODEC>(&chunks[at], &t);
	else if (warp % each < encoding_of(&chunks[at])->o.n_streams)
		encode_stream<D, CODEC>(&chunks[at], &t, warp % each);
}

/* Step 9, a block a chunk, a warp a stream. */
extern "C" __global__ void __launch_bounds__(32 * KVI_GPU_STREAMS)
kvi_gpu_checks(const kvi_gpu_encode *chunks)
{
	const kvi_gpu_encode *e = &chunks[blockIdx.x];
	if (open(e) && threadIdx.x / 32 < encoding_of(e)->o.n_streams)
		check_stream(e, threadIdx.x / 32);
}

/* Step 10, a block a chunk, a warp a stream. */
template <int D> static __device__ __forceinline__ void put_block(const kvi_gpu_encode *chunks)
{
	const kvi_gpu_encode *e = &chunks[blockIdx.x];
	const uint32_t warp = threadIdx.x / 32;
	if (open(e) && e->job.dtype == D && warp < encoding_of(e)->o.n_streams)
		put_stream<D>(e, warp);
}

#define KERNEL(threads, name, ...) \
	extern "C" __global__ void __launch_bounds__(32 * (threads), 2) kvi_gpu_##name(__VA_ARGS__)
/* The kernels of codec CODEC, 5 or 7. */
#define OF_GRID(codec, name, dtype, CODEC)                                                   \
	KERNEL(GRID_CHUNKS *KVI_GPU_STREAMS, choose_##codec##_##name, const kvi_gpu_encode *c, \
	       uint32_t n, const kvi_gpu_tables *t)                                          \
	{                                                                                    \
		grid_block<dtype, CODEC, true>(c, n, t);                                     \
	}                                                                                    \
	KERNEL(GRID_CHUNKS *KVI_GPU_STREAMS, encode_##codec##_##name, const kvi_gpu_encode *c, \
	       uint32_t n, const kvi_gpu_tables *t)                                          \
	{                                                                                    \
		grid_block<dtype, CODEC, false>(c, n, t);                                    \
	}
#define ENCODE(name, dtype)                                                             \
	KERNEL(WARPS, planes_##name, const kvi_gpu_encode *c)                           \
	{                                                                               \
		planes_block<dtype>(c);                                                 \
	}                                                                               \
	KERNEL(WARPS, encode_contexts_##name, const kvi_gpu_encode *c,                  \
	       const kvi_gpu_tables *t)                                                 \
	{                                                                               \
		encode_contexts<dtype>(c, t);                                           \
	}                                                                               \
	KERNEL(KVI_GPU_STREAMS, encode_walk_##name, const kvi_gpu_encode *c,            \
	       const kvi_gpu_tables *t, uint32_t stage)                                 \
	{                                                                               \
		encode_walk<dtype>(&c[blockIdx.x], t, stage, threadIdx.x / 32);         \
	}                                                                               \
	KERNEL(1, choose_exponent_##name, const kvi_gpu_encode *c)                      \
	{                                                                               \
		exponent_block<dtype, true>(c);                                         \
	}                                                                               \
	KERNEL(KVI_GPU_STREAMS, encode_exponent_##name, const kvi_gpu_encode *c)        \
	{                                                                               \
		exponent_block<dtype, false>(c);                                        \
	}                                                                               \
	OF_GRID(grid, name, dtype, CODEC_GRID)                                          \
	OF_GRID(linear, name, dtype, CODEC_LINEAR)                                      \
	KERNEL(KVI_GPU_STREAMS, put_##name, const kvi_gpu_encode *c)                    \
	{                                                                               \
		put_block<dtype>(c);                                                    \
	}
ENCODE(f32, 1)
ENCODE(f16, 2)
ENCODE(bf16, 3)
ENCODE(e4m3, 4)
ENCODE(e5m2, 5)

/* ----- lossy tiers, behind the gathering of others ------------------------------------------- */

/* blockIdx.y: the chunk; a warp a token. */
KERNEL(WARPS, look_at_tokens, const kvi_gpu_encode *chunks)
{
	if (warp_of_grid() < chunks[blockIdx.y].job.tokens)
		look_at_lossy(&chunks[blockIdx.y], warp_of_grid());
}
/* A warp a chunk. */
KERNEL(WARPS, list_exact, const kvi_gpu_encode *chunks, uint32_t n)
{
	if (warp_of_grid() < n)
		list_exact(&chunks[warp_of_grid()]);
}
/* blockIdx.y: the chunk; a warp a pair of a rope. */
KERNEL(WARPS, encode_turns, const kvi_gpu_encode *chunks, const kvi_gpu_tables *tables,
       uint32_t stage)
{
	encode_turns(&chunks[blockIdx.y], stage, tables, warp_of_grid());
}
/* blockIdx.y: the chunk, here and below; blockIdx.z: 32 tokens; a warp a head or a panel. */
KERNEL(WARPS, encode_slots, const kvi_gpu_encode *chunks, uint32_t stage)
{
	encode_slots(&chunks[blockIdx.y], stage, blockIdx.z, warp_of_grid());
}
KERNEL(WARPS, encode_analysis, const kvi_gpu_encode *chunks, uint32_t stage)
{
	encode_analysis(&chunks[blockIdx.y], stage, blockIdx.z, warp_of_grid());
}
KERNEL(WARPS, encode_points, const kvi_gpu_encode *chunks, uint32_t stage)
{
	encode_points(&chunks[blockIdx.y], stage, blockIdx.z, warp_of_grid());
}
KERNEL(WARPS, encode_synthesis, const kvi_gpu_encode *chunks, uint32_t stage)
{
	encode_synthesis(&chunks[blockIdx.y], stage, blockIdx.z, warp_of_grid());
}
/* A warp a chunk, here and below. */
KERNEL(WARPS, choose_points, const kvi_gpu_encode *chunks, uint32_t n, uint32_t stage)
{
	if (warp_of_grid() < n)
		choose_points(&chunks[warp_of_grid()], stage);
}
KERNEL(WARPS, encode_codes, const kvi_gpu_encode *chunks, uint32_t n, const kvi_gpu_tables *tables,
       uint32_t stage)
{
	__shared__ uint32_t enc[CODES_MOST], inverse[CODES_MOST], starts[CODE_STARTS];
	const code_shared codes = { { enc }, { starts }, {} };
	const encode_shared t = { { enc }, { inverse }, {}, {} };
	const uint32_t warp = threadIdx.x / 32, warps = blockDim.x / 32;
	code_entries(&codes, tables, warp, warps);
	__syncthreads();
	inverse_tables(&t, tables->n_codes, warp, warps);
	__syncthreads();
	if (warp_of_grid() < n)
		encode_codes(&chunks[warp_of_grid()], stage, &codes, &t);
}
/* blockIdx.y: the chunk; a warp 32 channels and 32 tokens, or an exact token. */
#define OF_LOSSY(name, dtype)                                                                 \
	KERNEL(WARPS, encode_numbers_##name, const kvi_gpu_encode *chunks, uint32_t stage)     \
	{                                                                                     \
		__shared__ uint32_t tiles[WARPS * TILE_WORDS];                                \
		encode_numbers<dtype>(&chunks[blockIdx.y], stage, warp_of_grid(),              \
		                      { tiles + threadIdx.x / 32 * TILE_WORDS });             \
	}                                                                                     \
	KERNEL(WARPS, encode_elements_##name, const kvi_gpu_encode *chunks, uint32_t stage)    \
	{                                                                                     \
		__shared__ uint32_t tiles[WARPS * TILE_WORDS];                                \
		encode_elements<dtype>(&chunks[blockIdx.y], stage, warp_of_grid(),             \
		                       { tiles + threadIdx.x / 32 * TILE_WORDS });            \
	}
OF_LOSSY(f32, 1)
OF_LOSSY(f16, 2)
OF_LOSSY(bf16, 3)
OF_LOSSY(e4m3, 4)
OF_LOSSY(e5m2, 5)

/* Behind step 11 and the rotation of predicted keys, a warp a chunk. */
KERNEL(WARPS, leave_exact, const kvi_gpu_encode *chunks, uint32_t n, kvi_gpu_encoded *answers)
{
	if (warp_of_grid() < n)
		leave_exact(&chunks[warp_of_grid()], &answers[warp_of_grid()]);
}

/* Step 11, a warp a chunk. */
KERNEL(WARPS, encoded, const kvi_gpu_encode *chunks, uint32_t n, kvi_gpu_encoded *answers)
{
	if (warp_of_grid() < n)
		answer_encoded(&chunks[warp_of_grid()], &answers[warp_of_grid()]);
}
