/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * check_kernels.c - every instruction set against scalar C, bit by bit
 *
 * Compares decoded elements, words and final states on random jobs of many
 * shapes, valid and hostile: check_kernels [ROUNDS].
 */
#include "config.h"

#include "check_cells.h"
#include "check_layers.h"
#include "check_slots.h"
#include "kernels/fits.h"
#include "kernels/slots.h"
#include "rans_cases.h"

static unsigned failures;

static void check(int ok, const char *set, const char *what, unsigned round)
{
	if (ok)
		return;
	failures++;
	if (failures < 20)
		printf("%s: %s differs from scalar, round %u\n", set, what, round);
}

static struct kvi_steps random_steps(void)
{
	struct kvi_steps s = { rng_below(40), rng_below(12), rng_below(32) };
	switch (rng_below(6)) {
	case 0:
		s.full_steps = 0;
		break;
	case 1:
		s.tail_steps = 0;
		break;
	case 2:
		s.tail_lanes = 0;
		break;
	case 3:
		s.full_steps = 100 + rng_below(200);
		break;
	default:
		break;
	}
	return s;
}

static size_t random_ring(const struct kvi_steps *s)
{
	size_t n = s->full_steps ? s->full_steps : 1, ring = 1 + rng_below(8);
	if (rng_below(2))
		return n + rng_below(3);
	while (n % ring)
		ring--;
	return ring;
}

/* Words and states that no encoder made. */
static void spoil(struct kvi_stream *s, uint8_t *words)
{
	switch (rng_below(4)) {
	case 0: /* all random */
		for (size_t i = 0; i < 2 * s->n_words; i++)
			words[i] = (uint8_t)rng();
		for (int l = 0; l < KVI_LANES; l++)
			s->state[l] = rng();
		break;
	case 1: /* all words missing or zero */
		memset(words, 0, 2 * s->n_words);
		s->n_words = rng_below(2) ? s->n_words : 0;
		break;
	case 2: /* cut */
		s->n_words = rng_below((uint32_t)s->n_words + 1);
		break;
	default:
		s->state[rng_below(KVI_LANES)] ^= (uint32_t)1 << rng_below(32);
		if (s->n_words)
			words[rng_below((uint32_t)(2 * s->n_words))] ^= 16;
		break;
	}
}

static void check_grid(const struct kvi_kernels *ref, const struct kvi_kernels *fast,
                       const struct kvi_tables *tables, unsigned round)
{
	struct kvi_steps steps = random_steps();
	struct grid_case c;
	struct coded a, b;
	grid_case_new(&c, round % CASE_GRID_FORMATS, rng_below(GRID_KINDS), steps,
	              random_ring(&steps), rng_below(2), tables);
	uint32_t *ctx = must_alloc(c.n_ctx, sizeof(*ctx));
	fast->coding.grid_contexts(ctx, c.mu, c.k, c.n_ctx, c.job.fmt);
	check(memcmp(ctx, c.ctx, c.n_ctx * sizeof(*ctx)) == 0, fast->name, "grid_contexts", round);
	size_t n_priced = c.n < c.n_ctx ? c.n : c.n_ctx;
	uint32_t *cost = must_alloc(KVI_GRID_TABLES << KVI_GRID_COST_BITS, sizeof(*cost));
	for (size_t i = 0; i < KVI_GRID_TABLES << KVI_GRID_COST_BITS; i++)
		cost[i] = rng_below(7000);
	check(ref->fits.grid_price(c.job.fmt, cost, ctx, c.x, n_priced) ==
	              fast->fits.grid_price(c.job.fmt, cost, ctx, c.x, n_priced),
	      fast->name, "grid_price", round);
	free(cost);
	coded_new(&a, c.n);
	coded_new(&b, c.n);
	size_t na = ref->coding.grid_encode(&c.job, c.x, a.end, a.stream.state);
	size_t nb = fast->coding.grid_encode(&c.job, c.x, b.end, b.stream.state);
	check(same_words(&a, na, &b, nb), fast->name, "grid_encode", round);

	uint16_t *y = must_alloc(c.n, 2), *z = must_alloc(c.n, 2);
	uint8_t *words = coded_seal(&a, na);
	check(ref->coding.grid_decode(&c.job, &a.stream, z) && memcmp(z, c.x, 2 * c.n) == 0,
	      "scalar", "grid round trip", round);
	check(fast->coding.grid_decode(&c.job, &a.stream, y) && memcmp(y, c.x, 2 * c.n) == 0,
	      fast->name, "grid_decode", round);
	spoil(&a.stream, words + 1);
	int ok = ref->coding.grid_decode(&c.job, &a.stream, z);
	check(fast->coding.grid_decode(&c.job, &a.stream, y) == ok &&
	              (!ok || memcmp(y, z, 2 * c.n) == 0),
	      fast->name, "grid_decode of a bad stream", round);
	/* Enough words for anything: the elements must be equal then. */
	free(words);
	memset(a.buf, (int)rng(), (3 * c.n + 64) * 2);
	for (size_t i = 0; i < 3 * c.n; i++)
		a.buf[i] = (uint16_t)rng();
	for (int l = 0; l < KVI_LANES; l++)
		a.stream.state[l] = rng() >> rng_below(20);
	a.stream.words = a.buf;
	a.stream.n_words = 3 * c.n + 64;
	ref->coding.grid_decode(&c.job, &a.stream, z);
	fast->coding.grid_decode(&c.job, &a.stream, y);
	check(memcmp(y, z, 2 * c.n) == 0, fast->name, "grid_decode of noise", round);
	free(y);
	free(z);
	free(ctx);
	free(a.buf);
	free(b.buf);
	grid_case_free(&c);
}

