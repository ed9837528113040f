/* SPDX-License-Identifier: BSD-3-Clause */
/* test_float8.c - e4m3 numbers, and products of them on every instruction set */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <xxhash.h>

#include "kernels/slots.h"
#include "exact/float8.h"
#include "random.h"

enum { MAX_ROWS = 21, MAX_OUTPUTS = 90, MAX_COLUMNS = 900, ROUNDS = 150 };

static const struct kvi_exact_kernels *sets[4];
static size_t n_sets;

static int find_sets(void **state)
{
	static const uint32_t all[] = { KVARC_ISA_AVX2, KVARC_ISA_AVX512, KVARC_ISA_NEON };

	(void)state;
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (kvarc_isa_available() & all[i])
			sets[n_sets++] = kvi_exact_kernels_get(all[i]);
	return 0;
}

/* -------------------------------------------------------------- numbers */

static float up_from(float x)
{
	uint32_t b;

	memcpy(&b, &x, sizeof b);
	b++;
	memcpy(&x, &b, sizeof x);
	return x;
}

/* Each number is itself, the middle of two is the even one, and beyond it the next. */
static void test_numbers(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 0x7e; i++) {
		const float a = kvi_e4m3_value((uint8_t)i);
		const float b = kvi_e4m3_value((uint8_t)(i + 1)), middle = (a + b) / 2;

		assert_true(a < b);
		assert_int_equal(kvi_e4m3_of(a), i);
		assert_int_equal(kvi_e4m3_of(middle), i + (i & 1));
		assert_int_equal(kvi_e4m3_of(up_from(middle)), i + 1);
		assert_int_equal(kvi_e4m3_of(-b), 0x80 | (i + 1));
		assert_true(kvi_e4m3_value((uint8_t)(0x80 | i)) == -a);
	}
	assert_true(kvi_e4m3_value(1) == 0x1p-9f && kvi_e4m3_value(8) == 0x1p-6f);
	assert_true(kvi_e4m3_value(0x7e) == KVI_E4M3_MAX);
	assert_int_equal(kvi_e4m3_of(-0.0f), 0);
	assert_int_equal(kvi_e4m3_of(-0x1p-60f), 0);
	assert_int_equal(kvi_e4m3_of(464), 0x7e);
	assert_int_equal(kvi_e4m3_of(-3e38f), 0xfe);
}

/* ------------------------------------------------------------- products */

struct float8_job {
	size_t rows, outputs, columns, y_stride, y_floats;
	struct kvi_operand w;
	void *memory;
	float *x, *y;
};

static float number(unsigned kind)
{
	switch (kind) {
	case 0:
		return normal() * 0.02f;
	case 1:
		return normal() * (below(16) ? 1e-30f : 1e-38f);
	case 2:
		return normal() * (below(50) ? 1e-3f : 3e9f);
	case 3:
		return below(3) ? 0.0f : -0.0f;
	default:
		return (float)between(-9, 9);
	}
}

static void make_job(struct float8_job *j)
{
	float row[MAX_COLUMNS];
	size_t bytes;

	j->rows = 1 + below(MAX_ROWS);
	j->outputs = 1 + below(MAX_OUTPUTS);
	j->columns = 1 + below(MAX_COLUMNS);
	assert_true(kvi_e4m3_bytes(j->outputs, j->columns, &bytes));
	assert_true(bytes % 64 == 0);
	j->memory = aligned_alloc(64, bytes);
	assert_non_null(j->memory);
	memset(j->memory, 0xa5, bytes);
	kvi_e4m3_init(&j->w, j->memory, j->outputs, j->columns);
	for (size_t r = 0; r < j->outputs; r++) {
		unsigned kind = below(5);
		for (size_t c = 0; c < j->columns; c++)
			row[c] = number(kind);
		kvi_e4m3_put(&j->w, r, row);
	}
	j->y_stride = kvi_operand_blocks(&j->w) * KVI_OPERAND_ROWS + below(3) * 5;
	j->y_floats = j->rows * j->y_stride;
	j->x = malloc(j->rows * j->columns * sizeof *j->x);
	j->y = malloc(j->y_floats * sizeof *j->y);
	assert_true(j->x && j->y);
	for (size_t r = 0; r < j->rows; r++) {
		unsigned kind = below(5);
		for (size_t c = 0; c < j->columns; c++)
			j->x[r * j->columns + c] = number(kind);
	}
}

