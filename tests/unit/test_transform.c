/* SPDX-License-Identifier: BSD-3-Clause */
/* test_transform.c - what lossy codecs do with 32 tokens at once: every instruction set as scalar
 * C, numbers to elements and back */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "codecs/had/transform.h"
#include "numeric/formats.h"
#include "random.h"
#include "util/fpmode.h"

enum { ROWS = 129, N = ROWS * KVI_LANES, SETS = 3 };

static const struct kvi_transform *sets[SETS];
static int n_sets;

static int find_sets(void **state)
{
	static const uint32_t isas[SETS] = { KVARC_ISA_AVX2, KVARC_ISA_AVX512, KVARC_ISA_NEON };
	(void)state;
	for (int i = 0; i < SETS; i++)
		if (isas[i] & kvarc_isa_available() &&
		    kvi_transform_get(isas[i]) != &kvi_transform_scalar)
			sets[n_sets++] = kvi_transform_get(isas[i]);
	kvi_fp_exact();
	return 0;
}

/* All that a call may read, twice: what one set and scalar C make of it. */
struct both {
	float x[2][N + KVI_LANES], sums[2][N], unit[2][KVI_LANES];
	int32_t z[2][N];
	int16_t pairs[2][N + 2 * KVI_LANES];
	uint16_t elements[2][N];
	int8_t codes[2][N];
	uint8_t esc[2][N];
	float mean[ROWS], gain[ROWS], cos[N], sin[N];
};

static float any_float(void)
{
	uint32_t b = rnd() << 1 ^ rnd();
	float f;
	switch (below(40)) {
	case 0:
		b = 0x80000000;
		break;
	case 1:
		b &= 0x807fffff;
		break; /* subnormal */
	case 2:
		break; /* infinities and NaNs, too */
	case 3:
		b = (b & 0x80000000) | 0x7f7fffff;
		break;
	default:
		return normal() * (below(3) ? 1.0f : 300.0f);
	}
	memcpy(&f, &b, sizeof f);
	return f;
}

static void fill(struct both *b, bool wild)
{
	for (size_t i = 0; i < N; i++) {
		b->x[0][i] = wild ? any_float() : normal();
		b->sums[0][i] = normal();
		b->z[0][i] = (int32_t)rnd();
		b->elements[0][i] = (uint16_t)rnd();
		b->codes[0][i] = (int8_t)(below(4) ? between(-3, 3) : between(-128, 127));
		b->esc[0][i] = (uint8_t)rnd();
		b->cos[i] = (float)between(-16384, 16384) * 0x1p-14f;
		b->sin[i] = (float)between(-16384, 16384) * 0x1p-14f;
	}
	for (size_t i = 0; i < KVI_LANES; i++)
		b->unit[0][i] = normal();
	for (size_t i = 0; i < ROWS; i++) {
		b->mean[i] = below(9) ? normal() : -0.0f;
		b->gain[i] = normal();
	}
	memset(b->pairs, 0, sizeof b->pairs);
	memcpy(b->x[1], b->x[0], sizeof b->x[0]);
	memcpy(b->sums[1], b->sums[0], sizeof b->sums[0]);
	memcpy(b->z[1], b->z[0], sizeof b->z[0]);
	memcpy(b->elements[1], b->elements[0], sizeof b->elements[0]);
	memcpy(b->codes[1], b->codes[0], sizeof b->codes[0]);
	memcpy(b->esc[1], b->esc[0], sizeof b->esc[0]);
	memcpy(b->unit[1], b->unit[0], sizeof b->unit[0]);
}

/* NaNs are all the same: which one an operation gives is not said. */
static void same_floats(const float *a, const float *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (a[i] == a[i] || b[i] == b[i])
			assert_memory_equal(a + i, b + i, sizeof *a);
}

static void same(const struct both *b)
{
	same_floats(b->x[0], b->x[1], N);
	same_floats(b->sums[0], b->sums[1], N);
	same_floats(b->unit[0], b->unit[1], KVI_LANES);
	assert_memory_equal(b->z[0], b->z[1], sizeof b->z[0]);
	assert_memory_equal(b->pairs[0], b->pairs[1], sizeof b->pairs[0]);
	assert_memory_equal(b->elements[0], b->elements[1], sizeof b->elements[0]);
	assert_memory_equal(b->codes[0], b->codes[1], sizeof b->codes[0]);
	assert_memory_equal(b->esc[0], b->esc[1], sizeof b->esc[0]);
}

