/* SPDX-License-Identifier: BSD-3-Clause */
/* host_run.cc - the steps of a batch, one warp after the other (batch_run_body.h) */
#include "host_run.h"

#include <stdio.h>
#include <stdlib.h>

#include "batch_run_body.h"

void kvi_gpu_host_fault(const char *what, uint64_t at, size_t bytes, size_t limit)
{
	fprintf(stderr, "kernel: %s access of %zu at %llu, limit %zu\n", what, bytes,
	        (unsigned long long)at, limit);
	abort();
}

/* Shared memory of a block, of its exact size. */
struct shared_memory {
	void *p;
	explicit shared_memory(size_t bytes) : p(aligned_alloc(16, (bytes + 15) / 16 * 16))
	{
		if (!p)
			abort();
	}
	~shared_memory()
	{
		free(p);
	}
	shared_memory(const shared_memory &) = delete;
	shared_memory &operator=(const shared_memory &) = delete;
};

template <int D> static void exponent_block(const kvi_gpu_chunk *c)
{
	if (!runs(c, CODEC_EXPONENT, D))
		return;
	const size_t n_lut = params_of(c)->n_tables * SLOTS;
	const size_t n_ring = ring_length(opened_of(c)->columns) + 128;
	shared_memory a(n_lut * sizeof(uint32_t)), b(n_ring * sizeof(uint32_t));
	const uint64_t lut = (uint64_t)(uintptr_t)a.p, ring = (uint64_t)(uintptr_t)b.p;
	for (uint32_t w = 0; w < KVI_GPU_STREAMS; w++)
		run_exponent_tables<D>(c, span_at<uint32_t>(lut, n_lut),
		                       span_at<uint32_t>(ring, n_ring), w, KVI_GPU_STREAMS);
	for (uint32_t w = 0; w < KVI_GPU_STREAMS; w++)
		run_exponent<D>(c, span_at<const uint32_t>(lut, n_lut),
		                span_at<const uint32_t>(ring, n_ring), w);
}

template <int D> static void grid_block(const kvi_gpu_chunk *c, const kvi_gpu_tables *tables)
{
	if (!runs(c, CODEC_GRID, D))
		return;
	const size_t n_enc = GRID_TABLES * GRID_SYMBOLS, n_first = GRID_TABLES * GRID_FIRSTS;
	shared_memory enc(n_enc * sizeof(uint32_t)), token(64 * sizeof(uint32_t)), first(n_first);
	const grid_shared t = { span_at<uint32_t>((uint64_t)(uintptr_t)enc.p, n_enc),
		                span_at<uint32_t>((uint64_t)(uintptr_t)token.p, 64),
		                span_at<uint8_t>((uint64_t)(uintptr_t)first.p, n_first) };
	for (uint32_t w = 0; w < context_warps(opened_of(c), params_of(c)); w++)
		run_contexts<D>(c, tables, w);
	for (uint32_t w = 0; w < KVI_GPU_STREAMS; w++)
		grid_tables(&t, tables, w, KVI_GPU_STREAMS);
	for (uint32_t w = 0; w < KVI_GPU_STREAMS; w++)
		run_grid<D>(c, &t, w);
}

void kvi_gpu_host_decode(const struct kvi_gpu_chunk *chunks, uint32_t n,
                         const struct kvi_gpu_tables *tables, uint32_t *status)
{
	for (uint32_t i = 0; i < n; i++) {
		const kvi_gpu_chunk *c = &chunks[i];
		run_open(c);
		exponent_block<1>(c);
		exponent_block<2>(c);
		exponent_block<3>(c);
		exponent_block<4>(c);
		exponent_block<5>(c);
		grid_block<1>(c, tables);
		grid_block<2>(c, tables);
		grid_block<3>(c, tables);
		grid_block<4>(c, tables);
		grid_block<5>(c, tables);
		for (uint32_t s = 0; s < KVI_GPU_STREAMS; s++)
			run_finish(c, s);
		run_answer(c, span_at<uint32_t>((uint64_t)(uintptr_t)status, n), i);
		for (uint32_t t = 0; t < c->tokens; t++)
			run_scatter(c, t);
	}
}

uint64_t kvi_gpu_host_hash(const void *bytes, uint32_t n)
{
	return hash_bytes((uint64_t)(uintptr_t)bytes, n);
}
