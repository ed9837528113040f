/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * matmul_speed.c - speed of exact products next to the peak of the instruction they are made of
 *
 * One thread, fastest of several runs in processor time. An operation is a multiplication or
 * an addition of two of the operands' integers, however many instructions it takes; the peak
 * is that of 8-bit integers in registers. Where operands of more bits take several such
 * instructions, the second percentage is of what these allow. usage: matmul [ISA]
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "exact/float8.h"
#include "exact/words.h"
#include "kernels/slots.h"

#if defined(KVI_AVX2)
#include <immintrin.h>
#endif

enum { REPEAT = 15, PEAK_LOOPS = 200000, WORDS_LOOPS = 20, CHAINS = 12, ROWS = 256, GROUP = 64 };

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---------------------------------------------------------------- peaks */

/* CHAINS sums that do not wait for each other; the compiler must not see through them. */
#if defined(__clang__)
#define EACH _Pragma("clang loop unroll(full)") for (int i = 0; i < CHAINS; i++)
#else
#define EACH _Pragma("GCC unroll 16") for (int i = 0; i < CHAINS; i++)
#endif
#define PEAK(NAME, TARGET, VECTOR, SET, DOT)                             \
	static __attribute__((target(TARGET), noinline)) void NAME(void) \
	{                                                                \
		VECTOR a = SET(1), b = SET(2), sum[CHAINS];              \
		EACH                                                     \
			sum[i] = SET(1);                                 \
		for (int n = 0; n < PEAK_LOOPS; n++) {                   \
			EACH {                                           \
				DOT;                                     \
				__asm__("" : "+v"(sum[i]));              \
			}                                                \
		}                                                        \
		EACH                                                     \
			__asm__ volatile("" : : "v"(sum[i]));            \
	}

#if defined(KVI_AVX2)
PEAK(peak_avx2, "avx2", __m256i, _mm256_set1_epi32,
     sum[i] = _mm256_add_epi32(sum[i], _mm256_madd_epi16(a, b));
     __asm__(""
             : "+v"(a)))
#endif
#if defined(KVI_AVX512)
PEAK(peak_avx512, "avx512bw", __m512i, _mm512_set1_epi32,
     sum[i] = _mm512_add_epi32(sum[i], _mm512_madd_epi16(a, b));
     __asm__(""
             : "+v"(a)))
#endif
#if defined(KVI_AVX512VNNI)
PEAK(peak_avx512vnni, "avx512vnni", __m512i, _mm512_set1_epi32,
     sum[i] = _mm512_dpbusd_epi32(sum[i], a, b))
#endif

#if defined(KVI_AVX2)
PEAK(floats_avx2, "avx2", __m256, _mm256_set1_ps,
     sum[i] = _mm256_add_ps(sum[i], _mm256_mul_ps(a, b));
     __asm__(""
             : "+v"(a)))
#endif
#if defined(KVI_AVX512)
PEAK(floats_avx512, "avx512f", __m512, _mm512_set1_ps,
     sum[i] = _mm512_add_ps(sum[i], _mm512_mul_ps(a, b));
     __asm__(""
             : "+v"(a)))
#endif

struct matmul_set {
	const struct kvi_exact_kernels *kernels;
	void (*peak)(void);
	double peak_ops; /* of a chain's step */
	const char *instructions;
	unsigned wide;        /* of them, for activations of 15 bits where 8 bits take one */
	void (*floats)(void); /* multiplication and addition of fp32, each rounded */
	double float_ops;
};

static double peak_speed(void (*peak)(void), double ops)
{
	double best = 0;

	for (int i = 0; peak && i < REPEAT; i++) {
		double t = now();
		peak();
		t = PEAK_LOOPS * (double)CHAINS * ops / (now() - t);
		best = t > best ? t : best;
	}
	return best;
}

/* ------------------------------------------------------------- products */

/* Of the peak, and of what n instructions in place of one allow. */
static void print_share(double speed, double peak, unsigned n)
{
	if (peak > 0)
		printf("  %5.1f %%  %5.1f %%", 100 * speed / peak, 100 * n * speed / peak);
}

static uint32_t seed = 1;
static float random_float(void)
{
	seed = seed * 1664525u + 1013904223u;
	return (float)(seed >> 8) / 8388608.0f - 1;
}

static void *memory(bool fits, size_t bytes)
{
	void *p = fits ? aligned_alloc(64, bytes) : NULL;

	if (!p) {
		fprintf(stderr, "matmul: no memory\n");
		exit(1);
	}
	return p;
}

struct job {
	struct kvi_operand w;
	struct kvi_activations a;
	void *w_memory, *a_memory;
	float *x, *y;
};

