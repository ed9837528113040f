/* SPDX-License-Identifier: BSD-3-Clause */
/* check_slots.c - kernels of the linear codec against scalar C, random numbers at their limits */
#include "config.h"

#include "rans_cases.h"

#include "check_slots.h"
#include "kernels/slots.h"

enum {
	TOKENS = 128,
	STEPS = TOKENS / KVI_LANES,
	PAIRS = 12,
	NEAR = 4,
	ROWS = 2 * KVI_PANEL + 3,
	FEATURES = STEPS * PAIRS * KVI_PAIR_STEP,
	SLOTS = 24 /* taken one after the other from a stream */
};

/* Features and coefficients whose sums stay in 32 bits. */
static int16_t feature(void)
{
	return (int16_t)(rng_below(8)   ? (int)rng_below(2001) - 1000
	                 : rng_below(2) ? 32767
	                                : -32767);
}

static int16_t coefficient(void)
{
	return (int16_t)((int)rng_below(4096) - 2048);
}

static void fill_i16(int16_t *p, size_t n, int16_t (*of)(void))
{
	for (size_t i = 0; i < n; i++)
		p[i] = of();
}

static bool rows_equal(const struct kvi_kernels *ref, const struct kvi_kernels *fast)
{
	static int32_t a[STEPS * ROWS * KVI_LANES], b[STEPS * ROWS * KVI_LANES];
	static int16_t coef[ROWS * 2 * PAIRS], f[FEATURES];
	uint8_t q[ROWS];
	size_t n = rng_below(PAIRS + 1), first = rng_below((uint32_t)n + 1);
	const struct kvi_rows_part part[2] = {
		{ f, first, PAIRS * KVI_PAIR_STEP },
		{ f + (PAIRS - n) * KVI_PAIR_STEP, n - first, first * KVI_PAIR_STEP },
	};
	struct kvi_rows r = {
		.sum = a,
		.coef = coef,
		.q = q,
		.part = part,
		.n_parts = rng_below(3),
		.rows = rng_below(ROWS + 1),
		.steps = rng_below(STEPS + 1),
		.sum_step = ROWS * KVI_LANES,
		.coef_row = 2 * PAIRS,
	};
	for (size_t i = 0; i < ROWS; i++)
		q[i] = (uint8_t)rng_below(17);
	fill_i16(f, FEATURES, feature);
	fill_i16(coef, ROWS * 2 * PAIRS, coefficient);
	for (size_t i = 0; i < sizeof(a) / sizeof(*a); i++)
		a[i] = b[i] = (int32_t)rng() >> 4;
	ref->slots.slot_rows(&r);
	r.sum = b;
	fast->slots.slot_rows(&r);
	return memcmp(a, b, sizeof(a)) == 0;
}

/* Everything that a slot or a pair reads and writes. */
struct slots {
	struct kvi_slot_block b;
	struct kvi_slot_job j;
	uint16_t x[2][2 * TOKENS];
	uint32_t ctx[2][TOKENS], w[TOKENS];
	int16_t r[FEATURES], z[FEATURES], near[FEATURES];
	int16_t table[2][TOKENS], unknown[TOKENS], coef[2][2 * NEAR];
	int16_t cos_sin[2 * TOKENS];
	int32_t below[2][2 * TOKENS], sum[2][TOKENS];
	uint8_t angle_class[TOKENS];
	int8_t scales[64];
	struct kvi_slot_reader reader[STEPS];
};

