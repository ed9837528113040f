/* SPDX-License-Identifier: BSD-3-Clause */
/* model_geometry.c - the caches that engines make of a model */
#include "weights/model_geometry.h"

static void set_tensors(const struct kvi_model_file *file, unsigned dtype, const uint32_t ropes[2],
                        kvarc_tensor *tensor)
{
	for (uint32_t l = 0; l < file->n_layers; l++, tensor += 2) {
		uint32_t rope = file->n_ropes ? ropes[file->layers[l].rope] : 0;
		tensor[0] = (kvarc_tensor){ .layer = l,
			                    .kind = KVARC_KEY,
			                    .dtype = (uint8_t)dtype,
			                    .heads = file->kv_heads,
			                    .channels = file->head_channels,
			                    .flags = rope ? KVARC_TENSOR_POST_ROPE : 0,
			                    .rope = rope };
		tensor[1] = tensor[0];
		tensor[1].kind = KVARC_VALUE;
		tensor[1].flags = 0;
		tensor[1].rope = 0;
	}
}

kvarc_ret kvi_model_geometry_make(struct kvi_model_geometry *geometry,
                                  const struct kvi_alloc *alloc, const struct kvi_model_file *file,
                                  unsigned dtype, uint8_t pairing)
{
	uint32_t at[2] = { 0 };
	*geometry = (struct kvi_model_geometry){ .track = { .kind = KVARC_TRACK_SELF } };
	geometry->geometry = (kvarc_geometry){ .ropes = geometry->ropes,
		                               .n_tracks = 1,
		                               .tracks = &geometry->track };
	for (unsigned i = 0; i < file->n_ropes; i++) {
		if (!file->ropes[i].rotary)
			continue;
		geometry->ropes[geometry->geometry.n_ropes++] =
			(kvarc_rope){ .pairing = pairing,
			              .rotary = file->ropes[i].rotary,
			              .freq = file->ropes[i].freq };
		at[i] = (uint32_t)geometry->geometry.n_ropes;
	}
	kvarc_tensor *tensors = kvi_calloc(alloc, file->n_layers, 2 * sizeof *tensors);
	if (!tensors)
		return kvi_alloc_error(alloc);
	set_tensors(file, dtype, at, tensors);
	geometry->geometry.n_tensors = 2 * (size_t)file->n_layers;
	geometry->geometry.tensors = tensors;
	return KVARC_OK;
}

void kvi_model_geometry_free(struct kvi_model_geometry *geometry, const struct kvi_alloc *alloc)
{
	kvi_free(alloc, (kvarc_tensor *)(uintptr_t)geometry->geometry.tensors);
	geometry->geometry.tensors = NULL;
}

uint64_t kvi_model_positions(const struct kvi_model_file *file)
{
	return file->positions.data ? file->positions.rows : INT32_MAX;
}