/* Two streams in one call, against one by one. */
static void check_grid_encode2(const struct kvi_kernels *ref, const struct kvi_kernels *fast,
                               const struct kvi_tables *tables, unsigned round)
{
	struct grid_case c[2];
	struct coded a[2], b[2];
	size_t n[2], expected[2];
	for (int i = 0; i < 2; i++) {
		struct kvi_steps steps = random_steps();
		grid_case_new(&c[i], rng_below(2) ? CASE_BF16 : round % CASE_GRID_FORMATS,
		              rng_below(GRID_KINDS), steps, random_ring(&steps), rng_below(8) == 0,
		              tables);
		coded_new(&a[i], c[i].n);
		coded_new(&b[i], c[i].n);
		expected[i] = ref->coding.grid_encode(&c[i].job, c[i].x, a[i].end,
		                                      a[i].stream.state);
	}
	fast->coding.grid_encode2((const struct kvi_grid_job *const[]){ &c[0].job, &c[1].job },
	                          (const uint16_t *const[]){ c[0].x, c[1].x },
	                          (uint16_t *const[]){ b[0].end, b[1].end }, n,
	                          (uint32_t *const[]){ b[0].stream.state, b[1].stream.state });
	for (int i = 0; i < 2; i++) {
		check(same_words(&a[i], expected[i], &b[i], n[i]), fast->name, "grid_encode2",
		      round);
		free(a[i].buf);
		free(b[i].buf);
		grid_case_free(&c[i]);
	}
}

