/* SPDX-License-Identifier: BSD-3-Clause */
/* test_matmul.c - exact products: every instruction set against scalar C, and known answers */
#include "config.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <xxhash.h>

#include "kernels/slots.h"
#include "exact/matmul.h"
#include "exact/words.h"
#include "random.h"

enum { MAX_ROWS = 40, MAX_OUTPUTS = 100, MAX_COLUMNS = 1100, ROUNDS = 400 };

static const struct kvi_exact_kernels *sets[4];
static size_t n_sets;

static int find_sets(void **state)
{
	uint32_t isa = kvarc_isa_available();

	(void)state;
	(void)isa;
#if defined(KVI_AVX2)
	if (isa & KVARC_ISA_AVX2)
		sets[n_sets++] = &kvi_exact_avx2;
#endif
#if defined(KVI_AVX512)
	if (isa & KVARC_ISA_AVX512)
		sets[n_sets++] = &kvi_exact_avx512;
#if defined(KVI_AVX512VNNI)
	if (__builtin_cpu_supports("avx512vnni"))
		sets[n_sets++] = &kvi_exact_avx512vnni;
#endif
#endif
#if defined(KVI_NEON)
	sets[n_sets++] = &kvi_exact_neon;
#endif
#if defined(KVI_NEONDOT)
	if (kvi_arm_has_dots())
		sets[n_sets++] = &kvi_exact_neondot;
#endif
	return 0;
}

/* ----------------------------------------------------------------- data */

struct product_shape {
	size_t rows, outputs, columns;
	unsigned group, planes;
	bool wide, minima;
	bool words;    /* W12 and A12 */
	bool positive; /* no activation is negative */
};

struct test_matmul_job {
	struct product_shape s;
	struct kvi_operand w;
	struct kvi_activations a;
	void *w_memory, *a_memory;
	float *x, *y;
	size_t y_stride;
};

static void *memory(bool fits, size_t bytes)
{
	void *p;

	assert_true(fits && bytes % 64 == 0);
	p = aligned_alloc(64, bytes ? bytes : 64);
	assert_non_null(p);
	memset(p, 0xa5, bytes);
	return p;
}

static void make_job(struct test_matmul_job *j, const struct product_shape *s)
{
	size_t bytes;
	bool fits = kvi_operand_bytes(s->outputs, s->columns, s->group, s->planes, s->minima,
	                              &bytes);

	j->s = *s;
	if (s->words)
		fits = kvi_words_bytes(s->outputs, s->columns, &bytes);
	j->w_memory = memory(fits, bytes);
	if (s->words)
		kvi_words_init(&j->w, j->w_memory, s->outputs, s->columns);
	else
		kvi_operand_init(&j->w, j->w_memory, s->outputs, s->columns, s->group, s->planes,
		                 s->minima);
	fits = kvi_activations_bytes(s->rows, s->columns, s->group, s->wide, &bytes);
	j->a_memory = memory(fits, bytes);
	kvi_activations_init(&j->a, j->a_memory, s->rows, s->columns, s->group, s->wide);
	if (s->words)
		j->a.largest = KVI_A12_MAX;
	j->x = calloc(s->rows * s->columns + 1, sizeof(*j->x));
	j->y_stride = kvi_operand_blocks(&j->w) * KVI_OPERAND_ROWS + below(3) * 5;
	j->y = malloc((s->rows * j->y_stride + 1) * sizeof(*j->y));
	assert_true(j->x && j->y);
}

static void free_job(struct test_matmul_job *j)
{
	free(j->w_memory);
	free(j->a_memory);
	free(j->x);
	free(j->y);
}

/* Kinds of numbers: what is random, what is largest, what ties, what is alone. */
enum { RANDOM, LARGEST, SAME_SIGN, TIES, ALONE, NOTHING, TINY, HUGE_ONES, KINDS };

static int8_t weight(unsigned kind, size_t i)
{
	switch (kind) {
	case LARGEST:
		return (int8_t)(i % 3 ? -128 : 127);
	case SAME_SIGN:
		return -128;
	case ALONE:
		return (int8_t)(i % 37 == 0 ? between(-128, 127) : 0);
	case NOTHING:
		return 0;
	default:
		return (int8_t)between(-128, 127);
	}
}

/* Of the huge ones; their products are infinite, or not numbers, whose sign depends on the
 * processor: not in known answers. */
static float huge_unit = 0x1p104f;