static void free_job(struct float8_job *j)
{
	free(j->memory);
	free(j->x);
	free(j->y);
}

/* What a set makes of a job, in two pieces; a copy. */
static float *run(struct float8_job *j, const struct kvi_exact_kernels *k)
{
	const size_t blocks = kvi_operand_blocks(&j->w);
	const size_t cut = below((uint32_t)blocks + 1);
	struct kvi_product p = { .w = &j->w,
		                 .x = j->x,
		                 .rows = j->rows,
		                 .x_stride = j->columns,
		                 .blocks = cut,
		                 .y = j->y,
		                 .y_stride = j->y_stride };
	float *y = malloc(j->y_floats * sizeof *y);

	assert_non_null(y);
	memset(j->y, 0xff, j->y_floats * sizeof *y);
	k->product_floats(&p);
	p.first = cut;
	p.blocks = blocks - cut;
	k->product_floats(&p);
	memcpy(y, j->y, j->y_floats * sizeof *y);
	return y;
}

static void test_same_bits(void **state)
{
	(void)state;
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct float8_job j;
		make_job(&j);
		float *want = run(&j, &kvi_exact_scalar);
		for (size_t k = 0; k < n_sets; k++) {
			float *y = run(&j, sets[k]);
			if (memcmp(y, want, j.y_floats * sizeof *y))
				fail_msg("%s differs: %zu rows, %zu outputs, %zu columns",
				         sets[k]->name, j.rows, j.outputs, j.columns);
			free(y);
		}
		free(want);
		free_job(&j);
	}
}

/* The sum goes column by column, and is rounded each time: one number by hand. */
static void test_order(void **state)
{
	static const float w[4] = { 448, 1, 1, -448 };
	static const float x[4] = { 0x1p24f, 200, 200, 0x1p24f };
	struct float8_job j = {
		.rows = 1, .outputs = 1, .columns = 4, .y_stride = 16, .y_floats = 16
	};
	size_t bytes;

	(void)state;
	assert_true(kvi_e4m3_bytes(1, 4, &bytes));
	j.memory = aligned_alloc(64, bytes);
	j.x = malloc(sizeof x);
	j.y = malloc(16 * sizeof *j.y);
	assert_true(j.memory && j.x && j.y);
	memcpy(j.x, x, sizeof x);
	kvi_e4m3_init(&j.w, j.memory, 1, 4);
	kvi_e4m3_put(&j.w, 0, w);
	assert_true(j.w.scale[0] == 1);
	float *y = run(&j, &kvi_exact_scalar);
	/* each 200 is less than half a unit of 448 x 2^24, which is 512; both would be more */
	assert_true(y[0] == 0);
	free(y);
	free_job(&j);
}

/* One digest for all compilers, options and processors. */
static uint64_t digest(const struct kvi_exact_kernels *k)
{
	uint64_t d = 0;

	seed = 33;
	for (unsigned i = 0; i < 24; i++) {
		struct float8_job j;
		make_job(&j);
		float *y = run(&j, k);
		for (size_t r = 0; r < j.rows; r++)
			d = XXH3_64bits_withSeed(y + r * j.y_stride, j.outputs * sizeof *y, d);
		free(y);
		free_job(&j);
	}
	return d;
}

static void test_known_answers(void **state)
{
	const uint64_t want = 0xdbca1699bda6182e;

	(void)state;
	if (digest(&kvi_exact_scalar) != want)
		fail_msg("scalar: %016llx", (unsigned long long)digest(&kvi_exact_scalar));
	for (size_t i = 0; i < n_sets; i++)
		assert_true(digest(sets[i]) == want);
}

static void test_sizes(void **state)
{
	size_t bytes;

	(void)state;
	assert_false(kvi_e4m3_bytes(SIZE_MAX, 64, &bytes));
	assert_false(kvi_e4m3_bytes(64, SIZE_MAX, &bytes));
	assert_false(kvi_e4m3_bytes(SIZE_MAX / 32, 32, &bytes));
	assert_true(kvi_e4m3_bytes(17, 65, &bytes));
	assert_int_equal(bytes, 2 * 65 * 16 + 32 + 2 * 64);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_numbers), cmocka_unit_test(test_same_bits),
		cmocka_unit_test(test_order),   cmocka_unit_test(test_known_answers),
		cmocka_unit_test(test_sizes),
	};
	return cmocka_run_group_tests(tests, find_sets, NULL);
}