/* Two streams in one call, each of them good or not, against one by one. */
static void check_grid2(const struct kvi_kernels *ref, const struct kvi_kernels *fast,
                        const struct kvi_tables *tables, unsigned round)
{
	struct grid_case c[2];
	struct coded a[2];
	uint8_t *words[2];
	uint16_t *x[2], *y[2];
	bool ok[2], expected[2];
	for (int i = 0; i < 2; i++) {
		struct kvi_steps steps = random_steps();
		unsigned format = rng_below(2) ? 0 : round % CASE_GRID_FORMATS;
		grid_case_new(&c[i], format, rng_below(GRID_KINDS), steps, random_ring(&steps),
		              rng_below(4) == 0, tables);
		coded_new(&a[i], c[i].n);
		size_t n = ref->coding.grid_encode(&c[i].job, c[i].x, a[i].end, a[i].stream.state);
		words[i] = coded_seal(&a[i], n);
		if (rng_below(3) == 0)
			spoil(&a[i].stream, words[i] + 1);
		x[i] = must_alloc(c[i].n, 2);
		y[i] = must_alloc(c[i].n, 2);
		expected[i] = ref->coding.grid_decode(&c[i].job, &a[i].stream, x[i]);
	}
	fast->coding.grid_decode2((const struct kvi_grid_job *const[]){ &c[0].job, &c[1].job },
	                          (const struct kvi_stream *const[]){ &a[0].stream, &a[1].stream },
	                          y, ok);
	for (int i = 0; i < 2; i++) {
		check(ok[i] == expected[i] && (!ok[i] || memcmp(x[i], y[i], 2 * c[i].n) == 0),
		      fast->name, "grid_decode2", round);
		free(words[i]);
		free(x[i]);
		free(y[i]);
		free(a[i].buf);
		grid_case_free(&c[i]);
	}
}

static void check_sym(const struct kvi_kernels *ref, const struct kvi_kernels *fast,
                      const struct kvi_tables *tables, unsigned round)
{
	struct kvi_steps steps = random_steps();
	struct byte_case c;
	struct coded a, b;
	byte_case_new(&c, steps, random_ring(&steps), rng_below(2), (int)rng_below(3) * 30, tables);
	struct kvi_sym_job job = sym_job(&c, tables);
	coded_new(&a, c.n);
	coded_new(&b, c.n);
	size_t na = ref->coding.sym_encode(&job, c.sym, c.esc, a.end, a.stream.state);
	size_t nb = fast->coding.sym_encode(&job, c.sym, c.esc, b.end, b.stream.state);
	check(same_words(&a, na, &b, nb), fast->name, "sym_encode", round);
	uint16_t *y = must_alloc(c.n, 2), *z = must_alloc(c.n, 2);
	uint8_t *ey = must_alloc(c.n, 1), *ez = must_alloc(c.n, 1);
	uint8_t *words = coded_seal(&a, na);
	check(ref->coding.sym_decode(&job, &a.stream, z, ez) && memcmp(z, c.sym, 2 * c.n) == 0,
	      "scalar", "sym round trip", round);
	check(fast->coding.sym_decode(&job, &a.stream, y, ey) && memcmp(y, c.sym, 2 * c.n) == 0 &&
	              memcmp(ey, ez, c.n) == 0,
	      fast->name, "sym_decode", round);
	for (size_t i = 0; i < c.n; i++)
		check(z[i] != job.escape || ez[i] == c.esc[i], "scalar", "escaped byte", round);
	spoil(&a.stream, words + 1);
	int ok = ref->coding.sym_decode(&job, &a.stream, z, ez);
	check(fast->coding.sym_decode(&job, &a.stream, y, ey) == ok &&
	              (!ok || memcmp(y, z, 2 * c.n) == 0),
	      fast->name, "sym_decode of a bad stream", round);
	free(words);
	free(y);
	free(z);
	free(ey);
	free(ez);
	free(a.buf);
	free(b.buf);
	byte_case_free(&c);
}

static void check_moves(const struct kvi_kernels *ref, const struct kvi_kernels *fast,
                        unsigned round)
{
	size_t rows = rng_below(3) ? 32 : 1 + rng_below(40);
	size_t cols = 1 + rng_below(200), n = rows * cols;
	if (rng_below(2)) {
		size_t swap = rows;
		rows = cols;
		cols = swap;
	}
	uint16_t *x = must_alloc(n, 2), *y = must_alloc(n, 2);
	uint16_t *z = must_alloc(n, 2);
	uint8_t *bytes = must_alloc(n, 1);
	uint8_t *moved = must_alloc(n, 1), *moved_fast = must_alloc(n, 1);
	for (size_t i = 0; i < n; i++) {
		x[i] = (uint16_t)rng();
		bytes[i] = (uint8_t)rng();
	}
	ref->moves.transpose16(y, x, rows, cols);
	fast->moves.transpose16(z, x, rows, cols);
	check(!memcmp(y, z, 2 * n), fast->name, "transpose16", round);
	ref->moves.transpose8(moved, bytes, rows, cols);
	fast->moves.transpose8(moved_fast, bytes, rows, cols);
	check(!memcmp(moved, moved_fast, n), fast->name, "transpose8", round);
	free(x);
	free(y);
	free(z);
	free(bytes);
	free(moved);
	free(moved_fast);
}