static void make_job(struct job *j, size_t outputs, size_t inputs, unsigned planes, bool wide)
{
	size_t bytes;
	bool fits = kvi_operand_bytes(outputs, inputs, GROUP, planes, false, &bytes);
	size_t most = outputs > inputs ? outputs : inputs;

	j->w_memory = memory(fits, bytes);
	kvi_operand_init(&j->w, j->w_memory, outputs, inputs, GROUP, planes, false);
	fits = kvi_activations_bytes(ROWS, inputs, GROUP, wide, &bytes);
	j->a_memory = memory(fits, bytes);
	kvi_activations_init(&j->a, j->a_memory, ROWS, inputs, GROUP, wide);
	j->x = memory(true, ROWS * inputs * sizeof(float));
	j->y = memory(true, ROWS * most * sizeof(float));
	for (size_t i = 0; i < ROWS * inputs; i++)
		j->x[i] = random_float();
	for (size_t r = 0; r < outputs; r++)
		kvi_operand_put_floats(&j->w, r, j->x + r % ROWS * inputs);
}

static void free_job(struct job *j)
{
	free(j->w_memory);
	free(j->a_memory);
	free(j->x);
	free(j->y);
}

/* Operations a second, and floats that are quantised in one. */
static void measure(const struct matmul_set *s, size_t outputs, size_t inputs, unsigned planes,
                    bool wide, double peak)
{
	const double ops = 2.0 * ROWS * (double)outputs * (double)inputs;
	double best = 0, floats = 0;
	struct job j;

	make_job(&j, outputs, inputs, planes, wide);
	for (int i = 0; i < REPEAT && (i < 3 || (double)i * ops < best * 4); i++) {
		const struct kvi_product p = { .a = &j.a,
			                       .w = &j.w,
			                       .blocks = kvi_operand_blocks(&j.w),
			                       .y = j.y,
			                       .y_stride = kvi_operand_blocks(&j.w) * 16 };
		double t0 = now(), t1, t2;
		s->kernels->quantise(&j.a, j.x, inputs, 0, ROWS);
		t1 = now();
		s->kernels->product(&p);
		t2 = now();
		best = ops / (t2 - t1) > best ? ops / (t2 - t1) : best;
		t0 = ROWS * (double)inputs / (t1 - t0);
		floats = t0 > floats ? t0 : floats;
	}
	printf("  A%-2d x W%-2d  %d x %4zu x %4zu  %7.1f GOP/s", wide ? 15 : 8,
	       planes == 2 ? 15 : 8, ROWS, inputs, outputs, best * 1e-9);
	print_share(best, peak, planes * (wide ? s->wide : 1));
	printf("   quantise %5.2f G/s\n", floats * 1e-9);
	fflush(stdout);
	free_job(&j);
}

/* The same of queries and keys of a block of attention, both of 12 bits. */
static void measure_words(const struct matmul_set *s, size_t channels, double peak)
{
	const double ops = 2.0 * ROWS * KVI_GROUP_MAX * (double)channels;
	struct kvi_activations a;
	struct kvi_operand w;
	size_t bytes;
	bool fits = kvi_activations_bytes(ROWS, channels, KVI_GROUP_MAX, true, &bytes);
	void *a_memory = memory(fits, bytes);
	fits = kvi_words_bytes(KVI_GROUP_MAX, channels, &bytes);
	void *w_memory = memory(fits, bytes);
	float *x = memory(true, ROWS * channels * sizeof(float));
	float *y = memory(true, ROWS * KVI_GROUP_MAX * sizeof(float));
	double best = 0;

	for (size_t i = 0; i < ROWS * channels; i++)
		x[i] = random_float();
	kvi_activations_init(&a, a_memory, ROWS, channels, KVI_GROUP_MAX, true);
	a.largest = KVI_A12_MAX;
	s->kernels->quantise(&a, x, channels, 0, ROWS);
	kvi_words_init(&w, w_memory, KVI_GROUP_MAX, channels);
	for (size_t r = 0; r < KVI_GROUP_MAX; r++)
		kvi_words_put(&w, r, a.a15 + r % ROWS * a.stride, a.scale[r % ROWS]);
	for (int i = 0; i < REPEAT; i++) {
		const struct kvi_product p = { .a = &a,
			                       .w = &w,
			                       .blocks = kvi_operand_blocks(&w),
			                       .y = y,
			                       .y_stride = KVI_GROUP_MAX };
		double t = now();
		for (int k = 0; k < WORDS_LOOPS; k++)
			s->kernels->product(&p);
		t = WORDS_LOOPS * ops / (now() - t);
		best = t > best ? t : best;
	}
	printf("  A12 x W12  %d x %4zu x %4d  %7.1f GOP/s", ROWS, channels, KVI_GROUP_MAX,
	       best * 1e-9);
	print_share(best, peak, s->wide);
	printf("\n");
	free(a_memory);
	free(w_memory);
	free(x);
	free(y);
}

