/* SPDX-License-Identifier: BSD-3-Clause */
/* slots_scalar.c - slots of the linear codec, the definition (spec linear 2 to 4) */
#include "slots.h"

/* Adds the dot products of one row of a step. */
static void add_row(int32_t *sum, const int16_t *coef, const int16_t *f, size_t n_pairs)
{
	for (size_t p = 0; p < n_pairs; p++, f += KVI_PAIR_STEP) {
		int32_t a = coef[2 * p], b = coef[2 * p + 1];
		for (size_t t = 0; t < KVI_LANES; t++)
			sum[t] += a * f[2 * t] + b * f[2 * t + 1];
	}
}

static void sum_row(const struct kvi_rows *r, size_t step, size_t row)
{
	int32_t *sum = r->sum + step * r->sum_step + row * KVI_LANES;
	const int16_t *coef = r->coef + row * r->coef_row;
	for (size_t t = 0; t < KVI_LANES; t++)
		sum[t] = kvi_rows_half(r, row);
	for (size_t i = 0; i < r->n_parts; i++) {
		const struct kvi_rows_part *p = &r->part[i];
		add_row(sum, coef, p->features + step * p->step, p->n_pairs);
		coef += 2 * p->n_pairs;
	}
}

void kvi_scalar_slot_rows(const struct kvi_rows *r)
{
	for (size_t step = 0; step < r->steps; step++)
		for (size_t row = 0; row < r->rows; row++)
			sum_row(r, step, row);
}

/* The prediction of a slot of one token, and its element. */
struct slot_cell {
	int32_t base, pred;
	int32_t expected; /* M: the predicted mean in units of 2^step */
	uint32_t mu;
	int k;     /* k' */
	int32_t x; /* X */
};

static void predict(const struct kvi_slot *slot, const struct kvi_slot_job *job, size_t t,
                    struct slot_cell *cell)
{
	size_t step = t / KVI_LANES, lane = t % KVI_LANES;
	int32_t base = slot->mean;
	if (slot->table)
		base += slot->table[t];
	if (slot->below)
		base += slot->below[step * slot->below_step + lane] >> slot->qa;
	cell->base = cell->pred = kvi_linear_limited(base);
	cell->k = slot->k;
	if (!slot->sum)
		return;
	int32_t sum = slot->sum[step * slot->sum_step + lane];
	const int16_t *f = job->near + step * job->feature_step + 2 * lane;
	for (size_t p = 0; p < job->n_near; p++, f += KVI_PAIR_STEP) {
		sum += slot->coef[2 * p] * f[0] + slot->coef[2 * p + 1] * f[1];
	}
	cell->pred = kvi_linear_limited(cell->base + (sum >> slot->qb));
}

static void expect_one(const struct kvi_slot *slot, struct slot_cell *cell)
{
	cell->expected = cell->pred;
	cell->mu = kvi_scaled_bits(cell->pred, slot->step);
}

/* Predicts both slots of a pair, with RoPE applied at the position of the token. */
static void expect_pair(const struct kvi_slot_job *job, size_t t, struct slot_cell *cell,
                        struct slot_cell *slot_cell)
{
	int32_t v[2];
	kvi_linear_apply_rope(cell->pred, slot_cell->pred, job->cos_sin[2 * t],
	                      job->cos_sin[2 * t + 1], v);
	int h = job->angle_class[t], kb = slot_cell->k, e = job->slot[0].step - 6;
	cell->expected = kvi_linear_expected(v[0]);
	slot_cell->expected = kvi_linear_expected(v[1]);
	cell->mu = kvi_scaled_bits(v[0], e);
	slot_cell->mu = kvi_scaled_bits(v[1], e);
	cell->k = kb + job->scales[h];
	slot_cell->k = kb + job->scales[(h + 32) & 63];
}

/* The index of token t in a feature row. */
static size_t feature_at(const struct kvi_slot_job *job, size_t t)
{
	return t / KVI_LANES * job->feature_step + 2 * (t % KVI_LANES);
}

static void observe(const struct kvi_slot *slot, const struct kvi_slot_job *job, size_t at,
                    const struct slot_cell *cell, int32_t u)
{
	if (job->r)
		job->r[at] = (int16_t)kvi_linear_limited(u - cell->base);
	if (job->z)
		job->z[at] = (int16_t)kvi_linear_limited(u - slot->mean);
}

