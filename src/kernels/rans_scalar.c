/* SPDX-License-Identifier: BSD-3-Clause */
/* rans_scalar.c - the kernels of portable C: symbols, moves */
#include "cells.h"
#include "layers.h"
#include "scalar.h"
#include "slots.h"

static uint16_t *sym_encode_span(const struct kvi_sym_job *job, const struct kvi_span *span,
                                 const uint8_t *tab, const uint16_t *sym, const uint8_t *esc,
                                 uint32_t *st, uint16_t *w)
{
	const uint32_t *enc = job->tables->enc;
	const size_t stride = job->tables->stride;
	for (size_t step = span->steps; step-- > 0;) {
		const uint8_t *t = tab + step % span->ring * span->step_size;
		size_t at = step * span->lanes;
		for (unsigned l = span->lanes; l-- > 0;)
			if (sym[at + l] == job->escape)
				st[l] = kvi_bits_put(st[l], 8, esc[at + l], &w);
		for (unsigned l = span->lanes; l-- > 0;)
			st[l] = kvi_symbol_put(
				st[l], enc[t[l * span->lane_size] * stride + sym[at + l]], &w);
	}
	return w;
}

static size_t sym_encode(const struct kvi_sym_job *job, const uint16_t *sym, const uint8_t *esc,
                         uint16_t *end, uint32_t state[KVI_LANES])
{
	struct kvi_span full = kvi_span_full(&job->steps, job->tab_steps, job->per_step);
	struct kvi_span tail = kvi_span_tail(&job->steps, job->per_step);
	size_t n = full.steps * KVI_LANES;
	uint16_t *w = end;
	kvi_states_start(state);
	w = sym_encode_span(job, &tail, job->tab_tail, sym + n, esc + n, state, w);
	w = sym_encode_span(job, &full, job->tab, sym, esc, state, w);
	return (size_t)(end - w);
}

static void sym_decode_span(const struct kvi_sym_job *job, const struct kvi_span *span,
                            const uint8_t *tab, struct kvi_words_in *in, uint32_t *st,
                            uint16_t *sym, uint8_t *esc)
{
	const uint32_t *lut = job->tables->lut;
	for (size_t step = 0; step < span->steps; step++) {
		const uint8_t *t = tab + step % span->ring * span->step_size;
		size_t at = step * span->lanes;
		uint32_t escaped = 0;
		for (unsigned l = 0; l < span->lanes; l++) {
			size_t base = (size_t)t[l * span->lane_size] * KVI_PROB_TOTAL;
			uint32_t entry = lut[base + (st[l] & 2047)];
			uint32_t s = entry & 511;
			sym[at + l] = (uint16_t)s;
			escaped |= (uint32_t)(s == job->escape) << l;
			st[l] = kvi_renorm(kvi_symbol_take(st[l], entry), in);
		}
		for (; escaped; escaped &= escaped - 1) {
			unsigned l = (unsigned)__builtin_ctz(escaped);
			esc[at + l] = (uint8_t)st[l];
			st[l] = kvi_renorm(st[l] >> 8, in);
		}
	}
}

static bool sym_decode(const struct kvi_sym_job *job, const struct kvi_stream *in, uint16_t *sym,
                       uint8_t *esc)
{
	struct kvi_span full = kvi_span_full(&job->steps, job->tab_steps, job->per_step);
	struct kvi_span tail = kvi_span_tail(&job->steps, job->per_step);
	struct kvi_words_in words = kvi_words_begin(in);
	size_t n = full.steps * KVI_LANES;
	uint32_t st[KVI_LANES];
	memcpy(st, in->state, sizeof(st));
	sym_decode_span(job, &full, job->tab, &words, st, sym, esc);
	sym_decode_span(job, &tail, job->tab_tail, &words, st, sym + n, esc + n);
	return kvi_stream_done(st, &words);
}

void kvi_scalar_transpose8(uint8_t *dst, const uint8_t *src, size_t rows, size_t cols)
{
	for (size_t c = 0; c < cols; c++)
		for (size_t r = 0; r < rows; r++)
			dst[c * rows + r] = src[r * cols + c];
}

void kvi_scalar_transpose16(uint16_t *dst, const uint16_t *src, size_t rows, size_t cols)
{
	for (size_t c = 0; c < cols; c++)
		for (size_t r = 0; r < rows; r++)
			dst[c * rows + r] = src[r * cols + c];
}

static void rotated_contexts(uint32_t *ctx, const struct kvi_rotation *r)
{
	kvi_scalar_rotate_pairs(ctx, r, 0);
}

const struct kvi_kernels kvi_kernels_scalar = {
	.name = "scalar",
	.isa = KVARC_ISA_SCALAR,
	.coding.grid_encode = kvi_scalar_grid_encode,
	.coding.grid_decode = kvi_scalar_grid_decode,
	.coding.sym_encode = sym_encode,
	.coding.sym_decode = sym_decode,
	.coding.grid_contexts = kvi_scalar_grid_contexts,
	.fits.grid_price = kvi_scalar_grid_price,
	.coding.rotated_contexts = rotated_contexts,
	KVI_MOVES(kvi_scalar),
	KVI_FITS(kvi_scalar),
	.layers = &kvi_scalar_layers,
	.cells = &kvi_scalar_cells,
	.slots.slot_rows = kvi_scalar_slot_rows,
	.slots.slot = kvi_scalar_slot,
};
