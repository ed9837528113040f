/* SPDX-License-Identifier: BSD-3-Clause */
/* product.c - a product on all workers of a pool */
#include "exact/engine_internal.h"

struct steps {
	const struct kvi_exact_kernels *kernels;
	const struct kvi_product *all;
	size_t blocks; /* blocks of a step */
};

static void product_some(void *opaque, size_t i, unsigned worker)
{
	const struct steps *s = opaque;
	struct kvi_product p = *s->all;
	(void)worker;
	p.first = i * s->blocks;
	p.blocks = s->all->blocks - p.first;
	if (p.blocks > s->blocks)
		p.blocks = s->blocks;
	if (p.w->e4m3)
		s->kernels->product_floats(&p);
	else
		s->kernels->product(&p);
}

void kvi_product_all(const struct kvi_exact_kernels *kernels, struct kvi_pool *pool,
                     const struct kvi_product *product)
{
	size_t workers = kvi_pool_workers(pool);
	/* Several steps a worker, so that none waits long for another. */
	size_t each = workers > 1 ? product->blocks / (4 * workers) : product->blocks;
	struct steps s = { kernels, product, each ? each : 1 };
	kvi_parallel(pool, (product->blocks + s.blocks - 1) / s.blocks, product_some, &s);
}
