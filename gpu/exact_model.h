/* SPDX-License-Identifier: BSD-3-Clause */
/* exact_model.h - the host's part: a model of the exact engine in device memory */
#ifndef KVI_GPU_EXACT_MODEL_H
#define KVI_GPU_EXACT_MODEL_H

#include "exact_plan.h"

/* A layer: addresses, 0 where it has no such part; operands without outputs are none. */
struct kvi_gpu_exact_layer {
	struct kvi_gpu_weights q, k, v, o, gate, up, down;
	uint64_t norm, norm_bias, q_bias, k_bias, v_bias, o_bias;
	uint64_t q_norm, k_norm, after_attention, ffn_norm, ffn_norm_bias;
	uint64_t up_bias, down_bias, after_ffn;
	uint32_t window;
	uint32_t rope; /* its number among those of the model; n_ropes: none */
};

/* A model; layers are the caller's. */
struct kvi_gpu_exact_model {
	struct kvi_arithmetic arithmetic;
	uint32_t n_layers, width, heads, kv_heads, channels, ffn;
	uint32_t vocabulary, position_rows; /* of the tables; 0: no positions */
	uint32_t n_ropes, pairs[2];
	float epsilon, attention_scale, embedding_scale;
	uint32_t activation;               /* KVI_GPU_SILU or KVI_GPU_GELU */
	uint32_t most_stride, most_groups; /* of the operands of its layers */
	uint64_t embedding, positions;     /* tables of fp32 */
	struct kvi_gpu_exact_layer *layers;
};

/*
 * What an engine is, without addresses and layers. False: kernels do not take it: its arithmetic,
 * forms of its operands, or an array of 2^32 bytes.
 */
bool kvi_gpu_exact_model_of(struct kvi_gpu_exact_model *m, const struct kvi_engine *e);
/* Bytes of memory for layer l of an engine that kernels take. */
uint64_t kvi_gpu_exact_layer_bytes(const struct kvi_engine *e, size_t l);
/* Fills *out and `memory` (kvi_gpu_exact_layer_bytes, aligned to 16), which kernels find at
 * `address`. */
void kvi_gpu_exact_layer_fill(struct kvi_gpu_exact_layer *out, const struct kvi_engine *e, size_t l,
                              uint8_t *memory, uint64_t address);

#endif
