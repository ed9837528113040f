/* SPDX-License-Identifier: BSD-3-Clause */
/* engine_internal.h - what an engine is made of */
#ifndef KVI_ENGINE_INTERNAL_H
#define KVI_ENGINE_INTERNAL_H

#include "exact/elementwise.h"
#include "exact/engine.h"
#include "util/parallel.h"

/* Tokens of a block of the key and value cache, and most tokens of a segment. */
enum { KVI_BLOCK = 256, KVI_RUN_TOKENS = 256 };

/* The operands and vectors of a layer. */
struct kvi_engine_layer {
	struct kvi_operand q, k, v, o, gate, up, down; /* rows 0: none */
	/* Vectors of the layer; NULL: none. Biases and norms of queries and keys are in slots. */
	float *norm, *norm_bias, *q_bias, *k_bias, *v_bias, *o_bias;
	float *q_norm, *k_norm, *after_attention, *ffn_norm, *ffn_norm_bias;
	float *up_bias, *down_bias, *after_ffn;
	uint32_t window;
	const struct kvi_model_rope *rope;
};

/* An engine; nothing of it changes after it was made, but the LM head, which is made once. */
struct kvi_engine {
	const struct kvi_alloc *alloc;
	const struct kvi_model_file *file;
	struct kvi_arithmetic arithmetic;
	struct kvi_h128 digest;
	struct kvi_engine_layer *layers;
	struct kvi_operand output; /* the head: rows 0: not made */
	float *output_norm, *output_norm_bias;
	struct kvi_h128 head_digest;
	void *memory; /* list of all parts that are not in `cached` */
	const struct kvi_engine
		*base; /* owns the layers of this engine, and `cached`; NULL: none */
	const uint8_t
		*cached; /* mapped converted weights, which kvi_engine_close unmaps, or NULL */
	size_t cached_bytes;
};

/* Checks that the engine computes the model as it is meant. Returns OK, OPTIONS, DATA. */
kvarc_ret kvi_engine_check(const struct kvi_model_file *file, kvarc_error *error);

/* An engine whose layers have no parts yet: kvi_engine_convert gives it parts and digest, or
 * the weight cache does. Returns OK, MEM, MEMLIMIT, OPTIONS, DATA; on failure *e is NULL. */
kvarc_ret kvi_engine_begin(struct kvi_engine **e, const struct kvi_engine_options *options);
/* Makes parts and digest from the files of the model. Returns OK, MEM, MEMLIMIT, DATA, IO; on
 * failure *engine is closed. */
kvarc_ret kvi_engine_convert(struct kvi_engine **engine, const struct kvi_engine_options *options);

/* Computes a product for all blocks of its w, on all workers of a pool. */
void kvi_product_all(const struct kvi_exact_kernels *kernels, struct kvi_pool *pool,
                     const struct kvi_product *product);

/* Whether products of a kind take 15-bit activations. */
static inline bool kvi_wide(const struct kvi_arithmetic *arithmetic, enum kvi_matrix_kind kind)
{
	return kind == KVI_MATRIX_HEAD || (arithmetic->wide_activations >> kind & 1);
}

/* Planes of the weights of a kind. */
static inline unsigned kvi_planes(const struct kvi_arithmetic *arithmetic,
                                  enum kvi_matrix_kind kind)
{
	return kind == KVI_MATRIX_HEAD || (arithmetic->wide_weights >> kind & 1) ? 2 : 1;
}

/* Whether products of attention of a kind have 12 bits (spec/codecs/model.md 1): of queries by
 * keys both operands, of probabilities by values the first one. */
static inline bool kvi_twelve(const struct kvi_arithmetic *arithmetic, enum kvi_matrix_kind kind)
{
	return (kind == KVI_MATRIX_KEYS ? arithmetic->wide_weights : arithmetic->wide_activations) &
	       KVI_ATTENTION_12;
}

/* Keys and values of a layer as operands: for each block of 256 tokens one memory with,
 * for each head of keys, both operands and the scales of the values. */
struct kvi_cache_head {
	struct kvi_operand k, v;
	float *v_scale;
};
/* Keys and values of up to KVI_BLOCK tokens. */
struct kvi_cache_block {
	struct kvi_cache_head *heads; /* heads, then their operands and scales, in one memory */
};
/* The keys and values of a layer as attention reads them. */
struct kvi_cache {
	const struct kvi_model_file *model;
	const struct kvi_arithmetic *arithmetic;
	const struct kvi_exact_kernels *kernels; /* kernels that quantise added rows */
	struct kvi_cache_block *blocks;
	size_t n, capacity;
};

/* Stores n tokens from token `before` on; up to `before` there are no gaps. Returns OK, MEM,
 * MEMLIMIT. */
kvarc_ret kvi_cache_add(struct kvi_cache *cache, const struct kvi_alloc *alloc, size_t before,
                        size_t n, const float *k, const float *v, size_t stride);
/* Frees all blocks; the cache is empty afterwards. */
void kvi_cache_free(struct kvi_cache *cache, const struct kvi_alloc *alloc);

/* Attention of some tokens of a segment with one head of keys. */
struct kvi_attention {
	const struct kvi_exact_kernels *kernels;
	const struct kvi_elementwise *elementwise;
	const struct kvi_cache *cache;
	size_t kv_head, queries_per_head, channels;
	size_t first, n; /* tokens, counted in the track */
	uint32_t window;
	float scale;
	const float *q; /* query of token `first`, the first of these heads */
	float *o;
	size_t stride; /* floats of q and o from token to token */
};
/* Most tokens of one kvi_attention_run. */
size_t kvi_attention_tokens(size_t queries_per_head);
/* Bytes of the memory that kvi_attention_run needs. */
size_t kvi_attention_bytes(size_t queries_per_head, size_t channels);
/* Computes the attention; memory: kvi_attention_bytes, 64-aligned. */
void kvi_attention_run(const struct kvi_attention *attention, void *memory);

#endif
