/* SPDX-License-Identifier: BSD-3-Clause */
/* rans_neon.c - symbols and exponents on 8 x 4 lanes */
#include "config.h"

#include "neon.h"
#include "escapes.h"
#include "slots.h"

/* First bytes of the words with ranks a, b, c, d; NO: none. */
#define NO 127
#define TAKE(r) (uint8_t)(2 * (r)), (uint8_t)(2 * (r) + 1), 255, 255
#define SPREAD(a, b, c, d) { TAKE(a), TAKE(b), TAKE(c), TAKE(d) }
const uint8_t kvi_neon_spread[16][16] = {
	SPREAD(NO, NO, NO, NO), SPREAD(0, NO, NO, NO), SPREAD(NO, 0, NO, NO),
	SPREAD(0, 1, NO, NO),   SPREAD(NO, NO, 0, NO), SPREAD(0, NO, 1, NO),
	SPREAD(NO, 0, 1, NO),   SPREAD(0, 1, 2, NO),   SPREAD(NO, NO, NO, 0),
	SPREAD(0, NO, NO, 1),   SPREAD(NO, 0, NO, 1),  SPREAD(0, 1, NO, 2),
	SPREAD(NO, NO, 0, 1),   SPREAD(0, NO, 1, 2),   SPREAD(NO, 0, 1, 2),
	SPREAD(0, 1, 2, 3)
};
/* Low words of the lanes a, b, c, d. */
#define LOW(l) (uint8_t)(4 * (l)), (uint8_t)(4 * (l) + 1)
#define PACKED(a, b, c, d) { LOW(a), LOW(b), LOW(c), LOW(d) }
const uint8_t kvi_neon_packed[16][8] = {
	PACKED(0, 0, 0, 0), PACKED(0, 0, 0, 0), PACKED(0, 0, 0, 1),
	PACKED(0, 0, 0, 1), PACKED(0, 0, 0, 2), PACKED(0, 0, 0, 2),
	PACKED(0, 0, 1, 2), PACKED(0, 0, 1, 2), PACKED(0, 0, 0, 3),
	PACKED(0, 0, 0, 3), PACKED(0, 0, 1, 3), PACKED(0, 0, 1, 3),
	PACKED(0, 0, 2, 3), PACKED(0, 0, 2, 3), PACKED(0, 1, 2, 3),
	PACKED(0, 1, 2, 3)
};

/* Bytes of 32 lanes, or one for all, as numbers. */
INLINE struct parts bytes_load(const uint8_t *p, bool per_step)
{
	struct parts q;
	if (per_step) {
		EACH
			q.v[h] = SET(*p);
		return q;
	}
	for (int i = 0; i < 2; i++) {
		uint8x16_t b = vld1q_u8(p + 16 * i);
		uint16x8_t lo = vmovl_u8(vget_low_u8(b));
		uint16x8_t hi = vmovl_u8(vget_high_u8(b));
		q.v[4 * i] = vmovl_u16(vget_low_u16(lo));
		q.v[4 * i + 1] = vmovl_u16(vget_high_u16(lo));
		q.v[4 * i + 2] = vmovl_u16(vget_low_u16(hi));
		q.v[4 * i + 3] = vmovl_u16(vget_high_u16(hi));
	}
	return q;
}

/* 16 numbers below 256, from part 4 * i on, as bytes. */
INLINE uint8x16_t narrow8(const struct parts *q, int i)
{
	uint16x8_t lo = vcombine_u16(vmovn_u32(q->v[4 * i]),
	                             vmovn_u32(q->v[4 * i + 1]));
	uint16x8_t hi = vcombine_u16(vmovn_u32(q->v[4 * i + 2]),
	                             vmovn_u32(q->v[4 * i + 3]));
	return vcombine_u8(vmovn_u16(lo), vmovn_u16(hi));
}

/* A bit a byte of a mask. */
INLINE uint32_t byte_bits(uint8x16_t mask)
{
	static const uint8_t bit[16] = { 1, 2, 4, 8, 16, 32, 64, 128,
		                         1, 2, 4, 8, 16, 32, 64, 128 };
	uint8x16_t b = vandq_u8(mask, vld1q_u8(bit));
	return vaddv_u8(vget_low_u8(b)) |
	       (uint32_t)vaddv_u8(vget_high_u8(b)) << 8;
}

