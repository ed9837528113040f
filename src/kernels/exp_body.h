/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * exp_body.h - streams of exponents (spec exponent); kvi_coding_kernels.exp_encode, exp_decode
 *
 * Included after step_body.h and escapes_body.h; AVX-512 has exp_avx512.c. Uses, beside what these
 * do: v_load_bytes, bytes, b_set, b_load, b_store, b_sub, b_min, b_distance, b_equal_bits,
 * b_above_bits, b_narrow (contracts in ops.h). Each kind of span has a loop of its own.
 */
#ifndef KVI_EXP_BODY_H
#define KVI_EXP_BODY_H

INLINE bytes bytes_load(const uint8_t *p, bool per_step, active_lanes active)
{
	uint8_t copy[KVI_LANES];
	return per_step ? b_set(*p) : b_load(bytes_padded(p, active, copy));
}

INLINE void bytes_store(uint8_t *p, bytes b, active_lanes active)
{
	uint8_t all[KVI_LANES];
	b_store(active.lanes == KVI_LANES ? p : all, b);
	if (active.lanes < KVI_LANES)
		memcpy(p, all, active.lanes);
}

INLINE uint32_t active_bits(active_lanes active)
{
	return (uint32_t)(((uint64_t)1 << active.lanes) - 1);
}

/* The steps of a span; NULL when the words do not suffice. *good: false when a symbol gave a
 * negative exponent. */
INLINE const uint8_t *exp_decode_span(const struct kvi_exp_job *job, const struct kvi_span *span,
                                      struct kvi_exp_ring ring, struct kvi_feed *feed,
                                      const uint8_t *p, uint32_t *state, uint8_t *e, bool *good,
                                      bool per_step, bool full)
{
	const unsigned lanes = full ? KVI_LANES : span->lanes;
	const active_lanes active = first_active(lanes);
	const uint32_t all = active_bits(active);
	const bytes escape = b_set(KVI_EXP_SYMBOLS - 1);
	struct parts st = states_load(state);
	uint32_t bad = 0;
	for (size_t step = 0; step < span->steps; step++) {
		KVI_FEED_CHECK(feed, p);
		bytes top = bytes_load(ring.top + ring.at, per_step, active);
		struct parts s = tab_step_take(&st, job->tables, ring.tab + ring.at, per_step,
		                               active, &p);
		bytes symbol = b_narrow(&s);
		uint32_t escaped = b_equal_bits(symbol, escape) & all;
		bad |= b_above_bits(symbol, top) & ~escaped & all;
		bytes_store(e, b_sub(top, symbol), active);
		if (__builtin_expect(escaped != 0, 0))
			p = escapes_take8(&st, escaped, e, p);
		e += lanes;
		ring.at += per_step ? 1 : lanes;
		if (ring.at == ring.size)
			ring.at = 0;
	}
	states_store(state, &st, active);
	*good &= bad == 0;
	return p;
}

static bool exp_decode(const struct kvi_exp_job *job, const struct kvi_stream *in, void *out)
{
	const struct kvi_exp_spans s = kvi_exp_spans(job, false);
	uint8_t *e = out;
	bool good = true;
	struct kvi_feed feed;
	const uint8_t *p = kvi_feed_open(&feed, in);
	uint32_t state[KVI_LANES];
	memcpy(state, in->state, sizeof(state));
	if (job->per_step)
		p = exp_decode_span(job, &s.full, s.ring, &feed, p, state, e, &good, true, true);
	else
		p = exp_decode_span(job, &s.full, s.ring, &feed, p, state, e, &good, false, true);
	if (p && s.tail.steps)
		p = exp_decode_span(job, &s.tail, s.tail_ring, &feed, p, state,
		                    e + s.full.steps * KVI_LANES, &good, job->per_step, false);
	return p && kvi_feed_done(&feed, p, state) && good;
}

INLINE uint16_t *exp_encode_span(const struct kvi_exp_job *job, const struct kvi_span *span,
                                 struct kvi_exp_ring ring, const uint8_t *e, uint32_t *state,
                                 uint16_t *w, bool per_step, bool full)
{
	const unsigned lanes = full ? KVI_LANES : span->lanes;
	const active_lanes active = first_active(lanes);
	const uint32_t all = active_bits(active);
	const bytes escape = b_set(KVI_EXP_SYMBOLS - 1);
	struct parts st = states_load(state);
	e += span->steps * lanes;
	for (size_t step = span->steps; step-- > 0;) {
		uint8_t symbols[KVI_LANES];
		if (ring.at == 0)
			ring.at = ring.size;
		ring.at -= per_step ? 1 : lanes;
		e -= lanes;
		/* a distance above all that have symbols where e > top */
		bytes symbol = b_distance(bytes_load(ring.top + ring.at, per_step, active),
		                          bytes_load(e, false, active));
		symbol = b_min(symbol, escape);
		uint32_t escaped = b_equal_bits(symbol, escape) & all;
		if (__builtin_expect(escaped != 0, 0))
			escapes_put8(&st, escaped, e, &w);
		b_store(symbols, symbol);
		struct parts s = v_load_bytes(symbols);
		struct parts entry = tab_entries(job->tables, ring.tab + ring.at, per_step, active,
		                                 &s);
		symbols_put(&st, &entry, active, &w);
	}
	states_store(state, &st, active);
	return w;
}

static size_t exp_encode(const struct kvi_exp_job *job, const uint8_t *e, uint16_t *end,
                         uint32_t state[KVI_LANES])
{
	const struct kvi_exp_spans s = kvi_exp_spans(job, true);
	uint16_t *w = end;
	kvi_states_start(state);
	if (s.tail.steps)
		w = exp_encode_span(job, &s.tail, s.tail_ring, e + s.full.steps * KVI_LANES, state,
		                    w, job->per_step, false);
	if (job->per_step)
		w = exp_encode_span(job, &s.full, s.ring, e, state, w, true, true);
	else
		w = exp_encode_span(job, &s.full, s.ring, e, state, w, false, true);
	return (size_t)(end - w);
}

#endif
