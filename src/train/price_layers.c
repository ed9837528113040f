/* SPDX-License-Identifier: BSD-3-Clause */
/* price_layers.c - what elements cost in the grid codec (spec grid 3 to 5) */
#include "codecs/coder.h"
#include "train_sample.h"

struct kvi_train_prices {
	const struct kvi_alloc *alloc;
	struct kvi_coder_tables *tables;
	const struct kvi_kernels *kernels;
};

kvarc_ret kvi_train_prices_open(struct kvi_train_prices **out, const struct kvi_alloc *alloc)
{
	struct kvi_train_prices *p = kvi_calloc(alloc, 1, sizeof *p);
	*out = p;
	if (!p)
		return kvi_alloc_error(alloc);
	p->alloc = alloc;
	p->kernels = kvi_kernels_get(0);
	kvarc_ret ret = kvi_coder_tables_open(&p->tables, alloc);
	if (ret) {
		kvi_free(alloc, p);
		*out = NULL;
	}
	return ret;
}

void kvi_train_prices_close(struct kvi_train_prices *p)
{
	if (!p)
		return;
	kvi_coder_tables_close(p->tables);
	kvi_free(p->alloc, p);
}

uint64_t kvi_train_prices_sum(const struct kvi_train_prices *p, unsigned dtype,
                              const uint16_t *element, const uint32_t *mu, const int16_t *k,
                              size_t n)
{
	enum { BATCH = 64 };
	const struct kvi_grid_format *fmt = &kvi_float_format(dtype)->grid;
	uint64_t sum = 0;
	uint32_t ctx[BATCH];
	for (size_t at = 0; at < n; at += BATCH) {
		size_t m = n - at < BATCH ? n - at : BATCH;
		p->kernels->grid_contexts(ctx, mu + at, k + at, m, fmt);
		sum += kvi_grid_price(fmt, &p->tables->grid, p->tables->cost, ctx, element + at, m);
	}
	return dtype == KVARC_F32 ? sum + n * 16 * 256 : sum;
}
