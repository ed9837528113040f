/* SPDX-License-Identifier: BSD-3-Clause */
/* test_rans.c - the coder: tables, contexts, round trips, hostile streams */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "../rans_cases.h"

/* Every instruction set of this processor, in turn. */
#define EACH_SET(k)                                                                             \
	for (int set_ = 0; set_ < CASE_ISAS; set_++)                                            \
		if (kvarc_isa_available() & case_isas[set_])                                    \
			for (const struct kvi_kernels *k = kvi_kernels_get(case_isas[set_]); k; \
			     k = NULL)

static void test_dispatch(void **state)
{
	(void)state;
	uint32_t isa = kvarc_isa_available();
	assert_true(isa & KVARC_ISA_SCALAR);
	assert_string_equal(kvarc_isa_name(KVARC_ISA_SCALAR), "scalar");
	assert_string_equal(kvarc_isa_name(0), kvarc_isa_name(KVARC_ISA_ALL));
	EACH_SET(k)
	{
		assert_int_equal(k->isa, case_isas[set_]);
		assert_string_equal(k->name, kvarc_isa_name(case_isas[set_]));
	}
	/* A set that is not there falls back. */
	assert_string_equal(kvarc_isa_name(0x80000000u), "scalar");
}

static void test_tables(void **state)
{
	(void)state;
	uint16_t freq[5] = { 2000, 0, 47, 0, 1 };
	struct kvi_tables t = tables_new(1, 5);
	assert_int_equal(t.stride, 8);
	assert_true(kvi_tables_build(&t, freq));
	assert_int_equal(t.enc[2], 47u | 2000u << 16);
	assert_int_equal(t.lut[0], 0u | 0u << 9 | 2000u << 20);
	assert_int_equal(t.lut[2003], 2u | 3u << 9 | 47u << 20);
	assert_int_equal(t.lut[2047], 4u | 0u << 9 | 1u << 20);
	freq[0] = 2001; /* 2049 */
	assert_false(kvi_tables_build(&t, freq));
	freq[0] = 1999; /* 2047 */
	assert_false(kvi_tables_build(&t, freq));
	freq[0] = 2001;
	freq[4] = 0; /* no escape */
	assert_false(kvi_tables_build(&t, freq));
	memset(freq, 0, sizeof(freq));
	freq[4] = 2048; /* certain */
	assert_false(kvi_tables_build(&t, freq));
	freq[4] = 2047;
	freq[3] = 1;
	assert_true(kvi_tables_build(&t, freq));
	freq[0] = 65535; /* wraps around in 16 bits */
	freq[1] = 1;
	assert_false(kvi_tables_build(&t, freq));
	tables_free(&t);
}

/* Contexts against the same quantities in floating point (spec grid 3). */
static void test_contexts(void **state)
{
	(void)state;
	unsigned checked = 0;
	for (int i = 0; i < 200000; i++) {
		const struct kvi_grid_format *f = &case_formats[i % CASE_GRID_FORMATS];
		int k = (int)rng_below(81) - 40, m = f->mant_bits;
		float mu = (float)(rng_gauss() * pow(2, rng_gauss() * 6));
		uint32_t bits, c;
		memcpy(&bits, &mu, 4);
		c = kvi_grid_context(bits, k, f);
		double sum = fabs((double)mu) + 2 * pow(2, k / 4.0);
		int e, g;
		double frac = frexp(sum, &e);
		if (frac < 0.500001 || frac > 0.999999)
			continue; /* decided by the integers' rounding */
		e--;
		g = (int)floor(k / 4.0) - 1;
		g = g > e - m ? g : e - m;
		g = g > f->emin - m ? g : f->emin - m;
		assert_int_equal(c >> 8 & 255, g + 127);
		assert_int_equal(c >> 31, bits >> 31);
		/* half a step of the element added, on the bit pattern */
		uint32_t half = (bits & 0x7fffffff) + (f->whole ? 0 : 1u << (22 - m));
		float shifted;
		memcpy(&shifted, &half, 4);
		double y = shifted / ldexp(1, g - 3);
		assert_int_equal((c >> 16 & 0x7fff) * 8 + (c & 7), floor(y));
		int class = k - 4 * g;
		class = class < -16 ? -16 : class > 7 ? 7 : class;
		assert_int_equal(c >> 3 & 31, class + 16);
		checked++;
	}
	assert_true(checked > 150000);
	/* Any bit pattern and class keeps to the fields' ranges. */
	for (int i = 0; i < 1000000; i++) {
		uint32_t c = kvi_grid_context(rng(), (int)rng_below(801) - 400,
		                              &case_formats[i % CASE_GRID_FORMATS]);
		assert_true((c & 255) < KVI_GRID_TABLES);
		assert_true((c >> 8 & 255) >= 26);
	}
}

