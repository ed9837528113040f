/* SPDX-License-Identifier: BSD-3-Clause */
/* exact_host_run.cc - kernels of the exact engine, one warp after the other (exact_kernels.cu) */
#include "exact_host_run.h"

#include <stdlib.h>

#include "exact_attention_body.h"

/* Runs warps of a kernel that share nothing. */
template <typename F> static void launch(uint32_t warps, F f)
{
	launch_warps(warps, span<uint32_t>{ nullptr, 0 }, f);
}

/* Memory of its exact size, as kernels may use it. */
struct own_memory {
	uint32_t *p;
	explicit own_memory(size_t numbers) : p((uint32_t *)aligned_alloc(16, numbers * 4))
	{
		if (!p)
			abort();
	}
	~own_memory()
	{
		free(p);
	}
	own_memory(const own_memory &) = delete;
	own_memory &operator=(const own_memory &) = delete;
};

void kvi_gpu_host_quantise(const struct kvi_gpu_quantise *q)
{
	launch(q->tokens * q->parts, [&](uint32_t row) { run_quantise(q, row); });
}

void kvi_gpu_host_values(const struct kvi_gpu_values *v)
{
	const uint32_t steps = v->blocks * BLOCK_STEPS;
	launch(v->heads * steps, [&](uint32_t i) { run_values(v, i / steps, i % steps); });
}

template <int LIMBS, int PLANES, int STEPS, bool MINIMA>
static void all_tiles(const kvi_gpu_product *p)
{
	constexpr int ns = PLANES == 2 ? 4 : 8; /* as in exact_kernels.cu */
	const uint32_t rows = (p->rows + KVI_GPU_TILE_ROWS - 1) / KVI_GPU_TILE_ROWS;
	launch(rows * ((p->outputs + ns * 8 - 1) / (ns * 8)), [&](uint32_t i) {
		run_product<LIMBS, PLANES, STEPS, MINIMA, ns>(p, i % rows, i / rows);
	});
}

template <int LIMBS> static void product_of(const kvi_gpu_product *p)
{
	const bool planes = p->w[1] != 0, minima = p->w_minimum != 0;
	if (p->group == 64 && !planes && !minima)
		all_tiles<LIMBS, 1, 2, false>(p);
	else if (p->group <= 32 && !planes && !minima)
		all_tiles<LIMBS, 1, 1, false>(p);
	else if (p->group <= 32 && !planes)
		all_tiles<LIMBS, 1, 1, true>(p);
	else
		abort();
}

void kvi_gpu_host_product(const struct kvi_gpu_product *p)
{
	if (p->a[1] && p->w[1] && p->group == 128)
		all_tiles<2, 2, 4, false>(p);
	else if (p->a[1])
		product_of<2>(p);
	else
		product_of<1>(p);
}

void kvi_gpu_host_embed(const struct kvi_gpu_embed *e)
{
	launch(e->tokens, [&](uint32_t t) { run_embed(e, t); });
}

void kvi_gpu_host_norm(const struct kvi_gpu_norm *n)
{
	launch((n->tokens * n->parts + NORM_ROWS - 1) / NORM_ROWS,
	       [&](uint32_t pair) { run_norm(n, pair); });
}

void kvi_gpu_host_rotate(const struct kvi_gpu_rotate *r)
{
	launch(r->tokens, [&](uint32_t t) { run_rotate(r, t); });
}

void kvi_gpu_host_rows(const struct kvi_gpu_rows *r)
{
	launch(r->tokens, [&](uint32_t t) {
		switch (r->operation) {
		case KVI_GPU_SILU:
			return run_rows<KVI_GPU_SILU>(r, t);
		case KVI_GPU_GELU:
			return run_rows<KVI_GPU_GELU>(r, t);
		case KVI_GPU_ADD:
			return run_rows<KVI_GPU_ADD>(r, t);
		default:
			abort();
		}
	});
}

template <int KEYS, int VALUES> static void all_queries(const kvi_gpu_attention *a)
{
	const uint32_t n = kvi_gpu_attention_numbers(a->v_rows) * 32;
	const uint32_t tiles = (a->tokens + KVI_GPU_QUERY_ROWS - 1) / KVI_GPU_QUERY_ROWS;
	own_memory own(n);
	const span<uint32_t> numbers = span_at<uint32_t>((uint64_t)(uintptr_t)own.p, n);
	launch_warps(a->heads * tiles, numbers, [&](uint32_t i) {
		run_attention<KEYS, VALUES>(a, i / tiles, i % tiles, numbers);
	});
}

void kvi_gpu_host_attention(const struct kvi_gpu_attention *a)
{
	const bool wide_values = a->v[1] != 0, wide_weights = a->largest > 127;
	if (a->twelve && wide_weights && !wide_values)
		all_queries<KEYS_12, VALUES_WIDE>(a);
	else if (a->twelve && wide_weights)
		all_queries<KEYS_12, VALUES_15>(a);
	else if (!a->twelve && a->k[1] && wide_weights && wide_values)
		all_queries<KEYS_15, VALUES_15>(a);
	else if (!a->k[1] && !wide_weights && !wide_values)
		all_queries<KEYS_8, VALUES_8>(a);
	else
		abort();
}
