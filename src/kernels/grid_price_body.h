/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * grid_price_body.h - code lengths of elements in the grid codec; kvi_fit_kernels.grid_price
 *
 * Included after grid_body.h or grid_avx512_body.h. Uses element_code, encoder_tables,
 * encoder_tables_load (contracts in grid_body.h), v_load, v_load_u16, v_store, v_gather, v_add,
 * v_and and v_shl (in ops.h).
 */
#ifndef KVI_GRID_PRICE_BODY_H
#define KVI_GRID_PRICE_BODY_H

/* Code length of n elements, a multiple of 32, in 1/256 bit. */
INLINE uint64_t whole_steps_price(const uint32_t *cost, const uint32_t *ctx,
                                  const uint16_t *elements, size_t n,
                                  const struct grid_numbers *numbers)
{
	const encoder_tables tokens = encoder_tables_load();
	uint32_t lane[KVI_LANES];
	struct parts sum;
	uint64_t all = 0;
	EACH
		sum.v[h] = SET(0);
	for (size_t i = 0; i < n; i += KVI_LANES)
		EACH {
			vec c = v_load(ctx + i + WIDTH * h);
			vec x = v_load_u16(elements + i + WIDTH * h);
			coded_lanes code = element_code(x, c, &tokens, numbers);
			vec at = v_add(v_shl(v_and(c, SET(255)), KVI_GRID_COST_BITS), code.symbol);
			vec bits = v_add(v_gather(cost, at), v_shl(code.bits, 8));
			sum.v[h] = v_add(sum.v[h], bits);
		}
	EACH
		v_store(lane + WIDTH * h, sum.v[h]);
	for (size_t l = 0; l < KVI_LANES; l++)
		all += lane[l];
	return all;
}

static uint64_t grid_price(const struct kvi_grid_format *fmt, const uint32_t *cost,
                           const uint32_t *ctx, const uint16_t *elements, size_t n)
{
	const struct grid_numbers f = numbers_of(fmt);
	size_t whole = n - n % KVI_LANES;
	uint64_t sum = f.emin == bf16_numbers.emin
	                       ? whole_steps_price(cost, ctx, elements, whole, &bf16_numbers)
	                       : whole_steps_price(cost, ctx, elements, whole, &f);
	return sum + kvi_scalar_grid_price(fmt, cost, ctx + whole, elements + whole, n - whole);
}

#endif