static float activation(unsigned kind, size_t i, int largest)
{
	switch (kind) {
	case LARGEST:
		return i % 3 ? -1.0f : 1.0f;
	case SAME_SIGN:
		return -3.5f;
	/* amax is `largest`, so that the scale is 1 and halves are ties */
	case TIES:
		return i % 16 ? (float)between(-2 * largest, 2 * largest) / 2 : (float)-largest;
	case ALONE:
		return i % 37 == 0 ? (float)between(-9, 9) : 0.0f;
	case NOTHING:
		return i % 2 ? 0.0f : -0.0f;
	case TINY:
		return (float)between(-5, 5) * 0x1p-149f;
	case HUGE_ONES:
		return (float)between(-16777215, 16777215) * huge_unit;
	default:
		return (float)between(-1000000, 1000000) * 1e-5f;
	}
}

/* Words of a kind of their own: the largest ones have the sum that is the largest of all. */
static void fill_words(struct test_matmul_job *j, unsigned kind)
{
	float x[KVI_GROUP_MAX];
	struct kvi_activations a;
	size_t bytes;
	bool fits = kvi_activations_bytes(1, j->s.columns, KVI_GROUP_MAX, true, &bytes);
	void *row = memory(fits, bytes);

	kvi_activations_init(&a, row, 1, j->s.columns, KVI_GROUP_MAX, true);
	a.largest = KVI_W12_MAX;
	for (size_t r = 0; r < j->s.outputs; r++) {
		unsigned k = kind < KINDS ? kind : below(KINDS);
		for (size_t c = 0; c < j->s.columns; c++)
			x[c] = activation(k, c, KVI_W12_MAX);
		kvi_exact_scalar.quantise(&a, x, j->s.columns, 0, 1);
		kvi_words_put(&j->w, r, a.a15, a.scale[0]);
	}
	free(row);
}

static void fill_weights(struct test_matmul_job *j, unsigned kind)
{
	static int8_t q[2][MAX_COLUMNS];
	static float scale[MAX_COLUMNS], minimum[MAX_COLUMNS];
	const int8_t *const planes[2] = { q[0], q[1] };

	if (j->s.words) {
		fill_words(j, kind);
		return;
	}
	for (size_t r = 0; r < j->s.outputs; r++) {
		unsigned k = kind < KINDS ? kind : below(KINDS);
		for (size_t c = 0; c < j->s.columns; c++) {
			q[0][c] = weight(k, c);
			q[1][c] = weight(k, c + 1);
		}
		for (size_t g = 0; g < kvi_operand_groups(&j->w); g++) {
			scale[g] = (float)between(-999, 9999) * 1e-4f;
			minimum[g] = (float)between(-9999, 999) * 1e-3f;
		}
		kvi_operand_put(&j->w, r, planes, scale, minimum);
	}
}

static void fill_activations(struct test_matmul_job *j, unsigned kind)
{
	const int largest = j->a.largest;
	float *x = j->x;

	for (size_t r = 0; r < j->s.rows; r++)
		for (size_t c = 0; c < j->s.columns; c += j->s.group) {
			unsigned k = kind < KINDS ? kind : below(KINDS);
			for (size_t i = c; i < j->s.columns && i < c + j->s.group; i++)
				*x++ = j->s.positive ? fabsf(activation(k, i - c, largest))
				                     : activation(k, i - c, largest);
		}
}

static size_t integer_bytes(const struct test_matmul_job *j)
{
	return kvi_quads(j->s.columns) * KVI_OPERAND_QUAD * (j->s.wide ? 2 : 1);
}
static const char *integers(const struct test_matmul_job *j, size_t r)
{
	return j->s.wide ? (const char *)(j->a.a15 + r * j->a.stride)
	                 : (const char *)(j->a.a8 + r * j->a.stride);
}

/* ----------------------------------------------------------- comparison */

struct results {
	char *integers;
	float *scale, *y;
	int32_t *sum;
	size_t n_integers, n_groups, n_y;
};

static void *copy(const void *p, size_t bytes)
{
	void *to = malloc(bytes + 1);

	assert_non_null(to);
	memcpy(to, p, bytes);
	return to;
}

/* What a set makes of a job; rows and blocks in pieces as chance has it. */
static void run(struct test_matmul_job *j, const struct kvi_exact_kernels *k, struct results *out)
{
	const size_t row_bytes = integer_bytes(j), blocks = kvi_operand_blocks(&j->w);
	struct kvi_product p = { .a = &j->a,
		                 .w = &j->w,
		                 .y = j->y,
		                 .y_stride = j->y_stride,
		                 .positive = j->s.positive };
	size_t cut = below((uint32_t)j->s.rows + 1);

	memset(j->a_memory, 0x5a, (size_t)((char *)j->a.sum - (char *)j->a_memory));
	memset(j->y, 0xff, j->s.rows * j->y_stride * sizeof(*j->y));
	k->quantise(&j->a, j->x + cut * j->s.columns, j->s.columns, cut, j->s.rows - cut);
	k->quantise(&j->a, j->x, j->s.columns, 0, cut);
	cut = below((uint32_t)blocks + 1);
	p.first = cut;
	p.blocks = blocks - cut;
	k->product(&p);
	p.first = 0;
	p.blocks = cut;
	k->product(&p);
	out->n_integers = row_bytes * j->s.rows;
	out->integers = malloc(out->n_integers + 1);
	assert_non_null(out->integers);
	for (size_t r = 0; r < j->s.rows; r++)
		memcpy(out->integers + r * row_bytes, integers(j, r), row_bytes);
	out->n_groups = j->s.rows * kvi_operand_groups(&j->w);
	out->n_y = j->s.rows * j->y_stride;
	out->scale = copy(j->a.scale, out->n_groups * sizeof(*j->a.scale));
	out->sum = copy(j->a.sum, out->n_groups * sizeof(*j->a.sum));
	out->y = copy(j->y, out->n_y * sizeof(*j->y));
}