static const unsigned dtypes[] = { KVARC_F16, KVARC_BF16, KVARC_E4M3, KVARC_E5M2 };

/* What goes from channels to codes; results stay in b->...[i]. */
static uint32_t there(const struct kvi_transform *f, struct both *b, int i, size_t rows,
                      unsigned choice)
{
	uint32_t refused = 0;
	struct kvi_turned turned = { rows / 2, choice & 1, b->cos, b->sin };
	switch (choice / 2 % 5) {
	case 0:
		f->widen(dtypes[choice / 10 % 4], b->elements[i], rows, b->x[i]);
		break;
	case 1:
		f->turn(b->x[i], &turned, choice / 10 & 1);
		break;
	case 2:
		f->forward(b->x[i], b->mean, rows, choice & 1);
		break;
	case 3:
		f->lanes_to_pairs(b->x[i], rows, b->pairs[i], b->unit[i]);
		break;
	default:
		refused = f->quantise(b->x[i], rows, choice & 1 ? 3.7f : 100.0f,
		                      choice & 1 ? 0.5f : 0.41f, b->codes[i]);
	}
	return refused;
}

/* What goes the other way, and the rest. */
static void again(const struct kvi_transform *f, struct both *b, int i, size_t rows,
                  unsigned choice)
{
	struct kvi_points p = { (int8_t)(choice % 33 - 16), (int8_t)(16 - choice % 31) };
	int16_t turned[2 * KVI_LANES];
	switch (choice / 2 % 10) {
	case 0:
		f->narrow(dtypes[choice / 16 % 4], b->x[i], rows, b->elements[i]);
		break;
	case 1:
		f->back(b->codes[i], p, 0.37f, b->mean, rows, choice & 1, b->z[i], b->x[i]);
		break;
	case 2:
		f->pairs(b->codes[i], p, rows, b->pairs[i]);
		break;
	case 3:
		f->scale(b->z[i], rows, b->gain, b->mean, b->x[i]);
		break;
	case 4:
		f->scale_lanes(b->z[i], rows, b->gain, b->unit[i], b->x[i]);
		break;
	case 5:
		f->add(b->x[i], rows, choice & 1 ? KVI_LANES : choice / 16 % KVI_LANES,
		       choice / 4 & 1, b->sums[i]);
		break;
	case 6:
		f->to_symbols(b->codes[i], choice % 94, b->elements[i], b->esc[i]);
		break;
	case 7:
		memcpy(turned, b->elements[i], sizeof turned);
		f->turns(turned, b->x[i], b->x[i] + KVI_LANES);
		for (size_t k = 0; k < 2 * KVI_LANES; k++)
			assert_true(b->x[i][k % 2 * KVI_LANES + k / 2] ==
			            (float)turned[k] * 0x1p-14f);
		break;
	case 8:
		f->add_squares(b->x[i], rows, b->sums[i]);
		break;
	default:
		for (size_t k = 0; k < N; k++)
			b->elements[i][k] %= KVI_CODE_ESCAPE + 1;
		f->to_codes(b->elements[i], b->esc[i], rows * KVI_LANES - choice % KVI_LANES,
		            b->codes[i]);
	}
}

static void test_sets_as_scalar(void **state)
{
	struct both *b = malloc(sizeof *b);
	(void)state;
	assert_non_null(b);
	for (int s = 0; s < n_sets; s++)
		for (unsigned rows = 1; rows < ROWS; rows++)
			for (unsigned choice = 0; choice < 64; choice += 1 + rows / 16) {
				/* lanes_to_pairs has a rule for what is no number, below */
				fill(b, choice / 2 % 5 != 3);
				assert_int_equal(there(&kvi_transform_scalar, b, 0, rows, choice),
				                 there(sets[s], b, 1, rows, choice));
				same(b);
				again(&kvi_transform_scalar, b, 0, rows, choice + rows);
				again(sets[s], b, 1, rows, choice + rows);
				same(b);
			}
	free(b);
}

static const struct kvi_transform *set(int s)
{
	return s < 0 ? &kvi_transform_scalar : sets[s];
}