static void grid_round_trip(const struct kvi_kernels *enc, const struct kvi_kernels *dec,
                            const struct grid_case *c)
{
	struct coded s;
	coded_new(&s, c->n);
	size_t n = enc->coding.grid_encode(&c->job, c->x, s.end, s.stream.state);
	assert_true(n <= 3 * c->n);
	uint8_t *words = coded_seal(&s, n);
	uint16_t *y = must_alloc(c->n, 2);
	for (int l = 0; l < KVI_LANES; l++)
		assert_true(s.stream.state[l] >= KVI_RANS_LOW);
	assert_true(dec->coding.grid_decode(&c->job, &s.stream, y));
	assert_memory_equal(y, c->x, 2 * c->n);
	free(y);
	free(words);
	free(s.buf);
}

static struct kvi_steps make_steps(size_t full, size_t tail, unsigned lanes)
{
	struct kvi_steps s = { full, tail, lanes };
	return s;
}

/* Every bit pattern of every dtype, under means far and near. */
static void test_all_patterns(void **state)
{
	(void)state;
	struct kvi_tables tables = tables_random(KVI_GRID_TABLES, KVI_GRID_SYMBOLS, 1);
	static const uint32_t means[] = { 0,           0x80000000u, 0x3f800000u, 0xbf8ccccdu,
		                          1,           0x00800000u, 0x7f800000u, 0xffc00001u,
		                          0x7f7fffffu, 0x38800000u, 0x477fe000u };
	static const int classes[] = { -400, -130, -60, -24, -8, 0, 7, 30, 61, 400 };
	struct kvi_steps steps = make_steps(65536 / KVI_LANES, 0, 0);
	for (unsigned format = 0; format < CASE_GRID_FORMATS; format++) {
		struct grid_case c;
		grid_case_new(&c, format, GRID_MODEL, steps, 1, 1, &tables);
		uint32_t mask = (1u << case_formats[format].elem_bits) - 1;
		for (size_t i = 0; i < c.n; i++)
			c.x[i] = (uint16_t)(i & mask);
		for (size_t i = 0; i < sizeof(means) / 4; i++)
			for (size_t j = 0; j < sizeof(classes) / sizeof(int); j++) {
				c.ctx[0] = kvi_grid_context(means[i], classes[j],
				                            &case_formats[format]);
				const struct kvi_kernels *best = kvi_kernels_get(KVARC_ISA_ALL);
				grid_round_trip(best, best, &c);
			}
		EACH_SET(k)
		grid_round_trip(k, k, &c);
		grid_case_free(&c);
	}
	tables_free(&tables);
}

/* Every pair of sets, every number of lanes of a tail, empty streams. */
static void test_shapes(void **state)
{
	(void)state;
	struct kvi_tables tables = tables_random(KVI_GRID_TABLES, KVI_GRID_SYMBOLS, 1);
	for (unsigned lanes = 0; lanes < KVI_LANES; lanes++)
		for (size_t full = 0; full < 3; full++)
			for (size_t tail = 0; tail < 3; tail++) {
				struct grid_case c;
				grid_case_new(&c, lanes % CASE_GRID_FORMATS, GRID_SPRINKLED,
				              make_steps(full, tail, lanes), full ? full : 1,
				              lanes & 1, &tables);
				EACH_SET(a)
				for (int i = 0; i < CASE_ISAS; i++)
					grid_round_trip(a, kvi_kernels_get(case_isas[i]), &c);
				grid_case_free(&c);
			}
	tables_free(&tables);
}

static void test_bytes_shapes(void **state)
{
	(void)state;
	struct kvi_tables bytes = tables_random(16, KVI_BYTE_SYMBOLS, 0);
	for (unsigned i = 0; i < KVI_LANES * 9; i++) {
		struct kvi_steps steps = make_steps(i % 3, i / 3 % 3, i / 9);
		struct byte_case c;
		struct coded s;
		byte_case_new(&c, steps, i % 3 ? i % 3 : 1, i & 1, (int)(i % 2) * 5, &bytes);
		struct kvi_sym_job job = sym_job(&c, &bytes);
		uint16_t *y = must_alloc(c.n, 2);
		uint8_t *esc = must_alloc(c.n, 1);
		EACH_SET(k)
		{
			coded_new(&s, c.n);
			size_t n = k->coding.sym_encode(&job, c.sym, c.esc, s.end, s.stream.state);
			uint8_t *words = coded_seal(&s, n);
			assert_true(k->coding.sym_decode(&job, &s.stream, y, esc));
			assert_memory_equal(y, c.sym, 2 * c.n);
			free(words);
			free(s.buf);
		}
		free(y);
		free(esc);
		byte_case_free(&c);
	}
	tables_free(&bytes);
}

