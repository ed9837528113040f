/* SPDX-License-Identifier: BSD-3-Clause */
/* slots_scalar.c - slots of the linear codec, the definition (spec linear 2 to 4) */
#include "slots.h"

/* One row of a step. */
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

static void predict(const struct kvi_slot *s, const struct kvi_slot_job *j, size_t t,
                    struct slot_cell *c)
{
	size_t step = t / KVI_LANES, lane = t % KVI_LANES;
	int32_t base = s->mean;
	if (s->table)
		base += s->table[t];
	if (s->below)
		base += s->below[step * s->below_step + lane] >> s->qa;
	c->base = c->pred = kvi_linear_limited(base);
	c->k = s->k;
	if (!s->sum)
		return;
	int32_t sum = s->sum[step * s->sum_step + lane];
	const int16_t *f = j->near + step * j->feature_step + 2 * lane;
	for (size_t p = 0; p < j->n_near; p++, f += KVI_PAIR_STEP) {
		sum += s->coef[2 * p] * f[0] + s->coef[2 * p + 1] * f[1];
	}
	c->pred = kvi_linear_limited(c->base + (sum >> s->qb));
}

static void expect_one(const struct kvi_slot *s, struct slot_cell *c)
{
	c->expected = c->pred;
	c->mu = kvi_scaled_bits(c->pred, s->step);
}

/* Both slots of a pair, with RoPE applied at the position of the token. */
static void expect_pair(const struct kvi_slot_job *j, size_t t, struct slot_cell *a,
                        struct slot_cell *b)
{
	int32_t v[2];
	kvi_linear_apply_rope(a->pred, b->pred, j->cos_sin[2 * t], j->cos_sin[2 * t + 1], v);
	int h = j->angle_class[t], kb = b->k, e = j->slot[0].step - 6;
	a->expected = kvi_linear_expected(v[0]);
	b->expected = kvi_linear_expected(v[1]);
	a->mu = kvi_scaled_bits(v[0], e);
	b->mu = kvi_scaled_bits(v[1], e);
	a->k = kb + j->scales[h];
	b->k = kb + j->scales[(h + 32) & 63];
}

/* The index of token t in a feature row. */
static size_t feature_at(const struct kvi_slot_job *j, size_t t)
{
	return t / KVI_LANES * j->feature_step + 2 * (t % KVI_LANES);
}

static void observe(const struct kvi_slot *s, const struct kvi_slot_job *j, size_t at,
                    const struct slot_cell *c, int32_t u)
{
	if (j->r)
		j->r[at] = (int16_t)kvi_linear_limited(u - c->base);
	if (j->z)
		j->z[at] = (int16_t)kvi_linear_limited(u - s->mean);
}

static void observe_one(const struct kvi_slot_job *j, size_t t, const struct slot_cell *c)
{
	size_t at = feature_at(j, t);
	observe(&j->slot[0], j, at + j->half, c, c->x);
	if (j->half)
		return;
	/* Until the other slot is observed, and where there is none. */
	if (j->r)
		j->r[at + 1] = 0;
	if (j->z)
		j->z[at + 1] = 0;
}

static void observe_pair(const struct kvi_slot_job *j, size_t t, const struct slot_cell *a,
                         const struct slot_cell *b)
{
	int32_t u[2];
	size_t at = feature_at(j, t);
	kvi_linear_remove_rope(a->x, b->x, j->cos_sin[2 * t], j->cos_sin[2 * t + 1], u);
	observe(&j->slot[0], j, at, a, u[0]);
	observe(&j->slot[1], j, at + 1, b, u[1]);
}

/* The index of token t in contexts; false: its lane is not active. */
static bool stream_index(const struct kvi_slot_block *b, size_t t, size_t *at)
{
	*at = t / KVI_LANES * b->lanes + t % KVI_LANES;
	return t % KVI_LANES < b->lanes;
}

static bool decode(const struct kvi_slot_block *b, const struct kvi_slot *s, const uint32_t *ctx)
{
	const struct kvi_grid_job g = { .fmt = b->fmt, .tables = b->tables };
	const size_t steps = kvi_slot_steps(b), most = (size_t)1 << b->part_shift;
	for (size_t step = 0; step < steps; step += most) {
		const size_t n = steps - step < most ? steps - step : most;
		const struct kvi_span span = { n, b->lanes, n, b->lanes, 1 };
		struct kvi_slot_reader *in = &b->reader[kvi_slot_part(b, step)];
		kvi_scalar_grid_span(&g, &span, ctx + step * b->lanes, &in->words, in->state,
		                     s->x + kvi_slot_index(b, step));
		if (in->words.missing)
			return false;
	}
	return true;
}

bool kvi_scalar_slot(const struct kvi_slot_block *b, const struct kvi_slot_job *j)
{
	struct slot_cell cell[KVI_BLOCK_TOKENS][2];
	uint32_t decode_ctx[2][KVI_BLOCK_TOKENS];
	const unsigned slots = j->pair ? 2 : 1;
	size_t at;

	for (size_t t = 0; t < b->tokens; t++) {
		struct slot_cell *c = cell[t];
		for (unsigned i = 0; i < slots; i++)
			predict(&j->slot[i], j, t, &c[i]);
		if (j->pair)
			expect_pair(j, t, &c[0], &c[1]);
		else
			expect_one(&j->slot[0], &c[0]);
		int more = b->w ? kvi_linear_token_class(b->w[t], j->n) : 0;
		for (unsigned i = 0; i < slots; i++) {
			if (b->unknown)
				c[i].k += b->unknown[t];
			uint32_t *ctx = j->slot[i].known ? j->slot[i].ctx : decode_ctx[i];
			if (ctx && stream_index(b, t, &at))
				ctx[at] = kvi_grid_context(c[i].mu, kvi_linear_class(c[i].k, more),
				                           b->fmt);
		}
	}
	for (unsigned i = 0; i < slots; i++)
		if (!j->slot[i].known && !decode(b, &j->slot[i], decode_ctx[i]))
			return false;
	for (size_t t = 0; t < b->tokens; t++) {
		struct slot_cell *c = cell[t];
		bool active = stream_index(b, t, &at);
		const size_t from = kvi_slot_index(b, t / KVI_LANES) + t % KVI_LANES;
		for (unsigned i = 0; i < slots; i++) {
			const struct kvi_slot *s = &j->slot[i];
			c[i].x = active ? kvi_linear_integer(s->x[from], b->fmt, s->step) : 0;
			if (b->w && j->grow)
				b->w[t] += kvi_linear_distance(c[i].x - c[i].expected, c[i].k,
				                               s->step);
		}
		if (j->pair)
			observe_pair(j, t, &c[0], &c[1]);
		else
			observe_one(j, t, &c[0]);
	}
	return true;
}
