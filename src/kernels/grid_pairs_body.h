/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * grid_pairs_body.h - two streams of the grid codec at once; kvi_coding_kernels.grid_decode2,
 * grid_encode2
 *
 * Included after grid_spans_body.h. A step of bf16 waits longer for its own table look-ups and
 * words than its instructions take; a step of another stream, part by part beside it, fills these
 * gaps: a processor looks for work less than a step ahead.
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

/* A step of both. */
INLINE void grid_pair_step(struct grid_run r[2], const struct words_tables *tables,
                           const enum words_lookup how)
{
	struct parts ctx[2], entry[2];
	struct words_cells a[2];
	BOTH
		ctx[i] = contexts_load(r[i].c, false, ALL_LANES);
	BOTH
		entry[i] = words_symbols_take(&r[i].st, ctx[i].v, r[i].job->tables->lut, tables,
		                              how);
	BOTH
		r[i].p = words_renorm(&r[i].st, NULL, tables, ALL_LANES, r[i].p);
	BOTH
		a[i] = words_cells_find(halves_low(r[i].st.v[0], r[i].st.v[1]),
		                        halves_low(entry[i].v[0], entry[i].v[1]), ctx[i].v, tables);
	BOTH
		words_bits_find(&a[i], tables);
	const uint32_t escaped = a[0].escaped | a[1].escaped;
	if (__builtin_expect(escaped != 0, 0)) {
		BOTH
			words_escapes_repair(&a[i]);
	}
	BOTH
		r[i].p = words_renorm(&r[i].st, &a[i].bits, tables, ALL_LANES, r[i].p);
	BOTH
		v_store(r[i].x,
		        _mm512_permutexvar_epi16(tables->order, words_elements(&a[i], tables)));
	if (__builtin_expect(escaped != 0, 0)) {
		BOTH
			r[i].p = escapes_take16(&r[i].st, halves_lanes(a[i].escaped), r[i].x, 16,
			                        r[i].p);
	}
	BOTH {
		r[i].x += KVI_LANES;
		r[i].c += KVI_LANES;
		if (r[i].c == r[i].wrap)
			r[i].c = r[i].job->ctx;
	}
}

static bool grid_run_finish(struct grid_run *r, size_t steps, uint16_t *elements)
{
	uint32_t state[KVI_LANES];
	states_store(state, &r->st, ALL_LANES);
	return grid_decode_rest(r->job, steps, &r->feed, r->p, state, elements);
}

/* Ends the common steps with the shorter stream, or near the end of the words of either. */
INLINE void decode_both(const struct kvi_grid_job *const job[2],
                        const struct kvi_stream *const in[2], uint16_t *const elements[2],
                        bool ok[2], const enum words_lookup how)
{
	struct grid_run r[2];
	const struct words_tables t = words_tables_load();
	size_t steps = 0, most = job[0]->steps.full_steps;
	if (job[1]->steps.full_steps < most)
		most = job[1]->steps.full_steps;
	for (int i = 0; i < 2; i++)
		if (job[i]->fmt->emin != bf16_numbers.emin || job[i]->per_step)
			most = 0;
	BOTH
		grid_run_open(&r[i], job[i], in[i], elements[i]);
	for (; steps < most && r[0].p <= r[0].feed.safe && r[1].p <= r[1].feed.safe; steps++)
		grid_pair_step(r, &t, how);
	BOTH
		ok[i] = grid_run_finish(&r[i], steps, elements[i]);
}

static void grid_decode2(const struct kvi_grid_job *const job[2],
                         const struct kvi_stream *const in[2], uint16_t *const elements[2],
                         bool ok[2])
{
	decode_both(job, in, elements, ok, BY_LOADS);
}

/* A stream on its way through the full steps, from the last one. */
struct grid_encode_run {
	const struct kvi_grid_job *job;
	const uint32_t *c, *wrap; /* contexts behind those of the next step; end of the ring */
	const uint16_t *x;        /* elements behind those of the next step */
	uint16_t *w;
	struct parts st;
};

INLINE void grid_encode_run_open(struct grid_encode_run *r, const struct kvi_grid_job *job,
                                 const uint16_t *elements, uint16_t *w, const uint32_t *state)
{
	const size_t full = job->steps.full_steps;
	r->job = job;
	r->c = job->ctx + full % job->ctx_steps * KVI_LANES;
	r->wrap = job->ctx + job->ctx_steps * KVI_LANES;
	r->x = elements + full * KVI_LANES;
	r->w = w;
	r->st = states_load(state);
}

/* A step of both. */
INLINE void grid_encode_pair_step(struct grid_encode_run r[2], const struct words_encoder *encoder,
                                  const enum words_lookup how)
{
	struct parts ctx[2], entry[2];
	struct words_code c[2];
	BOTH {
		if (r[i].c == r[i].job->ctx)
			r[i].c = r[i].wrap;
		r[i].c -= KVI_LANES;
		r[i].x -= KVI_LANES;
		ctx[i] = contexts_load(r[i].c, false, ALL_LANES);
		c[i] = words_code(_mm512_permutexvar_epi16(encoder->order, v_load(r[i].x)),
		                  ctx[i].v, encoder);
	}
	if (__builtin_expect((c[0].escaped | c[1].escaped) != 0, 0)) {
		BOTH
			words_escapes_put(&c[i], &r[i].st, r[i].x, &r[i].w);
	}
	BOTH
		entry[i] = words_entries(c[i].symbol, ctx[i].v, r[i].job->tables, how);
	BOTH
		words_raw_put(&r[i].st, &c[i], &r[i].w);
	BOTH
		symbols_put(&r[i].st, &entry[i], ALL_LANES, &r[i].w);
}

/* The steps of the shorter stream, and as many of the other one, are common. */
INLINE void encode_both(const struct kvi_grid_job *const job[2], const uint16_t *const elements[2],
                        uint16_t *const end[2], size_t n[2], uint32_t *const state[2],
                        const enum words_lookup how)
{
	struct grid_encode_run r[2];
	const struct words_encoder t = words_encoder_load();
	const size_t steps[2] = { job[0]->steps.full_steps, job[1]->steps.full_steps };
	size_t common = steps[0] < steps[1] ? steps[0] : steps[1];
	BOTH {
		if (job[i]->fmt->emin != bf16_numbers.emin || job[i]->per_step)
			common = 0;
		kvi_states_start(state[i]);
		uint16_t *w = grid_encode_tail(job[i], elements[i], end[i], state[i]);
		grid_encode_run_open(&r[i], job[i], elements[i], w, state[i]);
	}
	for (size_t step = 0; step < common; step++)
		grid_encode_pair_step(r, &t, how);
	BOTH {
		states_store(state[i], &r[i].st, ALL_LANES);
		r[i].w = grid_encode_rest(job[i], steps[i] - common, elements[i], r[i].w, state[i]);
		n[i] = (size_t)(end[i] - r[i].w);
	}
}

static void grid_encode2(const struct kvi_grid_job *const job[2], const uint16_t *const elements[2],
                         uint16_t *const end[2], size_t n[2], uint32_t *const state[2])
{
	encode_both(job, elements, end, n, state, BY_LOADS);
}

#endif
