/* SPDX-License-Identifier: BSD-3-Clause */
/* chunk_plan.h - the host's part: what kernels are given about PARAMS frames and chunks */
#ifndef KVI_GPU_CHUNK_PLAN_H
#define KVI_GPU_CHUNK_PLAN_H

#include <stdbool.h>
#include <stddef.h>

#include "codecs/codec.h"
#include "encode_job.h"

/* Bytes of memory for the arrays of parameters; rope: of the tensor, NULL: none. */
size_t kvi_gpu_params_bytes(const struct kvi_params *p, const kvarc_rope *rope);
/*
 * Fills *out and `memory` (kvi_gpu_params_bytes, aligned), which kernels find at `address`. The
 * parameters are of codec 5.
 */
void kvi_gpu_params_fill(struct kvi_gpu_params *out, const struct kvi_params *p,
                         const kvarc_rope *rope, uint8_t *memory, uint64_t address);

/* Bytes of memory for the tables of all chunks. */
size_t kvi_gpu_tables_bytes(void);
/* Fills *out and `memory` (kvi_gpu_tables_bytes, aligned), which kernels find at `address`. */
void kvi_gpu_tables_fill(struct kvi_gpu_tables *out, uint8_t *memory, uint64_t address);

/* How often a chunk that kernels have needs a slot of work memory. */
enum kvi_gpu_need {
	KVI_GPU_NEVER,
	KVI_GPU_RARELY, /* with a mask, and in short streams */
	KVI_GPU_ALWAYS
};
/* The need of a chunk, by its codec and shape. */
enum kvi_gpu_need kvi_gpu_work_need(const struct kvi_gpu_chunk *chunk);
/* Shared memory of a block that decodes a chunk, or encodes it. */
uint32_t kvi_gpu_shared_bytes(const struct kvi_gpu_chunk *chunk, bool encoded);

/*
 * Fills *out, but for addresses and the view, for all tokens of a chunk: header is that of the
 * chunk, which the caller has compared with its tensor. n: bytes of the payload; 0: it is encoded.
 */
void kvi_gpu_chunk_fill(struct kvi_gpu_chunk *out, const struct kvi_chunk *shape,
                        const struct kvi_chunk_header *header, uint32_t n);
/* Sets the offsets of the parts of a chunk, which was filled, in a slot of work memory; returns the
 * bytes of all. Each part begins at a multiple of 16. */
size_t kvi_gpu_chunk_place(struct kvi_gpu_chunk *chunk, bool encoded);

/* Most bytes of the payload of a chunk that kernels encode, its header included, a multiple of 16:
 * what is larger is not wanted. */
size_t kvi_gpu_encode_bound(const struct kvi_chunk *shape);
/* Bytes of the sums of a chunk whose hash is wanted. */
static inline size_t kvi_gpu_sums_bytes(const struct kvi_chunk *shape)
{
	return (kvi_chunk_bytes(shape) + KVI_GPU_HASH_BLOCK - 1) / KVI_GPU_HASH_BLOCK * 64;
}

#endif
