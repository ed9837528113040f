/* SPDX-License-Identifier: BSD-3-Clause */
/* kernels_avx512.c - the kernels of AVX-512, 2 x 16 lanes a step */
#include "config.h"

#include "grid_avx512_body.h"
#include "cells.h"
#include "layers.h"

#include "grid_spans_body.h"
#include "grid_price_body.h"
#include "grid_pairs_body.h"
#include "sym_body.h"
#include "context_body.h"
#include "rotation_body.h"
#include "slots_body.h"
#include "rotated_tokens_body.h"

INLINE vec dot_madd(vec sum, vec features, vec coef)
{
	return v_add(sum, v_madd(features, coef));
}

/*
 * `rows` rows, a constant, of one step: all sums stay in registers. A macro,
 * for a set of its own that has a multiply-add of pairs.
 */
#define ROWS(name, dot, target)                                                             \
	target INLINE void name##_some(const struct kvi_rows *r, size_t step, size_t first, \
	                               const size_t rows)                                   \
	{                                                                                   \
		int32_t *sum = r->sum + step * r->sum_step + first * KVI_LANES;             \
		const int16_t *coef = r->coef + first * r->coef_row;                        \
		const size_t coef_row = r->coef_row;                                        \
		vec acc[KVI_PANEL][2];                                                      \
		UNROLL for (size_t i = 0; i < rows; i++)                                    \
			acc[i][0] = acc[i][1] = SET(kvi_rows_half(r, first + i));           \
		for (size_t k = 0; k < r->n_parts; k++) {                                   \
			const struct kvi_rows_part *part = &r->part[k];                     \
			const int16_t *f = part->features + step * part->step;              \
			const int16_t *end = coef + 2 * part->n_pairs;                      \
			for (; coef != end; coef += 2, f += KVI_PAIR_STEP) {                \
				vec x0 = v_load(f), x1 = v_load(f + 32);                    \
				UNROLL for (size_t i = 0; i < rows; i++)                    \
				{                                                           \
					vec c = coefficients(coef + i * coef_row);          \
					acc[i][0] = dot(acc[i][0], x0, c);                  \
					acc[i][1] = dot(acc[i][1], x1, c);                  \
				}                                                           \
			}                                                                   \
		}                                                                           \
		UNROLL for (size_t i = 0; i < rows; i++)                                    \
		{                                                                           \
			v_store(sum + i * KVI_LANES, acc[i][0]);                            \
			v_store(sum + i * KVI_LANES + 16, acc[i][1]);                       \
		}                                                                           \
	}                                                                                   \
	target static void name(const struct kvi_rows *r)                                   \
	{                                                                                   \
		for (size_t step = 0; step < r->steps; step++) {                            \
			size_t i = 0;                                                       \
			for (; i + KVI_PANEL <= r->rows; i += KVI_PANEL)                    \
				name##_some(r, step, i, KVI_PANEL);                         \
			for (; i < r->rows; i++)                                            \
				name##_some(r, step, i, 1);                                 \
		}                                                                           \
	}

ROWS(slot_rows, dot_madd, )
#if defined(KVI_AVX512VNNI)
ROWS(slot_rows_vnni, _mm512_dpwssd_epi32, __attribute__((target("avx512vnni"))))

/* grid_decode2 and grid_encode2 of the set for processors where gathers are fast. */
static void gather_grid_decode2(const struct kvi_grid_job *const job[2],
                                const struct kvi_stream *const in[2], uint16_t *const elements[2],
                                bool ok[2])
{
	decode_both(job, in, elements, ok, BY_GATHERS);
}

static void gather_grid_encode2(const struct kvi_grid_job *const job[2],
                                const uint16_t *const elements[2], uint16_t *const end[2],
                                size_t n[2], uint32_t *const state[2])
{
	encode_both(job, elements, end, n, state, BY_GATHERS);
}
#endif

#define KERNELS                                                \
	BODY_KERNELS, KVI_MOVES(kvi_avx2), KVI_FITS(kvi_avx2), \
		.name = "avx512", .isa = KVARC_ISA_AVX512, .coding.rotated_tokens = rotated_tokens
#define LOADS .coding.grid_decode2 = grid_decode2, .coding.grid_encode2 = grid_encode2
#define GATHERS \
	.coding.grid_decode2 = gather_grid_decode2, .coding.grid_encode2 = gather_grid_encode2

const struct kvi_kernels kvi_kernels_avx512 = { KERNELS, LOADS, .slots.slot_rows = slot_rows,
	                                        .layers = &kvi_avx2_layers,
	                                        .cells = &kvi_avx512_cells };
#if defined(KVI_AVX512VNNI)
#define VNNI .vnni = true, .slots.slot_rows = slot_rows_vnni
const struct kvi_kernels kvi_kernels_avx512vnni = { KERNELS, LOADS, VNNI,
	                                            .layers = &kvi_avx2_layers,
	                                            .cells = &kvi_avx512_cells };
const struct kvi_kernels kvi_kernels_avx512vbmi = { KERNELS, LOADS, VNNI,
	                                            .layers = &kvi_vbmi_layers,
	                                            .cells = &kvi_vbmi_cells };
const struct kvi_kernels kvi_kernels_avx512gather = { KERNELS, GATHERS, VNNI,
	                                              .layers = &kvi_vbmi_layers,
	                                              .cells = &kvi_vbmi_cells };
#endif
