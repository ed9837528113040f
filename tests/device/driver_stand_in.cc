/* SPDX-License-Identifier: BSD-3-Clause */
/* driver_stand_in.cc - the kernels of the driver's stand-in (stand_in_calls.cc) but the engine's */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "stand_in_grid.h"

/* ----- kernels ------------------------------------------------ */

/* Shared memory of a block, with the bytes that the launch gave it. */
struct shared_words {
	uint32_t *p;
	size_t n;
	explicit shared_words(const grid &g)
	    : p((uint32_t *)aligned_alloc(16, (g.shared_bytes + 15) / 16 * 16)),
	      n(g.shared_bytes / 4)
	{
	}
	~shared_words()
	{
		free(p);
	}
	shared_words(const shared_words &) = delete;
	shared_words &operator=(const shared_words &) = delete;
	span<uint32_t> at(size_t from, size_t count) const
	{
		if (from + count > n)
			kvi_gpu_host_fault("shared memory", from, count, n);
		return span_at<uint32_t>((uint64_t)(uintptr_t)(p + from), count);
	}
};

static void run_kvi_gpu_decode(const grid &g)
{
	const kvi_gpu_batch batch = argument<kvi_gpu_batch>(g, 0);
	const shared_words shared(g);
	host_decode(&batch, g.x, shared.at(0, shared.n));
}

static void run_kvi_gpu_encode_chunks(const grid &g)
{
	const kvi_gpu_batch batch = argument<kvi_gpu_batch>(g, 0);
	const shared_words shared(g);
	host_encode(&batch, g.x, shared.at(0, shared.n));
}

static void run_kvi_gpu_collect(const grid &g)
{
	const kvi_gpu_chunk chunk = argument<kvi_gpu_chunk>(g, 0);
	const uint32_t size = element_bytes(chunk.dtype);
	for (uint32_t i = 0; i < chunk.tokens && i < g.x * g.warps; i++)
		if (size == 4)
			collect_token<4>(&chunk, i);
		else if (size == 2)
			collect_token<2>(&chunk, i);
		else
			collect_token<1>(&chunk, i);
}

/* ----- all kernels ------------------------------------------------ */

static const kernel kernels[] = {
	{ "kvi_gpu_decode", run_kvi_gpu_decode },
	{ "kvi_gpu_encode_chunks", run_kvi_gpu_encode_chunks },
	{ "kvi_gpu_collect", run_kvi_gpu_collect },
};

const kernel *find_kernel(const char *name)
{
	for (const kernel &k : kernels)
		if (!strcmp(k.name, name))
			return &k;
	return exact_kernel(name);
}
