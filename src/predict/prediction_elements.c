/* SPDX-License-Identifier: BSD-3-Clause */
/* prediction_elements.c - predicted elements, bit for bit (spec predicted 1) */
#include <string.h>

#include "numeric/formats.h"
#include "prediction_state.h"

/* A model's keys from slots into the order of channels. */
static const float *in_channels(struct kvi_prediction *g, const kvarc_tensor *t, const float *x)
{
	const struct kvi_model *m = g->layers[g->layer].model[KEY];
	const kvarc_rope *rope = kvi_tensor_rope(g->o.geometry, t);
	for (size_t c = 0; c < t->channels; c++) {
		size_t to = kvi_slot_channel(m, rope, c);
		for (size_t i = 0; i < g->C; i += t->channels)
			g->channels[i + to] = x[i + c];
	}
	return g->channels;
}

static void of_token(struct kvi_prediction *g, const kvarc_tensor *t, size_t token, uint8_t *to)
{
	const float *x = g->p.v + token * g->p.stride;
	if (t->kind == KVARC_KEY)
		x = g->ops->keys(g->run, &g->p, token, g->turned);
	if (t->kind == KVARC_KEY && g->file)
		x = in_channels(g, t, x);
	kvi_floats_store(t->dtype, x, g->C, to);
}

void kvi_prediction_elements(struct kvi_prediction *g, const kvarc_tensor *t, uint8_t *to)
{
	size_t row = g->C * kvarc_dtype_bytes(t->dtype);
	for (size_t i = 0; i < g->n; i++)
		of_token(g, t, i, to + i * row);
}

bool kvi_prediction_is_exact(struct kvi_prediction *g, const kvarc_tensor *t, const uint8_t *raw)
{
	size_t row = g->C * kvarc_dtype_bytes(t->dtype);
	for (size_t i = 0; i < g->n; i++) {
		of_token(g, t, i, g->elements);
		if (memcmp(g->elements, raw + i * row, row))
			return false;
	}
	return kvi_floats_finite(t->dtype, raw, g->n * g->C);
}
