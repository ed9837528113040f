/* SPDX-License-Identifier: BSD-3-Clause */
/* eval_rows.c - elements of a cache as the rows of numbers that attention looks at */
#include "teacher_forced.h"
#include "util/fpmode.h"
#include "format/geometry_check.h"
#include "numeric/formats.h"
#include "numeric/rotate.h"
#include "util/view.h"

static struct kvi_view_block block_of(const struct kvi_teacher_forced_rows *r)
{
	return (struct kvi_view_block){ .row = r->t0,
		                        .n = (uint32_t)r->n,
		                        .c0 = 0,
		                        .nc = kvi_tensor_width(r->tensor),
		                        .elem = (uint32_t)kvarc_dtype_bytes(r->tensor->dtype) };
}

/* Elements of all heads to rows, or rows to elements. */
static void convert(const struct kvi_teacher_forced_rows *r, float *x, bool store)
{
	const kvarc_tensor *t = r->tensor;
	const kvarc_rope *rope = kvi_tensor_rope(r->geometry, t);
	size_t hd = t->channels, bytes = hd * kvarc_dtype_bytes(t->dtype);
	uint8_t *elements = r->elements;
	float channels[KVI_GROUP_MAX]; /* no head of an engine has more */
	uint64_t mode = kvi_fp_exact();
	for (size_t i = 0; i < r->n * t->heads; i++) {
		for (size_t c = 0; store && c < hd; c++)
			channels[kvi_rope_channel(rope, c)] = x[c];
		if (store)
			kvi_floats_store(t->dtype, channels, hd, elements);
		kvi_floats_exact(t->dtype, elements, hd, channels);
		for (size_t c = 0; c < hd; c++)
			x[c] = channels[kvi_rope_channel(rope, c)];
		x += hd;
		elements += bytes;
	}
	kvi_fp_restore(mode);
}

void kvi_teacher_forced_load(const struct kvi_teacher_forced_rows *r, float *x)
{
	const struct kvi_view_block b = block_of(r);
	kvi_view_gather(r->view, &b, r->elements);
	convert(r, x, false);
}

void kvi_teacher_forced_store(const struct kvi_teacher_forced_rows *r, float *x)
{
	const struct kvi_view_block b = block_of(r);
	convert(r, x, true);
	if (r->view)
		kvi_view_scatter(r->view, &b, r->elements);
}