static void random_slot(struct slots *s, struct kvi_slot *slot, int i)
{
	int format = s->b.fmt->elem_bits;
	slot->mean = (int32_t)rng_below(2001) - 1000;
	if (rng_below(8) == 0)
		slot->mean = rng_below(2) ? 32767 : -32767;
	slot->step = (int)rng_below(30) - 20;
	if (rng_below(8) == 0)
		slot->step = (int)rng_below(201) - 100;
	slot->k = 4 * slot->step + (int)rng_below(40);
	if (rng_below(8) == 0)
		slot->k = (int)rng_below(801) - 400;
	slot->qa = rng_below(17);
	slot->qb = rng_below(17);
	for (size_t t = 0; t < 2 * TOKENS; t++)
		s->x[i][t] = rng_below(4) ? (uint16_t)(rng() >> (32 - format))
		                          : nasty_bits(s->b.fmt);
	for (size_t t = 0; t < TOKENS; t++) {
		s->table[i][t] = feature();
		s->sum[i][t] = (int32_t)rng() >> (2 + rng_below(20));
	}
	for (size_t t = 0; t < 2 * TOKENS; t++)
		s->below[i][t] = (int32_t)rng() >> rng_below(20);
	fill_i16(s->coef[i], 2 * NEAR, coefficient);
}

/* Points at what random numbers choose; keeps the numbers. */
static void random_job(struct slots *s, unsigned parts)
{
	struct kvi_slot_job *j = &s->j;
	for (int i = 0; i < 2; i++) {
		struct kvi_slot *slot = &j->slot[i];
		slot->x = s->x[i];
		slot->ctx = s->ctx[i];
		slot->known = true;
		slot->sum_step = KVI_LANES;
		slot->below_step = 2 * KVI_LANES;
		slot->table = parts & 1 ? s->table[i] : NULL;
		slot->below = parts & 2 ? s->below[i] : NULL;
		slot->sum = parts & 4 ? s->sum[i] : NULL;
		slot->coef = s->coef[i];
	}
	s->b.w = parts & 8 ? s->w : NULL;
	s->b.unknown = parts & 16 ? s->unknown : NULL;
	j->z = parts & 32 ? s->z : NULL;
	j->grow = parts & 64;
	j->pair = parts & 128;
	j->r = s->r;
	j->near = s->near;
	j->n_near = parts & 4 ? parts >> 8 & 3 : 0;
	j->half = parts >> 10 & 1;
	j->feature_step = PAIRS * KVI_PAIR_STEP;
	j->cos_sin = s->cos_sin;
	j->angle_class = s->angle_class;
	j->scales = s->scales;
}

static void random_numbers(struct slots *s, const struct kvi_tables *tables)
{
	s->b.fmt = &case_formats[rng_below(CASE_FORMATS)];
	s->b.tables = tables;
	s->b.lanes = rng_below(2) ? KVI_LANES : 1 + rng_below(KVI_LANES - 1);
	s->b.tokens = s->b.lanes < KVI_LANES ? KVI_LANES : KVI_LANES * (1 + rng_below(STEPS));
	s->b.part_shift = rng_below(4);
	s->b.x_part = ((size_t)s->b.lanes << s->b.part_shift) + rng_below(KVI_LANES);
	s->j.n = 1 + rng_below(rng_below(2) ? 65791 : 300);
	for (size_t t = 0; t < TOKENS; t++) {
		double angle = 6.283185307179586 * rng_unit();
		s->cos_sin[2 * t] = (int16_t)lround(16384 * cos(angle));
		s->cos_sin[2 * t + 1] = (int16_t)lround(16384 * sin(angle));
		s->angle_class[t] = (uint8_t)rng_below(64);
		s->w[t] = rng_below(2) ? 13 * s->j.n + rng_below(1000) : rng_below(8388098);
		s->unknown[t] = (int16_t)(rng_below(2) * rng_below(129));
	}
	for (int i = 0; i < 64; i++)
		s->scales[i] = (int8_t)((int)rng_below(66) - 33);
	fill_i16(s->near, FEATURES, feature);
	fill_i16(s->r, FEATURES, feature);
	fill_i16(s->z, FEATURES, feature);
	for (int i = 0; i < 2; i++)
		random_slot(s, &s->j.slot[i], i);
	s->j.slot[1].step = s->j.slot[0].step;
}

static bool readers_equal(const struct kvi_slot_reader *a, const struct kvi_slot_reader *b)
{
	for (size_t i = 0; i < STEPS; i++)
		if (memcmp(a[i].state, b[i].state, sizeof(a->state)) ||
		    a[i].words.p != b[i].words.p)
			return false;
	return true;
}