/* n <= 32 entries in memory of 32. A step of a tail must not touch what is
 * behind its lanes. */
INLINE const uint8_t *padded(const uint8_t *p, size_t n, bool full,
                             uint8_t *room)
{
	if (full)
		return p;
	memset(room, 0, KVI_LANES);
	memcpy(room, p, n);
	return room;
}

INLINE const uint8_t *sym_decode_span(const struct kvi_sym_job *job,
                                      const struct kvi_span *span,
                                      const uint8_t *tab,
                                      struct kvi_feed *feed, const uint8_t *p,
                                      uint32_t *state, uint16_t *sym,
                                      uint8_t *esc, bool full)
{
	const unsigned lanes = full ? KVI_LANES : span->lanes;
	const bool per_step = span->lane_size == 0;
	const uint8_t *t = tab, *wrap = tab + span->ring * span->step_size;
	const struct parts active = lanes_active(lanes);
	const vec escape = SET(job->escape);
	struct parts st = states_load(state);
	for (size_t step = 0; step < span->steps; step++) {
		uint32_t escaped = 0;
		uint16_t y[KVI_LANES];
		uint8_t room[KVI_LANES];
		KVI_FEED_CHECK(feed, p);
		struct parts table = bytes_load(
			padded(t, span->step_size, full || per_step, room),
			per_step);
		struct parts s = symbols_take(&st, job->tables->lut, &table,
		                             &active, &p);
		EACH {
			vec e = vceqq_u32(s.v[h], escape);
			e = vandq_u32(e, active.v[h]);
			escaped |= lane_bits(e) << 4 * h;
			vst1_u16((full ? sym : y) + 4 * h, vmovn_u32(s.v[h]));
		}
		if (!full)
			memcpy(sym, y, lanes * sizeof(*sym));
		if (__builtin_expect(escaped != 0, 0)) {
			uint32_t a[KVI_LANES];
			states_store(a, &st, KVI_LANES);
			p = kvi_escapes_take8(escaped, a, esc, p);
			st = states_load(a);
		}
		sym += lanes;
		esc += lanes;
		t += span->step_size;
		if (t == wrap)
			t = tab;
	}
	states_store(state, &st, lanes);
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
	p = sym_decode_span(job, &full, job->tab, &feed, p, state, sym, esc,
	                    true);
	if (p && tail.steps)
		p = sym_decode_span(job, &tail, job->tab_tail, &feed, p, state,
		                    sym + n, esc + n, false);
	return p && kvi_feed_done(&feed, p, state);
}

INLINE uint16_t *sym_encode_span(const struct kvi_sym_job *job,
                                 const struct kvi_span *span,
                                 const uint8_t *tab, const uint16_t *sym,
                                 const uint8_t *esc, uint32_t *state,
                                 uint16_t *w, bool full)
{
	const unsigned lanes = full ? KVI_LANES : span->lanes;
	const bool per_step = span->lane_size == 0;
	const uint8_t *wrap = tab + span->ring * span->step_size;
	const uint8_t *t = tab + span->steps % span->ring * span->step_size;
	const struct parts active = lanes_active(lanes);
	const vec escape = SET(job->escape);
	struct parts st = states_load(state);
	sym += span->steps * lanes;
	esc += span->steps * lanes;
	for (size_t step = span->steps; step-- > 0;) {
		struct parts s;
		uint32_t escaped = 0;
		uint16_t x[KVI_LANES] = { 0 };
		uint8_t room[KVI_LANES];
		if (t == tab)
			t = wrap;
		t -= span->step_size;
		sym -= lanes;
		esc -= lanes;
		if (!full)
			memcpy(x, sym, lanes * sizeof(*x));
		EACH {
			s.v[h] = vmovl_u16(vld1_u16((full ? sym : x) + 4 * h));
			vec e = vceqq_u32(s.v[h], escape);
			e = vandq_u32(e, active.v[h]);
			escaped |= lane_bits(e) << 4 * h;
		}
		if (__builtin_expect(escaped != 0, 0)) {
			uint32_t a[KVI_LANES];
			states_store(a, &st, KVI_LANES);
			kvi_escapes_put8(escaped, a, esc, &w);
			st = states_load(a);
		}
		struct parts table = bytes_load(
			padded(t, span->step_size, full || per_step, room),
			per_step);
		struct parts entry = entries_load(job->tables, &table, &s);
		symbols_put(&st, &entry, &active, &w);
	}
	states_store(state, &st, lanes);
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
		                    esc + n, state, w, false);
	w = sym_encode_span(job, &full, job->tab, sym, esc, state, w, true);
	return (size_t)(end - w);
}