static void free_results(struct results *r)
{
	free(r->integers);
	free(r->scale);
	free(r->sum);
	free(r->y);
}

static void compare(struct test_matmul_job *j)
{
	struct results want, got;

	run(j, &kvi_exact_scalar, &want);
	for (size_t i = 0; i < n_sets; i++) {
		run(j, sets[i], &got);
		if (memcmp(got.integers, want.integers, want.n_integers) ||
		    memcmp(got.scale, want.scale, want.n_groups * sizeof(*want.scale)) ||
		    memcmp(got.sum, want.sum, want.n_groups * sizeof(*want.sum)) ||
		    memcmp(got.y, want.y, want.n_y * sizeof(*want.y)))
			fail_msg("%s differs: %zu rows, %zu outputs, %zu columns, group %u, "
			         "%u planes, wide %d, minima %d",
			         sets[i]->name, j->s.rows, j->s.outputs, j->s.columns, j->s.group,
			         j->s.planes, j->s.wide, j->s.minima);
		free_results(&got);
	}
	free_results(&want);
}

static const unsigned group_sizes[] = { 16, 32, 64, 128, 256 };

static void random_shape(struct product_shape *s)
{
	s->rows = 1 + below(below(4) ? 10 : MAX_ROWS);
	s->outputs = 1 + below(MAX_OUTPUTS);
	s->columns = 1 + below(below(4) ? 300 : MAX_COLUMNS);
	s->group = group_sizes[below(5)];
	s->planes = 1 + below(2);
	s->wide = below(2);
	s->minima = below(3) == 0;
	s->words = s->positive = false;
}

/* Attention's: queries by keys in words, probabilities by values. */
static void attention_shape(struct product_shape *s)
{
	random_shape(s);
	s->group = KVI_GROUP_MAX;
	s->wide = true;
	s->minima = false;
	s->words = below(2);
	s->positive = !s->words;
	s->columns = s->words ? 1 + below(KVI_GROUP_MAX) : KVI_GROUP_MAX;
	if (s->words)
		s->planes = 1;
}

static void test_random(void **state)
{
	(void)state;
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct product_shape s;
		struct test_matmul_job j;

		if (i % 4)
			random_shape(&s);
		else
			attention_shape(&s);
		make_job(&j, &s);
		fill_weights(&j, i / 4 % 2 ? KINDS : RANDOM);
		fill_activations(&j, i / 8 % 2 ? KINDS : RANDOM);
		compare(&j);
		free_job(&j);
	}
}

/* Every kind with every kind, for all that integers may be, at the largest group. */
static void test_extremes(void **state)
{
	(void)state;
	for (unsigned i = 0; i < KINDS * KINDS * 4; i++) {
		struct product_shape s = { 9,         48,         512 + 64 + 20, 256,  1 + i % 2,
			                   i / 2 % 2, i % 3 == 0, false,         false };
		struct test_matmul_job j;

		make_job(&j, &s);
		fill_weights(&j, i / 4 % KINDS);
		fill_activations(&j, i / 4 / KINDS);
		compare(&j);
		free_job(&j);
	}
}

/* Each group size and number of rows, with whole and broken groups, quads and blocks. */
static void test_shapes(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 5 * 40; i++) {
		const unsigned group = group_sizes[i % 5];
		struct product_shape s = {
			1 + i / 5,     16 * (i % 3 + 1), group * (i % 4 + 1), group,
			1 + i / 7 % 2, i / 3 % 2,        i / 2 % 2,           false,
			false
		};
		struct test_matmul_job j;

		s.outputs += i % 2 ? below(16) : 0;
		s.columns -= i % 2 ? below(group) : 0;
		make_job(&j, &s);
		fill_weights(&j, RANDOM);
		fill_activations(&j, RANDOM);
		compare(&j);
		free_job(&j);
	}
}

/* ---------------------------------------------------------------- floats */

