/* SPDX-License-Identifier: BSD-3-Clause */
/* price_layers.c - what elements cost in the grid codec (spec grid 3 to 5) */
#include "codecs/coder.h"
#include "train_sample.h"

struct kvi_train_prices {
	const struct kvi_alloc *alloc;
	const struct kvi_kernels *kernels;
	/* costs for elements of 8 and of 16 bits */
	uint32_t cost[2][KVI_GRID_TABLES << KVI_GRID_COST_BITS];
};

static void set_costs(struct kvi_train_prices *prices, const struct kvi_coder_tables *tables)
{
	for (size_t table = 0; table < KVI_GRID_TABLES; table++)
		for (size_t s = 0; s < KVI_GRID_SYMBOLS; s++) {
			size_t at = (table << KVI_GRID_COST_BITS) + s;
			uint32_t freq = tables->grid.enc[table * tables->grid.stride + s] & 0xffff;
			bool escape = s == KVI_GRID_SYMBOLS - 1;
			prices->cost[0][at] = tables->cost[freq] + (escape ? 8 * 256 : 0);
			prices->cost[1][at] = tables->cost[freq] + (escape ? 16 * 256 : 0);
		}
}

kvarc_ret kvi_train_prices_open(struct kvi_train_prices **out, const struct kvi_alloc *alloc)
{
	struct kvi_train_prices *p = kvi_calloc(alloc, 1, sizeof *p);
	struct kvi_coder_tables *tables;
	*out = NULL;
	if (!p)
		return kvi_alloc_error(alloc);
	p->alloc = alloc;
	p->kernels = kvi_kernels_get(0);
	kvarc_ret ret = kvi_coder_tables_open(&tables, alloc);
	if (ret) {
		kvi_free(alloc, p);
		return ret;
	}
	set_costs(p, tables);
	kvi_coder_tables_close(tables);
	*out = p;
	return KVARC_OK;
}

void kvi_train_prices_close(struct kvi_train_prices *prices)
{
	if (prices)
		kvi_free(prices->alloc, prices);
}

uint64_t kvi_train_prices_sum(const struct kvi_train_prices *prices, unsigned dtype,
                              const uint16_t *element, const uint32_t *mu, const int16_t *k,
                              size_t n)
{
	enum { BATCH = 64 };
	const struct kvi_grid_format *fmt = &kvi_float_format(dtype)->grid;
	const uint32_t *cost = prices->cost[fmt->elem_bits == 16];
	uint64_t sum = 0;
	uint32_t ctx[BATCH];
	for (size_t at = 0; at < n; at += BATCH) {
		size_t m = n - at < BATCH ? n - at : BATCH;
		prices->kernels->coding.grid_contexts(ctx, mu + at, k + at, m, fmt);
		sum += prices->kernels->fits.grid_price(fmt, cost, ctx, element + at, m);
	}
	return dtype == KVARC_F32 ? sum + n * 16 * 256 : sum;
}