/* Numbers for rotated contexts; n: of all channels. Any scales serve: both kernels use the same. */
struct rotation_case {
	struct kvi_rotation r;
	int16_t *mean, *k;
	uint32_t *turn;
	uint16_t *angle_class, *scales;
	size_t n;
};

static struct rotation_case rotation_case_make(unsigned round, size_t pairs, size_t tokens)
{
	const size_t heads = rng_below(4), stride = 2 * pairs + rng_below(5);
	struct rotation_case x = { .n = heads ? heads * stride : 2 * pairs };
	x.mean = must_alloc(x.n, 2);
	x.k = must_alloc(x.n, 2);
	x.turn = must_alloc(tokens * pairs, 4);
	x.angle_class = must_alloc(tokens * pairs, 2);
	x.scales = must_alloc(KVI_SCALE_PAIRS, 2);
	x.r = (struct kvi_rotation){ &case_formats[round % CASE_GRID_FORMATS],
		                     pairs,
		                     rng_below(2) != 0,
		                     x.turn,
		                     x.angle_class,
		                     x.mean,
		                     x.k,
		                     x.scales,
		                     heads,
		                     stride };
	for (int i = 0; i < KVI_SCALE_PAIRS; i++)
		x.scales[i] = (uint16_t)(((rng_below(66) - 33) & 255) << 8 |
		                         ((rng_below(66) - 33) & 255));
	int narrow = rng_below(2) != 0;
	for (size_t i = 0; i < x.n; i++) {
		x.mean[i] = (int16_t)(rng() >> rng_below(16));
		x.k[i] = (int16_t)(narrow ? (int)rng_below(40) - 20 : (int)rng_below(801) - 400);
	}
	for (size_t i = 0; i < tokens * pairs; i++) {
		const double angle = 6.283185307179586 * rng_below(4096) / 4096;
		const int16_t sine = (int16_t)lround(16384 * sin(angle));
		x.turn[i] = (uint16_t)lround(16384 * cos(angle)) | (uint32_t)(uint16_t)sine << 16;
		x.angle_class[i] = (uint16_t)rng_below(64);
	}
	return x;
}

static void rotation_case_free(struct rotation_case *x)
{
	free(x->mean);
	free(x->k);
	free(x->turn);
	free(x->angle_class);
	free(x->scales);
}

static void check_rotation(const struct kvi_kernels *ref, const struct kvi_kernels *fast,
                           unsigned round)
{
	struct rotation_case x = rotation_case_make(round, 1 + rng_below(100), 1);
	uint32_t *a = must_alloc(x.n, 4), *b = must_alloc(x.n, 4);
	ref->coding.rotated_contexts(a, &x.r);
	fast->coding.rotated_contexts(b, &x.r);
	check(!memcmp(a, b, 4 * x.n), fast->name, "rotated_contexts", round);
	rotation_case_free(&x);
	free(a);
	free(b);
}