/* The same for floats and E4M3 weights. */
static void measure_floats(const struct matmul_set *s, size_t outputs, size_t inputs, double peak)
{
	const double ops = 2.0 * ROWS * (double)outputs * (double)inputs;
	size_t bytes;
	bool fits = kvi_e4m3_bytes(outputs, inputs, &bytes);
	void *w_memory = memory(fits, bytes);
	float *x = memory(true, ROWS * inputs * sizeof(float));
	float *y = memory(true, ROWS * (outputs + 16) * sizeof(float));
	struct kvi_operand w;
	double best = 0;

	kvi_e4m3_init(&w, w_memory, outputs, inputs);
	for (size_t i = 0; i < ROWS * inputs; i++)
		x[i] = random_float();
	for (size_t r = 0; r < outputs; r++)
		kvi_e4m3_put(&w, r, x + r % ROWS * inputs);
	for (int i = 0; i < REPEAT && (i < 3 || (double)i * ops < best * 4); i++) {
		const struct kvi_product p = { .w = &w,
			                       .x = x,
			                       .rows = ROWS,
			                       .x_stride = inputs,
			                       .blocks = kvi_operand_blocks(&w),
			                       .y = y,
			                       .y_stride = kvi_operand_blocks(&w) * 16 };
		double t = now();
		s->kernels->product_floats(&p);
		t = ops / (now() - t);
		best = t > best ? t : best;
	}
	printf("  fp32 x E4M3 %d x %4zu x %4zu  %7.1f GOP/s", ROWS, inputs, outputs, best * 1e-9);
	print_share(best, peak, 1);
	printf("\n");
	fflush(stdout);
	free(w_memory);
	free(x);
	free(y);
}

static void bench(const struct matmul_set *s)
{
	static const size_t shapes[][2] = {
		{ 576, 576 }, { 1536, 576 }, { 576, 1536 }, { 4096, 4096 }
	};
	double peak = peak_speed(s->peak, s->peak_ops);
	double floats = peak_speed(s->floats, s->float_ops);

	printf("%s", s->kernels->name);
	if (s->peak)
		printf(": peak of %s %.1f GOP/s, of fp32 %.1f", s->instructions, peak * 1e-9,
		       floats * 1e-9);
	printf("\n");
	for (unsigned form = 0; form < 3; form++)
		for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
			if (s->peak || shapes[i][0] < 4096)
				measure(s, shapes[i][0], shapes[i][1], form == 2 ? 2 : 1, form > 0,
				        peak);
	measure_words(s, 64, peak);
	measure_words(s, 128, peak);
	for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
		if (s->peak || shapes[i][0] < 4096)
			measure_floats(s, shapes[i][0], shapes[i][1], floats);
}

int main(int argc, char **argv)
{
	const uint32_t isa = kvarc_isa_available();
	struct matmul_set sets[5];
	int n = 0;

	sets[n++] = (struct matmul_set){ &kvi_exact_scalar, NULL, 0, "", 1, NULL, 0 };
#if defined(KVI_NEON)
	sets[n++] = (struct matmul_set){ &kvi_exact_neon, NULL, 0, "", 1, NULL, 0 };
#endif
#if defined(KVI_NEONDOT)
	if (kvi_arm_has_dots())
		sets[n++] = (struct matmul_set){ &kvi_exact_neondot, NULL, 0, "", 1, NULL, 0 };
#endif
#if defined(KVI_AVX2)
	if (isa & KVARC_ISA_AVX2)
		sets[n++] = (struct matmul_set){
			&kvi_exact_avx2, peak_avx2, 32, "vpmaddwd + vpaddd", 1, floats_avx2, 16
		};
#endif
#if defined(KVI_AVX512)
	if (isa & KVARC_ISA_AVX512)
		sets[n++] = (struct matmul_set){
			&kvi_exact_avx512, peak_avx512, 64, "vpmaddwd + vpaddd", 1,
			floats_avx512,     32
		};
#if defined(KVI_AVX512VNNI)
	if (kvi_exact_kernels_get(0) == &kvi_exact_avx512vnni)
		sets[n++] = (struct matmul_set){ &kvi_exact_avx512vnni,
			                         peak_avx512vnni,
			                         128,
			                         "vpdpbusd",
			                         2,
			                         floats_avx512,
			                         32 };
#endif
#endif
	(void)isa;
	for (int i = 0; i < n; i++)
		if (argc < 2 || strcmp(argv[1], sets[i].kernels->name) == 0)
			bench(&sets[i]);
	return 0;
}
