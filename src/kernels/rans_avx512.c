/* SPDX-License-Identifier: BSD-3-Clause */
/* rans_avx512.c - symbols on 2 x 16 lanes, and the set of kernels */
#include "config.h"

#include "avx512.h"
#include "escapes.h"
#include "slots.h"

INLINE const uint8_t *sym_decode_span(const struct kvi_sym_job *job,
                                      const struct kvi_span *span,
                                      const uint8_t *tab,
                                      struct kvi_feed *feed, const uint8_t *p,
                                      uint32_t *state, uint16_t *sym,
                                      uint8_t *esc, bool per_step, bool full)
{
	const unsigned lanes = full ? KVI_LANES : span->lanes;
	const uint32_t active = full ? UINT32_MAX : lanes_mask(lanes);
	const uint8_t *t = tab, *wrap = tab + span->ring * span->step_size;
	const vec escape = SET(job->escape);
	struct pair st = states_load(state);
	for (size_t step = 0; step < span->steps; step++) {
		uint32_t escaped = 0;
		KVI_FEED_CHECK(feed, p);
		struct pair s = table_step_take(&st, job->tables, t, per_step,
		                          active, &p);
		HALVES {
			__mmask16 act = (__mmask16)(active >> 16 * h);
			_mm512_mask_cvtepi32_storeu_epi16(sym + 16 * h, act,
			                                  s.v[h]);
			escaped |= (uint32_t)_mm512_mask_cmpeq_epi32_mask(
					   act, s.v[h], escape)
			           << 16 * h;
		}
		if (__builtin_expect(escaped != 0, 0)) {
			uint32_t a[KVI_LANES];
			states_store(a, &st, UINT32_MAX);
			p = kvi_escapes_take8(escaped, a, esc, p);
			st = states_load(a);
		}
		sym += lanes;
		esc += lanes;
		t += span->step_size;
		if (t == wrap)
			t = tab;
	}
	states_store(state, &st, active);
	return p;
}

static bool sym_decode(const struct kvi_sym_job *job,
                       const struct kvi_stream *in, uint16_t *sym,
                       uint8_t *esc)
{
	const struct kvi_span full = kvi_span_full(
		&job->steps, job->tab_steps, job->per_step);
	const struct kvi_span tail = kvi_span_tail(&job->steps, job->per_step);
	const size_t n = full.steps * KVI_LANES;
	struct kvi_feed feed;
	const uint8_t *p = kvi_feed_open(&feed, in);
	uint32_t state[KVI_LANES];
	memcpy(state, in->state, sizeof(state));
	if (job->per_step)
		p = sym_decode_span(job, &full, job->tab, &feed, p, state, sym,
		                    esc, true, true);
	else
		p = sym_decode_span(job, &full, job->tab, &feed, p, state, sym,
		                    esc, false, true);
	if (p && tail.steps)
		p = sym_decode_span(job, &tail, job->tab_tail, &feed, p, state,
		                    sym + n, esc + n, job->per_step, false);
	return p && kvi_feed_done(&feed, p, state);
}

INLINE uint16_t *sym_encode_span(const struct kvi_sym_job *job,
                                 const struct kvi_span *span,
                                 const uint8_t *tab, const uint16_t *sym,
                                 const uint8_t *esc, uint32_t *state,
                                 uint16_t *w, bool per_step, bool full)
{
	const unsigned lanes = full ? KVI_LANES : span->lanes;
	const uint32_t active = full ? UINT32_MAX : lanes_mask(lanes);
	const uint8_t *wrap = tab + span->ring * span->step_size;
	const uint8_t *t = tab + span->steps % span->ring * span->step_size;
	const vec escape = SET(job->escape);
	struct pair st = states_load(state);
	sym += span->steps * lanes;
	esc += span->steps * lanes;
	for (size_t step = span->steps; step-- > 0;) {
		struct pair s;
		uint32_t escaped = 0;
		if (t == tab)
			t = wrap;
		t -= span->step_size;
		sym -= lanes;
		esc -= lanes;
		HALVES {
			__mmask16 act = (__mmask16)(active >> 16 * h);
			s.v[h] = _mm512_cvtepu16_epi32(
				_mm256_maskz_loadu_epi16(act, sym + 16 * h));
			escaped |= (uint32_t)_mm512_mask_cmpeq_epi32_mask(
					   act, s.v[h], escape)
			           << 16 * h;
		}
		if (__builtin_expect(escaped != 0, 0)) {
			uint32_t a[KVI_LANES];
			states_store(a, &st, UINT32_MAX);
			kvi_escapes_put8(escaped, a, esc, &w);
			st = states_load(a);
		}
		struct pair entry = entries_load(job->tables, t, per_step,
		                                 active, &s);
		symbols_put(&st, &entry, active, &w);
	}
	states_store(state, &st, active);
	return w;
}

static size_t sym_encode(const struct kvi_sym_job *job, const uint16_t *sym,
                         const uint8_t *esc, uint16_t *end,
                         uint32_t state[KVI_LANES])
{
	const struct kvi_span full = kvi_span_full(
		&job->steps, job->tab_steps, job->per_step);
	const struct kvi_span tail = kvi_span_tail(&job->steps, job->per_step);
	const size_t n = full.steps * KVI_LANES;
	uint16_t *w = end;
	kvi_states_start(state);
	if (tail.steps)
		w = sym_encode_span(job, &tail, job->tab_tail, sym + n,
		                    esc + n, state, w, job->per_step, false);
	if (job->per_step)
		w = sym_encode_span(job, &full, job->tab, sym, esc, state, w,
		                    true, true);
	else
		w = sym_encode_span(job, &full, job->tab, sym, esc, state, w,
		                    false, true);
	return (size_t)(end - w);
}

#define KERNELS \
	.name = "avx512", \
	.isa = KVARC_ISA_AVX512, \
	.grid_encode = kvi_avx512_grid_encode, \
	.grid_decode = kvi_avx512_grid_decode, \
	.sym_encode = sym_encode, \
	.sym_decode = sym_decode, \
	.exp_encode = kvi_avx512_exp_encode, \
	.exp_searched = KVI_AVX512_EXP_SEARCHED, \
	.exp_decode = kvi_avx512_exp_decode, \
	.exp_decode2 = kvi_avx512_exp_decode2, \
	.grid_contexts = kvi_avx512_grid_contexts, \
	.rotated_contexts = kvi_avx512_rotated_contexts, \
	.bf16_split = kvi_avx2_bf16_split, \
	.bf16_merge = kvi_avx2_bf16_merge, \
	.f16_split = kvi_avx2_f16_split, \
	.f16_merge = kvi_avx2_f16_merge, \
	.transpose8 = kvi_avx2_transpose8, \
	.transpose16 = kvi_avx2_transpose16, \
	.slot = kvi_avx512_slot

const struct kvi_kernels kvi_kernels_avx512 = {
	KERNELS, .slot_rows = kvi_avx512_slot_rows
};
#if defined(KVI_AVX512VNNI)
const struct kvi_kernels kvi_kernels_avx512vnni = {
	KERNELS, .slot_rows = kvi_avx512vnni_slot_rows
};
#endif
