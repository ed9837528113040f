/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sym_body.h - streams of symbols with tables by number; kvi_coding_kernels.sym_encode, sym_decode
 *
 * Included after escapes_body.h. Uses SET, first_active, states_load, states_store, words16_load,
 * words16_store, lanes_equal, tab_step_take, tab_entries, symbols_put (contracts in step_body.h)
 * and escapes_take8, escapes_put8. Each kind of span has a loop of its own.
 */
#ifndef KVI_SYM_BODY_H
#define KVI_SYM_BODY_H

/* The steps of a span; NULL when the words do not suffice. */
INLINE const uint8_t *sym_decode_span(const struct kvi_sym_job *job, const struct kvi_span *span,
                                      const uint8_t *tab, struct kvi_feed *feed, const uint8_t *p,
                                      uint32_t *state, uint16_t *sym, uint8_t *esc, bool per_step,
                                      bool full)
{
	const unsigned lanes = full ? KVI_LANES : span->lanes;
	const active_lanes active = first_active(lanes);
	const uint8_t *t = tab, *wrap = tab + span->ring * span->step_size;
	const vec escape = SET(job->escape);
	struct parts st = states_load(state);
	for (size_t step = 0; step < span->steps; step++) {
		KVI_FEED_CHECK(feed, p);
		struct parts s = tab_step_take(&st, job->tables, t, per_step, active, &p);
		uint32_t escaped = lanes_equal(&s, escape, active);
		words16_store(sym, &s, active);
		if (__builtin_expect(escaped != 0, 0))
			p = escapes_take8(&st, escaped, esc, p);
		sym += lanes;
		esc += lanes;
		t += span->step_size;
		if (t == wrap)
			t = tab;
	}
	states_store(state, &st, active);
	return p;
}

static bool sym_decode(const struct kvi_sym_job *job, const struct kvi_stream *in, uint16_t *sym,
                       uint8_t *esc)
{
	const struct kvi_span full = kvi_span_full(&job->steps, job->tab_steps, job->per_step);
	const struct kvi_span tail = kvi_span_tail(&job->steps, job->per_step);
	const size_t n = full.steps * KVI_LANES;
	struct kvi_feed feed;
	const uint8_t *p = kvi_feed_open(&feed, in);
	uint32_t state[KVI_LANES];
	memcpy(state, in->state, sizeof(state));
	if (job->per_step)
		p = sym_decode_span(job, &full, job->tab, &feed, p, state, sym, esc, true, true);
	else
		p = sym_decode_span(job, &full, job->tab, &feed, p, state, sym, esc, false, true);
	if (p && tail.steps)
		p = sym_decode_span(job, &tail, job->tab_tail, &feed, p, state, sym + n, esc + n,
		                    job->per_step, false);
	return p && kvi_feed_done(&feed, p, state);
}

INLINE uint16_t *sym_encode_span(const struct kvi_sym_job *job, const struct kvi_span *span,
                                 const uint8_t *tab, const uint16_t *sym, const uint8_t *esc,
                                 uint32_t *state, uint16_t *w, bool per_step, bool full)
{
	const unsigned lanes = full ? KVI_LANES : span->lanes;
	const active_lanes active = first_active(lanes);
	const uint8_t *wrap = tab + span->ring * span->step_size;
	const uint8_t *t = tab + span->steps % span->ring * span->step_size;
	const vec escape = SET(job->escape);
	struct parts st = states_load(state);
	sym += span->steps * lanes;
	esc += span->steps * lanes;
	for (size_t step = span->steps; step-- > 0;) {
		if (t == tab)
			t = wrap;
		t -= span->step_size;
		sym -= lanes;
		esc -= lanes;
		struct parts s = words16_load(sym, active);
		uint32_t escaped = lanes_equal(&s, escape, active);
		if (__builtin_expect(escaped != 0, 0))
			escapes_put8(&st, escaped, esc, &w);
		struct parts entry = tab_entries(job->tables, t, per_step, active, &s);
		symbols_put(&st, &entry, active, &w);
	}
	states_store(state, &st, active);
	return w;
}

static size_t sym_encode(const struct kvi_sym_job *job, const uint16_t *sym, const uint8_t *esc,
                         uint16_t *end, uint32_t state[KVI_LANES])
{
	const struct kvi_span full = kvi_span_full(&job->steps, job->tab_steps, job->per_step);
	const struct kvi_span tail = kvi_span_tail(&job->steps, job->per_step);
	const size_t n = full.steps * KVI_LANES;
	uint16_t *w = end;
	kvi_states_start(state);
	if (tail.steps)
		w = sym_encode_span(job, &tail, job->tab_tail, sym + n, esc + n, state, w,
		                    job->per_step, false);
	if (job->per_step)
		w = sym_encode_span(job, &full, job->tab, sym, esc, state, w, true, true);
	else
		w = sym_encode_span(job, &full, job->tab, sym, esc, state, w, false, true);
	return (size_t)(end - w);
}

#endif
