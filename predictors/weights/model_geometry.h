/* SPDX-License-Identifier: BSD-3-Clause */
/* model_geometry.h - the caches that engines make of a model */
#ifndef KVI_MODEL_GEOMETRY_H
#define KVI_MODEL_GEOMETRY_H

#include "weights/model_file.h"

/* A geometry of one track with the key and the value of each layer, in this order. The struct
 * points into itself. */
struct kvi_model_geometry {
	kvarc_geometry geometry;
	kvarc_track track;
	kvarc_rope ropes[2]; /* frequencies are the model's */
};
/* Makes the geometry of a model's caches; pairing: KVARC_ROPE_*, of keys with RoPE. Returns OK,
 * MEM, MEMLIMIT. */
kvarc_ret kvi_model_geometry_make(struct kvi_model_geometry *geometry,
                                  const struct kvi_alloc *alloc, const struct kvi_model_file *file,
                                  unsigned dtype, uint8_t pairing);
/* Frees what kvi_model_geometry_make allocated. */
void kvi_model_geometry_free(struct kvi_model_geometry *geometry, const struct kvi_alloc *alloc);

/* The number of positions that the model has at least. */
uint64_t kvi_model_positions(const struct kvi_model_file *file);

#endif
