/* SPDX-License-Identifier: BSD-3-Clause */
/* stand_in_exact.cc - the kernels of the exact engine in the stand-in of the driver
 * (exact_kernels.cu) */
#include "stand_in_grid.h"

#include <cstdlib>

#include "exact_attention_body.h"

/* Calls a step for each warp of each y of a grid. */
template <typename F> static void each_warp(const grid &g, F step)
{
	for (uint32_t y = 0; y < g.y; y++)
		for (uint32_t w = 0; w < g.x * g.warps; w++)
			step(y, w);
}

static void run_kvi_gpu_quantise(const grid &g)
{
	const kvi_gpu_quantise q = argument<kvi_gpu_quantise>(g, 0);
	each_warp(g, [&](uint32_t, uint32_t w) { run_quantise(&q, w); });
}
static void run_kvi_gpu_values(const grid &g)
{
	const kvi_gpu_values v = argument<kvi_gpu_values>(g, 0);
	each_warp(g, [&](uint32_t y, uint32_t w) { run_values(&v, y, w); });
}

template <int LIMBS, int PLANES, int STEPS, bool MINIMA, int NS>
static void run_kvi_gpu_product(const grid &g)
{
	const uint32_t rows = 4; /* PRODUCT_ROWS of exact_kernels.cu */
	const kvi_gpu_product p = argument<kvi_gpu_product>(g, 0);
	for (uint32_t y = 0; y < g.y; y++)
		for (uint32_t x = 0; x < g.x; x++)
			for (uint32_t w = 0; w < g.warps; w++)
				run_product<LIMBS, PLANES, STEPS, MINIMA, NS>(
					&p, x * rows + w % rows, y * (g.warps / rows) + w / rows);
	const char *fault = getenv("KVARC_STAND_IN");
	if (fault && !strcmp(fault, "other-products"))
		*(uint32_t *)(uintptr_t)p.y ^= 1;
}

static void run_kvi_gpu_embed(const grid &g)
{
	const kvi_gpu_embed e = argument<kvi_gpu_embed>(g, 0);
	each_warp(g, [&](uint32_t, uint32_t w) { run_embed(&e, w); });
}
static void run_kvi_gpu_norm(const grid &g)
{
	const kvi_gpu_norm n = argument<kvi_gpu_norm>(g, 0);
	each_warp(g, [&](uint32_t, uint32_t w) { run_norm(&n, w); });
}
static void run_kvi_gpu_rotate(const grid &g)
{
	const kvi_gpu_rotate r = argument<kvi_gpu_rotate>(g, 0);
	each_warp(g, [&](uint32_t, uint32_t w) { run_rotate(&r, w); });
}
template <int OPERATION> static void run_kvi_gpu_rows(const grid &g)
{
	const kvi_gpu_rows r = argument<kvi_gpu_rows>(g, 0);
	each_warp(g, [&](uint32_t, uint32_t w) { run_rows<OPERATION>(&r, w); });
}

template <int KEYS, int VALUES> static void run_kvi_gpu_attention(const grid &g)
{
	const kvi_gpu_attention a = argument<kvi_gpu_attention>(g, 0);
	const uint32_t tiles = (a.tokens + KVI_GPU_QUERY_ROWS - 1) / KVI_GPU_QUERY_ROWS;
	const uint32_t bytes = g.shared_bytes / g.warps;
	void *own = aligned_alloc(16, (bytes + 15) / 16 * 16);
	const span<uint32_t> numbers = span_at<uint32_t>((uint64_t)(uintptr_t)own, bytes / 4);
	each_warp(g, [&](uint32_t y, uint32_t w) {
		if (w < tiles)
			run_attention<KEYS, VALUES>(&a, y, tiles - 1 - w, numbers);
	});
	free(own);
}

static const kernel exact_kernels[] = {
	{ "kvi_gpu_quantise", run_kvi_gpu_quantise },
	{ "kvi_gpu_values", run_kvi_gpu_values },
	{ "kvi_gpu_product_w8a8", run_kvi_gpu_product<1, 1, 2, false, 8> },
	{ "kvi_gpu_product_w8a15", run_kvi_gpu_product<2, 1, 2, false, 8> },
	{ "kvi_gpu_product_w15a15", run_kvi_gpu_product<2, 2, 4, false, 4> },
	{ "kvi_gpu_product_groups_a8", run_kvi_gpu_product<1, 1, 1, false, 8> },
	{ "kvi_gpu_product_groups_a15", run_kvi_gpu_product<2, 1, 1, false, 8> },
	{ "kvi_gpu_product_minima_a8", run_kvi_gpu_product<1, 1, 1, true, 8> },
	{ "kvi_gpu_product_minima_a15", run_kvi_gpu_product<2, 1, 1, true, 8> },
	{ "kvi_gpu_embed", run_kvi_gpu_embed },
	{ "kvi_gpu_norm", run_kvi_gpu_norm },
	{ "kvi_gpu_rotate", run_kvi_gpu_rotate },
	{ "kvi_gpu_silu", run_kvi_gpu_rows<KVI_GPU_SILU> },
	{ "kvi_gpu_gelu", run_kvi_gpu_rows<KVI_GPU_GELU> },
	{ "kvi_gpu_add", run_kvi_gpu_rows<KVI_GPU_ADD> },
	{ "kvi_gpu_attention_8", run_kvi_gpu_attention<KEYS_8, VALUES_8> },
	{ "kvi_gpu_attention_12", run_kvi_gpu_attention<KEYS_12, VALUES_WIDE> },
	{ "kvi_gpu_attention_12_15", run_kvi_gpu_attention<KEYS_12, VALUES_15> },
	{ "kvi_gpu_attention_15", run_kvi_gpu_attention<KEYS_15, VALUES_15> },
};

const kernel *exact_kernel(const char *name)
{
	for (const kernel &k : exact_kernels)
		if (!strcmp(k.name, name))
			return &k;
	return nullptr;
}
