/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * grid_pairs_body.h - two streams of the grid codec at once; kvi_kernels.grid_decode2
 *
 * Included after grid_spans_body.h. A step of bf16 waits longer for its own table look-ups and
 * words than its instructions take; steps of two streams alternately fill these gaps.
 */
#ifndef KVI_GRID_PAIRS_BODY_H
#define KVI_GRID_PAIRS_BODY_H

/* A stream on its way through the full steps. */
struct grid_run {
	const struct kvi_grid_job *job;
	struct kvi_feed feed;
	const uint8_t *p;
	const uint32_t *c, *wrap; /* contexts of the next step; end of the ring */
	uint16_t *x;
	struct parts st;
};

INLINE void grid_run_open(struct grid_run *r, const struct kvi_grid_job *job,
                          const struct kvi_stream *in, uint16_t *elements)
{
	r->job = job;
	r->p = kvi_feed_open(&r->feed, in);
	r->c = job->ctx;
	r->wrap = job->ctx + job->ctx_steps * KVI_LANES;
	r->x = elements;
	r->st = states_load(in->state);
}

INLINE void grid_run_step(struct grid_run *r, const token_tables *tokens)
{
	vec y[PARTS];
	struct parts c = contexts_load(r->c, false, ALL_LANES);
	r->p = step_take(&r->st, c.v, r->job->tables->lut, tokens, &bf16_numbers, KVI_LANES, r->p,
	                 r->x, y);
	r->x += KVI_LANES;
	r->c += KVI_LANES;
	if (r->c == r->wrap)
		r->c = r->job->ctx;
}

static bool grid_run_finish(struct grid_run *r, size_t steps, uint16_t *elements)
{
	uint32_t state[KVI_LANES];
	states_store(state, &r->st, ALL_LANES);
	return grid_decode_rest(r->job, steps, &r->feed, r->p, state, elements);
}

/* Ends the common steps with the shorter stream, or near the end of the words of either. */
static void grid_decode2(const struct kvi_grid_job *const job[2],
                         const struct kvi_stream *const in[2], uint16_t *const elements[2],
                         bool ok[2])
{
	struct grid_run a, b;
	const token_tables tokens = token_tables_load();
	size_t steps = 0, most = job[0]->steps.full_steps;
	if (job[1]->steps.full_steps < most)
		most = job[1]->steps.full_steps;
	for (int i = 0; i < 2; i++)
		if (job[i]->fmt->emin != bf16_numbers.emin || job[i]->per_step)
			most = 0;
	grid_run_open(&a, job[0], in[0], elements[0]);
	grid_run_open(&b, job[1], in[1], elements[1]);
	for (; steps < most && a.p <= a.feed.safe && b.p <= b.feed.safe; steps++) {
		grid_run_step(&a, &tokens);
		grid_run_step(&b, &tokens);
	}
	ok[0] = grid_run_finish(&a, steps, elements[0]);
	ok[1] = grid_run_finish(&b, steps, elements[1]);
}

#endif
