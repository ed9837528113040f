/* SPDX-License-Identifier: BSD-3-Clause */
/* test_rope.c - rotary embeddings: angles, tables, and finding them in keys */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/rans.h"
#include "numeric/rope_angles.h"
#include "numeric/rope_search.h"
#include "numeric/rotate.h"

enum { T = 128, HEADS = 2, D = 64 };

static struct kvi_alloc alloc;
static uint64_t seed = 7;

static float noise(void)
{
	float sum = 0;
	for (int i = 0; i < 12; i++) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		sum += (float)(seed >> 40) / 16777216.0f - 0.5f;
	}
	return sum;
}

static uint16_t to_bf16(float f)
{
	uint32_t b;
	memcpy(&b, &f, 4);
	return (uint16_t)(b >> 16);
}

/* Keys whose mean turns by a rope; the first token is an outlier, some
 * elements are not finite. */
static void make_keys(const struct kvi_rope *r, int32_t first, uint16_t *raw, int32_t *positions)
{
	kvarc_rope rope = { .pairing = r->pairing, .rotary = r->rotary, .freq = r->freq };
	float mean[HEADS * D];
	for (int c = 0; c < HEADS * D; c++)
		mean[c] = 2 * noise();
	for (int t = 0; t < T; t++) {
		positions[t] = first + t;
		float v[HEADS * D];
		for (int c = 0; c < HEADS * D; c++)
			v[c] = mean[c] + 0.7f * noise() + (t ? 0 : 90);
		for (uint32_t p = 0; p < r->rotary / 2; p++)
			for (int h = 0; h < HEADS; h++) {
				uint32_t a, b, angle;
				kvi_rope_pair(&rope, p, &a, &b);
				angle = kvi_rotate_angle(r->freq[p], positions[t]);
				float c = (float)kvi_cos4096[angle] / 16384;
				float s = (float)kvi_cos4096[(angle + 3072) & 4095] / 16384;
				float *x = v + h * D;
				float xa = x[a], xb = x[b];
				x[a] = xa * c - xb * s;
				x[b] = xb * c + xa * s;
			}
		for (int c = 0; c < HEADS * D; c++)
			raw[t * HEADS * D + c] = to_bf16(v[c]);
		raw[t * HEADS * D + t] = t % 50 == 3 ? 0x7fc0 : to_bf16(v[t]);
	}
}

static bool search(const uint16_t *raw, const int32_t *positions, double hint,
                   struct kvi_rope *found)
{
	struct kvi_rope_sample s[3];
	for (int i = 0; i < 3; i++)
		s[i] = (struct kvi_rope_sample){ KVARC_BF16, T,         HEADS,
			                         D,          positions, (const uint8_t *)raw };
	return kvi_rope_search(found, &alloc, s, 3, hint);
}

static void test_finds(void **state)
{
	static const struct {
		double theta, hint;
		uint32_t rotary;
		uint8_t pairing;
	} cases[] = {
		{ 1e5, 0, D, KVARC_ROPE_HALF },
		{ 1e4, 0, D, KVARC_ROPE_INTERLEAVED },
		{ 5e5, 0, D, KVARC_ROPE_HALF },
		{ 1e4, 0, D / 2, KVARC_ROPE_HALF },
		{ 123456, 123456, D, KVARC_ROPE_INTERLEAVED },
	};
	static uint16_t raw[T * HEADS * D];
	int32_t positions[T];
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct kvi_rope made, found;
		assert_true(
			kvi_rope_make(&made, cases[i].theta, cases[i].rotary, cases[i].pairing));
		make_keys(&made, i & 1 ? 3000 : 0, raw, positions);
		assert_true(search(raw, positions, cases[i].hint, &found));
		assert_int_equal(found.pairing, made.pairing);
		assert_int_equal(found.rotary, made.rotary);
		assert_memory_equal(found.freq, made.freq, made.rotary / 2 * sizeof *made.freq);
	}
}

/* Every share, both pairings; some numbers are too large for sums. (1e4 with half the channels and
 * 1e8 with all are the same rope at few positions.) */
