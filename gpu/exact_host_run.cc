/* SPDX-License-Identifier: BSD-3-Clause */
/* exact_host_run.cc - kernels of the exact engine, one warp after the other (exact_kernels.cu) */
#include "exact_host_run.h"

#include <stdlib.h>

#include "exact_attention_body.h"

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
	for (uint32_t row = 0; row < q->tokens * q->parts; row++)
		run_quantise(q, row);
}

void kvi_gpu_host_values(const struct kvi_gpu_values *v)
{
	for (uint32_t head = 0; head < v->heads; head++)
		for (uint32_t s = 0; s < v->blocks * BLOCK_STEPS; s++)
			run_values(v, head, s);
}

template <int LIMBS, int PLANES, int STEPS, bool MINIMA>
static void all_tiles(const kvi_gpu_product *p)
{
	constexpr int ns = PLANES == 2 ? 4 : 8; /* as in exact_kernels.cu */
	for (uint32_t r = 0; r * KVI_GPU_TILE_ROWS < p->rows; r++)
		for (uint32_t n = 0; n * ns * 8 < p->outputs; n++)
			run_product<LIMBS, PLANES, STEPS, MINIMA, ns>(p, r, n);
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
	for (uint32_t t = 0; t < e->tokens; t++)
		run_embed(e, t);
}

void kvi_gpu_host_norm(const struct kvi_gpu_norm *n)
{
	for (uint32_t pair = 0; pair * NORM_ROWS < n->tokens * n->parts; pair++)
		run_norm(n, pair);
}

void kvi_gpu_host_rotate(const struct kvi_gpu_rotate *r)
{
	for (uint32_t t = 0; t < r->tokens; t++)
		run_rotate(r, t);
}

void kvi_gpu_host_rows(const struct kvi_gpu_rows *r)
{
	for (uint32_t t = 0; t < r->tokens; t++)
		switch (r->operation) {
		case KVI_GPU_SILU:
			run_rows<KVI_GPU_SILU>(r, t);
			break;
		case KVI_GPU_GELU:
			run_rows<KVI_GPU_GELU>(r, t);
			break;
		case KVI_GPU_ADD:
			run_rows<KVI_GPU_ADD>(r, t);
			break;
		default:
			abort();
		}
}

template <int KEYS, int VALUES> static void all_queries(const kvi_gpu_attention *a)
{
	const uint32_t n = kvi_gpu_attention_numbers(a->v_rows) * 32;
	own_memory own(n);
	for (uint32_t head = 0; head < a->heads; head++)
		for (uint32_t tile = 0; tile * KVI_GPU_QUERY_ROWS < a->tokens; tile++)
			run_attention<KEYS, VALUES>(
				a, head, tile, span_at<uint32_t>((uint64_t)(uintptr_t)own.p, n));
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