static void test_expected(void **state)
{
	enum { R = 3, M = R * KVI_LANES };
	int32_t sums[M], mean[R];
	int16_t to[M];
	uint8_t shift[R];
	float x[M], unit[R];
	(void)state;
	for (unsigned k = 0; k < 50; k++)
		for (int s = -1; s < n_sets; s++) {
			for (unsigned r = 0; r < R; r++) {
				shift[r] = (uint8_t)below(15);
				mean[r] = between(-32767, 32767);
				unit[r] = normal();
			}
			for (unsigned i = 0; i < M; i++)
				sums[i] = (int32_t)rnd() >> (k % 16);
			sums[0] = (-32768 - mean[0]) * (1 << shift[0]);
			set(s)->expect(sums, R, mean, shift, to);
			for (unsigned i = 0; i < M; i++) {
				int32_t p = mean[i / KVI_LANES] + (sums[i] >> shift[i / KVI_LANES]);
				assert_int_equal(to[i], p < -32767  ? -32767
				                        : p > 32767 ? 32767
				                                    : p);
				x[i] = 1;
			}
			set(s)->add_expected(to, R, unit, k & 1, x);
			for (unsigned i = 0; i < M; i++) {
				float v = (float)to[i] * unit[i / KVI_LANES];
				assert_true(x[i] == (k & 1 ? 1 - v : 1 + v));
			}
		}
}

/* M of n channels, by row and by column. */
struct transform_basis {
	int16_t m[ROWS * ROWS], turned[ROWS * ROWS], to[ROWS * ROWS];
	float gain[ROWS + KVI_LANES], was[ROWS], unit[ROWS];
	size_t n, stride;
};

static void fill_basis(struct transform_basis *b, size_t n)
{
	memset(b, 0, sizeof *b);
	b->n = n;
	b->stride = n + (n & 1);
	for (size_t c = 0; c < n; c++) {
		b->was[c] = b->gain[c] = 0.1f + (float)below(1000);
		for (size_t j = 0; j < n; j++)
			b->turned[j * n + c] = b->m[c * b->stride + j] = (int16_t)between(-400,
			                                                                  400);
		b->turned[c * n + c] = b->m[c * b->stride + c] = 401;
	}
	memset(b->to, 77, sizeof b->to);
}

static void check_gains(const struct transform_basis *b)
{
	for (size_t c = 0; c < b->n; c++) {
		const int16_t *row = b->m + c * b->stride;
		float sum = 0;
		for (size_t j = 0; j < b->n; j++)
			sum = sum + (float)row[j] * (float)row[j];
		assert_true(b->gain[c] == b->was[c] / sum);
	}
}

static void check_row(const struct transform_basis *b, size_t j)
{
	const int16_t *column = b->turned + j * b->n;
	float sum = 0, most = 0;
	for (size_t c = 0; c < b->n; c++) {
		float v = fabsf((float)column[c] * b->gain[c]);
		sum = sum + v;
		most = v > most ? v : most;
	}
	float scale = (65536.0f - (float)b->n) / sum;
	scale = most * scale > 32767 ? 32767 / most : scale;
	assert_true(b->unit[j] == 1 / scale);
	for (size_t c = 0; c < b->stride; c++) {
		float v = c < b->n ? (float)column[c] * b->gain[c] * scale : 0;
		assert_int_equal(b->to[j * b->stride + c], (int)(v + (v < 0 ? -0.5f : 0.5f)));
	}
}

static bool invert(int s, struct transform_basis *b)
{
	return set(s)->invert(b->m, b->turned, b->n, b->stride, b->gain, b->to, b->unit);
}

static void test_invert(void **state)
{
	static struct transform_basis b;
	(void)state;
	for (size_t n = 1; n < 70; n++)
		for (int s = -1; s < n_sets; s++) {
			fill_basis(&b, n);
			assert_true(invert(s, &b));
			check_gains(&b);
			for (size_t j = 0; j < n; j++)
				check_row(&b, j);
			fill_basis(&b, n);
			for (size_t j = 0; j < n; j++) /* a row of zeros */
				b.turned[j * n + n / 2] = b.m[n / 2 * b.stride + j] = 0;
			assert_false(invert(s, &b));
		}
}

/* Every finite element comes back; what lies between two goes to the nearer one, or the even one.
 * */