static void test_finds_all(void **state)
{
	static const double theta[] = { 2e4, 5e5, 1.1e7 };
	static uint16_t raw[T * HEADS * D];
	int32_t positions[T];
	(void)state;
	for (unsigned i = 0; i < 2 * 4 * 3; i++) {
		const uint32_t rotary = D / 4 * (1 + i / 2 % 4);
		struct kvi_rope made, found;
		assert_true(kvi_rope_make(&made, theta[i / 8], rotary, i & 1));
		make_keys(&made, i & 2 ? 3000 : 0, raw, positions);
		for (size_t k = i; k < T * HEADS * D; k += 997)
			raw[k] = to_bf16(k & 1 ? 3e38f : -1e14f);
		assert_true(search(raw, positions, 0, &found));
		assert_int_equal(found.pairing, made.pairing);
		assert_int_equal(found.rotary, made.rotary);
		assert_memory_equal(found.freq, made.freq, rotary / 2 * sizeof *made.freq);
	}
}

/* Noise, keys that do not turn, and samples that say nothing. */
static void test_refuses(void **state)
{
	static uint16_t raw[T * HEADS * D];
	int32_t positions[T];
	struct kvi_rope found;
	(void)state;
	for (int i = 0; i < T * HEADS * D; i++) {
		raw[i] = to_bf16(noise() + (float)(i % D));
		positions[i / (HEADS * D)] = i / (HEADS * D);
	}
	assert_false(search(raw, positions, 0, &found));
	for (int i = 0; i < T * HEADS * D; i++)
		raw[i] = to_bf16(noise());
	assert_false(search(raw, positions, 1e4, &found));
	memset(raw, 0, sizeof raw);
	assert_false(search(raw, positions, 0, &found));
	memset(raw, 0xff, sizeof raw);
	assert_false(search(raw, positions, 0, &found));
	assert_false(kvi_rope_search(&found, &alloc, NULL, 0, 0));
	struct kvi_rope_sample few = { KVARC_BF16, 8, HEADS, D, positions, (const uint8_t *)raw };
	assert_false(kvi_rope_search(&found, &alloc, &few, 1, 0));
	few = (struct kvi_rope_sample){ KVARC_I8, T, HEADS, D, positions, (const uint8_t *)raw };
	assert_false(kvi_rope_search(&found, &alloc, &few, 1, 0));
}

static void test_make(void **state)
{
	struct kvi_rope r;
	(void)state;
	assert_true(kvi_rope_make(&r, 1e4, 128, KVARC_ROPE_HALF));
	/* 1 / (2 pi) of a turn, and a hundredth of it in the middle */
	assert_int_equal(r.freq[0] >> 32, 683565275);
	assert_int_equal(r.freq[32] >> 32, 6835652);
	assert_int_equal(r.freq[0] & 0xffff, 0);
	/* to nearest, in units of 2^-48 */
	for (uint32_t i = 0; i < 64; i++) {
		const double exact = pow(1e4, -(double)i / 64) / 6.283185307179586 * 0x1p48;
		assert_true(fabs((double)(r.freq[i] >> 16) - exact) < 0.6);
	}
	assert_false(kvi_rope_make(&r, 1, 128, KVARC_ROPE_HALF));
	assert_false(kvi_rope_make(&r, -2, 128, KVARC_ROPE_HALF));
	assert_false(kvi_rope_make(&r, 1e4, 0, KVARC_ROPE_HALF));
	assert_false(kvi_rope_make(&r, 1e4, 63, KVARC_ROPE_HALF));
	assert_false(kvi_rope_make(&r, 1e4, 2 * KVI_ROPE_PAIRS_MAX + 2, KVARC_ROPE_HALF));
	assert_false(kvi_rope_make(&r, 1e4, 64, 2));
}

/* The angle of spec grid 2, by hand. */
static void test_angle(void **state)
{
	const uint64_t quarter = (uint64_t)1 << 62;
	(void)state;
	assert_int_equal(kvi_rotate_angle(quarter, 0), 0);
	assert_int_equal(kvi_rotate_angle(quarter, 1), 1024);
	assert_int_equal(kvi_rotate_angle(quarter, -1), 3072);
	assert_int_equal(kvi_rotate_angle(quarter, 5), 1024);
	/* half a step rounds up, a full turn is none */
	assert_int_equal(kvi_rotate_angle((uint64_t)1 << 51, 1), 1);
	assert_int_equal(kvi_rotate_angle(((uint64_t)1 << 51) - 1, 1), 0);
	assert_int_equal(kvi_rotate_angle(UINT64_MAX, 1), 0);
}