static void check_rotated_tokens(const struct kvi_kernels *ref, const struct kvi_kernels *fast,
                                 unsigned round)
{
	enum { MOST = 32 };
	const size_t tokens = 1 + rng_below(MOST), pairs = 16 * (1 + rng_below(6));
	struct rotation_case x = rotation_case_make(round, pairs, tokens);
	const size_t row = x.n + rng_below(5), stride = tokens + rng_below(5) + MOST;
	uint32_t *a = must_alloc(tokens * row, 4), *b = must_alloc(tokens * row, 4);
	uint16_t *by_pair = must_alloc(pairs * stride, 2);
	for (size_t t = 0; t < tokens; t++) {
		struct kvi_rotation r = x.r;
		r.turn += t * pairs;
		r.angle_class += t * pairs;
		for (size_t p = 0; p < pairs; p++)
			by_pair[p * stride + t] = r.angle_class[p];
		ref->coding.rotated_contexts(a + t * row, &r);
	}
	const struct kvi_rotated all = { tokens, row, stride, by_pair };
	fast->coding.rotated_tokens(b, &x.r, &all);
	check(!memcmp(a, b, 4 * tokens * row), fast->name, "rotated_tokens", round);
	rotation_case_free(&x);
	free(a);
	free(b);
	free(by_pair);
}

/* What tables make of the counts of channels, 256 a channel at most. */
static void check_table_fits(const struct kvi_kernels *ref, const struct kvi_kernels *fast,
                             unsigned round)
{
	enum { STRIDE = 288, TABLES = 5 };
	const size_t channels = 1 + rng_below(100);
	const unsigned rows = 1 + rng_below(256), wide = rng_below(2) ? STRIDE : 7;
	uint8_t *table = must_alloc(2 * channels, 1);
	uint16_t *counts = must_alloc(channels * STRIDE, 2), lengths[TABLES * STRIDE];
	uint32_t *cost = must_alloc(2 * channels, 4), sum[2][TABLES * STRIDE] = { { 0 } };
	for (size_t c = 0; c < channels; c++) {
		table[c] = table[channels + c] = (uint8_t)rng_below(TABLES);
		for (unsigned i = 0; i < rows; i++)
			counts[c * STRIDE + rng_below(wide)]++;
	}
	for (size_t i = 0; i < TABLES * STRIDE; i++)
		lengths[i] = (uint16_t)rng_below(5632);
	const struct kvi_kernels *const set[2] = { ref, fast };
	for (int k = 0; k < 2; k++) {
		set[k]->fits.tables_choose(counts, channels, STRIDE, lengths, TABLES,
		                           table + k * channels, cost + k * channels);
		set[k]->fits.tables_add(counts, channels, STRIDE, table + k * channels, sum[k]);
	}
	check(!memcmp(table, table + channels, channels) &&
	              !memcmp(cost, cost + channels, 4 * channels),
	      fast->name, "tables_choose", round);
	check(!memcmp(sum[0], sum[1], sizeof sum[0]), fast->name, "tables_add", round);
	free(table);
	free(counts);
	free(cost);
}

/* Floats of all kinds, a few of them not numbers. */
static float random_float(void)
{
	const uint32_t kind = rng_below(50);
	const float v = ((float)rng_below(1 << 24) - (1 << 23)) * 0x1p-20f;
	return kind == 0 ? NAN : kind == 1 ? INFINITY : kind == 2 ? v * 0x1p120f : v;
}

static void check_float_fits(const struct kvi_kernels *ref, const struct kvi_kernels *fast,
                             unsigned round)
{
	enum { FLOATS = KVI_FIT_FLOATS, SAMPLE = KVI_FIT_SAMPLE };
	const size_t rows = rng_below(80), row = FLOATS + rng_below(40);
	float *v = must_alloc((rows + 1) * row, sizeof *v), sorted[2][SAMPLE * FLOATS];
	struct kvi_near_sums sums[2];
	struct kvi_near x;
	for (size_t i = 0; i < rows * row; i++)
		v[i] = random_float();
	for (int i = 0; i < FLOATS; i++) {
		x.mean[i] = (float)rng_below(8) - 4;
		x.scale[i] = 1.0f / (float)(1 + rng_below(8));
		x.limit[i] = (float)rng_below(64);
	}
	for (int i = 0; i < SAMPLE * FLOATS; i++)
		sorted[0][i] = sorted[1][i] = (float)rng_below(32) - 16;
	ref->fits.near_sums(v, rows, row, &x, &sums[0]);
	fast->fits.near_sums(v, rows, row, &x, &sums[1]);
	check(!memcmp(&sums[0], &sums[1], sizeof sums[0]), fast->name, "near_sums", round);
	ref->fits.sort_floats(sorted[0]);
	fast->fits.sort_floats(sorted[1]);
	int in_order = !memcmp(sorted[0], sorted[1], sizeof sorted[0]);
	for (int i = FLOATS; i < SAMPLE * FLOATS; i++)
		in_order = in_order && sorted[0][i - FLOATS] <= sorted[0][i];
	check(in_order, fast->name, "sort_floats", round);
	free(v);
}