static void test_elements(void **state)
{
	static float x[65536 + KVI_LANES], half[65536 + KVI_LANES];
	static uint16_t e[65536 + KVI_LANES], back[65536 + KVI_LANES];
	const struct kvi_transform *f = &kvi_transform_scalar;
	(void)state;
	for (int d = 0; d < 4; d++) {
		const struct kvi_float_format *form = kvi_float_format(dtypes[d]);
		unsigned sign = 1u << (form->exp_bits + form->mant_bits);
		unsigned largest = sign - 1 - (dtypes[d] == KVARC_E4M3 ? 1 : 1u << form->mant_bits);
		size_t rows = 2 * sign / KVI_LANES;
		for (unsigned i = 0; i < 2 * sign; i++)
			e[i] = (uint16_t)i;
		f->widen(dtypes[d], e, rows, x);
		f->narrow(dtypes[d], x, rows, back);
		for (unsigned i = 0; i < 2 * sign; i++)
			if ((i & (sign - 1)) <= largest)
				assert_int_equal(back[i], i);
		for (unsigned i = 0; i < largest; i++) {
			assert_true(x[i] < x[i + 1]);
			half[i] = x[i] + (x[i + 1] - x[i]) / 2;
		}
		half[largest] = x[largest] * 4; /* no infinity */
		f->narrow(dtypes[d], half, rows, back);
		for (unsigned i = 0; i < largest; i++)
			assert_int_equal(back[i], i + (i & 1));
		assert_int_equal(back[largest], largest);
	}
}

static void test_no_numbers(void **state)
{
	float x[KVI_LANES] = { 0 };
	uint16_t e[KVI_LANES];
	int16_t pairs[4 * KVI_LANES];
	float unit[KVI_LANES];
	int8_t codes[KVI_LANES];
	const uint32_t no_number = 0xffc00001, infinite = 0xff800000;
	(void)state;
	memcpy(&x[0], &no_number, 4);
	memcpy(&x[1], &infinite, 4);
	x[2] = 1e30f;
	x[3] = -2;
	for (int s = -1; s < n_sets; s++) {
		const struct kvi_transform *f = s < 0 ? &kvi_transform_scalar : sets[s];
		for (int d = 0; d < 4; d++) {
			f->narrow(dtypes[d], x, 1, e);
			assert_int_equal(e[0], 0);
			assert_true(e[1] & (dtypes[d] > KVARC_BF16 ? 0x80 : 0x8000));
		}
		assert_int_equal(f->quantise(x, 1, 1, 0.5f, codes) & 0xf, 7);
		assert_int_equal(codes[3], -2);
		f->lanes_to_pairs(x, 1, pairs, unit);
		assert_int_equal(pairs[0], 0);
		assert_int_equal(pairs[2], 0);
		assert_int_equal(pairs[2 * 3], -32767);
	}
}

/* Coefficients that are not rounded are the channels again. */
static void test_there_and_back(void **state)
{
	static float x[N], was[N], mean[ROWS];
	static int32_t buffer[N];
	static int8_t codes[N];
	const float step = 0x1p-4f;
	(void)state;
	for (size_t rows = 1; rows < ROWS; rows++) {
		double error = 0;
		for (size_t i = 0; i < rows * KVI_LANES; i++)
			was[i] = x[i] = normal();
		for (size_t i = 0; i < rows; i++)
			mean[i] = normal() * 0.1f;
		kvi_transform_scalar.forward(x, mean, rows, true);
		assert_int_equal(kvi_transform_scalar.quantise(x, rows, 1 / step, 0.5f, codes), 0);
		kvi_transform_scalar.back(codes, (struct kvi_points){ 0, 0 }, step, mean, rows,
		                          true, buffer, x);
		for (size_t i = 0; i < rows * KVI_LANES; i++)
			error += (double)(x[i] - was[i]) * (double)(x[i] - was[i]);
		error /= (double)(rows * KVI_LANES) * step * step / 12;
		assert_true(error > 0.7 && error < 1.3);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sets_as_scalar), cmocka_unit_test(test_expected),
		cmocka_unit_test(test_invert),         cmocka_unit_test(test_elements),
		cmocka_unit_test(test_no_numbers),     cmocka_unit_test(test_there_and_back),
	};
	return cmocka_run_group_tests(tests, find_sets, NULL);
}
