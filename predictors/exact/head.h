/* SPDX-License-Identifier: BSD-3-Clause */
/* head.h - what a model says of the next token (spec/arithmetic.md 11) */
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

/* Memory to use a head with. */
struct kvi_head;
/* Opens the memory to use a head with; options->engine has a head; whole and round_to do not
 * matter. Returns OK, MEM, MEMLIMIT. */
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

/* Computes the weights of n > 0 logits, up to 2^20 each (spec/arithmetic.md 11); returns their
 * sum. */
uint64_t kvi_head_weights(const float *z, size_t n, uint32_t *w);
/* The token that a random number picks out of the distribution of n > 0 logits. */
KVI_SHARED size_t kvi_head_pick(const float *z, size_t n, uint64_t random);

/* The distribution of n > 0 logits as weights for a coder, all above 0 (spec tokens 2). Returns
 * their sum. */
enum { KVI_HEAD_VOCAB_MAX = 1 << 20 };
/* kvi_head_weights on the workers of a pool. */
uint64_t kvi_head_weigh(struct kvi_pool *pool, const float *z, size_t n, uint32_t *weights);

#endif
