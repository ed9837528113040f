/* SPDX-License-Identifier: BSD-3-Clause */
/* train_expected.c - what a transformer predicted, as integers of a layer's tensors (spec model
 * 2) */
#include "train_layer.h"
#include "profile/expect.h"
#include "train_run.h"

static size_t column_of(const struct kvi_train_tensor *tensor, size_t row)
{
	size_t capacity = kvi_train_head_stride(tensor->shape), i = row % capacity;
	return i < tensor->shape->channels ? row / capacity * tensor->shape->channels + i
	                                   : SIZE_MAX;
}

struct expect_job {
	struct kvi_train_tensor *x;
	size_t n_tokens;
};

static void expect_row(void *arg, size_t r)
{
	const struct expect_job *j = arg;
	const struct kvi_train_tensor *x = j->x;
	size_t c = column_of(x, r);
	size_t stride = (size_t)x->shape->heads * x->shape->channels;
	float unit = (float)kvi_train_power(-x->step[r]);
	for (size_t v = 0; c != SIZE_MAX && v < j->n_tokens; v++)
		x->expected[r * x->capacity + v] =
			kvi_expected(x->predicted[v * stride + c] * unit);
}

kvarc_ret kvi_train_expect(kvarc_trainer *trainer, const struct kvi_train_stack *stack,
                           struct kvi_train_tensor *tensor)
{
	struct expect_job j = { tensor, stack->n_tokens };
	if (!tensor->predicted)
		return KVARC_OK;
	tensor->expected = kvi_calloc(&trainer->alloc, tensor->rows,
	                              tensor->capacity * sizeof *tensor->expected);
	if (!tensor->expected)
		return kvi_train_no_memory(trainer);
	kvi_train_parallel(trainer, tensor->rows, expect_row, &j);
	return KVARC_OK;
}

void kvi_train_units(const struct kvi_train_tensor *tensor, const float *rows, size_t stride,
                     size_t n, int32_t *X)
{
	for (size_t r = 0; r < tensor->rows; r++) {
		size_t c = column_of(tensor, r);
		float unit = (float)kvi_train_power(-tensor->step[r]);
		for (size_t v = 0; c != SIZE_MAX && v < n; v++)
			X[r * KVI_TRAIN_BLOCK + v] = kvi_expected(rows[v * stride + c] * unit);
	}
}
