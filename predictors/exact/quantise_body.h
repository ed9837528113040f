/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * quantise_body.h - activations of floats, 16 at a time (spec/arithmetic.md 2)
 *
 * After the vectors of matmul_body.h and: f_abs, f_sub, f_min, f_max (of which the second
 * where they do not compare, as quantise.h has it), f_most (of all numbers), f_ints, v_add,
 * v_sum (of all numbers), store_a8, store_a15 (16 integers).
 */
#include "quantise.h"

/* The largest magnitude of n numbers. */
KERNEL float most_of(const float *x, size_t n)
{
	vflt most = f_zero();
	float padded[ROWS] = { 0 };

	memcpy(padded, x + n / ROWS * ROWS, n % ROWS * sizeof(*x));
	for (size_t i = 0; i < ROWS; i += LANES)
		most = f_max(f_abs(f_load(padded + i)), most);
	for (size_t i = 0; i < n / ROWS * ROWS; i += LANES)
		most = f_max(f_abs(f_load(x + i)), most);
	return f_most(most);
}

/* Integers of n numbers, whole 16; returns their sum. */
KERNEL int32_t quantise_vectors(void *to, const float *x, size_t n, float scale, bool wide,
                                int largest)
{
	const vflt magic = f_set(KVI_RINT_MAGIC), inverse = f_set(1 / scale);
	const vflt top = f_set((float)largest), bottom = f_set((float)-largest);
	vint sum = v_zero();

	for (size_t i = 0; i < n; i += ROWS) {
		vint v[ROWS / LANES];
		UNROLL
		for (int j = 0; j < ROWS / LANES; j++) {
			vflt t = f_mul(f_load(x + i + j * LANES), inverse);
			t = f_sub(f_add(t, magic), magic);
			v[j] = f_ints(f_max(f_min(t, top), bottom));
			sum = v_add(sum, v[j]);
		}
		if (wide)
			store_a15((int16_t *)to + i, v);
		else
			store_a8((uint8_t *)to + i, v);
	}
	return v_sum(sum);
}

/* A group of n columns whose integers begin at `at`; returns their sum. */
KERNEL int32_t quantise_group(struct kvi_activations *activations, size_t at, const float *x,
                              size_t n, float scale, bool wide)
{
	const size_t bytes = wide ? sizeof(*activations->a15) : sizeof(*activations->a8);
	char *to = wide ? (char *)(activations->a15 + at) : (char *)(activations->a8 + at);
	float padded[KVI_GROUP_MAX + ROWS];
	int16_t integers[KVI_GROUP_MAX + ROWS];
	int32_t sum;

	if (n % ROWS == 0)
		return quantise_vectors(to, x, n, scale, wide, activations->largest);
	memcpy(padded, x, n * sizeof(*x));
	memset(padded + n, 0, ROWS * sizeof(*x));
	sum = quantise_vectors(integers, padded, n + ROWS - n % ROWS, scale, wide,
	                       activations->largest);
	memcpy(to, integers, kvi_quads(n) * QUAD * bytes);
	return sum;
}

KERNEL void quantise_row(struct kvi_activations *activations, size_t r, const float *x, bool wide)
{
	const size_t groups = kvi_groups(activations->columns, activations->group);
	int32_t *sum = activations->sum + r * groups;
	float *scale = activations->scale + (wide ? r : r * groups);

	if (wide)
		*scale = kvi_group_scale(most_of(x, activations->columns), activations->largest);
	for (size_t g = 0; g < groups; g++) {
		const size_t c = g * activations->group, rest = activations->columns - c;
		const size_t n = rest < activations->group ? rest : activations->group;

		if (!wide)
			scale[g] = kvi_group_scale(most_of(x + c, n), activations->largest);
		sum[g] = quantise_group(activations, r * activations->stride + c, x + c, n,
		                        scale[wide ? 0 : g], wide);
	}
}

static FUNCTION void quantise(struct kvi_activations *activations, const float *x, size_t x_stride,
                              size_t first, size_t n)
{
	for (size_t r = first; r < first + n; r++, x += x_stride)
		if (activations->wide)
			quantise_row(activations, r, x, true);
		else
			quantise_row(activations, r, x, false);
}
