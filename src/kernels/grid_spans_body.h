/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * grid_spans_body.h - the grid codec's streams, step by step: grid_encode, grid_decode
 *
 * Included after grid_body.h or grid_avx512_body.h. Uses step_take, step_put, encoder_tables,
 * encoder_tables_load (contracts in grid_body.h), first_active, states_load, states_store,
 * contexts_load (in step_body.h) and token_tables_load (in ops.h). Each kind of span has a loop of
 * its own: bf16, whose numbers are constants, or others; contexts by step or by element; full
 * steps or the tail.
 */
#ifndef KVI_GRID_SPANS_BODY_H
#define KVI_GRID_SPANS_BODY_H

/* The steps of a span from `first` on, whose elements go to x; NULL when the words do not
 * suffice. */
INLINE const uint8_t *grid_decode_span(const struct kvi_grid_job *job, const struct kvi_span *span,
                                       size_t first, const uint32_t *ctx, struct kvi_feed *feed,
                                       const uint8_t *p, uint32_t *state, uint16_t *x,
                                       const struct grid_numbers *numbers, bool per_step, bool full)
{
	const unsigned lanes = full ? KVI_LANES : span->lanes;
	const active_lanes active = first_active(lanes);
	const uint32_t *lut = job->tables->lut;
	const uint32_t *c = ctx + first % span->ring * span->step_size;
	const uint32_t *wrap = ctx + span->ring * span->step_size;
	const token_tables tokens = token_tables_load();
	struct parts st = states_load(state);
	for (size_t step = first; step < span->steps; step++) {
		vec y[PARTS];
		KVI_FEED_CHECK(feed, p);
		struct parts cv = contexts_load(c, per_step, active);
		p = step_take(&st, cv.v, lut, &tokens, numbers, lanes, p, x, y);
		x += lanes;
		c += per_step ? 1 : lanes;
		if (c == wrap)
			c = ctx;
	}
	states_store(state, &st, active);
	return p;
}

#define DECODE(span, first, ctx, x, f, per_step, full) \
	grid_decode_span(job, span, first, ctx, feed, p, state, x, f, per_step, full)

/* A stream from full step `first` on. */
static bool grid_decode_rest(const struct kvi_grid_job *job, size_t first, struct kvi_feed *feed,
                             const uint8_t *p, uint32_t *state, uint16_t *elements)
{
	const struct kvi_span full = kvi_span_full(&job->steps, job->ctx_steps, job->per_step);
	const struct kvi_span tail = kvi_span_tail(&job->steps, job->per_step);
	const struct grid_numbers f = numbers_of(job->fmt);
	const bool is_bf16 = f.emin == bf16_numbers.emin;
	uint16_t *x = elements + first * KVI_LANES;
	if (is_bf16 && job->per_step)
		p = DECODE(&full, first, job->ctx, x, &bf16_numbers, true, true);
	else if (is_bf16)
		p = DECODE(&full, first, job->ctx, x, &bf16_numbers, false, true);
	else if (job->per_step)
		p = DECODE(&full, first, job->ctx, x, &f, true, true);
	else
		p = DECODE(&full, first, job->ctx, x, &f, false, true);
	if (p && tail.steps)
		p = DECODE(&tail, 0, job->ctx_tail, elements + full.steps * KVI_LANES, &f,
		           job->per_step, false);
	return p && kvi_feed_done(feed, p, state);
}

static bool grid_decode(const struct kvi_grid_job *job, const struct kvi_stream *in,
                        uint16_t *elements)
{
	struct kvi_feed feed;
	const uint8_t *p = kvi_feed_open(&feed, in);
	uint32_t state[KVI_LANES];
	memcpy(state, in->state, sizeof(state));
	return grid_decode_rest(job, 0, &feed, p, state, elements);
}

INLINE uint16_t *grid_encode_span(const struct kvi_grid_job *job, const struct kvi_span *span,
                                  const uint32_t *ctx, const uint16_t *elements, uint32_t *state,
                                  uint16_t *w, const struct grid_numbers *numbers, bool per_step,
                                  bool full)
{
	const unsigned lanes = full ? KVI_LANES : span->lanes;
	const size_t size = per_step ? 1 : lanes;
	const active_lanes active = first_active(lanes);
	const uint32_t *wrap = ctx + span->ring * size;
	const uint32_t *c = ctx + span->steps % span->ring * size;
	const uint16_t *x = elements + span->steps * lanes;
	const encoder_tables tokens = encoder_tables_load();
	struct parts st = states_load(state);
	for (size_t step = span->steps; step-- > 0;) {
		if (c == ctx)
			c = wrap;
		c -= size;
		x -= lanes;
		struct parts cv = contexts_load(c, per_step, active);
		step_put(&st, &cv, x, job->tables, &tokens, numbers, active, &w);
	}
	states_store(state, &st, active);
	return w;
}

#define ENCODE(span, ctx, x, f, per_step, full) \
	grid_encode_span(job, span, ctx, x, state, w, f, per_step, full)

/* Encodes the tail of a stream in front of its words, which begin at w; returns their new begin. */
static uint16_t *grid_encode_tail(const struct kvi_grid_job *job, const uint16_t *elements,
                                  uint16_t *w, uint32_t state[KVI_LANES])
{
	const struct kvi_span tail = kvi_span_tail(&job->steps, job->per_step);
	const struct grid_numbers f = numbers_of(job->fmt);
	if (!tail.steps)
		return w;
	return ENCODE(&tail, job->ctx_tail, elements + job->steps.full_steps * KVI_LANES, &f,
	              job->per_step, false);
}

/* Encodes the first `steps` full steps of a stream in front of its words, which begin at w; returns
 * their new begin. */
static uint16_t *grid_encode_rest(const struct kvi_grid_job *job, size_t steps,
                                  const uint16_t *elements, uint16_t *w, uint32_t state[KVI_LANES])
{
	struct kvi_span full = kvi_span_full(&job->steps, job->ctx_steps, job->per_step);
	const struct grid_numbers f = numbers_of(job->fmt);
	const bool is_bf16 = f.emin == bf16_numbers.emin;
	full.steps = steps;
	if (is_bf16 && job->per_step)
		return ENCODE(&full, job->ctx, elements, &bf16_numbers, true, true);
	if (is_bf16)
		return ENCODE(&full, job->ctx, elements, &bf16_numbers, false, true);
	if (job->per_step)
		return ENCODE(&full, job->ctx, elements, &f, true, true);
	return ENCODE(&full, job->ctx, elements, &f, false, true);
}

static size_t grid_encode(const struct kvi_grid_job *job, const uint16_t *elements, uint16_t *end,
                          uint32_t state[KVI_LANES])
{
	kvi_states_start(state);
	uint16_t *w = grid_encode_tail(job, elements, end, state);
	w = grid_encode_rest(job, job->steps.full_steps, elements, w, state);
	return (size_t)(end - w);
}

#endif
