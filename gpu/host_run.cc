/* SPDX-License-Identifier: BSD-3-Clause */
/* host_run.cc - kernels on the host, one warp after the other */
#include "host_run.h"

#include <stdlib.h>

#include "output_run_body.h"

/* Runs blocks with shared memory of its exact size. */
template <typename F> static void with_shared(uint32_t bytes, F run)
{
	void *p = aligned_alloc(16, (bytes + 15) / 16 * 16);
	if (!p)
		abort();
	run(span_at<uint32_t>((uint64_t)(uintptr_t)p, bytes / 4));
	free(p);
}

void kvi_gpu_host_decode(const struct kvi_gpu_batch *batch, uint32_t blocks, uint32_t shared_bytes)
{
	with_shared(shared_bytes, [&](span<uint32_t> s) { host_decode(batch, blocks, s); });
}

void kvi_gpu_host_encode(const struct kvi_gpu_batch *batch, uint32_t blocks, uint32_t shared_bytes)
{
	with_shared(shared_bytes, [&](span<uint32_t> s) { host_encode(batch, blocks, s); });
}

uint64_t kvi_gpu_host_hash(const void *bytes, uint32_t n)
{
	return hash_bytes((uint64_t)(uintptr_t)bytes, n);
}