static void check_set(const struct kvi_kernels *fast, unsigned rounds)
{
	const struct kvi_kernels *ref = kvi_kernels_get(KVARC_ISA_SCALAR);
	struct kvi_tables model = tables_model();
	for (unsigned i = 0; i < rounds; i++) {
		struct kvi_tables grid = tables_random(KVI_GRID_TABLES, KVI_GRID_SYMBOLS, 1);
		struct kvi_tables bytes = tables_random(1 + rng_below(16), KVI_BYTE_SYMBOLS, 0);
		for (unsigned j = 0; j < 40; j++) {
			check_grid(ref, fast, j & 1 ? &model : &grid, j);
			if (fast->coding.grid_decode2)
				check_grid2(ref, fast, j & 1 ? &model : &grid, j);
			if (fast->coding.grid_encode2)
				check_grid_encode2(ref, fast, j & 1 ? &model : &grid, j);
			check_sym(ref, fast, &bytes, j);
			check_moves(ref, fast, j);
			check_rotation(ref, fast, j);
			if (fast->coding.rotated_tokens)
				check_rotated_tokens(ref, fast, j);
			check_table_fits(ref, fast, j);
			check_float_fits(ref, fast, j);
			const char *slots = check_slots(ref, fast, j & 1 ? &model : &grid);
			check(!slots, fast->name, slots, j);
			const char *layers = check_layers(ref->layers, fast->layers);
			check(!layers, fast->name, layers, j);
			const char *cells = check_cells(ref->cells, fast->cells);
			check(!cells, fast->name, cells, j);
		}
		tables_free(&grid);
		tables_free(&bytes);
	}
	tables_free(&model);
	printf("%s: %u rounds, %u failures\n", fast->name, rounds, failures);
}

/* The sets of AVX-512 that this processor has but does not choose. */
static void check_others(const struct kvi_kernels *chosen, unsigned rounds)
{
#if defined(KVI_AVX512)
	if (chosen != &kvi_kernels_avx512)
		check_set(&kvi_kernels_avx512, rounds);
#endif
#if defined(KVI_AVX512VNNI)
	if (chosen != &kvi_kernels_avx512vnni && __builtin_cpu_supports("avx512vnni"))
		check_set(&kvi_kernels_avx512vnni, rounds);
	const bool vbmi = __builtin_cpu_supports("avx512vnni") &&
	                  __builtin_cpu_supports("avx512vbmi") &&
	                  __builtin_cpu_supports("avx512vbmi2") &&
	                  __builtin_cpu_supports("avx512bitalg");
	if (chosen != &kvi_kernels_avx512vbmi && vbmi)
		check_set(&kvi_kernels_avx512vbmi, rounds);
	if (chosen != &kvi_kernels_avx512gather && vbmi)
		check_set(&kvi_kernels_avx512gather, rounds);
#endif
	(void)chosen;
	(void)rounds;
}

int main(int argc, char **argv)
{
	const unsigned rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 20;
	uint32_t available = kvarc_isa_available();
	for (int i = 0; i < CASE_ISAS; i++) {
		if (!(available & case_isas[i]))
			continue;
		const struct kvi_kernels *k = kvi_kernels_get(case_isas[i]);
		if (k->isa != case_isas[i])
			check(0, k->name, "dispatch", 0);
		check_set(k, rounds);
		if (k->isa == KVARC_ISA_AVX512)
			check_others(k, rounds);
	}
	return failures != 0;
}
