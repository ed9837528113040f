/* SPDX-License-Identifier: BSD-3-Clause */
/* kernels_neon.c - the kernels of NEON, 8 x 4 lanes a step */
#include "config.h"

#include "cells.h"
#include "layers.h"
#include "ops_neon.h"
#include "step_body.h"
#include "escapes_body.h"
#include "sym_body.h"
#include "grid_body.h"
#include "grid_spans_body.h"
#include "grid_price_body.h"
#include "context_body.h"
#include "rotation_body.h"
#include "slots_body.h"

/* `rows` rows, a constant, of 8 tokens from t of a step on: all sums stay in
 * registers. */
INLINE void rows_some(const struct kvi_rows *r, size_t step, size_t t, size_t first,
                      const size_t rows)
{
	int32_t *sum = r->sum + step * r->sum_step + first * KVI_LANES + t;
	const int16_t *coef = r->coef + first * r->coef_row;
	int32x4_t acc[KVI_PANEL][2];
	UNROLL for (size_t i = 0; i < rows; i++)
		acc[i][0] = acc[i][1] = vdupq_n_s32(kvi_rows_half(r, first + i));
	for (size_t k = 0; k < r->n_parts; k++) {
		const struct kvi_rows_part *part = &r->part[k];
		const int16_t *f = part->features + step * part->step + 2 * t;
		const int16_t *end = coef + 2 * part->n_pairs;
		for (; coef != end; coef += 2, f += KVI_PAIR_STEP) {
			const int16x8x2_t x = vld2q_s16(f);
			const int16x4_t a = vget_low_s16(x.val[0]);
			const int16x4_t b = vget_low_s16(x.val[1]);
			UNROLL for (size_t i = 0; i < rows; i++)
			{
				const int16_t *c = coef + i * r->coef_row;
				acc[i][0] = vmlal_n_s16(acc[i][0], a, c[0]);
				acc[i][0] = vmlal_n_s16(acc[i][0], b, c[1]);
				acc[i][1] = vmlal_high_n_s16(acc[i][1], x.val[0], c[0]);
				acc[i][1] = vmlal_high_n_s16(acc[i][1], x.val[1], c[1]);
			}
		}
	}
	UNROLL for (size_t i = 0; i < rows; i++)
	{
		vst1q_s32(sum + i * KVI_LANES, acc[i][0]);
		vst1q_s32(sum + i * KVI_LANES + 4, acc[i][1]);
	}
}

static void slot_rows(const struct kvi_rows *r)
{
	for (size_t part = 0; part < 4 * r->steps; part++) {
		size_t step = part / 4, t = part % 4 * 8, i = 0;
		for (; i + KVI_PANEL <= r->rows; i += KVI_PANEL)
			rows_some(r, step, t, i, KVI_PANEL);
		for (; i < r->rows; i++)
			rows_some(r, step, t, i, 1);
	}
}

const struct kvi_kernels kvi_kernels_neon = {
	.name = "neon",
	.isa = KVARC_ISA_NEON,
	BODY_KERNELS,
	KVI_MOVES(kvi_scalar),
	KVI_FITS(kvi_scalar),
	.slots.slot_rows = slot_rows,
	.layers = &kvi_neon_layers,
	.cells = &kvi_neon_cells,
};
