/* SPDX-License-Identifier: BSD-3-Clause */
/* rans_scalar.c - the kernels of portable C: symbols, exponents, moves */
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

enum { EXP_ESCAPE = KVI_EXP_SYMBOLS - 1 };

static uint16_t *exp_encode_span(const struct kvi_exp_job *job, const struct kvi_span *span,
                                 const uint8_t *tab, const uint8_t *top, const uint8_t *e,
                                 uint32_t *st, uint16_t *w)
{
	const uint32_t *enc = job->tables->enc;
	const size_t stride = job->tables->stride;
	for (size_t step = span->steps; step-- > 0;) {
		size_t ring = step % span->ring * span->step_size;
		const uint8_t *x = e + step * span->lanes;
		uint32_t sym[KVI_LANES];
		for (unsigned l = 0; l < span->lanes; l++) {
			size_t i = ring + l * span->lane_size;
			uint32_t s = (uint32_t)top[i] - x[l];
			sym[l] = s < EXP_ESCAPE ? s : EXP_ESCAPE;
		}
		for (unsigned l = span->lanes; l-- > 0;)
			if (sym[l] == EXP_ESCAPE)
				st[l] = kvi_bits_put(st[l], 8, x[l], &w);
		for (unsigned l = span->lanes; l-- > 0;) {
			size_t i = ring + l * span->lane_size;
			st[l] = kvi_symbol_put(st[l], enc[tab[i] * stride + sym[l]], &w);
		}
	}
	return w;
}

static size_t exp_encode(const struct kvi_exp_job *job, const uint8_t *e, uint16_t *end,
                         uint32_t state[KVI_LANES])
{
	struct kvi_span full = kvi_span_full(&job->steps, job->tab_steps, job->per_step);
	struct kvi_span tail = kvi_span_tail(&job->steps, job->per_step);
	uint16_t *w = end;
	kvi_states_start(state);
	w = exp_encode_span(job, &tail, job->tab_tail, job->top_tail, e + full.steps * KVI_LANES,
	                    state, w);
	w = exp_encode_span(job, &full, job->tab, job->top, e, state, w);
	return (size_t)(end - w);
}

/* Decodes the steps of a span; false when a symbol gives a negative exponent. */
static bool exp_decode_span(const struct kvi_exp_job *job, const struct kvi_span *span,
                            const uint8_t *tab, const uint8_t *top, struct kvi_words_in *in,
                            uint32_t *st, uint8_t *e)
{
	const uint32_t *lut = job->tables->lut;
	bool good = true;
	for (size_t step = 0; step < span->steps; step++) {
		size_t ring = step % span->ring * span->step_size;
		uint8_t *x = e + step * span->lanes;
		uint32_t escaped = 0;
		for (unsigned l = 0; l < span->lanes; l++) {
			size_t i = ring + l * span->lane_size;
			uint32_t entry = lut[(size_t)tab[i] * KVI_PROB_TOTAL + (st[l] & 2047)];
			uint32_t s = entry & 511;
			x[l] = (uint8_t)(top[i] - s);
			if (s == EXP_ESCAPE)
				escaped |= (uint32_t)1 << l;
			else
				good &= s <= top[i];
			st[l] = kvi_renorm(kvi_symbol_take(st[l], entry), in);
		}
		for (; escaped; escaped &= escaped - 1) {
			unsigned l = (unsigned)__builtin_ctz(escaped);
			x[l] = (uint8_t)st[l];
			st[l] = kvi_renorm(st[l] >> 8, in);
		}
	}
	return good;
}

static bool exp_decode(const struct kvi_exp_job *job, const struct kvi_stream *in, void *out)
{
	struct kvi_span full = kvi_span_full(&job->steps, job->tab_steps, job->per_step);
	struct kvi_span tail = kvi_span_tail(&job->steps, job->per_step);
	struct kvi_words_in words = kvi_words_begin(in);
	uint8_t *e = out;
	uint32_t st[KVI_LANES];
	memcpy(st, in->state, sizeof(st));
	bool good = exp_decode_span(job, &full, job->tab, job->top, &words, st, e);
	good &= exp_decode_span(job, &tail, job->tab_tail, job->top_tail, &words, st,
	                        e + full.steps * KVI_LANES);
	return kvi_stream_done(st, &words) && good;
}

void kvi_scalar_bf16_split(uint8_t *e, uint8_t *rest, const uint16_t *x, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		e[i] = (uint8_t)(x[i] >> 7);
		rest[i] = (uint8_t)((x[i] >> 8 & 0x80) | (x[i] & 0x7f));
	}
}

void kvi_scalar_bf16_merge(uint16_t *x, const uint8_t *e, const uint8_t *rest, size_t n)
{
	for (size_t i = 0; i < n; i++)
		x[i] = (uint16_t)((rest[i] & 0x80) << 8 | e[i] << 7 | (rest[i] & 0x7f));
}

void kvi_scalar_f16_split(uint8_t *e, uint8_t *const planes[3], const uint16_t *x, size_t n)
{
	unsigned two = 0, one = 0; /* incomplete bytes of the planes */
	for (size_t i = 0; i < n; i++) {
		two = i % 4 ? two : 0;
		one = i % 8 ? one : 0;
		two |= (x[i] >> 8 & 3u) << i % 4 * 2;
		one |= (unsigned)(x[i] >> 15) << i % 8;
		e[i] = (uint8_t)(x[i] >> 10 & 31);
		planes[0][i] = (uint8_t)x[i];
		planes[1][i / 4] = (uint8_t)two;
		planes[2][i / 8] = (uint8_t)one;
	}
}

void kvi_scalar_f16_merge(uint16_t *x, const uint8_t *e, const uint8_t *const planes[3], size_t n)
{
	for (size_t i = 0; i < n; i++)
		x[i] = (uint16_t)((planes[2][i / 8] >> i % 8 & 1) << 15 | e[i] << 10 |
		                  (planes[1][i / 4] >> i % 4 * 2 & 3) << 8 | planes[0][i]);
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
	.coding.exp_encode = exp_encode,
	.coding.exp_decode = exp_decode,
	.coding.grid_contexts = kvi_scalar_grid_contexts,
	.fits.grid_price = kvi_scalar_grid_price,
	.coding.rotated_contexts = rotated_contexts,
	KVI_MOVES(kvi_scalar),
	KVI_FITS(kvi_scalar),
	.layers = &kvi_scalar_layers,
	.slots.slot_rows = kvi_scalar_slot_rows,
	.slots.slot = kvi_scalar_slot,
};
