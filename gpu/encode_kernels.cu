/* SPDX-License-Identifier: BSD-3-Clause */
/* encode_kernels.cu - the kernels that encode a batch of chunks, in the order of their steps */
#include "payload_encode_body.h"

/* As in decode_kernels.cu. */
enum { WARPS = 4, GRID_CHUNKS = 2 };

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
		if (element_bytes((e)->job.dtype) == 1) \
			call<1>(e, argument);           \
		else                                    \
			call<2>(e, argument);           \
	} while (0)

/* Step 0, blockIdx.y: the chunk; a warp a token. */
extern "C" __global__ void __launch_bounds__(32 * WARPS)
kvi_gpu_collect(const kvi_gpu_encode *chunks)
{
	const kvi_gpu_encode *e = &chunks[blockIdx.y];
	if (warp_of_grid() >= e->job.tokens)
		return;
	/* the host takes elements of all sizes this way */
	if (element_bytes(e->job.dtype) == 4)
		collect_token<4>(e, warp_of_grid());
	else
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
	if (element_bytes(e->job.dtype) == 1)
		write_section<1>(e);
	else
		write_section<2>(e);
}

/* Step 5, blockIdx.y: the chunk; a warp a token that remains. */
extern "C" __global__ void __launch_bounds__(32 * WARPS)
kvi_gpu_gather(const kvi_gpu_encode *chunks)
{
	const kvi_gpu_encode *e = &chunks[blockIdx.y];
	if (open(e) && warp_of_grid() < encoding_of(e)->o.rows)
		BY_SIZE(e, gather_row, warp_of_grid());
}

/* Step 6, blockIdx.y: the chunk; contexts. */
template <int D>
static __device__ __forceinline__ void encode_contexts(const kvi_gpu_encode *chunks,
                                                       const kvi_gpu_tables *tables)
{
	const kvi_gpu_chunk *c = &chunks[blockIdx.y].job;
	if (runs(c, CODEC_GRID, D))
		run_contexts<D>(c, tables, warp_of_grid());
}

/* Steps 7 and 8, a warp a chunk and a warp a stream: with tables in shared memory. */
template <int D, bool CHOOSE>
static __device__ __forceinline__ void grid_block(const kvi_gpu_encode *chunks, uint32_t n,
                                                  const kvi_gpu_tables *tables)
{
	extern __shared__ __align__(16) uint32_t shared[];
	constexpr uint32_t entries = GRID_TABLES * GRID_SYMBOLS;
	const encode_shared t = { { shared },
		                  { shared + entries },
		                  { { shared }, { shared + 2 * entries }, {} } };
	const uint32_t warp = threadIdx.x / 32, each = CHOOSE ? 1 : KVI_GPU_STREAMS;
	const uint32_t at = blockIdx.x * (blockDim.x / 32 / each) + warp / each;
	grid_codes(&t.grid, tables, warp, blockDim.x / 32);
	__syncthreads();
	inverse_tables(&t, entries, warp, blockDim.x / 32);
	__syncthreads();
	if (at >= n || !runs(&chunks[at].job, CODEC_GRID, D))
		return;
	if (CHOOSE)
		choose_streams<D>(&chunks[at], &t);
	else if (warp % each < encoding_of(&chunks[at])->o.n_streams)
		encode_stream<D>(&chunks[at], &t, warp % each);
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
extern "C" __global__ void __launch_bounds__(32 * KVI_GPU_STREAMS)
kvi_gpu_put(const kvi_gpu_encode *chunks)
{
	const kvi_gpu_encode *e = &chunks[blockIdx.x];
	if (open(e) && threadIdx.x / 32 < encoding_of(e)->o.n_streams)
		put_stream(e, threadIdx.x / 32);
}

#define KERNEL(threads, name, ...) \
	extern "C" __global__ void __launch_bounds__(32 * (threads), 2) kvi_gpu_##name(__VA_ARGS__)
#define ENCODE(name, dtype)                                                             \
	KERNEL(WARPS, encode_contexts_##name, const kvi_gpu_encode *c,                  \
	       const kvi_gpu_tables *t)                                                 \
	{                                                                               \
		encode_contexts<dtype>(c, t);                                           \
	}                                                                               \
	KERNEL(GRID_CHUNKS *KVI_GPU_STREAMS, choose_grid_##name, const kvi_gpu_encode *c, \
	       uint32_t n, const kvi_gpu_tables *t)                                     \
	{                                                                               \
		grid_block<dtype, true>(c, n, t);                                       \
	}                                                                               \
	KERNEL(GRID_CHUNKS *KVI_GPU_STREAMS, encode_grid_##name, const kvi_gpu_encode *c, \
	       uint32_t n, const kvi_gpu_tables *t)                                     \
	{                                                                               \
		grid_block<dtype, false>(c, n, t);                                      \
	}
ENCODE(e4m3, 4)

/* Step 11, a warp a chunk. */
KERNEL(WARPS, encoded, const kvi_gpu_encode *chunks, uint32_t n, kvi_gpu_encoded *answers)
{
	if (warp_of_grid() < n)
		answer_encoded(&chunks[warp_of_grid()], &answers[warp_of_grid()]);
}
