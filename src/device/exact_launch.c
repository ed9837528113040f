/* SPDX-License-Identifier: BSD-3-Clause */
/* exact_launch.c - launches kernels of the exact engine (exact_kernels.cu) */
#include "config.h"

#include "exact_launch.h"

/*
 * Tiles of rows and of outputs of a block of products, and outputs of a tile's part: fewer of W15.
 * Warps of a block of attention; fewer where these would share more memory than every GPU has.
 */
enum {
	PRODUCT_ROWS = 4,
	PRODUCT_OUTPUTS = 2,
	PART_OUTPUTS = 64,
	PART_OUTPUTS_W15 = 32,
	ATTENTION_WARPS = 4,
	SHARED_MOST = 99 << 10
};

static uint32_t divided(uint32_t n, uint32_t by)
{
	return (n + by - 1) / by;
}

/* A warp of each of `warps`, and `y` times that. */
static struct kvi_launch warps(const char *name, uint32_t warps, uint32_t y)
{
	return (struct kvi_launch){ name, kvi_blocks_of(warps), y, KVI_SMALL_BLOCK, 0, 1 };
}

static struct kvi_launch product(const struct kvi_gpu_product *gpu_product)
{
	const bool wide = gpu_product->a[1] != 0, planes = gpu_product->w[1] != 0;
	const char *name =
		planes ? "kvi_gpu_product_w15a15"
		: gpu_product->w_minimum
			? (wide ? "kvi_gpu_product_minima_a15" : "kvi_gpu_product_minima_a8")
		: gpu_product->group <= KVI_GPU_STEP_COLUMNS
			? (wide ? "kvi_gpu_product_groups_a15" : "kvi_gpu_product_groups_a8")
		: wide ? "kvi_gpu_product_w8a15"
		       : "kvi_gpu_product_w8a8";
	const uint32_t outputs = PRODUCT_OUTPUTS * (planes ? PART_OUTPUTS_W15 : PART_OUTPUTS);
	return (struct kvi_launch){ .name = name,
		                    .grid_x = divided(gpu_product->rows,
		                                      PRODUCT_ROWS * KVI_GPU_TILE_ROWS),
		                    .grid_y = divided(gpu_product->outputs, outputs),
		                    .threads = PRODUCT_ROWS * PRODUCT_OUTPUTS * KVI_WARP,
		                    .grid_z = 1 };
}

static struct kvi_launch attention(const struct kvi_gpu_attention *gpu_attention)
{
	const char *name = gpu_attention->twelve ? (gpu_attention->v[1] ? "kvi_gpu_attention_12_15"
	                                                                : "kvi_gpu_attention_12")
	                   : gpu_attention->k[1] ? "kvi_gpu_attention_15"
	                                         : "kvi_gpu_attention_8";
	const uint32_t bytes = kvi_gpu_attention_numbers(gpu_attention->v_rows) * KVI_WARP *
	                       sizeof(uint32_t);
	uint32_t n = ATTENTION_WARPS;
	while (n > 1 && n * bytes > SHARED_MOST)
		n /= 2;
	return (struct kvi_launch){ .name = name,
		                    .grid_x = divided(
					    divided(gpu_attention->tokens, KVI_GPU_QUERY_ROWS), n),
		                    .grid_y = gpu_attention->heads,
		                    .threads = n * KVI_WARP,
		                    .shared_bytes = n * bytes,
		                    .grid_z = 1 };
}

static struct kvi_launch rows(const struct kvi_gpu_rows *r)
{
	return warps(r->operation == KVI_GPU_SILU   ? "kvi_gpu_silu"
	             : r->operation == KVI_GPU_GELU ? "kvi_gpu_gelu"
	                                            : "kvi_gpu_add",
	             r->tokens, 1);
}

static struct kvi_launch launch_of(const struct kvi_gpu_exact_step *step)
{
	enum { NORM_ROWS = 2, VALUE_TOKENS = 32 }; /* per warp */
	switch (step->kind) {
	case KVI_GPU_EXACT_QUANTISE:
		return warps("kvi_gpu_quantise",
		             step->job.quantise.tokens * step->job.quantise.parts, 1);
	case KVI_GPU_EXACT_VALUES:
		return warps("kvi_gpu_values",
		             step->job.values.blocks * (KVI_GPU_KEY_BLOCK / VALUE_TOKENS),
		             step->job.values.heads);
	case KVI_GPU_EXACT_PRODUCT:
		return product(&step->job.product);
	case KVI_GPU_EXACT_EMBED:
		return warps("kvi_gpu_embed", step->job.embed.tokens, 1);
	case KVI_GPU_EXACT_NORM:
		return warps("kvi_gpu_norm",
		             divided(step->job.norm.tokens * step->job.norm.parts, NORM_ROWS), 1);
	case KVI_GPU_EXACT_ROTATE:
		return warps("kvi_gpu_rotate", step->job.rotate.tokens, 1);
	case KVI_GPU_EXACT_ROWS:
		return rows(&step->job.rows);
	case KVI_GPU_EXACT_ATTENTION:
		break;
	}
	return attention(&step->job.attention);
}

kvarc_ret kvi_exact_launch(void *opaque, const struct kvi_gpu_exact_step *step)
{
	const struct kvi_exact_stream *to = opaque;
	struct kvi_gpu_exact_step copy = *step; /* the driver's argument is not const */
	void *arguments[] = { &copy.job };
	const struct kvi_launch k = launch_of(step);
	return kvi_device_launch(to->d, to->d->exact, &k, arguments, to->stream);
}
