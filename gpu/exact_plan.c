/* SPDX-License-Identifier: BSD-3-Clause */
/* exact_plan.c - the host's part: operands of the exact engine as its kernels read them */
#include "exact_plan.h"

#include <string.h>

#include "exact/engine_internal.h"

bool kvi_gpu_exact_takes(const struct kvi_arithmetic *a)
{
	for (enum kvi_matrix_kind k = KVI_MATRIX_KV; k <= KVI_MATRIX_DOWN; k++)
		if (kvi_planes(a, k) == 2 && !kvi_wide(a, k))
			return false;
	const bool wide_keys = kvi_planes(a, KVI_MATRIX_KEYS) == 2;
	const bool wide_values = kvi_planes(a, KVI_MATRIX_VALUES) == 2;
	const bool wide_weights = kvi_twelve(a, KVI_MATRIX_VALUES) ||
	                          kvi_wide(a, KVI_MATRIX_VALUES);
	if (a->fp8)
		return false;
	if (kvi_twelve(a, KVI_MATRIX_KEYS))
		return wide_weights;
	return wide_keys == kvi_wide(a, KVI_MATRIX_KEYS) && wide_keys == wide_values &&
	       wide_keys == wide_weights;
}

/* Steps of 32 columns of a group. */
static size_t steps_of(unsigned group)
{
	return (group + KVI_GPU_STEP_COLUMNS - 1) / KVI_GPU_STEP_COLUMNS;
}

uint32_t kvi_gpu_operand_stride(size_t columns, unsigned group)
{
	/* a short last group has all of its steps */
	const size_t steps = kvi_groups(columns, group) * steps_of(group);
	return (uint32_t)((steps + 1) / 2 * KVI_GPU_CHUNK_BYTES);
}

/* Byte of an output and a column. */
static size_t weight_byte(size_t r, size_t column, unsigned group, size_t stride)
{
	enum { TILE = KVI_GPU_TILE_OUTPUTS, PIECE = 8 * KVI_GPU_CHUNK_BYTES };
	const size_t in = column % group, c = in % KVI_GPU_STEP_COLUMNS;
	const size_t step = column / group * steps_of(group) + in / KVI_GPU_STEP_COLUMNS;
	const size_t chunk = r / TILE * (stride / KVI_GPU_CHUNK_BYTES) + step / 2;
	return (chunk * (TILE / 8) + r % TILE / 8) * PIECE + r % 8 * KVI_GPU_CHUNK_BYTES +
	       c / 8 * 16 + step % 2 * 8 + c % 8;
}

/* Bytes of the integers of a plane, and of scales or minima. */
struct weights_parts {
	size_t integers, numbers;
};

static struct weights_parts parts_of(const struct kvi_operand *w)
{
	const size_t tiles = (w->rows + KVI_GPU_TILE_OUTPUTS - 1) / KVI_GPU_TILE_OUTPUTS;
	const size_t rows = tiles * KVI_GPU_TILE_OUTPUTS;
	return (struct weights_parts){
		.integers = rows * kvi_gpu_operand_stride(w->columns, w->group),
		.numbers = rows * kvi_operand_groups(w) * sizeof(float),
	};
}

size_t kvi_gpu_weights_bytes(const struct kvi_operand *w)
{
	const struct weights_parts p = parts_of(w);
	return w->planes * p.integers + (w->minimum ? 2 : 1) * p.numbers;
}

static void fill_integers(const struct kvi_operand *w, unsigned plane, uint8_t *to)
{
	const size_t stride = kvi_gpu_operand_stride(w->columns, w->group);
	for (size_t r = 0; r < w->rows; r++) {
		const int8_t *from = w->w[plane] +
		                     r / KVI_OPERAND_ROWS * kvi_quads(w->columns) * 64 +
		                     r % KVI_OPERAND_ROWS * KVI_OPERAND_QUAD;
		for (size_t c = 0; c < w->columns; c++)
			to[weight_byte(r, c, w->group, stride)] =
				(uint8_t)from[c / KVI_OPERAND_QUAD * 64 + c % KVI_OPERAND_QUAD];
	}
}

/* Scales or minima, by block, group and row of the block. */
static void fill_numbers(const struct kvi_operand *w, const float *from, uint8_t *to)
{
	const size_t groups = kvi_operand_groups(w);
	for (size_t r = 0; r < w->rows; r++)
		for (size_t g = 0; g < groups; g++) {
			const size_t block = r / KVI_OPERAND_ROWS * groups + g;
			const size_t tile = r / KVI_GPU_TILE_OUTPUTS * groups + g;
			const size_t at = tile * KVI_GPU_TILE_OUTPUTS +
			                  kvi_gpu_output_at((uint32_t)(r % KVI_GPU_TILE_OUTPUTS));
			memcpy(to + at * sizeof(float),
			       &from[block * KVI_OPERAND_ROWS + r % KVI_OPERAND_ROWS],
			       sizeof(float));
		}
}

void kvi_gpu_weights_fill(struct kvi_gpu_weights *out, const struct kvi_operand *w, uint8_t *memory,
                          uint64_t address)
{
	const struct weights_parts p = parts_of(w);
	size_t at = 0;
	memset(memory, 0, kvi_gpu_weights_bytes(w));
	*out = (struct kvi_gpu_weights){
		.outputs = (uint32_t)w->rows,
		.group = w->group,
		.groups = (uint32_t)kvi_operand_groups(w),
		.stride = kvi_gpu_operand_stride(w->columns, w->group),
	};
	for (unsigned i = 0; i < w->planes; i++, at += p.integers) {
		fill_integers(w, i, memory + at);
		out->w[i] = address + at;
	}
	fill_numbers(w, w->scale, memory + at);
	out->scale = address + at;
	at += p.numbers;
	if (w->minimum) {
		fill_numbers(w, w->minimum, memory + at);
		out->minimum = address + at;
	}
}
