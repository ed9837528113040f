/* SPDX-License-Identifier: BSD-3-Clause */
/* head.h - the LM head: logits of the next token, and weights of tokens (spec/arithmetic.md 11) */
#ifndef KVI_HEAD_H
#define KVI_HEAD_H

#include "exact/engine.h"
#include "util/shared.h"

/* Whether a model has a head. Returns OK, OPTIONS (its file lacks the output matrix or norm),
 * DATA. */
KVI_SHARED kvarc_ret kvi_engine_check_head(const struct kvi_model_file *file, kvarc_error *error);
/*
 * Makes the head of an engine, which no other thread may use meanwhile. Engines for caches need
 * none. Returns OK, MEM, MEMLIMIT, and as kvi_engine_check_head; after a failure the engine is good
 * for closing only.
 */
KVI_SHARED kvarc_ret kvi_engine_add_head(struct kvi_engine *engine, struct kvi_pool *pool,
                                         kvarc_error *error);
/*
 * An engine with a head that shares the layers of another one, which has none, does not change and
 * must be closed later. On failure *e is NULL. Returns as kvi_engine_add_head.
 */
kvarc_ret kvi_engine_with_head(struct kvi_engine **e, const struct kvi_engine *base,
                               struct kvi_pool *pool, kvarc_error *error);
/* Digest of the weights and the head, once the head is made. */
struct kvi_h128 kvi_engine_head_digest(const struct kvi_engine *engine);

/* Most tokens whose logits are computed at once. */
enum { KVI_HEAD_TOKENS = 16 };

/* Buffers for the logits of KVI_HEAD_TOKENS tokens; used by one thread at a time. */
struct kvi_head;
/* Allocates the buffers. Of options it uses engine, which has an LM head and outlives it, alloc,
 * pool, isa_mask and kernels. On failure *head is NULL. Returns OK, MEM, MEMLIMIT. */
KVI_SHARED kvarc_ret kvi_head_open(struct kvi_head **head, const struct kvi_run_options *options);
KVI_SHARED void kvi_head_close(struct kvi_head **head); /* NULL-safe */

/* Logits of 1 to KVI_HEAD_TOKENS tokens from their hidden states after the last layer. Owned by
 * the head, until the next call. */
struct kvi_logits {
	const float *z; /* logits, one a token of the vocabulary */
	size_t stride;  /* floats from token to token */
};
/* The logits after n hidden states, at most KVI_HEAD_TOKENS; stride in floats. */
KVI_SHARED struct kvi_logits kvi_head_logits(struct kvi_head *head, const float *h, size_t stride,
                                             size_t n);

/* The weights of n > 0 logits for picks and candidates: rint(exp(z - max z) * 2^20), 0 where z is
 * 15 or more below the largest, or not a number (spec/arithmetic.md 11). Returns their sum. */
uint64_t kvi_head_pick_weights(const float *z, size_t n, uint32_t *w);
/* The index of the token that random, 64 uniform bits, picks by kvi_head_pick_weights. n > 0. */
KVI_SHARED size_t kvi_head_pick(const float *z, size_t n, uint64_t random);

/* Most logits of kvi_head_coder_weights. */
enum { KVI_HEAD_VOCAB_MAX = 1 << 20 };
/* The weights of n logits, 1 to KVI_HEAD_VOCAB_MAX, for the token coder: 1 + floor(exp(z - max z) *
 * 2^24), and 1 where that is not a number (spec tokens 2). Workers of pool share the work. The
 * caller has set exact arithmetic (util/fpmode.h). Returns the sum. */
uint64_t kvi_head_coder_weights(struct kvi_pool *pool, const float *z, size_t n, uint32_t *weights);

#endif