static bool results_equal(const struct slots *a, const struct slots *b)
{
	return !memcmp(a->x, b->x, sizeof(a->x)) && !memcmp(a->ctx, b->ctx, sizeof(a->ctx)) &&
	       !memcmp(a->w, b->w, sizeof(a->w)) && !memcmp(a->r, b->r, sizeof(a->r)) &&
	       !memcmp(a->z, b->z, sizeof(a->z)) && readers_equal(a->reader, b->reader);
}

static void copy(struct slots *to, const struct slots *from, unsigned parts)
{
	*to = *from;
	random_job(to, parts);
	if (from->b.reader)
		to->b.reader = to->reader;
	for (int i = 0; i < 2; i++)
		to->j.slot[i].known = from->j.slot[i].known;
}

/* Elements from words that nobody wrote, and sometimes too few of them. */
static bool decoded_equal(const struct kvi_kernels *ref, const struct kvi_kernels *fast,
                          const struct slots *start, unsigned parts)
{
	static struct slots a, b;
	static uint8_t words[SLOTS * 2 * TOKENS * 3 * 2 + 2];
	const size_t most = sizeof(words) / STEPS / 2 * 2;
	for (size_t i = 0; i < sizeof(words); i++)
		words[i] = (uint8_t)rng();
	copy(&a, start, parts);
	for (size_t k = 0; k < STEPS; k++) {
		const uint8_t *first = words + 1 + k * most;
		size_t bytes = rng_below(4) ? most : 2 * rng_below((uint32_t)most / 4);
		for (int l = 0; l < KVI_LANES; l++)
			a.reader[k].state[l] = rng() >> rng_below(16);
		a.reader[k].words = (struct kvi_words_in){ first, first + bytes, false };
	}
	a.b.reader = a.reader;
	for (int i = 0; i < 2; i++)
		a.j.slot[i].known = parts >> (11 + i) & 1;
	copy(&b, &a, parts);
	for (int i = 0; i < SLOTS; i++) {
		bool ok = ref->slots.slot(&a.b, &a.j), same = fast->slots.slot(&b.b, &b.j);
		if (ok != same)
			return false;
		if (!ok)
			return true;
		if (!results_equal(&a, &b))
			return false;
	}
	return true;
}

/* z alone is the same, and nothing else is written. */
static bool z_equal(const struct kvi_kernels *k, const struct slots *start,
                    const struct slots *done, unsigned parts)
{
	static struct slots s;
	copy(&s, start, parts);
	s.j.r = NULL;
	s.b.w = NULL;
	s.j.slot[0].ctx = s.j.slot[1].ctx = NULL;
	k->slots.slot(&s.b, &s.j);
	bool same = !memcmp(s.z, done->z, sizeof(s.z));
	memcpy(s.z, start->z, sizeof(s.z));
	return same && results_equal(&s, start);
}

static bool slots_equal(const struct kvi_kernels *ref, const struct kvi_kernels *fast,
                        const struct kvi_tables *tables)
{
	static struct slots start, a, b;
	unsigned parts = rng();
	memset(&start, 0, sizeof(start));
	random_numbers(&start, tables);
	random_job(&start, parts);
	copy(&a, &start, parts);
	copy(&b, &start, parts);
	ref->slots.slot(&a.b, &a.j);
	fast->slots.slot(&b.b, &b.j);
	if (a.j.z && (!z_equal(ref, &start, &a, parts) || !z_equal(fast, &start, &a, parts)))
		return false;
	return results_equal(&a, &b) && decoded_equal(ref, fast, &a, parts);
}

const char *check_slots(const struct kvi_kernels *ref, const struct kvi_kernels *fast,
                        const struct kvi_tables *tables)
{
	return !rows_equal(ref, fast)            ? "slot_rows"
	       : !slots_equal(ref, fast, tables) ? "slot"
	                                         : NULL;
}
