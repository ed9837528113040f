/* SPDX-License-Identifier: BSD-3-Clause */
/* prediction_elements.c - predicted elements, bit for bit (spec predicted 1) */
#include <string.h>

#include "numeric/formats.h"
#include "prediction_state.h"

/* A model's keys from slots into the order of channels. */
static const float *in_channels(struct kvi_prediction *session, const kvarc_tensor *tensor,
                                const float *x)
{
	const struct kvi_model *m = session->layers[session->layer].model[KEY];
	const kvarc_rope *rope = kvi_tensor_rope(session->o.geometry, tensor);
	for (size_t c = 0; c < tensor->channels; c++) {
		size_t to = kvi_slot_channel(m, rope, c);
		for (size_t i = 0; i < session->C; i += tensor->channels)
			session->channels[i + to] = x[i + c];
	}
	return session->channels;
}

static void of_token(struct kvi_prediction *session, const kvarc_tensor *tensor, size_t token,
                     uint8_t *to)
{
	const float *x = session->p.v + token * session->p.stride;
	if (tensor->kind == KVARC_KEY)
		x = session->ops->keys(session->run, &session->p, token, session->turned);
	if (tensor->kind == KVARC_KEY && session->file)
		x = in_channels(session, tensor, x);
	kvi_floats_store(tensor->dtype, x, session->C, to);
}

void kvi_prediction_elements(struct kvi_prediction *session, const kvarc_tensor *tensor,
                             uint8_t *to)
{
	size_t row = session->C * kvarc_dtype_bytes(tensor->dtype);
	for (size_t i = 0; i < session->n; i++)
		of_token(session, tensor, i, to + i * row);
}

bool kvi_prediction_is_exact(struct kvi_prediction *session, const kvarc_tensor *tensor,
                             const uint8_t *raw)
{
	size_t row = session->C * kvarc_dtype_bytes(tensor->dtype);
	for (size_t i = 0; i < session->n; i++) {
		of_token(session, tensor, i, session->elements);
		if (memcmp(session->elements, raw + i * row, row))
			return false;
	}
	return kvi_floats_finite(tensor->dtype, raw, session->n * session->C);
}
