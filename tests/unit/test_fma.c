/* SPDX-License-Identifier: BSD-3-Clause */
/* test_fma.c - the fused multiply-add in C against the processor's, and a known answer */
#include "config.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <xxhash.h>

#include "exact/fma.h"
#include "random.h"
#include "util/fpmode.h"
#if defined(KVI_AVX2)
#include <immintrin.h>
#elif defined(KVI_NEON)
#include <arm_neon.h>
#endif

enum { ROUNDS = 2000000, CASES = 6 };

static float of_bits(uint32_t bits)
{
	float x;
	memcpy(&x, &bits, sizeof x);
	return x;
}

static uint32_t bits_of(float x)
{
	uint32_t bits;
	memcpy(&bits, &x, sizeof bits);
	return bits;
}

#if defined(KVI_AVX2)
static bool have_instruction(void)
{
	return __builtin_cpu_supports("fma");
}
__attribute__((target("fma"))) static float instruction(float a, float b, float c)
{
	return _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss(a), _mm_set_ss(b), _mm_set_ss(c)));
}
#elif defined(KVI_NEON)
static bool have_instruction(void)
{
	return true;
}
static float instruction(float a, float b, float c)
{
	return vgetq_lane_f32(vfmaq_f32(vdupq_n_f32(c), vdupq_n_f32(a), vdupq_n_f32(b)), 0);
}
#else
static bool have_instruction(void)
{
	return false;
}
static float instruction(float a, float b, float c)
{
	return kvi_fma(a, b, c);
}
#endif

/* Mantissas with few ones or zeros: ties, carries and cancellation are frequent. */
static float number(int least, int most)
{
	uint32_t m = rnd() & 0x7fffff;
	switch (below(4)) {
	case 0:
		m &= rnd() & rnd() & rnd();
		break;
	case 1:
		m |= 0x7fffffu << below(24) & 0x7fffff;
		break;
	case 2:
		m &= ~0u << below(24);
		break;
	default:
		break;
	}
	return of_bits((rnd() & 1) << 31 | (uint32_t)(between(least, most) + 127) << 23 | m);
}

/* The last number is at or near what the case is about. */
static void operands(unsigned i, float x[3])
{
	const int a = between(-60, 60), b = between(-60, 60);
	int c = a + b;
	x[0] = number(a, a);
	x[1] = number(b, b);
	switch (i) {
	case 0: /* anything, also what is not finite */
		for (int j = 0; j < 3; j++)
			x[j] = of_bits(rnd() << 16 ^ rnd());
		return;
	case 1: /* the products of the engine */
		x[0] = (float)between(-(1 << 30), 1 << 30);
		x[1] = number(-70, 10);
		x[2] = number(-60, 30);
		return;
	case 2: /* subnormal results */
		x[1] = number(-113 - (a + 60) / 8, -100);
		x[0] = number(-20 + a / 8, 0);
		x[2] = rnd() & 1 ? number(-127, -115) : of_bits((rnd() & 1) << 31 | below(9));
		return;
	case 3: /* cancellation */
		x[2] = of_bits(bits_of(-(x[0] * x[1])) + below(5) - 2);
		return;
	case 4: /* ties, and a tail far below them */
		c += between(-50, 50);
		x[2] = number(c < -126  ? -126
		              : c > 126 ? 126
		                        : c,
		              c < -126  ? -126
		              : c > 126 ? 126
		                        : c);
		return;
	default: /* overflow */
		x[0] = number(60, 64);
		x[1] = number(62, 64);
		x[2] = number(100, 127);
	}
}

/* The payload of what is not a number is the processor's. */
static uint32_t canonical(float x)
{
	return x == x ? bits_of(x) : 0x7fc00000;
}

static void test_random(void **state)
{
	const uint64_t want = 0xc9536889dbd10815;
	XXH3_state_t *h = XXH3_createState();
	uint64_t mode = kvi_fp_exact();

	(void)state;
	assert_non_null(h);
	XXH3_64bits_reset(h);
	seed = 3;
	for (unsigned i = 0; i < ROUNDS; i++) {
		float x[3];
		uint32_t got;
		operands(i % CASES, x);
		got = canonical(kvi_fma(x[0], x[1], x[2]));
		if (have_instruction() && canonical(instruction(x[0], x[1], x[2])) != got)
			fail_msg("%a * %a + %a", (double)x[0], (double)x[1], (double)x[2]);
		XXH3_64bits_update(h, &got, sizeof got);
	}
	kvi_fp_restore(mode);
	if (XXH3_64bits_digest(h) != want)
		fail_msg("0x%016llx", (unsigned long long)XXH3_64bits_digest(h));
	XXH3_freeState(h);
}

static void test_boundaries(void **state)
{
	static const struct {
		float a, b, c, y;
	} known[] = {
		/* a tie, broken by what is far below binary64's last bit, up and down */
		{ 0x1p-60f, 0x1p-60f, 0x1.000002p+0f, 0x1.000002p+0f },
		{ 0x1.8p+0f, 0x1p-24f, 0x1p+0f, 0x1.000002p+0f },
		{ 0x1p+0f, 0x1p-24f, 0x1p+0f, 0x1p+0f },
		{ 0x1.000002p-24f, 0x1p+0f, 0x1p+0f, 0x1.000002p+0f },
		/* the smallest */
		{ 0x1.fffffep-75f, 0x1.fffffep-75f, -0x1p-149f, 0x1p-149f },
		{ 0x1p-75f, 0x1p-75f, 0x0p+0f, 0x0p+0f },
		{ 0x1.000002p-75f, 0x1p-75f, 0x0p+0f, 0x1p-149f },
		/* the largest number, and the first that is none */
		{ 0x1p+64f, 0x1.fffffep+63f, 0x1p+102f, 0x1.fffffep+127f },
		{ 0x1p+64f, 0x1.fffffep+63f, 0x1p+103f, INFINITY },
		{ 0x1p+64f, 0x1p+64f, -0x1p+127f, 0x1p+127f },
		{ 0x1p+0f, -0x1p+0f, 0x1p+0f, 0.0f },
	};

	(void)state;
	for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
		const float y = kvi_fma(known[i].a, known[i].b, known[i].c);
		if (bits_of(y) != bits_of(known[i].y))
			fail_msg("%zu: %a, not %a", i, (double)y, (double)known[i].y);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_boundaries),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