/* --------------------------------------------------- exponent codec */

struct ring {
	const uint8_t *tab, *top; /* of the first step */
	size_t at, size;          /* in entries */
};

/* Tops of 32 lanes; one for all when per_step. */
INLINE const uint8_t *tops_of(const uint8_t *top, unsigned lanes, bool per_step,
                              bool full, uint8_t *room)
{
	if (!per_step)
		return padded(top, lanes, full, room);
	memset(room, *top, KVI_LANES);
	return room;
}

INLINE const uint8_t *exp_decode_span(const struct kvi_exp_job *job,
                                      const struct kvi_span *span,
                                      struct ring ring, struct kvi_feed *feed,
                                      const uint8_t *p, uint32_t *state,
                                      uint8_t *x, bool *good, bool per_step,
                                      bool full)
{
	const unsigned lanes = full ? KVI_LANES : span->lanes;
	const struct parts active = lanes_active(lanes);
	const uint32_t mask = (uint32_t)(((uint64_t)1 << lanes) - 1);
	const uint8x16_t escape = vdupq_n_u8(KVI_EXP_SYMBOLS - 1);
	struct parts st = states_load(state);
	uint32_t bad = 0;
	for (size_t step = 0; step < span->steps; step++) {
		uint8_t room[KVI_LANES], tops[KVI_LANES];
		KVI_FEED_CHECK(feed, p);
		struct parts table = bytes_load(
			padded(ring.tab + ring.at, lanes, full || per_step,
		               room),
			per_step);
		const uint8_t *top = tops_of(ring.top + ring.at, lanes,
		                             per_step, full, tops);
		struct parts s = symbols_take(&st, job->tables->lut, &table,
		                              &active, &p);
		uint32_t escaped = 0, above = 0;
		for (int i = 0; i < 2; i++) {
			uint8x16_t symbol = narrow8(&s, i);
			uint8x16_t t = vld1q_u8(top + 16 * i);
			escaped |= byte_bits(vceqq_u8(symbol, escape))
			           << 16 * i;
			above |= byte_bits(vcgtq_u8(symbol, t)) << 16 * i;
			vst1q_u8((full ? x : room) + 16 * i,
			         vsubq_u8(t, symbol));
		}
		escaped &= mask;
		bad |= above & ~escaped & mask;
		if (!full)
			memcpy(x, room, lanes);
		if (__builtin_expect(escaped != 0, 0)) {
			uint32_t a[KVI_LANES];
			states_store(a, &st, KVI_LANES);
			p = kvi_escapes_take8(escaped, a, x, p);
			st = states_load(a);
		}
		x += lanes;
		ring.at += per_step ? 1 : lanes;
		if (ring.at == ring.size)
			ring.at = 0;
	}
	states_store(state, &st, lanes);
	*good &= bad == 0;
	return p;
}

static bool exp_decode(const struct kvi_exp_job *job,
                       const struct kvi_stream *in, void *out)
{
	const struct kvi_span full = kvi_span_full(
		&job->steps, job->tab_steps, job->per_step);
	const struct kvi_span tail = kvi_span_tail(&job->steps, job->per_step);
	const struct ring ring = { job->tab, job->top, 0,
		                   full.ring * full.step_size };
	const struct ring last = { job->tab_tail, job->top_tail, 0,
		                   tail.ring * tail.step_size };
	uint8_t *e = out;
	bool good = true;
	struct kvi_feed feed;
	const uint8_t *p = kvi_feed_open(&feed, in);
	uint32_t state[KVI_LANES];
	memcpy(state, in->state, sizeof(state));
	if (job->per_step)
		p = exp_decode_span(job, &full, ring, &feed, p, state, e,
		                    &good, true, true);
	else
		p = exp_decode_span(job, &full, ring, &feed, p, state, e,
		                    &good, false, true);
	if (p && tail.steps)
		p = exp_decode_span(job, &tail, last, &feed, p, state,
		                    e + full.steps * KVI_LANES, &good,
		                    job->per_step, false);
	return p && kvi_feed_done(&feed, p, state) && good;
}

