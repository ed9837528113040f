/* SPDX-License-Identifier: BSD-3-Clause */
/* host_run.cc - kernels on the host, one warp after the other */
#include "host_run.h"

#include <stdlib.h>

#include "payload_encode_body.h"

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

void kvi_gpu_host_decode(const struct kvi_gpu_batch *batch, uint32_t blocks, uint32_t shared_bytes)
{
	shared_memory shared(shared_bytes);
	host_decode(batch, blocks,
	            span_at<uint32_t>((uint64_t)(uintptr_t)shared.p, shared_bytes / 4));
}

/* Runs warps of a kernel that share nothing. */
template <typename F> static void launch(uint32_t warps, F f)
{
	launch_warps(warps, span<uint32_t>{ nullptr, 0 }, f);
}

/* Makes the mask of a payload, and gathers elements. */
template <int SIZE> static void prepare_chunk(const kvi_gpu_encode *e)
{
	kvi_gpu_opened *o = &encoding_of(e)->o;
	launch(e->job.tokens, [&](uint32_t t) { collect_token<SIZE>(e, t); });
	launch((channels_of(e) + 31) / 32, [&](uint32_t g) { find_channels<SIZE>(e, g); });
	launch(1, [&](uint32_t) { list_columns(e); });
	launch(e->job.tokens, [&](uint32_t t) { find_row<SIZE>(e, t); });
	launch(1, [&](uint32_t) { write_section<SIZE>(e); });
	if (o->status != KVI_GPU_OPEN)
		return;
	launch(o->rows, [&](uint32_t r) { gather_row<SIZE>(e, r); });
}

template <int D> static void encode_block(const kvi_gpu_encode *e, const kvi_gpu_tables *tables)
{
	const kvi_gpu_chunk *c = &e->job;
	const kvi_gpu_opened *o = &encoding_of(e)->o;
	prepare_chunk<format<D>::size>(e);
	if (o->status != KVI_GPU_OPEN)
		return;
	const size_t n = GRID_TABLES * GRID_SYMBOLS;
	shared_memory enc(n * sizeof(uint32_t)), token(64 * sizeof(uint32_t)),
		inverse(n * sizeof(uint32_t));
	const span<uint32_t> e_span = span_at<uint32_t>((uint64_t)(uintptr_t)enc.p, n);
	const encode_shared t = {
		e_span,
		span_at<uint32_t>((uint64_t)(uintptr_t)inverse.p, n),
		{ e_span, span_at<uint32_t>((uint64_t)(uintptr_t)token.p, 64), {} },
	};
	launch(context_warps(o, params_of(c)), [&](uint32_t w) { run_contexts<D>(c, tables, w); });
	for (uint32_t w = 0; w < KVI_GPU_STREAMS; w++)
		grid_codes(&t.grid, tables, w, KVI_GPU_STREAMS);
	for (uint32_t w = 0; w < KVI_GPU_STREAMS; w++)
		inverse_tables(&t, (uint32_t)n, w, KVI_GPU_STREAMS);
	launch(1, [&](uint32_t) { choose_streams<D>(e, &t); });
	launch(o->n_streams, [&](uint32_t s) { encode_stream<D>(e, &t, s); });
	launch(o->n_streams, [&](uint32_t s) { check_stream(e, s); });
	launch(o->n_streams, [&](uint32_t s) { put_stream(e, s); });
}

void kvi_gpu_host_encode(const struct kvi_gpu_encode *chunks, uint32_t n,
                         const struct kvi_gpu_tables *tables, struct kvi_gpu_encoded *answers)
{
	for (uint32_t i = 0; i < n; i++) {
		const kvi_gpu_encode *e = &chunks[i];
		if (e->job.dtype == 4)
			encode_block<4>(e, tables);
		launch(1, [&](uint32_t) { answer_encoded(e, &answers[i]); });
	}
}

uint64_t kvi_gpu_host_hash(const void *bytes, uint32_t n)
{
	return hash_bytes((uint64_t)(uintptr_t)bytes, n);
}
