/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * quantise_body.h - activations of floats, 16 at a time (spec/arithmetic.md 2)
 *
 * After the vectors of matmul_body.h and: f_abs, f_sub, f_min, f_max (of which the second
 * where they do not compare, as quantise.h has it), f_most (of all numbers), f_ints, v_add,
 * v_sum (of all numbers), store_a8, store_a15 (16 integers).
 */
#include "quantise.h"

KERNEL void quantise_vectors(struct kvi_activations *a, void *to, const float *x, size_t n,
                             size_t index)
{
	const int largest = a->wide ? KVI_A15_MAX : KVI_A8_MAX;
	const vflt magic = f_set(KVI_RINT_MAGIC);
	const vflt top = f_set((float)largest), bottom = f_set((float)-largest);
	vflt most = f_zero(), inverse;
	vint sum = v_zero();
	float s;

	for (size_t i = 0; i < n; i += LANES)
		most = f_max(f_abs(f_load(x + i)), most);
	s = kvi_group_scale(f_most(most), largest);
	inverse = f_set(1 / s);
	for (size_t i = 0; i < n; i += ROWS) {
		vint v[ROWS / LANES];
		UNROLL
		for (int j = 0; j < ROWS / LANES; j++) {
			vflt t = f_mul(f_load(x + i + j * LANES), inverse);
			t = f_sub(f_add(t, magic), magic);
			v[j] = f_ints(f_max(f_min(t, top), bottom));
			sum = v_add(sum, v[j]);
		}
		if (a->wide)
			store_a15((int16_t *)to + i, v);
		else
			store_a8((uint8_t *)to + i, v);
	}
	a->scale[index] = s;
	a->sum[index] = v_sum(sum);
}

/* A group of n columns whose integers begin at `at`. */
static FUNCTION void quantise_group(struct kvi_activations *a, size_t at, const float *x, size_t n,
                                    size_t index)
{
	const size_t bytes = a->wide ? sizeof(*a->a15) : sizeof(*a->a8);
	char *to = a->wide ? (char *)(a->a15 + at) : (char *)(a->a8 + at);
	float padded[KVI_GROUP_MAX + ROWS];
	int16_t integers[KVI_GROUP_MAX + ROWS];

	if (n % ROWS == 0) {
		quantise_vectors(a, to, x, n, index);
		return;
	}
	memcpy(padded, x, n * sizeof(*x));
	memset(padded + n, 0, ROWS * sizeof(*x));
	quantise_vectors(a, integers, padded, n + ROWS - n % ROWS, index);
	memcpy(to, integers, kvi_quads(n) * QUAD * bytes);
}

static FUNCTION void quantise(struct kvi_activations *a, const float *x, size_t x_stride,
                              size_t first, size_t n)
{
	const size_t groups = kvi_groups(a->columns, a->group);

	for (size_t r = first; r < first + n; r++, x += x_stride)
		for (size_t g = 0; g < groups; g++) {
			size_t c = g * a->group, rest = a->columns - c;
			quantise_group(a, r * a->stride + c, x + c,
			               rest < a->group ? rest : a->group, r * groups + g);
		}
}
