/* SPDX-License-Identifier: BSD-3-Clause */
/* kernels_avx2.c - the kernels of AVX2, 4 x 8 lanes a step */
#include "config.h"

#include "cells.h"
#include "layers.h"
#include "ops_avx2.h"
#include "step_body.h"
#include "escapes_body.h"
#include "sym_body.h"
#include "grid_body.h"
#include "grid_spans_body.h"
#include "grid_price_body.h"
#include "context_body.h"
#include "rotation_body.h"
#include "slots_body.h"

/* `rows` rows, a constant, of a step: all sums stay in registers. Three rows of four vectors take
 * the fewest loads for each sum that 16 registers allow. */
INLINE void rows_some(const struct kvi_rows *r, size_t step, size_t first, const size_t rows)
{
	int32_t *sum = r->sum + step * r->sum_step + first * KVI_LANES;
	const int16_t *coef = r->coef + first * r->coef_row;
	const size_t coef_row = r->coef_row;
	vec acc[3][PARTS], c[3];
	UNROLL for (size_t i = 0; i < rows; i++) EACH acc[i][h] = SET(kvi_rows_half(r, first + i));
	for (size_t k = 0; k < r->n_parts; k++) {
		const struct kvi_rows_part *part = &r->part[k];
		const int16_t *f = part->features + step * part->step;
		const int16_t *end = coef + 2 * part->n_pairs;
		for (; coef != end; coef += 2, f += KVI_PAIR_STEP) {
			UNROLL for (size_t i = 0; i < rows; i++)
				c[i] = coefficients(coef + i * coef_row);
			EACH {
				vec x = v_load(f + 2 * WIDTH * h);
				UNROLL for (size_t i = 0; i < rows; i++)
					acc[i][h] = v_add(acc[i][h], v_madd(x, c[i]));
			}
		}
	}
	UNROLL for (size_t i = 0; i < rows; i++)
		EACH v_store(sum + i * KVI_LANES + WIDTH * h, acc[i][h]);
}

static void slot_rows(const struct kvi_rows *r)
{
	enum { GROUP = 3 };
	for (size_t step = 0; step < r->steps; step++) {
		size_t i = 0;
		for (; i + GROUP <= r->rows; i += GROUP)
			rows_some(r, step, i, GROUP);
		if (i + 2 == r->rows)
			rows_some(r, step, i, 2);
		else if (i < r->rows)
			rows_some(r, step, i, 1);
	}
}

const struct kvi_kernels kvi_kernels_avx2 = {
	.name = "avx2",
	.isa = KVARC_ISA_AVX2,
	BODY_KERNELS,
	KVI_MOVES(kvi_avx2),
	KVI_FITS(kvi_avx2),
	.slots.slot_rows = slot_rows,
	.layers = &kvi_avx2_layers,
	.cells = &kvi_avx2_cells,
};