static void observe_one(const struct kvi_slot_job *job, size_t t, const struct slot_cell *cell)
{
	size_t at = feature_at(job, t);
	observe(&job->slot[0], job, at + job->half, cell, cell->x);
	if (job->half)
		return;
	/* Zeros until the other slot is observed, and where there is none. */
	if (job->r)
		job->r[at + 1] = 0;
	if (job->z)
		job->z[at + 1] = 0;
}

static void observe_pair(const struct kvi_slot_job *job, size_t t, const struct slot_cell *cell,
                         const struct slot_cell *slot_cell)
{
	int32_t u[2];
	size_t at = feature_at(job, t);
	kvi_linear_remove_rope(cell->x, slot_cell->x, job->cos_sin[2 * t], job->cos_sin[2 * t + 1],
	                       u);
	observe(&job->slot[0], job, at, cell, u[0]);
	observe(&job->slot[1], job, at + 1, slot_cell, u[1]);
}

/* The index of token t in contexts; false: its lane is not active. */
static bool stream_index(const struct kvi_slot_block *block, size_t t, size_t *at)
{
	*at = t / KVI_LANES * block->lanes + t % KVI_LANES;
	return t % KVI_LANES < block->lanes;
}

static bool decode(const struct kvi_slot_block *block, const struct kvi_slot *slot,
                   const uint32_t *ctx)
{
	const struct kvi_grid_job g = { .fmt = block->fmt, .tables = block->tables };
	const size_t steps = kvi_slot_steps(block), most = (size_t)1 << block->part_shift;
	for (size_t step = 0; step < steps; step += most) {
		const size_t n = steps - step < most ? steps - step : most;
		const struct kvi_span span = { n, block->lanes, n, block->lanes, 1 };
		struct kvi_slot_reader *in = &block->reader[kvi_slot_part(block, step)];
		kvi_scalar_grid_span(&g, &span, ctx + step * block->lanes, &in->words, in->state,
		                     slot->x + kvi_slot_index(block, step));
		if (in->words.missing)
			return false;
	}
	return true;
}

bool kvi_scalar_slot(const struct kvi_slot_block *block, const struct kvi_slot_job *job)
{
	struct slot_cell cell[KVI_BLOCK_TOKENS][2];
	uint32_t decode_ctx[2][KVI_BLOCK_TOKENS];
	const unsigned slots = job->pair ? 2 : 1;
	size_t at;

	for (size_t t = 0; t < block->tokens; t++) {
		struct slot_cell *c = cell[t];
		for (unsigned i = 0; i < slots; i++)
			predict(&job->slot[i], job, t, &c[i]);
		if (job->pair)
			expect_pair(job, t, &c[0], &c[1]);
		else
			expect_one(&job->slot[0], &c[0]);
		int more = block->w ? kvi_linear_token_class(block->w[t], job->n) : 0;
		for (unsigned i = 0; i < slots; i++) {
			if (block->unknown)
				c[i].k += block->unknown[t];
			uint32_t *ctx = job->slot[i].known ? job->slot[i].ctx : decode_ctx[i];
			if (ctx && stream_index(block, t, &at))
				ctx[at] = kvi_grid_context(c[i].mu, kvi_linear_class(c[i].k, more),
				                           block->fmt);
		}
	}
	for (unsigned i = 0; i < slots; i++)
		if (!job->slot[i].known && !decode(block, &job->slot[i], decode_ctx[i]))
			return false;
	for (size_t t = 0; t < block->tokens; t++) {
		struct slot_cell *c = cell[t];
		bool active = stream_index(block, t, &at);
		const size_t from = kvi_slot_index(block, t / KVI_LANES) + t % KVI_LANES;
		for (unsigned i = 0; i < slots; i++) {
			const struct kvi_slot *s = &job->slot[i];
			c[i].x = active ? kvi_linear_integer(s->x[from], block->fmt, s->step) : 0;
			if (block->w && job->grow)
				block->w[t] += kvi_linear_distance(c[i].x - c[i].expected, c[i].k,
				                                   s->step);
		}
		if (job->pair)
			observe_pair(job, t, &c[0], &c[1]);
		else
			observe_one(job, t, &c[0]);
	}
	return true;
}