INLINE uint16_t *exp_encode_span(const struct kvi_exp_job *job,
                                 const struct kvi_span *span,
                                 struct ring ring, const uint8_t *x,
                                 uint32_t *state, uint16_t *w, bool per_step,
                                 bool full)
{
	const unsigned lanes = full ? KVI_LANES : span->lanes;
	const struct parts active = lanes_active(lanes);
	const uint32_t mask = (uint32_t)(((uint64_t)1 << lanes) - 1);
	const uint8x16_t escape = vdupq_n_u8(KVI_EXP_SYMBOLS - 1);
	struct parts st = states_load(state);
	x += span->steps * lanes;
	for (size_t step = span->steps; step-- > 0;) {
		uint8_t room[KVI_LANES], tops[KVI_LANES];
		uint8_t symbols[KVI_LANES];
		if (ring.at == 0)
			ring.at = ring.size;
		ring.at -= per_step ? 1 : lanes;
		x -= lanes;
		const uint8_t *top = tops_of(ring.top + ring.at, lanes,
		                             per_step, full, tops);
		const uint8_t *from = padded(x, lanes, full, room);
		uint32_t escaped = 0;
		for (int i = 0; i < 2; i++) {
			uint8x16_t t = vld1q_u8(top + 16 * i);
			uint8x16_t e = vld1q_u8(from + 16 * i);
			/* top - e, or more than any distance where e > top */
			uint8x16_t symbol =
				vorrq_u8(vsubq_u8(t, e), vcgtq_u8(e, t));
			symbol = vminq_u8(symbol, escape);
			escaped |= byte_bits(vceqq_u8(symbol, escape))
			           << 16 * i;
			vst1q_u8(symbols + 16 * i, symbol);
		}
		escaped &= mask;
		if (__builtin_expect(escaped != 0, 0)) {
			uint32_t a[KVI_LANES];
			states_store(a, &st, KVI_LANES);
			kvi_escapes_put8(escaped, a, x, &w);
			st = states_load(a);
		}
		struct parts table = bytes_load(
			padded(ring.tab + ring.at, lanes, full || per_step,
		               room),
			per_step);
		struct parts s = bytes_load(symbols, false);
		struct parts entry = entries_load(job->tables, &table, &s);
		symbols_put(&st, &entry, &active, &w);
	}
	states_store(state, &st, lanes);
	return w;
}

static size_t exp_encode(const struct kvi_exp_job *job, const uint8_t *e,
                         uint16_t *end, uint32_t state[KVI_LANES])
{
	const struct kvi_span full = kvi_span_full(
		&job->steps, job->tab_steps, job->per_step);
	const struct kvi_span tail = kvi_span_tail(&job->steps, job->per_step);
	const struct ring ring = { job->tab, job->top,
		                   full.steps % full.ring * full.step_size,
		                   full.ring * full.step_size };
	const struct ring last = { job->tab_tail, job->top_tail, 0,
		                   tail.ring * tail.step_size };
	uint16_t *w = end;
	kvi_states_start(state);
	if (tail.steps)
		w = exp_encode_span(job, &tail, last,
		                    e + full.steps * KVI_LANES, state, w,
		                    job->per_step, false);
	if (job->per_step)
		w = exp_encode_span(job, &full, ring, e, state, w, true, true);
	else
		w = exp_encode_span(job, &full, ring, e, state, w, false,
		                    true);
	return (size_t)(end - w);
}

const struct kvi_kernels kvi_kernels_neon = {
	.name = "neon",
	.isa = KVARC_ISA_NEON,
	.grid_encode = kvi_neon_grid_encode,
	.grid_decode = kvi_neon_grid_decode,
	.sym_encode = sym_encode,
	.sym_decode = sym_decode,
	.exp_encode = exp_encode,
	.exp_decode = exp_decode,
	.grid_contexts = kvi_scalar_grid_contexts,
	.rotated_contexts = kvi_scalar_rotated_contexts,
	.bf16_split = kvi_scalar_bf16_split,
	.bf16_merge = kvi_scalar_bf16_merge,
	.f16_split = kvi_scalar_f16_split,
	.f16_merge = kvi_scalar_f16_merge,
	.transpose8 = kvi_scalar_transpose8,
	.transpose16 = kvi_scalar_transpose16,
	.slot_rows = kvi_neon_slot_rows,
	.slot = kvi_neon_slot,
};
