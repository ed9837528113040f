/* SPDX-License-Identifier: BSD-3-Clause */
/* linear_chunk_plan.h - the host's part: what kernels are given about models, and about chunks that
 * have one */
#ifndef KVI_GPU_LINEAR_CHUNK_PLAN_H
#define KVI_GPU_LINEAR_CHUNK_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "linear_job.h"
#include "profile/profile_io.h"

/* Whether kernels take a model: its size, with heads of whole panels, and that of its token
 * table. */
bool kvi_gpu_model_taken(const struct kvi_model *m);
/* Bytes of memory for the arrays of a model. */
size_t kvi_gpu_model_bytes(const struct kvi_model *m);
/* Fills *out and `memory` (kvi_gpu_model_bytes, aligned), which kernels find at `address`. */
void kvi_gpu_model_fill(struct kvi_gpu_model *out, const struct kvi_model *m, uint8_t *memory,
                        uint64_t address);
/* Bytes of a matrix of the shape of the model's M, in the order of kvi_gpu_model.basis. */
size_t kvi_gpu_basis_bytes(const struct kvi_model *m);
/* Fills `memory` (kvi_gpu_basis_bytes) with such a matrix, whose rows are like those of M. */
void kvi_gpu_basis_fill(const struct kvi_model *m, const int16_t *rows, uint8_t *memory);
/* Adds a number to all addresses that are not 0. */
void kvi_gpu_model_move(struct kvi_gpu_model *m, uint64_t by);

/* What of a chunk's features is made, and how large it is. */
struct kvi_gpu_linear_shape {
	const struct kvi_model *model;
	uint32_t tokens;
	bool coded;        /* of codec linear or model */
	bool transforms;   /* of codec klt */
	bool z;            /* other layers need z */
	uint32_t features; /* KVI_GPU_FEATURES_* */
};
/* Bytes of memory: while the chunk's layer is decoded, and as long as other layers need it. */
struct kvi_gpu_linear_bytes {
	size_t work, kept;
};
/* Sets the addresses of work and kept memory, and `features`, in *out; of `expects` those of work
 * memory alone, the others are the caller's. work and kept are aligned.
 * out NULL: the size alone is wanted. Returns how much memory that is. */
struct kvi_gpu_linear_bytes kvi_gpu_linear_place(struct kvi_gpu_linear *out,
                                                 const struct kvi_gpu_linear_shape *s,
                                                 uint64_t work, uint64_t kept);
/* Adds `constants` to the addresses of the model, ids and frequencies, and `work` to all others,
 * those of the engine's memory, too, but to those that are 0. */
void kvi_gpu_linear_move(struct kvi_gpu_linear *l, uint64_t constants, uint64_t work);

/* A source, with features of `from`, which is placed. */
struct kvi_gpu_source kvi_gpu_source_of(const struct kvi_source *s,
                                        const struct kvi_gpu_linear *from);
/* N of a tensor whose chunk is done (spec linear 4). */
uint32_t kvi_gpu_scale_n(const struct kvi_model *m);

#endif