/* Rows from floats: the integers that section 2 says, and planes that give them back. */
static void test_put_floats(void **state)
{
	static float x[70];
	struct product_shape s = { 1, 1, 70, 64, 2, true, false, false, false };
	struct test_matmul_job j;

	(void)state;
	for (size_t i = 0; i < 70; i++)
		x[i] = (float)between(-16319, 16319);
	x[3] = 16319;
	x[5] = -16319;
	x[6] = 64; /* the planes meet */
	x[64] = 16319;
	make_job(&j, &s);
	kvi_operand_put_floats(&j.w, 0, x);
	for (size_t i = 0; i < 70; i++) {
		size_t at = i / 4 * 64 + i % 4;
		assert_int_equal(128 * j.w.w[0][at] + j.w.w[1][at], (int)x[i]);
		assert_in_range(j.w.w[1][at] + 64, 0, 127);
	}
	assert_true(j.w.scale[0] == 1 && j.w.scale[16] == 1);
	free_job(&j);
}

/* ---------------------------------------------------------- known answers */

/* Results of fixed operands: one digest for all compilers, options and processors. */
static uint64_t digest(const struct kvi_exact_kernels *k)
{
	XXH3_state_t *h = XXH3_createState();
	uint64_t d;

	assert_non_null(h);
	XXH3_64bits_reset(h);
	seed = 20;
	huge_unit = 0x1p70f;
	for (unsigned i = 0; i < 24; i++) {
		struct product_shape s = { 1 + i % 9,
			                   40 + i,
			                   150 + 16 * i,
			                   group_sizes[i % 5],
			                   1 + i % 2,
			                   i / 2 % 2,
			                   i % 3 == 0 && i % 2 == 0,
			                   false,
			                   false };
		struct results r;
		struct test_matmul_job j;

		make_job(&j, &s);
		fill_activations(&j, KINDS);
		if (s.minima) {
			fill_weights(&j, KINDS);
		} else {
			for (size_t o = 0; o < s.outputs; o++) {
				float x[1000];
				for (size_t c = 0; c < s.columns; c++)
					x[c] = activation(RANDOM, c, 1);
				kvi_operand_put_floats(&j.w, o, x);
			}
		}
		run(&j, k, &r);
		XXH3_64bits_update(h, r.integers, r.n_integers);
		XXH3_64bits_update(h, r.scale, r.n_groups * sizeof(*r.scale));
		for (size_t o = 0; o < s.rows; o++)
			XXH3_64bits_update(h, r.y + o * j.y_stride,
			                   kvi_operand_blocks(&j.w) * 16 * sizeof(*r.y));
		free_results(&r);
		free_job(&j);
	}
	huge_unit = 0x1p104f;
	d = XXH3_64bits_digest(h);
	XXH3_freeState(h);
	return d;
}

static void test_known_answers(void **state)
{
	const uint64_t want = 0x8471c3d8595cad56;

	(void)state;
	if (digest(&kvi_exact_scalar) != want)
		fail_msg("scalar: %016llx", (unsigned long long)digest(&kvi_exact_scalar));
	for (size_t i = 0; i < n_sets; i++)
		if (digest(sets[i]) != want)
			fail_msg("%s: %016llx", sets[i]->name, (unsigned long long)digest(sets[i]));
}

static void test_sizes(void **state)
{
	size_t bytes;

	(void)state;
	assert_false(kvi_operand_bytes(SIZE_MAX, 64, 64, 1, false, &bytes));
	assert_false(kvi_operand_bytes(64, SIZE_MAX, 64, 1, false, &bytes));
	assert_false(kvi_operand_bytes(SIZE_MAX / 64, 64, 64, 2, true, &bytes));
	assert_false(kvi_activations_bytes(SIZE_MAX / 2, 64, 64, false, &bytes));
	assert_false(kvi_activations_bytes(2, SIZE_MAX, 64, true, &bytes));
	assert_true(kvi_operand_bytes(17, 65, 64, 2, true, &bytes));
	assert_int_equal(bytes, 2 * (2 * 17 * 64 + 2 * 2 * 64) + 2 * 2 * 2 * 64);
}

static void test_dispatch(void **state)
{
	(void)state;
	assert_ptr_equal(kvi_exact_kernels_get(KVARC_ISA_SCALAR), &kvi_exact_scalar);
	assert_ptr_equal(kvi_exact_kernels_get(0), n_sets ? sets[n_sets - 1] : &kvi_exact_scalar);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random),        cmocka_unit_test(test_extremes),
		cmocka_unit_test(test_shapes),        cmocka_unit_test(test_put_floats),
		cmocka_unit_test(test_known_answers), cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_dispatch),
	};
	return cmocka_run_group_tests(tests, find_sets, NULL);
}