/* Cosine and sine of a rotation in units of 2^-14, as exact as their integers allow. */
static void test_rotation(void **state)
{
	double sum[2] = { 0 };
	enum { N = 100000 };
	(void)state;
	for (uint64_t i = 0; i < N; i++) {
		const uint64_t freq = i * 0x9e3779b97f4a7c15;
		const double angle = (double)freq * 0x1p-64 * 6.283185307179586;
		const struct kvi_pair_rotation r = kvi_pair_rotation(freq, 1);
		const double off[2] = { r.cosine - cos(angle) * 16384,
			                r.sine - sin(angle) * 16384 };
		for (int k = 0; k < 2; k++) {
			assert_true(fabs(off[k]) < 1.1);
			sum[k] += off[k];
		}
	}
	assert_true(fabs(sum[0]) < 0.02 * N && fabs(sum[1]) < 0.02 * N);
}

/* Contexts of one pair at four positions a quarter turn apart. */
static void test_quarter_turns(void **state)
{
	const uint64_t quarter = (uint64_t)1 << 62;
	const struct kvi_grid_format bf16 = { 7, -126, 16, 7, false };
	const int16_t k[2] = { 8, -4 }, mean[2] = { 64, -32 };
	const kvarc_rope rope = { .pairing = KVARC_ROPE_INTERLEAVED,
		                  .rotary = 2,
		                  .freq = &quarter };
	/* in units of 2^(floor(8 / 4) - 4), a quarter */
	static const float a[4] = { 16, 8, -16, -8 };
	static const float b[4] = { -8, 16, 8, -16 };
	(void)state;
	for (int p = 0; p < 4; p++) {
		uint64_t memory[4];
		uint32_t ctx[2], bits_a, bits_b;
		struct kvi_token_turns turns;
		uint16_t scales[KVI_SCALE_PAIRS] = { 0 };
		struct kvi_rotation r = {
			.fmt = &bf16,
			.pairs = 1,
			.interleaved = true,
			.mean = mean,
			.k = k,
			.scales = scales,
		};
		assert_true(kvi_token_turns_bytes(1, 1) <= sizeof memory);
		kvi_token_turns_make(&turns, memory, &rope, (int32_t[]){ p }, 1);
		r.turn = turns.turn;
		r.angle_class = turns.angle_class;
		for (size_t i = 0; i + 1 < KVI_SCALE_PAIRS; i++)
			scales[i] = (uint16_t)((uint8_t)kvi_rot_scale[i] |
			                       (uint8_t)kvi_rot_scale[i ^ 32] << 8);
		kvi_kernels_get(KVARC_ISA_SCALAR)->coding.rotated_contexts(ctx, &r);
		memcpy(&bits_a, &a[p], sizeof bits_a);
		memcpy(&bits_b, &b[p], sizeof bits_b);
		/* half a class of angles off the axis: nearly the own scale */
		assert_int_equal(ctx[0], kvi_grid_context(bits_a, p & 1 ? -4 : 8, &bf16));
		assert_int_equal(ctx[1], kvi_grid_context(bits_b, p & 1 ? 8 : -4, &bf16));
	}
}

/* A channel that does not turn: mean * 2^(floor(k / 4) - 4). */
static void test_fixed_mean(void **state)
{
	static const struct {
		int mean, k;
		float value;
	} cases[] = {
		{ 7, 5, 0.875f },           { -32768, 0, -2048.0f },
		{ 1, -1, 0x1p-5f },         { 32767, 400, 32767 * 0x1p96f },
		{ 3, -400, 3 * 0x1p-104f }, { 0, 17, 0.0f },
	};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		uint32_t bits;
		memcpy(&bits, &cases[i].value, sizeof bits);
		assert_int_equal(kvi_fixed_mean(cases[i].mean, cases[i].k), bits);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_finds),      cmocka_unit_test(test_finds_all),
		cmocka_unit_test(test_refuses),    cmocka_unit_test(test_make),
		cmocka_unit_test(test_angle),      cmocka_unit_test(test_quarter_turns),
		cmocka_unit_test(test_fixed_mean), cmocka_unit_test(test_rotation),
	};
	kvi_alloc_init(&alloc, NULL, 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
