/* SPDX-License-Identifier: BSD-3-Clause */
/* model_geometry.c - the caches that engines make of a model */
#include "weights/model_geometry.h"

static void set_tensors(const struct kvi_model_file *m, unsigned dtype, const uint32_t ropes[2],
                        kvarc_tensor *x)
{
	for (uint32_t l = 0; l < m->n_layers; l++, x += 2) {
		uint32_t rope = m->n_ropes ? ropes[m->layers[l].rope] : 0;
		x[0] = (kvarc_tensor){ .layer = l,
			               .kind = KVARC_KEY,
			               .dtype = (uint8_t)dtype,
			               .heads = m->kv_heads,
			               .channels = m->head_channels,
			               .flags = rope ? KVARC_TENSOR_POST_ROPE : 0,
			               .rope = rope };
		x[1] = x[0];
		x[1].kind = KVARC_VALUE;
		x[1].flags = 0;
		x[1].rope = 0;
	}
}

kvarc_ret kvi_model_geometry_make(struct kvi_model_geometry *g, const struct kvi_alloc *alloc,
                                  const struct kvi_model_file *m, unsigned dtype, uint8_t pairing)
{
	uint32_t at[2] = { 0 };
	*g = (struct kvi_model_geometry){ .track = { .kind = KVARC_TRACK_SELF } };
	g->geometry = (kvarc_geometry){ .ropes = g->ropes, .n_tracks = 1, .tracks = &g->track };
	for (unsigned i = 0; i < m->n_ropes; i++) {
		if (!m->ropes[i].rotary)
			continue;
		g->ropes[g->geometry.n_ropes++] = (kvarc_rope){ .pairing = pairing,
			                                        .rotary = m->ropes[i].rotary,
			                                        .freq = m->ropes[i].freq };
		at[i] = (uint32_t)g->geometry.n_ropes;
	}
	kvarc_tensor *tensors = kvi_calloc(alloc, m->n_layers, 2 * sizeof *tensors);
	if (!tensors)
		return kvi_alloc_error(alloc);
	set_tensors(m, dtype, at, tensors);
	g->geometry.n_tensors = 2 * (size_t)m->n_layers;
	g->geometry.tensors = tensors;
	return KVARC_OK;
}

void kvi_model_geometry_free(struct kvi_model_geometry *g, const struct kvi_alloc *alloc)
{
	kvi_free(alloc, (kvarc_tensor *)(uintptr_t)g->geometry.tensors);
	g->geometry.tensors = NULL;
}

uint64_t kvi_model_positions(const struct kvi_model_file *m)
{
	return m->positions.data ? m->positions.rows : INT32_MAX;
}