/* A stream that is too short, too long or ends in another state is refused. */
static void test_final_check(void **state)
{
	(void)state;
	struct kvi_tables tables = tables_model();
	struct grid_case c;
	grid_case_new(&c, CASE_BF16, GRID_MODEL, make_steps(50, 3, 7), 50, 0, &tables);
	uint16_t *y = must_alloc(c.n, 2);
	EACH_SET(k)
	{
		struct coded s;
		coded_new(&s, c.n + 1);
		size_t n = k->coding.grid_encode(&c.job, c.x, s.end - 1, s.stream.state);
		s.stream.words = s.end - 1 - n;
		s.stream.n_words = n;
		assert_true(k->coding.grid_decode(&c.job, &s.stream, y));
		s.stream.n_words = n + 1;
		assert_false(k->coding.grid_decode(&c.job, &s.stream, y));
		s.stream.n_words = n - 1;
		assert_false(k->coding.grid_decode(&c.job, &s.stream, y));
		s.stream.n_words = 0;
		assert_false(k->coding.grid_decode(&c.job, &s.stream, y));
		s.stream.n_words = n;
		/* The element fits, the lane's end does not. */
		for (int l = 0; l < KVI_LANES; l++) {
			s.stream.state[l] += 1u << 24;
			assert_false(k->coding.grid_decode(&c.job, &s.stream, y));
			s.stream.state[l] -= 1u << 24;
		}
		free(s.buf);
	}
	free(y);
	/* Lanes without elements have to be at 2^16 too. */
	struct grid_case none;
	grid_case_new(&none, CASE_BF16, GRID_MODEL, make_steps(0, 0, 0), 1, 0, &tables);
	EACH_SET(k)
	{
		struct kvi_stream s = { .words = NULL, .n_words = 0 };
		for (int l = 0; l < KVI_LANES; l++)
			s.state[l] = KVI_RANS_LOW;
		assert_true(k->coding.grid_decode(&none.job, &s, none.x));
		s.state[31]++;
		assert_false(k->coding.grid_decode(&none.job, &s, none.x));
	}
	grid_case_free(&none);
	grid_case_free(&c);
	tables_free(&tables);
}

/* Random words and states: refused, nothing outside the buffers is touched
 * (build with sanitizers to see that). */
static void test_hostile(void **state)
{
	(void)state;
	struct kvi_tables grid = tables_random(KVI_GRID_TABLES, KVI_GRID_SYMBOLS, 1);
	struct kvi_tables bytes = tables_random(16, KVI_BYTE_SYMBOLS, 0);
	for (unsigned i = 0; i < 300; i++) {
		struct kvi_steps steps = make_steps(rng_below(20), rng_below(4), rng_below(32));
		struct grid_case g;
		struct byte_case b;
		size_t ring = steps.full_steps ? steps.full_steps : 1;
		grid_case_new(&g, i % CASE_GRID_FORMATS, GRID_RANDOM, steps, ring, i & 1, &grid);
		byte_case_new(&b, steps, ring, i & 1, 0, &bytes);
		size_t n_words = rng_below((uint32_t)(3 * g.n + 8));
		uint16_t *words = must_alloc(n_words, 2);
		struct kvi_stream s = { .words = words, .n_words = n_words };
		for (size_t w = 0; w < n_words; w++)
			words[w] = (uint16_t)rng();
		for (int l = 0; l < KVI_LANES; l++)
			s.state[l] = rng() >> rng_below(32);
		EACH_SET(k)
		{
			struct kvi_sym_job sj = sym_job(&b, &bytes);
			bool all = g.n != 0;
			all &= k->coding.grid_decode(&g.job, &s, g.x);
			all &= k->coding.sym_decode(&sj, &s, b.sym, b.esc);
			assert_false(all);
		}
		free(words);
		grid_case_free(&g);
		byte_case_free(&b);
	}
	tables_free(&grid);
	tables_free(&bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_dispatch),    cmocka_unit_test(test_tables),
		cmocka_unit_test(test_contexts),    cmocka_unit_test(test_all_patterns),
		cmocka_unit_test(test_shapes),      cmocka_unit_test(test_bytes_shapes),
		cmocka_unit_test(test_final_check), cmocka_unit_test(test_hostile),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
